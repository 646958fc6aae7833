"""Which engine may take what: proofs that are demanded, lost and won again, and models that engines tell of."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import pytest
from aiohttp import web

from proxy.assurance.engines import AWAITED_SECONDS, Engines
from proxy.assurance.leash import leash
from proxy.assurance.proof import Prover
from proxy.assurance.replica import Engine, Model, Replica, served_by
from proxy.assurance.verdict import Verdict
from proxy.assurance.watch import Observed, Watch
from proxy.demo.simulator import AT_ONCE, Endpoint, EngineShape, Flaws, Pace, Simulator
from proxy.engines.kinds import PROFILES, VLLM
from proxy.engines.profile import Endpoint as Profile
from proxy.engines.profile import Operation
from proxy.isolation.salt import SaltKey
from proxy.isolation.scope import Scope
from proxy.isolation.sharing import Line
from proxy.isolation.unit import Level
from proxy.refusals import EndpointNotAllowed, EngineUnavailable, ModelNotAllowed, ModelNotFound
from proxy.relay.destination import Destination
from proxy.relay.patience import Patience
from proxy.relay.pool import Pool
from proxy.supervisor.supervisor import READY_SECONDS
from tests.parts.gate_bed import chat, gate_bed
from tests.parts.redis_server import RedisServer
from tests.parts.scraped import page_of
from tests.proxy.assurance.facade import Facade, Silent, pool_of

pytestmark = pytest.mark.slow

KEY = SaltKey("k1", b"0123456789abcdef0123456789abcdef")
SHAPE = EngineShape(pace=AT_ONCE)
PATIENCE = Patience(first_byte=60, idle=60)
LEAKY = EngineShape(pace=AT_ONCE, flaws=Flaws(ignores_salt=frozenset(Endpoint)))
SCOPE = Scope(
    issuer="https://sso.example.com",
    subject="u-alice",
    workspace="acme",
    project="apollo",
    team=None,
    collection=None,
    policy=Level.PROJECT,
    line=Line.DEPLOYMENT,
    model_units={},
    models=None,
    narrower=None,
    show_reuse=True,
)
Proof = Literal["strict", "warn", "off"]


def engine_at(*urls: str, name: str = "main", proof: Proof = "strict", models: frozenset[str] | None = None) -> Engine:
    return Engine(name, proof, models, tuple(Replica(partial(pool_of, url)) for url in urls), PATIENCE)


@asynccontextmanager
async def following(
    *engines: Engine,
    observed: Observed | None = None,
    again_seconds: float = 300.0,
    awaited_seconds: float = AWAITED_SECONDS,
) -> AsyncIterator[Engines]:
    followed = Engines(engines, KEY, observed or Silent(), again_seconds=again_seconds, awaited_seconds=awaited_seconds)
    task = asyncio.create_task(followed.follow())
    try:
        yield followed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        followed.close()
        await asyncio.sleep(0)
    assert task.cancelled(), task


class Written(Silent):
    """What was told, in order: each verdict by its name, and each probe."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def verdict(self, engine: str, replica: str, operation: str, verdict: Verdict) -> None:
        self.events.append(verdict.value)

    def probed(self, engine: str, replica: str, prompt_tokens: int) -> None:
        self.events.append("probe")


async def until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.01)


def verdicts(replica: Replica) -> dict[str, str]:
    return {operation.value: finding.verdict.value for operation, finding in replica.findings.items()}


def is_settled(engine: Engine) -> bool:
    return all(len(replica.findings) == len(VLLM.salted) for replica in engine.replicas)


def destination(
    engines: Engines, model: str, operation: Operation = Operation.CHAT, scope: Scope = SCOPE
) -> Destination:
    return engines.destination(scope, model, engines.endpoint(scope, model, operation))


def pools(engines: Engines, operation: Operation = Operation.CHAT, scope: Scope = SCOPE) -> Sequence[Pool]:
    return destination(engines, "tiny", operation, scope).pools


def refusal(engines: Engines, operation: Operation = Operation.CHAT) -> EngineUnavailable:
    with pytest.raises(EngineUnavailable) as refused:
        pools(engines, operation)
    assert (refused.value.status, refused.value.code) == (503, "engine_unavailable")
    return refused.value


# The proof that is demanded.


async def test_a_sound_engine_may_take_every_endpoint() -> None:
    async with Simulator(SHAPE) as sound, following(engine_at(sound.url)) as engines:
        await until(lambda: engines.ready)
        for endpoint in VLLM.salted:
            assert pools(engines, endpoint.operation)


@pytest.mark.parametrize("proof", ["strict", "warn"])
@pytest.mark.parametrize("failing", VLLM.salted, ids=lambda endpoint: endpoint.operation.value)
async def test_only_the_endpoint_that_fails_is_refused_and_only_under_strict(failing: Profile, proof: Proof) -> None:
    shape = replace(SHAPE, flaws=Flaws(ignores_salt=frozenset({Endpoint(failing.path)})))
    async with Simulator(shape) as flawed, following(engine := engine_at(flawed.url, proof=proof)) as engines:
        await until(lambda: is_settled(engine))
        for other in VLLM.salted:
            if other is failing and proof == "strict":
                assert "does not separate by cache_salt" in refusal(engines, other.operation).message
            else:
                assert pools(engines, other.operation)


async def test_strict_refuses_what_is_not_proven_and_names_the_check(redis: RedisServer, tmp_path: Path) -> None:
    """Through the whole gate, before a byte goes to the engine."""
    flaws = Flaws(ignores_salt=frozenset({Endpoint.CHAT}), hides_cached_tokens=frozenset({Endpoint.COMPLETIONS}))
    async with (
        Simulator(replace(SHAPE, flaws=flaws)) as flawed,
        gate_bed(redis.settings(), [flawed.url], tmp_path) as bed,
    ):
        asked: dict[str, tuple[object, str]] = {
            "/v1/chat/completions": (chat(), "cache_salt"),
            "/v1/completions": ({"model": "tiny", "prompt": "Hello"}, "--enable-prompt-tokens-details"),
        }
        flawed.requests.clear()
        for path, (document, check) in asked.items():
            status, answered, body = await bed.post(path, document)
            error = json.loads(body)["error"]
            assert (status, error["code"]) == (503, "engine_unavailable")
            assert check in error["message"]
            assert answered["Retry-After"].isdigit()
        assert not flawed.requests
        status, _, _ = await bed.post("/v1/responses", {"model": "tiny", "input": "Hello"})
        assert status == 200  # always told on this endpoint
        failures = [line for line in bed.lines() if line.get("verdict") == "failed"]
        assert [(line["level"], line["endpoint"]) for line in failures] == [("error", "/v1/chat/completions")]


async def test_off_never_probes() -> None:
    async with Simulator(LEAKY) as flawed, following(engine_at(flawed.url, proof="off")) as engines:
        await until(lambda: engines.ready)
        await asyncio.sleep(0.1)
        assert pools(engines)
        assert not flawed.requests


async def test_before_the_first_proof_strict_refuses() -> None:
    shape = EngineShape(pace=Pace(prefill_tokens_per_second=100.0))  # a probe takes long
    async with Simulator(shape) as slow, following(engine_at(slow.url)) as engines:
        await slow.wait_for(lambda: len(slow.requests) > 0)
        assert not engines.ready
        assert "not been probed" in refusal(engines).message


# Ready: nobody is let in while it is not known yet what his engine may take.

SLOW = EngineShape(pace=Pace(prefill_tokens_per_second=1000.0))  # a proof takes seconds
STUCK = EngineShape(pace=Pace(prefill_tokens_per_second=0.01))  # a probe takes hours


@pytest.mark.parametrize("other", ["off", "warn", "strict"])
async def test_it_is_not_ready_before_each_engine_is_proven_though_another_may_take_requests(other: Proof) -> None:
    async with Simulator(SLOW) as slow, Simulator(SHAPE) as quick:
        first, second = engine_at(slow.url), engine_at(quick.url, name="second", proof=other)
        async with following(first, second) as engines:
            await until(lambda: second.may_be_used)
            assert not engines.ready
            await until(lambda: engines.ready)
            assert first.may_be_used


@pytest.mark.parametrize("proof", ["off", "strict"])
async def test_an_engine_that_is_away_or_fails_its_proof_holds_no_other_back(proof: Proof) -> None:
    async with Simulator(SHAPE) as sound, Simulator(LEAKY) as flawed:
        async with Simulator(SHAPE) as gone:
            away = engine_at(gone.url, name="away")
        second = engine_at(sound.url, name="second", proof=proof)
        async with following(away, engine_at(flawed.url, name="leaky"), second) as engines:
            await until(lambda: engines.ready)
            assert not away.may_be_used


async def test_an_engine_that_hangs_in_its_proof_holds_no_other_back_for_long() -> None:
    async with Simulator(STUCK) as stuck, Simulator(SHAPE) as sound:
        first, second = engine_at(stuck.url), engine_at(sound.url, name="second")
        async with following(first, second, awaited_seconds=2.0) as engines:
            await until(lambda: second.may_be_used)
            await until(lambda: engines.ready)
            assert not first.tried
            assert not first.may_be_used


async def test_an_engine_that_hangs_in_its_proof_alone_makes_nobody_ready() -> None:
    async with Simulator(STUCK) as stuck:
        engine = engine_at(stuck.url)
        async with following(engine, awaited_seconds=0.0) as engines:
            await until(lambda: engine.replicas[0].reachable)
            await asyncio.sleep(0.05)
            assert not engines.ready


def test_a_reload_waits_longer_for_its_workers_than_they_for_an_engine_that_hangs() -> None:
    assert AWAITED_SECONDS < READY_SECONDS


async def test_where_every_engine_was_tried_and_none_may_be_used_it_is_not_ready() -> None:
    async with Simulator(LEAKY) as flawed, following(engine := engine_at(flawed.url)) as engines:
        await until(lambda: engine.tried)
        assert not engines.ready


async def test_an_engine_that_begins_anew_takes_no_other_from_its_callers() -> None:
    """Else one engine's restart would take every gate out of its load balancer at once."""
    async with Simulator(SLOW) as slow, Simulator(SHAPE) as sound:
        first, second = engine_at(slow.url), engine_at(sound.url, name="second")
        async with following(first, second) as engines:
            await until(lambda: engines.ready)
            first.replicas[0].suspend()
            assert not first.may_be_used
            assert engines.ready


async def test_a_replica_that_is_being_proven_holds_its_engine_back_only_where_no_other_may_be_used() -> None:
    async with Simulator(SLOW) as slow, Simulator(SHAPE) as quick:
        engine = engine_at(slow.url, quick.url)
        async with following(engine) as engines:
            await until(lambda: engines.ready)
            assert not engine.tried


# Verdicts that are lost and won again.


async def test_an_engine_that_comes_later_is_found_and_proven() -> None:
    async with Simulator(SHAPE) as placeholder:
        url = placeholder.url
    async with following(engine_at(url, models=frozenset({"tiny"}))) as engines:
        assert "can be reached" in refusal(engines).message
        await asyncio.sleep(0.2)
        async with Simulator(SHAPE, port=int(url.rpartition(":")[2])):
            await until(lambda: engines.ready)
            assert pools(engines)


async def test_an_engine_that_ends_loses_its_verdicts_at_once() -> None:
    async with Simulator(SHAPE) as sound:
        engine = engine_at(sound.url)
        async with following(engine) as engines:
            await until(lambda: is_settled(engine))
            await sound.__aexit__(None, None, None)
            await until(lambda: not engine.replicas[0].findings, seconds=5)
            assert not engines.ready
            assert "can be reached" in refusal(engines).message


async def test_another_engine_at_the_same_address_is_never_used_on_the_old_ones_proof() -> None:
    """At every moment: either the replica has no verdict, or what answers there is what was proven."""
    async with Simulator(SHAPE) as sound:
        port = int(sound.url.rpartition(":")[2])
        engine = engine_at(sound.url)
        async with following(engine) as engines:
            await until(lambda: is_settled(engine))
            (old,) = pools(engines)
            await sound.__aexit__(None, None, None)
            async with Simulator(LEAKY, port=port) as leaky:
                # A request that was let through on the old proof and only now gets to its connection.
                with pytest.raises(OSError):
                    await old.new_leg()
                refusal(engines)
                await until(lambda: is_settled(engine))
                assert set(verdicts(engine.replicas[0]).values()) == {"failed"}
                for endpoint in VLLM.salted:
                    refusal(engines, endpoint.operation)
                probes = {received.salt for received in leaky.requests}
                assert all(salt is not None and salt.startswith("sg1-") for salt in probes)


async def test_requests_never_reach_a_replaced_engine_before_its_proof(redis: RedisServer, tmp_path: Path) -> None:
    async with Simulator(SHAPE) as sound:
        port = int(sound.url.rpartition(":")[2])
        async with gate_bed(redis.settings(), [sound.url], tmp_path) as bed:
            assert (await bed.post())[0] == 200
            await sound.__aexit__(None, None, None)
            async with Simulator(LEAKY, port=port) as leaky, asyncio.timeout(30):
                answers = [(await bed.post())[0]]
                while not [line for line in bed.lines() if line.get("verdict") == "failed"]:
                    answers.append((await bed.post())[0])
                    await asyncio.sleep(0.01)
                answers += [(await bed.post())[0] for _ in range(3)]
                assert set(answers) <= {502, 503}
                assert not [received for received in leaky.requests if b"Hello" in received.body]


class Pipe:
    """A port that passes bytes to an engine, until its connections are cut."""

    def __init__(self, url: str) -> None:
        self._target = ("127.0.0.1", int(url.rpartition(":")[2]))
        self._writers: set[asyncio.StreamWriter] = set()
        self._passing: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        self._server.close()
        async with asyncio.timeout(10):
            while not all(task.done() for task in self._passing):
                self.cut()  # again, for who was only connecting
                await asyncio.sleep(0.005)

    def cut(self) -> None:
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._passing.add(task)
        self._writers.add(writer)
        there, to = await asyncio.open_connection(*self._target)
        self._writers.add(to)
        await asyncio.gather(self._copy(reader, to), self._copy(there, writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            self._writers.discard(writer)


@pytest.mark.parametrize("same", [True, False])
async def test_after_a_cut_the_same_process_keeps_its_proof_and_another_is_proven_anew(same: bool) -> None:
    starts = [b"1.0"]

    def born(page: bytes) -> bytes:
        return page + b"process_start_time_seconds %b\n" % starts[-1]

    async with Simulator(SHAPE) as sound, Facade([sound], born) as facade:
        pipe, told = Pipe(facade.url), Written()
        engine = engine_at(await pipe.start())
        async with following(engine, observed=told) as engines:
            await until(lambda: is_settled(engine))
            starts.append(b"1.0" if same else b"2.0")
            sound.requests.clear()
            pipe.cut()
            await until(lambda: not engine.replicas[0].findings, seconds=5)
            refusal(engines)
            await until(lambda: engines.ready)
            if same:
                # What was found is in force again before it could be found anew.
                lost = len(told.events) - told.events[::-1].index("unknown")
                assert told.events[lost : lost + len(VLLM.salted)] == ["proven"] * len(VLLM.salted)
                assert set(verdicts(engine.replicas[0]).values()) == {"proven"}
            else:
                await until(lambda: is_settled(engine))
                assert len(sound.requests) >= 4 * len(VLLM.salted)
        await pipe.stop()


@pytest.mark.slow
async def test_an_engine_that_closes_every_connection_is_never_ready_and_never_hammered() -> None:
    """Then nothing tells when it is replaced. Its operator is told to keep connections alive."""
    questions: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        questions.append(request.path)
        response = web.json_response({"data": [{"id": "tiny"}]})
        response.force_close()
        return response

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with following(engine_at(f"http://127.0.0.1:{runner.addresses[0][1]}")) as engines:
        await asyncio.sleep(1.5)
        assert not engines.ready
        refusal(engines)
        assert len(questions) < 12
    await runner.cleanup()


async def test_a_probe_that_says_nothing_takes_no_proof_back_and_a_failure_does() -> None:
    """While the leash holds the process is the same: a full queue or a busy counter is no news of it."""
    hiding = replace(SHAPE, flaws=Flaws(hides_cached_tokens=frozenset(Endpoint)))
    async with Simulator(SHAPE) as sound, Simulator(hiding) as silent, Simulator(LEAKY) as leaky:
        engine = engine_at(sound.url)
        (replica,) = engine.replicas
        replica.models = (Model("tiny", base=True),)
        engines = Engines([engine], KEY, Silent())
        for at, expected in ((silent, "unknown"), (sound, "proven"), (silent, "proven"), (leaky, "failed")):
            async with leash(pool_of(at.url), lambda: None) as held:
                prover = Prover(held.pool, KEY, profile=VLLM, spent=lambda _: None)
                await Watch(engine, replica, KEY, Silent(), told=lambda: None).prove_once(held, prover)
            assert verdicts(replica)["chat"] == expected
        engines.close()


async def test_what_is_proven_is_proven_again_and_a_later_failure_counts_at_once() -> None:
    """The process is the same, so nothing but the next probe can tell."""
    async with Simulator(SHAPE) as sound, Simulator(LEAKY) as leaky, Facade([sound]) as facade:
        engine = engine_at(facade.url)
        async with following(engine, again_seconds=0.2) as engines:
            await until(lambda: engines.ready)
            facade.lead_to(leaky)
            await until(lambda: engine.replicas[0].finding(Operation.CHAT).verdict is Verdict.FAILED)
            assert "does not separate" in refusal(engines, Operation.CHAT).message


async def test_what_is_proven_again_is_told_once_and_what_changes_is_told(redis: RedisServer, tmp_path: Path) -> None:
    async with Simulator(SHAPE) as sound, gate_bed(redis.settings(), [sound.url], tmp_path) as bed:
        engines = bed.gate.engines
        (engine,) = engines.engines
        (replica,) = engine.replicas
        await until(lambda: is_settled(engine))

        def told(event: str) -> list[dict[str, object]]:
            return [line for line in bed.lines() if line["event"] == event]

        async with asyncio.timeout(10):
            while len(told("engine.proof")) < len(VLLM.salted):
                await asyncio.sleep(0.01)
        for version in ("0.32.0", "0.31.1", "not a version!", "0.31.1"):
            sound.shape = replace(sound.shape, version=version)
            async with leash(pool_of(sound.url), lambda: None) as held:
                prover = Prover(held.pool, KEY, profile=VLLM, spent=lambda _: None)
                await Watch(engine, replica, KEY, Silent(), told=lambda: None).prove_once(held, prover)
        async with asyncio.timeout(10):
            while len(told("engine.version")) < 4:
                await asyncio.sleep(0.01)
        assert len(told("engine.proof")) == len(VLLM.salted)
        versions = [(line["version"], line["tested"], line["level"]) for line in told("engine.version")]
        assert versions == [
            ("0.32.0", True, "info"),
            ("0.31.1", False, "warning"),
            ("unknown", False, "warning"),
            ("0.31.1", False, "warning"),
        ]


async def test_probes_are_counted_apart_and_the_version_is_shown(redis: RedisServer, tmp_path: Path) -> None:
    async with Simulator(SHAPE) as sound, gate_bed(redis.settings(), [sound.url], tmp_path) as bed:
        await until(lambda: is_settled(bed.gate.engines.engines[0]))
        page = page_of(bed.gate.metrics)
        where = f'engine="main",replica="{sound.url.removeprefix("http://")}"'
        assert f'saltgate_engine_info{{{where},version="0.32.0"}} 1' in page
        assert f"saltgate_engine_probes_total{{{where}}} {len(sound.requests)}\n" in page
        tokens = sum(received.prompt_tokens or 0 for received in sound.requests)
        assert f"saltgate_engine_probe_prompt_tokens_total{{{where}}} {tokens}\n" in page
        assert "saltgate_requests_total{" not in page
        assert "saltgate_prompt_tokens_total{" not in page


async def test_an_endpoint_that_the_schema_does_not_list_is_not_even_probed() -> None:
    shape = replace(SHAPE, endpoints=frozenset(Endpoint) - {Endpoint.EMBEDDINGS, Endpoint.MESSAGES})
    async with Simulator(shape) as sound, following(engine := engine_at(sound.url)) as engines:
        await until(lambda: is_settled(engine))
        assert verdicts(engine.replicas[0])["messages"] == "unknown"
        assert {received.target for received in sound.requests} == {endpoint.value for endpoint in shape.endpoints}
        assert "schema lists no such endpoint" in refusal(engines, Operation.MESSAGES).message


async def test_an_endpoint_whose_schema_has_no_salt_is_not_taken_for_proven() -> None:
    """It is the engine's own word that the field is none of this endpoint's."""
    shape = replace(SHAPE, flaws=Flaws(undeclared_salt=frozenset({Endpoint.CHAT})))
    async with Simulator(shape) as undeclared, following(engine := engine_at(undeclared.url)) as engines:
        await until(lambda: is_settled(engine))
        assert "has no cache_salt on this endpoint" in refusal(engines, Operation.CHAT).message
        assert pools(engines, Operation.COMPLETIONS)


async def test_a_schema_says_nothing_for_a_salt_that_is_ignored() -> None:
    async with Simulator(LEAKY) as leaky, following(engine := engine_at(leaky.url)):
        await until(lambda: is_settled(engine))
        assert set(verdicts(engine.replicas[0]).values()) == {"failed"}


# Replicas and models.


async def test_of_several_replicas_only_the_proven_ones_are_used() -> None:
    async with Simulator(SHAPE) as sound, Simulator(LEAKY) as leaky:
        engine = engine_at(leaky.url, sound.url)
        async with following(engine) as engines:
            await until(lambda: is_settled(engine))
            for endpoint in VLLM.salted:
                assert list(pools(engines, endpoint.operation)) == [engine.replicas[1].pool]


async def test_a_replica_that_does_not_serve_the_model_is_not_asked_for_it() -> None:
    async with Simulator(SHAPE) as one, Simulator(replace(SHAPE, models=("other",))) as two:
        engine = engine_at(one.url, two.url)
        async with following(engine) as engines:
            await until(lambda: is_settled(engine))
            assert list(pools(engines)) == [engine.replicas[0].pool]
            assert sorted(engines.models(SCOPE)) == ["other", "tiny"]


async def test_a_replica_that_is_away_is_used_only_where_no_other_is_left() -> None:
    async with Simulator(SHAPE) as sound:
        engine = engine_at("http://127.0.0.1:9", sound.url, proof="warn")
        async with following(engine) as engines:
            await until(lambda: engines.ready)
            assert list(pools(engines)) == [engine.replicas[1].pool]


async def test_the_configured_models_are_served_also_before_the_engine_told_of_them() -> None:
    async with following(engine_at("http://127.0.0.1:9", models=frozenset({"tiny"}))) as engines:
        assert list(engines.models(SCOPE)) == ["tiny"]
        refusal(engines)
        with pytest.raises(ModelNotAllowed):
            destination(engines, "other")


async def test_only_configured_models_of_an_engine_are_served() -> None:
    shape = replace(SHAPE, models=("tiny", "other"))
    async with Simulator(shape) as sound, following(engine_at(sound.url, models=frozenset({"tiny"}))) as engines:
        await until(lambda: engines.ready)
        assert list(engines.models(SCOPE)) == ["tiny"]


async def test_an_engine_without_its_configured_models_says_so() -> None:
    engine_of = partial(engine_at, models=frozenset({"missing"}))
    async with Simulator(SHAPE) as sound, following(engine := engine_of(sound.url)) as engines:
        await until(lambda: is_settled(engine))
        with pytest.raises(EngineUnavailable, match="configured to serve"):
            destination(engines, "missing")


async def test_a_model_at_two_engines_is_refused_and_told_rather_than_chosen() -> None:
    async with Simulator(SHAPE) as one, Simulator(replace(SHAPE, models=("tiny", "own"))) as two:
        first, second = engine_at(one.url), engine_at(two.url, name="second")
        async with following(first, second) as engines:
            await until(lambda: is_settled(first) and is_settled(second))
            assert refusal(engines).reason == "model_at_two_engines"
            own = destination(engines, "own").pools
            assert list(own) == [second.replicas[0].pool]


async def test_the_configuration_decides_which_of_two_engines_serves_a_model() -> None:
    async with Simulator(SHAPE) as one, Simulator(SHAPE) as two:
        asked = engine_at(one.url)
        named = engine_at(two.url, name="second", models=frozenset({"tiny"}))
        async with following(asked, named) as engines:
            await until(lambda: is_settled(asked) and is_settled(named))
            assert list(pools(engines)) == [named.replicas[0].pool]


async def test_what_was_read_by_the_table_of_another_engine_goes_nowhere() -> None:
    engine = engine_at("http://127.0.0.1:9", models=frozenset({"tiny"}))
    async with following(engine) as engines:
        other = replace(engines.endpoint(SCOPE, "tiny", Operation.CHAT))
        with pytest.raises(EngineUnavailable) as refused:
            engines.destination(SCOPE, "tiny", other)
        assert refused.value.reason == "engine_changed"


async def test_what_was_read_by_a_table_that_the_models_engine_lacks_goes_nowhere() -> None:
    other = engine_at("http://127.0.0.1:9", models=frozenset({"tiny"}))
    endpoint = other.profile.endpoint(Operation.COUNT_TOKENS)
    assert endpoint is not None
    async with following(replace(other, profile=PROFILES["sglang"])) as engines:
        with pytest.raises(EndpointNotAllowed):
            engines.destination(SCOPE, "tiny", endpoint)


@pytest.mark.parametrize("model", ["lora", "nowhere"])
async def test_while_an_engine_has_not_told_an_adapter_of_others_looks_like_no_model(model: str) -> None:
    shape = replace(SHAPE, adapters={"lora": "tiny"})
    silent = engine_at("http://127.0.0.1:9", name="silent")
    async with Simulator(shape) as sound, following(engine_at(sound.url), silent) as engines:
        await until(lambda: engines.ready)
        with pytest.raises(EngineUnavailable):
            destination(engines, model)


async def test_an_adapter_is_only_for_projects_that_list_it() -> None:
    shape = replace(SHAPE, adapters={"lora": "tiny"})
    async with Simulator(shape) as sound, following(engine_at(sound.url)) as engines:
        await until(lambda: engines.ready)
        assert list(engines.models(SCOPE)) == ["tiny"]
        listing = replace(SCOPE, models=frozenset({"lora", "gone"}))
        assert list(engines.models(listing)) == ["lora"]
        assert destination(engines, "lora", scope=listing).pools
        with pytest.raises(ModelNotAllowed):
            destination(engines, "lora")
        with pytest.raises(ModelNotAllowed):
            destination(engines, "tiny", scope=listing)
        with pytest.raises(ModelNotFound):
            destination(engines, "gone", scope=listing)


@pytest.mark.parametrize(
    "body",
    [
        b"no json",
        b"[]",
        b"{}",
        b'{"data":1}',
        b'{"data":{}}',
        b'{"data":[1]}',
        b'{"data":[{}]}',
        b"[" * 100_000,
        b'{"data":"' + b"x" * 1000 + b'"}',
    ],
)
async def test_an_engine_whose_model_list_makes_no_sense_is_not_reached(body: bytes) -> None:
    async with _listing(body) as url, following(engine_at(url)) as engines:
        await asyncio.sleep(0.3)
        assert not engines.ready
        refusal(engines)


async def test_names_that_no_client_could_ask_for_are_left_out_of_the_models() -> None:
    names = ["tiny", "", "x" * 257, "\ud800", 1, None, ["a"]]
    body = json.dumps({"data": [{"id": name} for name in names]}).encode()
    async with _listing(body) as url:
        engine = engine_at(url, proof="off")
        async with following(engine) as engines:
            await until(lambda: engines.ready)
            assert list(engines.models(SCOPE)) == ["tiny"]


@asynccontextmanager
async def _listing(body: bytes) -> AsyncIterator[str]:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    application = web.Application()
    application.router.add_get("/v1/models", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def test_two_engines_of_which_one_tells_an_adapter_of_the_name_make_no_base_model() -> None:
    one, two = engine_at("http://127.0.0.1:9"), engine_at("http://127.0.0.1:9", name="second")
    one.replicas[0].models = (Model("x", base=True),)
    two.replicas[0].models = (Model("x", base=False),)
    for order in ([one, two], [two, one]):
        served = served_by(order)["x"]
        assert served.engine is None
        assert not served.model.base
