"""What a command asks an engine: which models it serves now."""

from __future__ import annotations

import asyncio
from typing import Final

from proxy.assurance.leash import leash
from proxy.assurance.replica import Replica
from proxy.assurance.watch import told_models
from proxy.relay.question import EngineUnreachable

MODELS_SECONDS: Final = 5.0


async def ask_models(replica: Replica) -> None:
    """Afterwards the replica knows what it serves. Raises EngineUnreachable, also where no answer comes in time."""
    try:
        async with asyncio.timeout(MODELS_SECONDS), leash(replica.pool, _do_nothing) as held:
            replica.models = await told_models(held)
    except TimeoutError as error:
        raise EngineUnreachable(f"it did not list its models within {MODELS_SECONDS:g} s") from error


def _do_nothing() -> None:
    """Nothing is kept of this engine that its end could make untrue."""
