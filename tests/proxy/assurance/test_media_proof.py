"""The probe of the media cache: what it finds of engines that go by identities, by contents, or do not say."""

from __future__ import annotations

import re

import pytest

from config.settings import EngineLimits
from proxy.assurance.media_proof import probe_image, prove_media
from proxy.assurance.proof import Counting
from proxy.assurance.verdict import Finding, Verdict
from proxy.demo.simulator import AT_ONCE, EngineShape, Fault, FaultKind, Simulator
from proxy.engines.kinds.vllm import vllm_with_images
from proxy.engines.profile import Operation
from proxy.isolation.salt import SaltKey
from tests.proxy.assurance.facade import Busy, Contents, Facade, Identities, Images, Nothing, pool_of

KEY = SaltKey("k1", b"0123456789abcdef0123456789abcdef")
COUNTING = Counting(within_seconds=0.2, tries=3, pause_seconds=0.01)
SHAPE = EngineShape(pace=AT_ONCE)


async def found(engine: Facade, spent: list[int] | None = None) -> Finding:
    endpoint = vllm_with_images(EngineLimits()).endpoint(Operation.CHAT)
    assert endpoint is not None
    pool = pool_of(engine.url)
    told = [] if spent is None else spent
    try:
        return await prove_media(pool, endpoint, "tiny", KEY, spent=told.append, counting=COUNTING)
    finally:
        pool.close()


@pytest.mark.parametrize(
    ("images", "verdict", "check"),
    [
        (Identities(), Verdict.PROVEN, "the same salt's image again"),
        (Contents(), Verdict.FAILED, "another salt had sent"),
        (Nothing(), Verdict.UNKNOWN, "--mm-processor-cache-gb"),
        (Busy(), Verdict.UNKNOWN, "other requests came between"),
        (None, Verdict.UNKNOWN, "mm_cache_queries_total"),
    ],
    ids=["identities", "contents", "nothing kept", "busy", "not counted"],
)
async def test_what_an_engine_goes_by_is_found(images: Images | None, verdict: Verdict, check: str) -> None:
    async with Simulator(SHAPE) as simulator, Facade([simulator], images=images) as engine:
        finding = await found(engine)
    assert (finding.verdict, check in finding.check) == (verdict, True), finding


async def test_a_cache_that_goes_by_contents_is_found_out_behind_an_address_of_several() -> None:
    """Each of three engines has its cache; every request lands on another one."""
    async with (
        Simulator(SHAPE) as one,
        Simulator(SHAPE) as two,
        Simulator(SHAPE) as three,
        Facade([one, two, three], images=Scattered(3)) as engine,
    ):
        assert (await found(engine)).verdict is Verdict.FAILED


class Scattered(Contents):
    """So many caches, taken in turn."""

    def __init__(self, caches: int) -> None:
        super().__init__()
        self.caches = caches

    def key(self, part: dict[str, object]) -> str:
        return f"{self.queries % self.caches} {super().key(part)}"


async def test_an_engine_whose_model_takes_no_images_is_unknown_and_says_so() -> None:
    async with Simulator(SHAPE) as simulator, Facade([simulator], images=Identities()) as engine:
        simulator.faults.add(Fault(FaultKind.STATUS_500))
        finding = await found(engine)
    assert finding.verdict is Verdict.UNKNOWN
    assert "status 500" in finding.check


async def test_it_costs_four_small_requests() -> None:
    spent: list[int] = []
    async with Simulator(SHAPE) as simulator, Facade([simulator], images=Identities()) as engine:
        assert (await found(engine, spent)).verdict is Verdict.PROVEN
        assert len(simulator.requests) == len(spent) == 4
        assert len({request.salt for request in simulator.requests}) == 3


def test_nobody_has_sent_the_probes_image() -> None:
    images = {probe_image() for _ in range(8)}
    assert len(images) == 8
    assert all(re.match(rb"\x89PNG", image) and len(image) < 2000 for image in images)
