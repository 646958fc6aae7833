"""The probe on simulated engines, sound and flawed: what it finds, what it costs, and what cannot mislead it."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import pytest

from proxy.assurance.proof import Counting, Prover, process_start, prove
from proxy.assurance.verdict import DISTURBED, Finding, Verdict
from proxy.demo.simulator import ALL_ENDPOINTS, AT_ONCE, Endpoint, EngineShape, Flaws, Pace, Simulator
from proxy.engines.kinds import PROFILES, VLLM
from proxy.engines.profile import Endpoint as Profile
from proxy.isolation.salt import SaltKey
from proxy.relay.question import EngineUnreachable
from tests.proxy.assurance.facade import Facade, pool_of

pytestmark = pytest.mark.slow

KEY = SaltKey("k1", b"0123456789abcdef0123456789abcdef")
CHAT, COMPLETIONS, RESPONSES, MESSAGES, EMBEDDINGS = VLLM.salted
COUNTING = Counting(within_seconds=0.3, tries=6, pause_seconds=0.05)
SHAPE = EngineShape(pace=AT_ONCE)
EVERY = pytest.mark.parametrize("endpoint", VLLM.salted, ids=lambda endpoint: endpoint.operation.value)


def flawed(**flaws: object) -> EngineShape:
    return EngineShape(pace=AT_ONCE, flaws=Flaws(**flaws))  # type: ignore[arg-type]


async def found(url: str, endpoint: Profile) -> Finding:
    pool = pool_of(url)
    try:
        return await prove(pool, endpoint, "tiny", KEY, counting=COUNTING)
    finally:
        pool.close()


@EVERY
async def test_a_sound_engine_is_proven(endpoint: Profile) -> None:
    async with Simulator(SHAPE) as engine:
        assert (await found(engine.url, endpoint)).verdict is Verdict.PROVEN


@EVERY
async def test_an_endpoint_that_ignores_the_salt_fails(endpoint: Profile) -> None:
    async with Simulator(flawed(ignores_salt=frozenset({Endpoint(endpoint.path)}))) as engine:
        assert (await found(engine.url, endpoint)).verdict is Verdict.FAILED


@EVERY
async def test_an_engine_that_reuses_nothing_is_unknown(endpoint: Profile) -> None:
    async with Simulator(flawed(no_prefix_cache=True)) as engine:
        assert (await found(engine.url, endpoint)).verdict is Verdict.UNKNOWN


@EVERY
async def test_an_engine_whose_metrics_say_that_its_cache_is_off_has_none(endpoint: Profile) -> None:
    def say(page: bytes) -> bytes:
        return page + b'vllm:cache_config_info{block_size="16",enable_prefix_caching="False",engine="0"} 1.0\n'

    async with Simulator(flawed(no_prefix_cache=True)) as engine, Facade([engine], say) as facade:
        assert (await found(facade.url, endpoint)).verdict is Verdict.NO_CACHE


async def test_an_engine_that_hides_what_it_reused_is_unknown_after_one_probe() -> None:
    async with Simulator(flawed(hides_cached_tokens=ALL_ENDPOINTS)) as engine:
        finding = await found(engine.url, CHAT)
        assert finding.verdict is Verdict.UNKNOWN
        assert "--enable-prompt-tokens-details" in finding.check
        assert len(engine.requests) == 1


async def test_an_endpoint_that_the_engine_lacks_is_unknown_with_the_status() -> None:
    shape = EngineShape(pace=AT_ONCE, endpoints=frozenset({Endpoint.CHAT}))
    async with Simulator(shape) as engine:
        finding = await found(engine.url, EMBEDDINGS)
        assert finding.verdict is Verdict.UNKNOWN
        assert "404" in finding.check


async def test_an_engine_that_is_not_there_is_unreachable() -> None:
    with pytest.raises(EngineUnreachable):
        await found("http://127.0.0.1:9", CHAT)


async def test_a_text_grows_until_it_fills_a_large_block() -> None:
    async with Simulator(EngineShape(pace=AT_ONCE, block_size=128)) as engine:
        assert (await found(engine.url, CHAT)).verdict is Verdict.PROVEN


async def test_a_block_that_no_text_fills_within_the_models_length_is_unknown() -> None:
    async with Simulator(EngineShape(pace=AT_ONCE, block_size=4096, max_model_len=1024)) as engine:
        finding = await found(engine.url, CHAT)
        assert finding.verdict is Verdict.UNKNOWN
        assert "prefix caching" in finding.check


@EVERY
async def test_every_probe_is_small_salted_and_of_a_unit_that_no_caller_has(endpoint: Profile) -> None:
    async with Simulator(SHAPE) as engine:
        await found(engine.url, endpoint)
        await found(engine.url, endpoint)
        salts = [received.salt for received in engine.requests]
        assert all(salt is not None and salt.startswith("sg1-k1-") for salt in salts)
        assert len(set(salts)) == 6  # no salt is used for two texts
        assert sum(received.prompt_tokens or 0 for received in engine.requests) < 2 * 4 * 150
        assert all(received.generated <= 1 for received in engine.requests)
        assert all(b'"stream":true' not in received.body for received in engine.requests)


async def test_a_length_that_was_needed_once_is_where_the_next_proof_begins() -> None:
    async with Simulator(EngineShape(pace=AT_ONCE, block_size=1024)) as engine:
        pool, spent = pool_of(engine.url), list[int]()
        prover = Prover(pool, KEY, profile=VLLM, spent=spent.append, counting=COUNTING)
        for _ in range(2):
            assert (await prover.prove(CHAT, "tiny")).verdict is Verdict.PROVEN
        pool.close()
        assert len(spent) == len(engine.requests) == 2 * 4 + 4 + 4
        assert all(tokens > 2048 for tokens in spent[-8:])


async def test_an_engine_that_claims_countless_caches_is_not_probed_countless_times() -> None:
    def many(page: bytes) -> bytes:
        line = b'vllm:prefix_cache_queries_total{engine="%d"} 0.0\n'
        return page + b"".join(line % number for number in range(1000))

    async with Simulator(SHAPE) as engine, Facade([engine], many) as facade:
        finding = await found(facade.url, CHAT)
        assert finding.verdict is Verdict.UNKNOWN
        assert "too many" in finding.check
        assert not engine.requests


@pytest.mark.parametrize(
    ("algorithms", "verdict"),
    [
        (["sha256"], Verdict.PROVEN),
        (["sha256_cbor"], Verdict.PROVEN),
        (["xxhash"], Verdict.UNKNOWN),
        (["sha256", "xxhash_cbor"], Verdict.UNKNOWN),
    ],
)
async def test_a_cache_whose_hash_can_be_made_to_collide_is_not_proven(algorithms: list[str], verdict: Verdict) -> None:
    def say(page: bytes) -> bytes:
        line = 'vllm:cache_config_info{enable_prefix_caching="True",engine="%d",prefix_caching_hash_algo="%s"} 1.0\n'
        return page + "".join(line % row for row in enumerate(algorithms)).encode()

    async with Simulator(SHAPE) as engine, Facade([engine], say) as facade:
        finding = await found(facade.url, CHAT)
        assert finding.verdict is verdict
        assert verdict is Verdict.PROVEN or "--prefix-caching-hash-algo sha256" in finding.check


# Several caches behind one address.


@pytest.mark.parametrize("count", [2, 3])
@EVERY
async def test_an_engine_of_several_ranks_is_proven_though_requests_go_to_all_of_them(
    endpoint: Profile, count: int
) -> None:
    async with _simulators(SHAPE, count) as engines, Facade(engines) as facade:
        assert (await found(facade.url, endpoint)).verdict is Verdict.PROVEN


@pytest.mark.parametrize("count", [2, 3])
@EVERY
async def test_no_number_of_ranks_hides_that_the_salt_is_ignored(endpoint: Profile, count: int) -> None:
    """With one probe of another salt it could land on the one rank that has not seen the text."""
    shape = flawed(ignores_salt=frozenset({Endpoint(endpoint.path)}))
    async with _simulators(shape, count) as engines, Facade(engines) as facade:
        assert (await found(facade.url, endpoint)).verdict is Verdict.FAILED


@EVERY
async def test_the_other_salts_are_as_many_as_there_are_ranks(endpoint: Profile) -> None:
    """In the worst order: both requests of the first salt to one rank, each other salt to one that is fresh."""
    shape = flawed(ignores_salt=frozenset({Endpoint(endpoint.path)}))
    async with _simulators(shape, 4) as engines, Facade(engines, turns=(0, 0, 1, 2, 3, 0)) as facade:
        assert (await found(facade.url, endpoint)).verdict is Verdict.FAILED


@asynccontextmanager
async def _simulators(shape: EngineShape, count: int) -> AsyncIterator[list[Simulator]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Simulator(shape)) for _ in range(count)]


# Embeddings, whose reuse only the engine's counters tell.


@asynccontextmanager
async def _busy(url: str, *, pause: float) -> AsyncIterator[None]:
    """Other people's requests, which reuse much."""

    async def ask() -> None:
        body = json.dumps({"model": "tiny", "prompt": "the same words again and " * 20, "max_tokens": 1})
        async with aiohttp.ClientSession(headers={"Content-Type": "application/json"}) as session:
            while True:
                async with session.post(f"{url}/v1/completions", data=body) as answer:
                    await answer.read()
                await asyncio.sleep(random.uniform(0, 2 * pause))

    async with asyncio.TaskGroup() as tasks:
        asking = [tasks.create_task(ask()) for _ in range(2)]
        try:
            yield
        finally:
            for task in asking:
                task.cancel()


@pytest.mark.slow
async def test_others_requests_never_make_ignored_salts_proven() -> None:
    async with Simulator(flawed(ignores_salt=frozenset({Endpoint.EMBEDDINGS}))) as engine:
        for pause in (0.0, 0.005, 0.02):
            async with _busy(engine.url, pause=pause), asyncio.timeout(60):
                finding = await found(engine.url, EMBEDDINGS)
                assert finding == DISTURBED or finding.verdict is Verdict.FAILED


@pytest.mark.slow
async def test_others_requests_never_make_a_sound_engine_a_failed_one() -> None:
    async with Simulator(SHAPE) as engine:
        for pause in (0.0, 0.02, 0.2):
            async with _busy(engine.url, pause=pause), asyncio.timeout(60):
                finding = await found(engine.url, EMBEDDINGS)
                assert finding == DISTURBED or finding.verdict is Verdict.PROVEN


@pytest.mark.slow
async def test_hits_that_only_others_had_prove_nothing() -> None:
    """An engine whose embeddings are counted nowhere, while every look at its metrics shows others' hits."""
    counted = [0]

    def others(page: bytes) -> bytes:
        counted[0] += 64
        page = re.sub(rb"(?m)^(vllm:prefix_cache_(?:hits|queries)_total\{[^}]*\}) .*$", rb"\1 @", page)
        return page.replace(b"@", b"%d.0" % counted[0])

    async with Simulator(flawed(ignores_salt=ALL_ENDPOINTS)) as engine, Facade([engine], others) as facade:
        assert (await found(facade.url, EMBEDDINGS)).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("ignored", [False, True])
async def test_hits_that_are_counted_late_are_waited_for(ignored: bool) -> None:
    """vLLM counts after it has answered: a page read at once would show no hit, and so a salt that separates."""
    pages: list[bytes] = []

    def late(page: bytes) -> bytes:
        pages.append(page)
        return pages[max(0, len(pages) - 3)]

    shape = flawed(ignores_salt=frozenset({Endpoint.EMBEDDINGS} if ignored else ()))
    async with Simulator(shape) as engine, Facade([engine], late) as facade:
        finding = await found(facade.url, EMBEDDINGS)
        assert finding.verdict is (Verdict.FAILED if ignored else Verdict.PROVEN)


async def test_hits_that_are_not_counted_in_time_are_not_taken_for_none() -> None:
    """The counters stand still as soon as the first salt's reuse was counted: the other salts' is not seen."""
    held: list[bytes] = []

    def freeze(page: bytes) -> bytes:
        if held:
            return held[0]
        if not re.search(rb"(?m)^vllm:prefix_cache_hits_total\{[^}]*\} 0.0$", page):
            held.append(page)
        return page

    shape = flawed(ignores_salt=frozenset({Endpoint.EMBEDDINGS}))
    async with Simulator(shape) as engine, Facade([engine], freeze) as facade:
        assert (await found(facade.url, EMBEDDINGS)).verdict is Verdict.UNKNOWN


async def test_two_workers_that_prove_at_once_both_come_to_an_end() -> None:
    shape = EngineShape(pace=Pace(prefill_tokens_per_second=20_000.0, seconds_per_token=0.0))
    async with Simulator(shape) as engine, asyncio.timeout(60):
        findings = await asyncio.gather(*(found(engine.url, EMBEDDINGS) for _ in range(3)))
        assert [finding.verdict for finding in findings] == [Verdict.PROVEN] * 3


async def test_without_metrics_embeddings_are_unknown_and_the_rest_is_proven() -> None:
    async with Simulator(SHAPE) as engine, Facade([engine], lambda _: b"") as facade:
        finding = await found(facade.url, EMBEDDINGS)
        assert finding.verdict is Verdict.UNKNOWN
        assert "/metrics" in finding.check
        assert (await found(facade.url, CHAT)).verdict is Verdict.PROVEN


async def test_the_start_of_the_engines_process_is_read_where_it_is_told() -> None:
    def born(page: bytes) -> bytes:
        return page + b"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1.76e+09\n"

    async with Simulator(SHAPE) as engine, Facade([engine], born) as facade:
        assert await process_start(pool_of(facade.url)) == b"1.76e+09"
        assert await process_start(pool_of(engine.url)) is None


# Kinds that do not tell how many caches they have.


@pytest.mark.parametrize("kind", ["sglang", "tensorrt-llm", "dynamo"])
@pytest.mark.parametrize("turns", [(0, 0, 1, 2), (0, 0, 1, 1, 2, 2), (0, 0, 1, 2, 3, 4, 5, 6, 7)])
async def test_a_kind_with_caches_that_it_does_not_tell_of_cannot_hide_that_it_ignores_the_salt(
    kind: str, turns: tuple[int, ...]
) -> None:
    profile = PROFILES[kind]
    async with AsyncExitStack() as stack:
        shape = flawed(ignores_salt=ALL_ENDPOINTS)
        engines = [await stack.enter_async_context(Simulator(shape)) for _ in range(max(turns) + 1)]
        facade = await stack.enter_async_context(Facade(engines, turns=turns))
        pool = pool_of(facade.url)
        stack.callback(pool.close)
        finding = await prove(pool, profile.endpoints[0], "tiny", KEY, profile=profile, counting=COUNTING)
    assert finding.verdict is Verdict.FAILED


async def test_what_another_kind_writes_in_vllms_words_is_not_believed() -> None:
    def say(page: bytes) -> bytes:
        return page + b'vllm:cache_config_info{block_size="16",enable_prefix_caching="False",engine="0"} 1.0\n'

    profile = PROFILES["sglang"]
    async with Simulator(flawed(no_prefix_cache=True)) as engine, Facade([engine], say) as facade:
        pool = pool_of(facade.url)
        finding = await prove(pool, profile.endpoints[0], "tiny", KEY, profile=profile, counting=COUNTING)
        pool.close()
    assert finding.verdict is Verdict.UNKNOWN
    assert "--disable-radix-cache" in finding.check
