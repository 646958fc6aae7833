"""The real vLLM's own span in one trace with the gate's, as its own code makes and sends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from config.secret import Secret
from config.settings import ScopeTraces, Telemetry
from tests.engine.client import Vllm
from tests.engine.endpoints import CHAT
from tests.engine.gate import ALICE, BOB, Caller, GateClient, fresh_prompt, gate_before
from tests.engine.server import BARRIER_KEY
from tests.parts.otlp_sink import ReceivedSpan, SinkThread
from tests.parts.redis_server import RedisServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

SPAN_SECONDS = 60.0
TRIES = 30
"""What a model of random weights says may be no text at all: then there is no first token."""


@dataclass(frozen=True, slots=True)
class Traced:
    """A gate whose spans go where the engine's go. Of what is asked for `hermes` no trace is kept."""

    gate: GateClient
    sink: SinkThread

    async def spans(self, trace_id: str, count: int) -> list[ReceivedSpan]:
        """Those of the trace, as soon as there are so many. Raises TimeoutError."""
        async with asyncio.timeout(SPAN_SECONDS):
            while len(found := [span for span in self.sink.spans if span.trace_id == trace_id]) < count:
                await asyncio.sleep(0.1)
        return found

    async def ask(self, caller: Caller, *, stream: bool) -> tuple[str, str]:
        """The trace and the request of one answer."""
        answer = await self.gate.post(caller, CHAT.path, CHAT.body(fresh_prompt(), stream=stream) | {"max_tokens": 24})
        assert answer.status == 200, answer.body
        line = await self.gate.until_recorded("request_id", answer.request_id)
        return str(line["trace_id"]), answer.request_id


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def traced(
    barred_vllm: Vllm, spans: SinkThread, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Traced]:
    if pytestconfig.getoption("engine_reuse_barred", None):
        pytest.skip("the engine that is used again sends its spans elsewhere")
    folder = tmp_path_factory.mktemp("traces")
    telemetry = Telemetry(
        otlp_endpoint=spans.url,
        trace_ratio=1.0,
        scopes=(ScopeTraces(workspace="acme", project="hermes", trace_ratio=0.0),),
    )
    with RedisServer(folder) as redis:
        key = Secret(BARRIER_KEY, "test")
        async with gate_before(barred_vllm, redis.settings(), folder, api_key=key, telemetry=telemetry) as client:
            yield Traced(client, spans)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_the_engines_own_span_is_a_child_of_our_call(traced: Traced, stream: bool) -> None:
    trace_id, request_id = await traced.ask(ALICE, stream=stream)
    by_name = {span.name: span for span in await traced.spans(trace_id, 3)}
    engine, call, server = by_name["llm_request"], by_name["chat tiny"], by_name["POST /v1/chat/completions"]
    assert (engine.parent_id, call.parent_id, server.parent_id) == (call.span_id, server.span_id, "")
    assert (engine.resource["service.name"], call.resource["service.name"]) == ("vllm", "saltgate")
    # Ours, so that a line of the engine's log and a line of ours are found together, also where no trace is kept.
    assert request_id in str(engine.attributes["gen_ai.request.id"])
    assert engine.attributes["gen_ai.usage.prompt_tokens"] == call.attributes["gen_ai.usage.input_tokens"]
    assert engine.attributes["gen_ai.usage.completion_tokens"] == call.attributes["gen_ai.usage.output_tokens"]
    assert server.start_ns <= call.start_ns <= engine.start_ns
    assert not [name for name in engine.attributes if "salt" in name]


async def test_our_upstream_time_to_first_token_holds_the_engines_own(traced: Traced) -> None:
    for _ in range(TRIES):
        trace_id, _ = await traced.ask(ALICE, stream=True)
        by_name = {span.name: span for span in await traced.spans(trace_id, 3)}
        engine = by_name["llm_request"].attributes["gen_ai.latency.time_to_first_token"]
        ours = by_name["chat tiny"].attributes.get("saltgate.upstream_time_to_first_token")
        if ours is not None:
            break
    else:
        pytest.fail("the engine never said anything")
    assert isinstance(engine, float)
    assert isinstance(ours, float)
    assert 0 < engine <= ours


async def test_where_no_trace_is_kept_the_engine_makes_no_span_either(traced: Traced) -> None:
    quiet, _ = await traced.ask(BOB, stream=True)
    loud, _ = await traced.ask(ALICE, stream=True)
    await traced.spans(loud, 3)  # the engine has sent what came before it
    assert await traced.spans(quiet, 0) == []
