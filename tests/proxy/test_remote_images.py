"""Images by their address through a whole gate, to the byte: the engine gets the image and hears of no address."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from config.client_tls import client_context
from config.settings import EngineLimits, Isolation, IsolationKey, IsolationRule, Public, Timeouts
from proxy.demo.simulator import Simulator
from proxy.directory.changes import block, revoke
from proxy.directory.model import user
from proxy.engines.body import ClientRequest, UnfetchedRequest, with_images
from proxy.fetching.fetcher import Fetcher
from proxy.tls import listener_context
from tests.parts.gate_bed import KEY, GateBed, gate_bed
from tests.parts.gone_client import GoneClient, post
from tests.parts.hostile import media
from tests.parts.image_origin import ImageOrigin, image_answer
from tests.parts.raw_engine import RawEngine, Send, Step, Wait, WaitForPeer
from tests.parts.redis_server import RedisServer
from tests.parts.scraped import page_of
from tests.proxy.assurance.facade import Contents, Facade
from tests.proxy.engines.test_media import GIF, PNG, image
from tests.proxy.engines.test_remote import HOSTILE
from tests.proxy.fetching.test_lookup import Answers
from tests.proxy.test_images import ANSWER, CHAT, SHAPE, chat, identity_in, parts_of, sent
from tests.proxy.test_tls import Authority

pytestmark = pytest.mark.slow

SYSTEM = client_context(None, None)
ALICE = "u-alice-0001"
PAGES: Mapping[str, Sequence[Step]] = {
    "/cat.png?sig=hunter2": [Send(image_answer(PNG))],
    "/dog": [Send(image_answer(GIF))],
    "/page": [Send(image_answer(b"<html>"))],
}


@dataclass(slots=True)
class Bench:
    """A gate between an engine of bytes and a host of images."""

    bed: GateBed
    engine: RawEngine
    origin: ImageOrigin

    def at(self, target: str, **more: Any) -> dict[str, Any]:
        return {"type": "image_url", "image_url": {"url": f"http://{self.origin.authority}{target}"}} | more

    async def refused(self, *parts: Any, headers: dict[str, str] | None = None) -> tuple[int, dict[str, Any]]:
        """A request that the engine must not hear of: its status and error."""
        before = len(self.engine.requests)
        status, _, body = await self.bed.post(document=chat(*parts), headers=headers)
        assert len(self.engine.requests) == before
        return status, json.loads(body)["error"]


@asynccontextmanager
async def bench(
    redis: RedisServer, folder: Path, pages: Mapping[str, Sequence[Step]] = PAGES, **more: Any
) -> AsyncIterator[Bench]:
    async with (
        ImageOrigin(pages) as origin,
        RawEngine([Send(ANSWER)]) as engine,
        gate_bed(
            redis.settings(),
            [engine.url],
            folder,
            proof="off",
            models=("tiny",),
            media=True,
            **({"private_hosts": (origin.authority,)} | more),
        ) as bed,
    ):
        yield Bench(bed, engine, origin)


async def test_the_engine_gets_the_image_under_our_identity_and_no_address(redis: RedisServer, tmp_path: Path) -> None:
    async with bench(redis, tmp_path) as on:
        text = {"type": "text", "text": "Which is larger?"}
        cat, dog = on.at("/cat.png?sig=hunter2", uuid="evil"), on.at("/dog")
        document = await sent(on.bed, on.engine, chat(text, cat, image(), dog, cat))
        assert list(parts_of(document)) == [
            text,
            image(PNG, "png", uuid=identity_in(document, PNG)),
            image(uuid=identity_in(document)),
            image(uuid=identity_in(document)),
            image(PNG, "png", uuid=identity_in(document, PNG)),
        ]
        assert sorted(on.origin.targets) == ["/cat.png?sig=hunter2", "/dog"]
        (request,) = on.engine.requests
        assert str(on.origin.port).encode() not in request.head + request.body
        assert b"hunter2" not in request.head + request.body


async def test_the_host_of_the_image_hears_nothing_of_the_client(redis: RedisServer, tmp_path: Path) -> None:
    async with bench(redis, tmp_path) as on:
        hints = {"Cookie": "a=b", "User-Agent": "secret-agent", "traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
        await sent(on.bed, on.engine, chat(on.at("/dog")), on.bed.headers() | hints)
        names = [line.split(b":")[0] for line in on.origin.heads[0].split(b"\r\n")[1:-2]]
        assert names == [b"Host", b"Accept", b"Accept-Encoding", b"User-Agent"]
        assert b"secret" not in on.origin.heads[0]


async def test_an_image_comes_over_tls_from_a_private_host(redis: RedisServer, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = listener_context(authority.tls("127.0.0.1"))
    async with (
        ImageOrigin(PAGES, tls=tls) as origin,
        bench(redis, tmp_path, private_hosts=(origin.authority,), private_ca=authority.file) as on,
    ):
        part = {"type": "image_url", "image_url": {"url": f"https://{origin.authority}/dog"}}
        document = await sent(on.bed, on.engine, chat(part))
        assert list(parts_of(document)) == [image(uuid=identity_in(document))]


async def test_what_was_fetched_is_told_as_a_stage_and_by_no_address(redis: RedisServer, tmp_path: Path) -> None:
    async with bench(redis, tmp_path) as on:
        _, headers, _ = await on.bed.post(document=chat(on.at("/cat.png?sig=hunter2")))
        assert "fetch;dur=" in headers["Server-Timing"]
        await on.refused(on.at("/gone?sig=hunter2"))
        (line, refused) = await on.bed.completed(2)
        assert "fetch_ms" in line
        assert refused["reason"] == "media_status"
        metrics = page_of(on.bed.gate.metrics)
        assert 'saltgate_overhead_seconds_count{stage="fetch"} 1' in metrics
        assert "hunter2" not in on.bed.log.read_text() + metrics


# Who is refused, and that nothing is asked for them.


async def test_an_image_that_cannot_be_had_is_named_and_its_host_is_not_told_of(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with bench(redis, tmp_path) as on:
        status, error = await on.refused(image(), on.at("/dog"), on.at("/gone"))
        assert (status, error["code"], error["param"]) == (
            400,
            "invalid_request",
            "messages[0].content[2].image_url.url",
        )
        assert str(on.origin.port) not in error["message"]
        status, error = await on.refused(on.at("/page"))
        assert (status, error["param"]) == (400, "messages[0].content[0].image_url.url")
        assert "none of image/gif" in error["message"]


@pytest.mark.parametrize("hosts", [{"private_hosts": None}, {"private_hosts": None, "hosts": ("images.example.com",)}])
async def test_a_host_that_is_not_listed_is_not_asked(hosts: Any, redis: RedisServer, tmp_path: Path) -> None:
    async with bench(redis, tmp_path, **hosts) as on:
        status, error = await on.refused(on.at("/dog"))
        assert (status, error["param"]) == (400, "messages[0].content[0].image_url.url")
        assert on.origin.connections == 0


async def test_hostile_addresses_and_parts_lead_nowhere(redis: RedisServer, tmp_path: Path) -> None:
    lookup = Answers(["127.0.0.1"])
    async with bench(redis, tmp_path, hosts=("images.example.com",), private_hosts=("localhost:9000",)) as on:
        on.bed.gate.gateway.images = Fetcher(lookup, seconds=5.0, tls={})
        for url in HOSTILE:
            status, _ = await on.refused({"type": "image_url", "image_url": {"url": url}})
            assert status == 400, url
        for name, case in media.CASES.items():
            head, _, body = case.partition(b"\r\n\r\n")
            status, _, _ = await on.bed.post(head.split(b" ")[1].decode(), json.loads(body))
            assert (status == 400) or "URL" not in name, name
        assert lookup.asked == []
        assert all(b"http" not in request.body for request in on.engine.requests)


async def test_a_listed_name_that_leads_inwards_is_not_asked(redis: RedisServer, tmp_path: Path) -> None:
    async with bench(redis, tmp_path, hosts=("images.example.com",)) as on:
        port = on.origin.port
        part = {"type": "image_url", "image_url": {"url": "https://images.example.com/a"}}
        messages = set()
        for answer in (["127.0.0.1"], ["169.254.169.254"], ["10.0.0.1", "::ffff:10.0.0.1"], []):
            on.bed.gate.gateway.images = Fetcher(Answers(answer), seconds=5.0, tls={None: SYSTEM})
            status, error = await on.refused(part)
            assert status == 400
            messages.add(error["message"])
        on.bed.gate.gateway.images = Fetcher(Away(), seconds=5.0, tls={None: SYSTEM})
        messages.add((await on.refused(part))[1]["message"])
        assert len(messages) == 1
        assert str(port) not in messages.pop()
        refused = [line for line in on.bed.lines() if line["event"] == "image.host_refused"]
        assert [line["addresses"] for line in refused][:2] == [["127.0.0.1"], ["169.254.169.254"]]


class Away:
    async def addresses(self, host: str, port: int) -> Sequence[str]:
        raise OSError("no such host")


async def test_nothing_is_fetched_for_who_may_not_ask(redis: RedisServer, tmp_path: Path) -> None:
    async with bench(redis, tmp_path) as on:
        part = on.at("/dog")
        cases: list[tuple[int, dict[str, str]]] = [
            (401, {}),
            (401, {"Authorization": "Bearer x.y.z"}),
            (403, on.bed.headers("u-nobody")),
            (403, on.bed.headers(project="vault", workspace="globex")),
            (400, {"Authorization": f"Bearer {on.bed.token()}"}),
        ]
        for status, headers in cases:
            assert (await on.refused(part, headers=headers))[0] == status
        assert (await on.bed.post(document=chat(part) | {"model": "other"}))[0] in (403, 404)
        assert (await on.bed.post("/v1/nothing", chat(part)))[0] == 404
        assert (await on.bed.post(document=chat(part) | {"prompt_logprobs": 1}))[0] == 400
        assert (await on.bed.post(document=chat(part, part, *[part] * 16)))[0] == 400
        assert (await on.bed.post(document=chat(part, {"type": "video_url", "video_url": {"url": "x"}})))[0] == 400
        await on.bed.change(block(on.bed.mint.issuer, user(ALICE)))
        async with asyncio.timeout(10):
            while (await on.bed.post())[0] != 403:
                await asyncio.sleep(0.01)
        assert (await on.refused(part))[0] == 403
        assert on.origin.connections == 0


async def test_nothing_is_fetched_for_an_engine_that_is_not_proven(redis: RedisServer, tmp_path: Path) -> None:
    async with (
        ImageOrigin(PAGES) as origin,
        Simulator(SHAPE) as simulator,
        Facade([simulator], images=Contents()) as engine,
        gate_bed(redis.settings(), [engine.url], tmp_path, media=True, private_hosts=(origin.authority,)) as bed,
    ):
        part = {"type": "image_url", "image_url": {"url": f"http://{origin.authority}/dog"}}
        assert (await bed.post(document=chat(part)))[0] == 503
        assert origin.connections == 0


# What happens while it is fetched.


async def test_a_membership_revoked_while_images_are_fetched_counts(redis: RedisServer, tmp_path: Path) -> None:
    go = asyncio.Event()
    async with bench(redis, tmp_path, {"/dog": [Wait(go), Send(image_answer(GIF))]}) as on:
        request = asyncio.ensure_future(on.refused(on.at("/dog")))
        await on.origin.asked.wait()
        snapshot = on.bed.gate.view.current()
        await on.bed.change(revoke("acme", "apollo", user(ALICE)))
        while on.bed.gate.view.current() is snapshot:
            await asyncio.sleep(0.001)
        go.set()
        status, error = await request
        assert (status, error["code"]) == (403, "not_a_member")


@pytest.mark.parametrize("leave", ["fin", "rst"])
async def test_who_leaves_while_images_are_fetched_ends_the_fetching(
    leave: str, redis: RedisServer, tmp_path: Path
) -> None:
    async with bench(redis, tmp_path, {"/dog": [WaitForPeer()]}) as on:
        async with GoneClient(on.bed.port) as client:
            await client.send(post(CHAT, chat(on.at("/dog")), on.bed.headers()))
            await on.origin.asked.wait()
            assert not on.origin.gone.is_set()
            client.leave_by_fin() if leave == "fin" else client.leave_by_rst()
            async with asyncio.timeout(5):  # long before the time for fetching is over
                await on.origin.gone.wait()
        (line,) = await on.bed.completed(1)
        assert line["outcome"] == "client_gone"
        assert on.engine.requests == []


async def test_a_connection_serves_on_after_images_were_refused(redis: RedisServer, tmp_path: Path) -> None:
    async with bench(redis, tmp_path) as on, GoneClient(on.bed.port) as client:
        for target, status in (("/gone", 400), ("/dog", 200), ("/gone", 400), ("/dog", 200)):
            await client.send(post(CHAT, chat(on.at(target)), on.bed.headers()))
            assert (await client.read_answer()).status == status
            # Nobody listens any more: a listener that stays would let the next upload be cut, and a stall go on.
            assert all(connection.listener is None for connection in on.bed.gate.front.downstreams)


async def test_the_time_for_images_is_the_operator_s(redis: RedisServer, tmp_path: Path) -> None:
    async with bench(redis, tmp_path, {"/dog": [WaitForPeer()]}, timeouts=Timeouts(media=0.2)) as on:
        status, _ = await on.refused(on.at("/dog"))
        assert status == 400
        (line,) = await on.bed.completed(1)
        assert line["reason"] == "media_slow"


async def test_images_count_to_the_size_of_a_request(redis: RedisServer, tmp_path: Path) -> None:
    pages = {"/large": [Send(image_answer(PNG + bytes(40_000)))]}
    limits = EngineLimits(media_bytes=50_000)
    async with bench(redis, tmp_path, pages, public=Public(max_body=100_000), limits=limits) as on:
        await sent(on.bed, on.engine, chat(on.at("/large")))
        status, error = await on.refused(*[on.at("/large")] * 2)
        assert (status, error["code"]) == (413, "body_too_large")
    limits = EngineLimits(media_bytes=40_000)
    async with bench(redis, tmp_path, pages, limits=limits) as on:
        status, error = await on.refused(on.at("/large"))
        assert (status, error["code"]) == (400, "invalid_request")
        assert "at most 40000 bytes" in error["message"]


# With the other rules.


async def test_a_request_with_a_fetched_image_gets_the_narrowest_border_of_the_rules(
    redis: RedisServer, tmp_path: Path
) -> None:
    rule = IsolationRule(name="codename", words=("Falcon",), unit="user")
    isolation = Isolation(keys=(IsolationKey(id="k1", secret=KEY),), rules=(rule,))
    async with bench(redis, tmp_path, isolation=isolation) as on:
        harmless = await sent(on.bed, on.engine, chat({"type": "text", "text": "x"}))
        fetched = await sent(on.bed, on.engine, chat({"type": "text", "text": "x"}, on.at("/dog")))
        own = await sent(on.bed, on.engine, chat({"type": "text", "text": "x"}, image()))
        assert {**fetched, "request_id": ""} == {**own, "request_id": ""}
        assert fetched["cache_salt"] != harmless["cache_salt"]


@dataclass(slots=True)
class Recorded:
    """Images that are there at once, and the requests that they were asked for."""

    asked: list[UnfetchedRequest] = field(default_factory=list)

    async def completed(self, request: UnfetchedRequest, *, workspace: str, most_bytes: int) -> ClientRequest:
        self.asked.append(request)
        return with_images(request, {})


async def test_where_an_image_was_not_fetched_nothing_goes_up(redis: RedisServer, tmp_path: Path) -> None:
    async with bench(redis, tmp_path) as on:
        on.bed.gate.gateway.images = Recorded()
        status, error = await on.refused(on.at("/dog"))
        assert (status, error["code"]) == (500, "gate_error")
