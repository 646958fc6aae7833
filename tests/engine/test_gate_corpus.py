"""The corpus of hostile requests, sent to a real engine through the gate: none breaks it, and none crosses a border."""

from __future__ import annotations

import pytest

from tests.engine.endpoints import CHAT
from tests.engine.gate import ALICE, BOB, GateClient, fresh_prompt
from tests.parts.hostile import ANSWERS, KINDS
from tests.parts.hostile.sending import send

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("kind", KINDS)
async def test_no_hostile_request_breaks_the_engine_or_crosses_a_border(gate: GateClient, kind: str) -> None:
    prompt = fresh_prompt()
    assert not await gate.shares(ALICE, CHAT, prompt)
    for name, case in KINDS[kind].items():
        statuses = await send(gate.bed.port, gate.headers(ALICE), case, answers=ANSWERS.get(name, 1))
        # The engine's own 500 would be a 502 of the gate: it took no hostile request for one that it cannot stand.
        assert not {500, 502} & set(statuses), name
    await gate.until_running(0)
    await gate.bed.until_ready()  # an engine that was busy for long is looked at anew
    assert await gate.shares(ALICE, CHAT, prompt)
    assert not await gate.shares(BOB, CHAT, prompt)
