"""Fetching on real sockets: what goes out, and every way in which a host of images may not be taken at its word."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from config.client_tls import client_context
from config.media_hosts import MediaHost, Reach, media_host, media_private_host
from config.settings import EngineLimits
from proxy.engines.body import ClientRequest, UnfetchedRequest, open_body, read_request
from proxy.engines.kinds.vllm import vllm_with_images
from proxy.engines.profile import Operation
from proxy.engines.remote import elsewhere
from proxy.fetching.fetcher import CONNECTIONS, OF_ONE_WORKSPACE, REQUESTS, Fetcher
from proxy.fetching.lookup import Lookup, SystemLookup
from proxy.refusals import BodyTooLarge, EngineBusy, InvalidRequest, Refusal
from proxy.tls import listener_context
from tests.parts.image_origin import ImageOrigin, image_answer
from tests.parts.raw_engine import LAST_CHUNK, Close, Send, Sleep, Step, Wait, WaitForPeer, chunk
from tests.proxy.engines.asking import body_of
from tests.proxy.engines.test_media import GIF, PNG, chat
from tests.proxy.fetching.test_lookup import Answers
from tests.proxy.test_tls import Authority

LIMITS = EngineLimits(media_bytes=1000)
ROOM = 2**20
SYSTEM = client_context(None, None)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def requested(*urls: str, hosts: Sequence[MediaHost] = (), ca: Path | None = None) -> UnfetchedRequest:
    """A request that names these addresses, which are all at `hosts`, by default their own."""
    own = [media_private_host(url.split("/")[2]) for url in dict.fromkeys(u.rsplit("/", 1)[0] for u in urls)]
    endpoint = vllm_with_images(LIMITS, elsewhere(hosts or own, private_ca=ca)).endpoint(Operation.CHAT)
    assert endpoint is not None
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    request = read_request(endpoint, open_body(body_of(Operation.CHAT, **chat(*parts))))
    assert isinstance(request, UnfetchedRequest)
    return request


async def fetched(
    request: UnfetchedRequest,
    *,
    lookup: Lookup | None = None,
    seconds: float = 10.0,
    tls: Mapping[Path | None, ssl.SSLContext] | None = None,
    most_bytes: int = ROOM,
) -> list[bytes]:
    fetcher = Fetcher(lookup or Answers(["127.0.0.1"]), seconds=seconds, tls=tls or {None: SYSTEM})
    async with asyncio.timeout(5):
        return images_in(await fetcher.completed(request, workspace="acme", most_bytes=most_bytes))


def images_in(request: ClientRequest) -> list[bytes]:
    """The data of its images, in their order."""
    (message,) = json.loads(bytes(request.fields["messages"]))
    return [base64.b64decode(part["image_url"]["url"].partition(",")[2]) for part in message["content"]]


async def refused(request: UnfetchedRequest, **how: object) -> Refusal:
    with pytest.raises(Refusal) as caught:
        await fetched(request, **how)  # type: ignore[arg-type] # as they are
    return caught.value


# What goes out.


async def test_an_image_is_asked_for_with_constant_headers_and_nothing_of_the_client() -> None:
    async with ImageOrigin({"/a/../b?c=%2F&d": [Send(image_answer(PNG, "Set-Cookie: a=b"))]}) as origin:
        request = requested(f"http://{origin.authority}/a/../b?c=%2F&d")
        assert await fetched(request) == [PNG]
        assert origin.heads == [
            b"GET /a/../b?c=%%2F&d HTTP/1.1\r\nHost: %b\r\nAccept: image/*\r\nAccept-Encoding: identity\r\n"
            b"User-Agent: saltgate\r\n\r\n" % origin.authority.encode()
        ]


async def test_each_address_is_asked_once_and_nothing_is_kept_for_the_next_request() -> None:
    async with ImageOrigin({"/a": [Send(image_answer(PNG))], "/b": [Send(image_answer(GIF))]}) as origin:
        here = f"http://{origin.authority}"
        fetcher = Fetcher(Answers(["127.0.0.1"]), seconds=10.0, tls={})
        for times in (1, 2):
            request = requested(f"{here}/a", f"{here}/b", f"{here}/a", f"{here}/a")
            found = await fetcher.completed(request, workspace="acme", most_bytes=ROOM)
            assert images_in(found) == [PNG, GIF, PNG, PNG]
            assert sorted(origin.targets) == ["/a"] * times + ["/b"] * times
            while origin.open:
                await asyncio.sleep(0.001)


async def test_a_request_is_put_together_beside_the_streams() -> None:
    """A few bytes name megabytes: to write and check them in the loop's own thread would hold up every stream."""
    async with ImageOrigin({"/a": [Send(image_answer(PNG))]}) as origin:
        fetcher = Fetcher(Answers(["127.0.0.1"]), seconds=10.0, tls={})
        assert not fetcher._thread._threads
        await fetcher.completed(requested(f"http://{origin.authority}/a"), workspace="acme", most_bytes=ROOM)
        assert len(fetcher._thread._threads) == 1
        fetcher.close()
        with pytest.raises(RuntimeError):
            fetcher._thread.submit(int)


async def test_nothing_of_the_environment_takes_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login a password hunter2\n")
    async with ImageOrigin({"/a": [Send(image_answer(PNG))]}) as origin, ImageOrigin({}) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://{proxy.authority}")
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        await fetched(requested(f"http://{origin.authority}/a"))
        assert proxy.connections == 0
        assert b"Authorization" not in origin.heads[0]


async def test_connections_of_a_request_are_bounded() -> None:
    go = asyncio.Event()
    pages: dict[str, list[Step]] = {f"/{number}": [Wait(go), Send(image_answer(PNG))] for number in range(12)}
    async with ImageOrigin(pages) as origin:
        work = asyncio.ensure_future(fetched(requested(*(f"http://{origin.authority}{path}" for path in pages))))
        while len(origin.heads) < CONNECTIONS:
            await asyncio.sleep(0.001)
        go.set()
        assert len(await work) == 12
        assert origin.most_open == CONNECTIONS


async def test_a_workspace_whose_host_is_slow_leaves_places_to_the_others() -> None:
    """A request of a few hundred bytes holds its place until the deadline, and anybody may send as many as he likes."""
    go = asyncio.Event()
    async with ImageOrigin({"/slow": [Wait(go)], "/a": [Send(image_answer(PNG))]}) as origin:
        fetcher = Fetcher(Answers(["127.0.0.1"]), seconds=5.0, tls={})
        slow = requested(f"http://{origin.authority}/slow")
        work = [
            asyncio.ensure_future(fetcher.completed(slow, workspace="acme", most_bytes=ROOM))
            for _ in range(2 * REQUESTS)
        ]
        while len(origin.heads) < OF_ONE_WORKSPACE:
            await asyncio.sleep(0.001)
        quick = requested(f"http://{origin.authority}/a")
        assert images_in(await fetcher.completed(quick, workspace="globex", most_bytes=ROOM)) == [PNG]
        assert origin.targets.count("/slow") == OF_ONE_WORKSPACE
        for one in work:
            one.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        assert images_in(await fetcher.completed(quick, workspace="acme", most_bytes=ROOM)) == [PNG]
        go.set()


async def test_requests_at_a_time_are_bounded_and_who_waits_too_long_may_try_again() -> None:
    go = asyncio.Event()
    async with ImageOrigin({"/a": [Wait(go), Send(image_answer(PNG))]}) as origin:
        request = requested(f"http://{origin.authority}/a")
        fetcher = Fetcher(Answers(["127.0.0.1"]), seconds=5.0, tls={}, requests=1)
        first = asyncio.ensure_future(fetcher.completed(request, workspace="acme", most_bytes=ROOM))
        await origin.asked.wait()
        second = asyncio.ensure_future(fetcher.completed(request, workspace="acme", most_bytes=ROOM))
        await asyncio.sleep(0.05)
        go.set()
        assert images_in(await first) == images_in(await second)
        assert origin.most_open == 1
        go.clear()
        fetcher = Fetcher(Answers(["127.0.0.1"]), seconds=0.2, tls={}, requests=1)
        third = asyncio.ensure_future(fetcher.completed(request, workspace="acme", most_bytes=ROOM))
        await asyncio.sleep(0)
        with pytest.raises(EngineBusy) as caught:
            await fetcher.completed(request, workspace="acme", most_bytes=ROOM)
        assert caught.value.reason == "media_busy"
        with pytest.raises(InvalidRequest):
            await third
        go.set()


# Where it goes.


async def test_the_connection_goes_to_the_address_that_was_judged_and_to_no_other() -> None:
    async with ImageOrigin({"/a": [Send(image_answer(PNG))]}, host="127.0.0.2") as origin:
        request = requested(f"http://localhost:{origin.port}/a")
        lookup = Answers(["10.0.0.1", "127.0.0.2"])
        assert await fetched(request, lookup=lookup) == [PNG]
        assert lookup.asked == [("localhost", origin.port)]
        assert f"Host: localhost:{origin.port}".encode() in origin.heads[0]


async def test_a_name_that_leads_inwards_the_second_time_is_not_connected_to() -> None:
    async with ImageOrigin({"/a": [Send(image_answer(PNG))]}) as origin:
        request = requested(f"http://localhost:{origin.port}/a")
        lookup = Answers(["127.0.0.1"], ["169.254.169.254"])
        assert await fetched(request, lookup=lookup)
        assert (await refused(request, lookup=lookup)).reason == "media_address"
        assert origin.connections == 1


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1", "::1", "0.0.0.0"])
async def test_a_public_name_never_leads_to_this_machine(address: str) -> None:
    async with ImageOrigin({"/a": [Send(image_answer(PNG))]}) as origin:
        for host in (media_host(f"images.example.com:{origin.port}"), media_private_host(f"minio:{origin.port}")):
            request = requested(f"https://{host.authority}/a", hosts=[host])
            assert (await refused(request, lookup=Answers([address]))).reason == "media_address"
        assert origin.connections == 0


async def test_what_is_refused_and_what_is_away_look_the_same_to_the_client() -> None:
    async with ImageOrigin(
        {"/there": [Send(image_answer(PNG, status="403 Forbidden"))], "/slow": [WaitForPeer()]}
    ) as origin:
        host = media_private_host(f"localhost:{origin.port}")
        there = await refused(requested(f"http://{host.authority}/there"))
        missing = await refused(requested(f"http://{host.authority}/missing"))
        slow = await refused(requested(f"http://{host.authority}/slow"), seconds=0.1)
        inward = await refused(requested(f"http://{host.authority}/a"), lookup=Answers(["10.0.0.1"]))
        nothing = await refused(requested(f"http://{host.authority}/a"), lookup=Answers([]))
        unknown = await refused(requested("http://localhost:1/a", hosts=[host, media_private_host("localhost:1")]))
    async with ImageOrigin({}) as gone:
        port = gone.port
    away = await refused(requested(f"http://localhost:{port}/a"))
    refusals = [there, missing, slow, inward, nothing, unknown, away]
    assert len({(one.status, one.code, one.message, one.param) for one in refusals}) == 1
    assert [one.reason for one in refusals] == [
        "media_status",
        "media_status",
        "media_slow",
        "media_address",
        "media_address",
        "media_unreachable",
        "media_unreachable",
    ]
    assert "10.0.0.1" not in there.message
    assert there.param == "messages[0].content[0].image_url.url"


async def test_a_redirect_is_not_followed() -> None:
    async with ImageOrigin({"/inner": [Send(image_answer(PNG))]}) as inner:
        for status in ("301 Moved", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"):
            for target in (f"http://{inner.authority}/inner", "http://169.254.169.254/latest/meta-data/", "/inner"):
                answer = Send(image_answer(b"", f"Location: {target}", status=status))
                async with ImageOrigin({"/a": [answer], "/inner": [Send(image_answer(PNG))]}) as origin:
                    refusal = await refused(requested(f"http://{origin.authority}/a"))
                    assert refusal.reason == "media_status"
                    assert origin.targets == ["/a"]
        assert inner.connections == 0


# TLS.


async def test_an_image_comes_over_tls_of_a_known_authority_and_of_no_other(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = listener_context(authority.tls("127.0.0.1"))
    contexts = {authority.file: client_context(authority.file, None), None: SYSTEM}
    async with ImageOrigin({"/a": [Send(image_answer(PNG))]}, tls=tls) as origin:
        url = f"https://{origin.authority}/a"
        assert await fetched(requested(url, ca=authority.file), tls=contexts) == [PNG]
        assert (await refused(requested(url), tls=contexts)).reason == "media_tls"
        # The name in the URL is what the certificate must have, wherever the address came from.
        request = requested(f"https://localhost:{origin.port}/a", ca=authority.file)
        assert (await refused(request, tls=contexts)).reason == "media_tls"
        assert origin.targets == ["/a"]


# What comes back.


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([Send(image_answer(b"", status="204 No Content"))], "media_status"),
        ([Send(image_answer(PNG, status="206 Partial Content"))], "media_status"),
        ([Send(image_answer(PNG, status="404 Not Found"))], "media_status"),
        ([Send(image_answer(PNG, status="500 Oh"))], "media_status"),
        (
            [Send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" + PNG)],
            "media_status",
        ),
        ([Send(image_answer(gzip.compress(PNG), "Content-Encoding: gzip"))], "media_encoding"),
        ([Send(image_answer(PNG, "Content-Encoding: identity, gzip"))], "media_encoding"),
        ([Send(image_answer(PNG, "Content-Encoding: identity", "Content-Encoding: br"))], "media_encoding"),
        ([Send(b"HTTP/1.1 200 OK\r\n\r\n" + PNG), Close()], "media_length"),
        ([Send(b"HTTP/1.0 200 OK\r\n\r\n" + PNG), Close()], "media_length"),
        ([Send(image_answer(PNG)[:-5]), Close()], "media_broken"),
        ([Send(CHUNKED + chunk(PNG)), Close()], "media_broken"),
        ([Send(CHUNKED + chunk(PNG) + b"zz\r\n"), Close()], "media_broken"),
        ([Send(CHUNKED + b"-5\r\nhello\r\n")], "media_broken"),
        ([Send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!")], "media_broken"),
        ([Send(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nhello!")], "media_broken"),
        ([Send(b"HTTP/1.1 200 OK\r\nA: " + b"a" * 20_000 + b"\r\n\r\n")], "media_broken"),
        ([Send(b"HTTP/1.1 200 OK\r\n" + b"A: a\r\n" * 2_000 + b"\r\n")], "media_broken"),
        ([Send(b"\x89PNG\r\n\x1a\n" * 100)], "media_broken"),
        ([Send(b"220 smtp.example.com ESMTP\r\n")], "media_broken"),
        ([Send(b"-ERR unknown command\r\n")], "media_broken"),
        ([Close()], "media_broken"),
    ],
)
async def test_only_a_whole_plain_200_counts(steps: list[Step], reason: str) -> None:
    async with ImageOrigin({"/a": steps}) as origin:
        refusal = await refused(requested(f"http://{origin.authority}/a"))
        assert (type(refusal), refusal.reason) == (InvalidRequest, reason)


async def test_chunks_and_a_type_that_says_otherwise_are_fine() -> None:
    chunked = CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Type: text/html\r\n\r\n")
    async with ImageOrigin({"/a": [Send(chunked + chunk(PNG[:9]) + chunk(PNG[9:]) + LAST_CHUNK)]}) as origin:
        assert await fetched(requested(f"http://{origin.authority}/a")) == [PNG]


async def test_a_length_over_the_bound_is_refused_before_a_byte_of_it() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n"
    async with ImageOrigin({"/a": [Send(head), WaitForPeer()]}) as origin:
        assert "at most 1000 bytes" in (await refused(requested(f"http://{origin.authority}/a"))).message
        await asyncio.wait_for(origin.gone.wait(), 5)
    async with ImageOrigin({"/a": [Send(image_answer(PNG + bytes(1000 - len(PNG))))]}) as origin:
        assert await fetched(requested(f"http://{origin.authority}/a"))


async def test_a_body_without_end_is_read_to_the_bound_and_no_further() -> None:
    endless = [Send(CHUNKED), *([Send(chunk(bytes(2**16)))] * 4000)]  # 250 MB
    async with ImageOrigin({"/a": endless}) as origin:
        assert "at most 1000 bytes" in (await refused(requested(f"http://{origin.authority}/a"))).message
        await asyncio.wait_for(origin.gone.wait(), 5)


async def test_images_together_are_bounded_as_if_the_client_had_sent_them() -> None:
    large = PNG + bytes(900 - len(PNG))
    async with ImageOrigin({"/a": [Send(image_answer(large))], "/b": [Send(image_answer(large))]}) as origin:
        here = f"http://{origin.authority}"
        for urls in ([f"{here}/a", f"{here}/b", f"{here}/a"], [f"{here}/a"] * 3):
            request = requested(*urls)
            size = request.size_bytes + 3 * 1200
            assert await fetched(request, most_bytes=size)
            refusal = await refused(request, most_bytes=size - 1)
            assert (type(refusal), refusal.reason) == (BodyTooLarge, "media_too_large")


@pytest.mark.parametrize(
    "steps",
    [
        [WaitForPeer()],
        [Send(b"HTTP/1.1 200 OK\r\n"), WaitForPeer()],
        [Send(CHUNKED + chunk(PNG)), WaitForPeer()],
        [Send(CHUNKED), *([Send(chunk(b"a")), Sleep(0.02)] * 200)],
        [Send(b"HTTP/1.1 200 OK\r\n"), *([Send(b"a: b\r\n"), Sleep(0.02)] * 100)],
        [*([Send(b"HTTP/1.1 100 Continue\r\n\r\n"), Sleep(0.02)] * 200)],
    ],
)
async def test_a_host_that_drips_is_given_up_in_time(steps: list[Step]) -> None:
    async with ImageOrigin({"/a": steps}) as origin:
        began = time.monotonic()
        assert (await refused(requested(f"http://{origin.authority}/a"), seconds=0.15)).reason == "media_slow"
        assert time.monotonic() - began < 2


async def test_the_time_is_for_all_images_together() -> None:
    steps: list[Step] = [Sleep(0.1), Send(image_answer(PNG))]
    pages = {f"/{number}": steps for number in range(CONNECTIONS * 4)}
    async with ImageOrigin(pages) as origin:
        request = requested(*(f"http://{origin.authority}{path}" for path in pages))
        assert (await refused(request, seconds=0.25)).reason == "media_slow"


async def test_a_name_server_that_does_not_answer_is_given_up_in_time() -> None:
    class Silent:
        async def addresses(self, host: str, port: int) -> Sequence[str]:
            await asyncio.Event().wait()
            raise AssertionError

    assert (await refused(requested("http://localhost:9/a"), lookup=Silent(), seconds=0.1)).reason == "media_slow"


async def test_one_bad_image_ends_the_others_and_is_named() -> None:
    async with ImageOrigin({"/good": [WaitForPeer()]}) as origin:
        here = f"http://{origin.authority}"
        refusal = await refused(requested(f"{here}/good", f"{here}/bad"))
        assert refusal.param == "messages[0].content[1].image_url.url"
        await asyncio.wait_for(origin.gone.wait(), 5)


async def test_a_fault_of_ours_is_no_refusal() -> None:
    class Broken:
        async def addresses(self, host: str, port: int) -> Sequence[str]:
            raise ZeroDivisionError

    with pytest.raises(ExceptionGroup) as caught:
        await fetched(requested("http://localhost:9/a"), lookup=Broken())
    assert caught.group_contains(ZeroDivisionError)


async def test_the_system_s_own_lookup_serves() -> None:
    lookup = SystemLookup()
    async with ImageOrigin({"/a": [Send(image_answer(PNG))]}) as origin:
        assert await fetched(requested(f"http://localhost:{origin.port}/a"), lookup=lookup)
        request = requested(f"https://images.invalid:{origin.port}/a")
        assert (await refused(request, lookup=lookup)).reason == "media_unreachable"
    lookup.close()


async def test_an_address_literal_on_the_list_is_asked_without_a_lookup() -> None:
    async with ImageOrigin({"/a": [Send(image_answer(PNG))]}) as origin:
        request = requested(f"http://{origin.authority}/a")
        assert request.remote[0].address.origin.reach is Reach.LOOPBACK
        lookup = Answers([])
        assert await fetched(replace(request), lookup=lookup)
        assert lookup.asked == []
