"""The scene: what counts as a first token, how trials become medians, and how a request that goes wrong is told."""

from __future__ import annotations

import json
from collections.abc import Sequence

import aiohttp
import pytest

from proxy.demo.cast import CAST
from proxy.demo.scene import LENGTHS, LINES, Row, SceneFailed, play
from proxy.demo.simulator import AT_ONCE, EngineShape, Fault, FaultKind, Simulator
from tests.parts.raw_engine import LAST_CHUNK, STREAM_HEAD, RawEngine, Send, Sleep, Step, chunk, json_answer

TOKENS = {role.username: f"token of {role.username}" for role in CAST}
USAGE: dict[str, object] = {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 64}}


async def played(url: str, *, trials: int = 1) -> list[Row]:
    async with aiohttp.ClientSession() as session:
        return [row async for row in play(session, url, TOKENS, model="tiny", trials=trials)]


def event(document: object) -> Send:
    return Send(chunk(b"data: " + json.dumps(document).encode() + b"\n\n"))


def delta(**members: object) -> Send:
    return event({"choices": [{"index": 0, "delta": members}]})


def streamed(*steps: Step, usage: object = USAGE) -> Sequence[Step]:
    return (Send(STREAM_HEAD), *steps, event({"choices": [], "usage": usage}), Send(LAST_CHUNK))


async def test_four_hands_send_each_text_under_their_own_token_and_scope() -> None:
    async with Simulator(EngineShape(pace=AT_ONCE)) as engine:
        rows = await played(engine.url)
        received = list(engine.requests)
    assert [(row.prompt, row.who) for row in rows] == [(name, line.caption) for name, _ in LENGTHS for line in LINES]
    for request, line in zip(received, LINES * 2, strict=True):
        assert request.header("Authorization") == [f"Bearer token of {line.role.username}".encode()]
        assert request.header("OpenAI-Organization") == [line.role.workspace.encode()]
        assert request.header("OpenAI-Project") == [line.role.project.encode()]
    texts = [json.loads(request.body)["messages"][0]["content"] for request in received]
    assert len(set(texts[:4])) == len(set(texts[4:])) == 1
    assert texts[0] != texts[4]


async def test_without_a_gate_the_stranger_reuses_too_so_the_table_shows_a_border_that_is_missing() -> None:
    async with Simulator(EngineShape(pace=AT_ONCE)) as engine:
        rows = await played(engine.url)
    stranger = rows[2]
    assert stranger.reused is not None
    assert stranger.reused > 0.9 * stranger.prompt_tokens


@pytest.mark.slow
@pytest.mark.parametrize("member", ["content", "reasoning", "reasoning_content"])
async def test_the_first_token_is_the_first_that_is_said_or_thought_not_the_role(member: str) -> None:
    script = streamed(delta(role="assistant", content=""), Sleep(0.2), delta(**{member: "Hm"}), Sleep(0.5))
    async with RawEngine(script) as engine, aiohttp.ClientSession() as session:
        rows = play(session, engine.url, TOKENS, model="tiny", trials=1)
        row = await anext(rows)
        await rows.aclose()
    assert row.seconds >= 0.2
    assert (row.prompt_tokens, row.reused) == (100, 64)


async def test_several_trials_give_medians_each_with_a_text_of_its_own() -> None:
    def reusing(tokens: int) -> Sequence[Step]:
        return streamed(delta(content="a"), usage=USAGE | {"prompt_tokens_details": {"cached_tokens": tokens}})

    scripts = [reusing(trial * 10 + line) for trial in (1, 9, 2) for line in range(len(LINES))]
    async with RawEngine(*scripts, reusing(0)) as engine:
        rows = await played(engine.url, trials=3)
        texts = {json.loads(request.body)["messages"][0]["content"] for request in engine.requests}
    assert [row.reused for row in rows[:4]] == [20, 21, 22, 23]
    assert len(rows) == len(LENGTHS) * len(LINES)
    assert len(texts) == len(LENGTHS) * 3


@pytest.mark.parametrize("details", [{}, {"prompt_tokens_details": None}, {"prompt_tokens_details": {}}])
async def test_an_engine_that_does_not_tell_what_it_reused_is_not_taken_for_one_that_reused_nothing(
    details: dict[str, object],
) -> None:
    async with RawEngine(streamed(delta(content="a"), usage={"prompt_tokens": 5} | details)) as engine:
        rows = await played(engine.url)
    assert {row.reused for row in rows} == {None}


async def test_a_text_that_the_model_has_no_room_for_is_left_out_and_the_first_is_told() -> None:
    refused = [Send(json_answer(b'{"error":{"message":"maximum context length"}}', "400 Bad Request"))]
    answers = [streamed(delta(content="a"))] * len(LINES)
    async with RawEngine(*answers, refused) as engine:
        rows = await played(engine.url)
    assert {row.prompt for row in rows} == {LENGTHS[0][0]}
    async with RawEngine(refused) as engine:
        with pytest.raises(SceneFailed, match=r"status 400, .*maximum context length"):
            await played(engine.url)


@pytest.mark.parametrize(
    "kind", [FaultKind.DIE_BEFORE_HEAD, FaultKind.DIE_MID_STREAM, FaultKind.CUT_MID_STREAM, FaultKind.ERROR_MID_STREAM]
)
async def test_a_request_that_goes_wrong_is_told_with_who_sent_it(kind: FaultKind) -> None:
    async with Simulator(EngineShape(pace=AT_ONCE)) as engine:
        engine.faults.add(Fault(kind, times=2, tokens=1))
        with pytest.raises(SceneFailed, match=r"^Alice"):
            await played(engine.url)


async def test_an_answer_without_a_token_is_told() -> None:
    async with RawEngine(streamed(delta(role="assistant", content=""))) as engine:
        with pytest.raises(SceneFailed, match="without a token"):
            await played(engine.url)
