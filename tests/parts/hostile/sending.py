"""Sending a case of the corpus as it is, and looking at what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from tests.parts.gone_client import GoneClient


async def send(
    port: int, credentials: Mapping[str, str], case: bytes, *, answers: int = 1, seconds: float = 0.5
) -> list[int]:
    """Send it, and read so many answers, until the gate closes or waits for more, at most `seconds` for each.

    Gives the statuses.
    """
    lines = "\r\n".join(f"{name}: {value}" for name, value in credentials.items())
    statuses: list[int] = []
    async with GoneClient(port) as client:
        with suppress(ConnectionError):  # a refusal may come, and the end, before all was sent
            await client.send(case.replace(b"@credentials@", lines.encode()))
        for _ in range(answers):
            try:
                statuses.append((await client.read_answer(seconds=seconds)).status)
            except (EOFError, ConnectionError, TimeoutError):
                break
    return statuses
