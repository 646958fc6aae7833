"""Which pages of browsers are let in (rule 73), with the bytes that browsers send and those that they never would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from config.settings import Cors
from proxy.cross_origin import CrossOrigin, preflight_lines
from proxy.demo.simulator import AT_ONCE, EngineShape, Simulator
from proxy.routes import Page
from tests.parts.gate_bed import GateBed, chat, gate_bed
from tests.parts.redis_server import RedisServer

pytestmark = pytest.mark.slow

ORIGIN = "https://chat.example.com"
LISTED = (ORIGIN, "http://localhost:3000", "https://other.example:8443")
CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Answered:
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]

    @property
    def about_pages(self) -> dict[str, str]:
        return {key: value for key, value in self.headers if key.lower().startswith("access-control-")}


@asynccontextmanager
async def bed_of(redis: RedisServer, folder: Path, *, listed: tuple[str, ...] = LISTED) -> AsyncIterator[GateBed]:
    async with (
        Simulator(EngineShape(pace=AT_ONCE)) as engine,
        gate_bed(redis.settings(), [engine.url], folder, cors=Cors(origins=listed)) as bed,
    ):
        yield bed


async def send(bed: GateBed, method: str, path: str, *lines: tuple[str, str] | bytes, body: bytes = b"") -> Answered:
    """One request on a connection of its own, its lines exactly as they are given."""
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n".encode()
    for line in lines:
        head += line if isinstance(line, bytes) else f"{line[0]}: {line[1]}\r\n".encode()
    if body:
        head += b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body)
    reader, writer = await asyncio.open_connection("127.0.0.1", bed.port)
    writer.write(head + b"\r\n" + body)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    first, _, rest = answer.partition(b"\r\n")
    fields, _, received = rest.partition(b"\r\n\r\n")
    headers = (line.decode().partition(": ")[::2] for line in fields.split(b"\r\n"))
    return Answered(int(first.split()[1]), tuple((name, value) for name, value in headers), received)


async def preflight(
    bed: GateBed, path: str = CHAT, *, origin: str = ORIGIN, method: str = "POST", headers: str = "authorization"
) -> Answered:
    asked = [("Origin", origin), ("Access-Control-Request-Method", method)]
    return await send(bed, "OPTIONS", path, *asked, ("Access-Control-Request-Headers", headers))


def own(bed: GateBed) -> list[tuple[str, str]]:
    return list(bed.headers().items())


BODY = json.dumps(chat()).encode()
STREAM = json.dumps(chat(stream=True)).encode()


ENDPOINTS = (
    ("POST", CHAT),
    ("POST", "/v1/messages"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/tiny"),
    ("POST", "/w/acme/p/apollo/v1/responses"),
    ("GET", "/.well-known/oauth-protected-resource"),
)


@pytest.mark.parametrize("origin", LISTED)
async def test_a_preflight_is_answered_before_anybody_is_known(redis: RedisServer, tmp_path: Path, origin: str) -> None:
    async with bed_of(redis, tmp_path) as bed:
        for method, path in ENDPOINTS:
            answered = await preflight(bed, path, origin=origin, method=method, headers="authorization,content-type")
            assert (answered.status, answered.body) == (200, b"")
            assert answered.about_pages == {
                "Access-Control-Allow-Origin": origin,
                "Access-Control-Allow-Methods": method,
                "Access-Control-Allow-Headers": "authorization, content-type",
                "Access-Control-Max-Age": "600",
            }
            assert answered.all("Vary") == ["Origin, Access-Control-Request-Method, Access-Control-Request-Headers"]
            assert answered.all("Content-Length") == ["0"]
            assert answered.all("X-Request-Id")


SDKS = (
    "authorization, content-type, x-api-key, api-key, dpop, openai-organization, openai-project, openai-beta, "
    "anthropic-version, anthropic-beta, anthropic-dangerous-direct-browser-access, x-stainless-lang, "
    "x-stainless-package-version, x-stainless-os, x-stainless-arch, x-stainless-runtime, x-stainless-retry-count, "
    "x-stainless-timeout, x-stainless-runtime-version, user-agent, accept, x-saltgate-unit, x-saltgate-collection"
)


def test_what_the_sdks_send_is_allowed() -> None:
    assert f"Access-Control-Allow-Headers: {SDKS}\r\n".encode() in preflight_lines(ORIGIN, "POST", [SDKS])


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        (["X-Custom"], None),
        (["cookie", "x-forwarded-for", "client-cert", "host", "proxy-authorization"], None),
        (["authorization, x-custom"], "authorization"),
        (["Authorization"], "authorization"),
        (["authorization", "authorization,authorization"], "authorization"),
        (["*"], None),
        ([""], None),
        ([",,,"], None),
        (["x-stainless-\xe9"], None),
        (["x-stainless-a\r\nSet-Cookie: a=b"], None),
        (["x-stainless-a: b"], None),
        (["openai-" + "x" * 100], None),
        (["x-stainless"], None),
        ([",".join(f"x-stainless-{n}" for n in range(1000))], ", ".join(f"x-stainless-{n}" for n in range(64))),
        (["xauthorization", "authorization2"], None),
    ],
)
def test_only_known_headers_are_repeated(asked: list[str], allowed: str | None) -> None:
    lines = preflight_lines(ORIGIN, "POST", asked).decode("ascii").split("\r\n")
    named = [line for line in lines if line.startswith("Access-Control-Allow-Headers")]
    assert named == ([] if allowed is None else [f"Access-Control-Allow-Headers: {allowed}"])


HOSTILE = [
    "null",
    "*",
    "",
    "https://evil.example",
    "https://chat.example.com.evil.example",
    "https://evil.example/https://chat.example.com",
    "https://chat.example.com@evil.example",
    "https://evilchat.example.com",
    "https://sub.chat.example.com",
    "http://chat.example.com",
    "https://chat.example.com:443",
    "https://chat.example.com:8443",
    "https://chat.example.com.",
    "https://chat.example.com/",
    "https://chat.example.com https://evil.example",
    "https://chat.example.com, https://evil.example",
    "HTTPS://chat.example.com",
    "https://Chat.Example.com",
    "https://xn--chat.example.com",
    "https://ch\u0430t.example.com",
    "https://chat.example.com\u3002",
    "https://chat.example.com%00",
    "https://chat.example.com\\",
    "chat.example.com",
    "//chat.example.com",
    "https:chat.example.com",
    "https://" + "a" * 20_000,
    "http://localhost:3001",
    "http://localhost",
    "http://127.0.0.1:3000",
    "file://",
]


async def test_an_origin_that_is_not_listed_gets_no_word_of_it(redis: RedisServer, tmp_path: Path) -> None:
    """The answer is the one that it would get from anywhere, since it is the browser that keeps it from the page."""
    async with bed_of(redis, tmp_path) as bed:
        for origin in HOSTILE:
            answered = await send(bed, "POST", CHAT, *own(bed), ("Origin", origin), body=BODY)
            assert (answered.status, answered.about_pages, answered.all("Vary")) == (200, {}, ["Origin"]), origin
            answered = await preflight(bed, origin=origin)
            assert (answered.status, answered.about_pages, answered.all("Vary")) == (404, {}, ["Origin"]), origin
            assert json.loads(answered.body)["error"]["code"] == "endpoint_not_allowed"


async def test_two_origins_or_other_headers_are_none(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_of(redis, tmp_path) as bed:
        for lines in (
            b"Origin: https://chat.example.com\r\nOrigin: https://chat.example.com\r\n",
            b"Origin: https://chat.example.com\r\norigin: https://evil.example\r\n",
            b"Origin: null\r\nOrigin: https://chat.example.com\r\n",
            b"Origin: https://chat.example.com\xff\r\n",
            b"X-Origin: https://chat.example.com\r\n",
            b"Referer: https://chat.example.com\r\n",
            b"",
        ):
            answered = await send(bed, "POST", CHAT, *own(bed), lines, body=BODY)
            assert (answered.status, answered.about_pages, answered.all("Vary")) == (200, {}, ["Origin"]), lines
            answered = await send(bed, "OPTIONS", CHAT, lines, ("Access-Control-Request-Method", "POST"))
            assert (answered.status, answered.about_pages) == (404, {}), lines


async def test_no_line_break_in_an_origin_gets_into_an_answer(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_of(redis, tmp_path) as bed:
        for end in (b"\r\nX-Injected: yes", b"\nX-Injected: yes", b"\r X-Injected: yes", b"\0"):
            answered = await send(bed, "GET", "/v1/models", b"Origin: https://evil.example" + end + b"\r\n")
            assert answered.status in {400, 401}
            assert not answered.all("X-Injected")
            assert not answered.about_pages


def expected(origin: str = ORIGIN) -> dict[str, str]:
    return {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Expose-Headers": "X-Request-Id, Retry-After, WWW-Authenticate, Server-Timing, x-should-retry",
    }


async def test_a_listed_page_reads_answers_streams_and_refusals(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_of(redis, tmp_path) as bed:
        page = ("Origin", ORIGIN)
        asked = {
            200: [
                send(bed, "POST", CHAT, *own(bed), page, body=BODY),
                send(bed, "POST", CHAT, *own(bed), page, body=STREAM),
                send(bed, "GET", "/v1/models", *own(bed), page),
                send(bed, "GET", "/.well-known/oauth-protected-resource", page),
            ],
            400: [
                send(bed, "POST", CHAT, *own(bed), page, body=b"{"),
                send(bed, "POST", CHAT, *own(bed), ("x-api-key", "other"), page, body=BODY),
            ],
            401: [send(bed, "POST", CHAT, page, body=BODY), send(bed, "GET", "/v1/models", page)],
            403: [send(bed, "POST", CHAT, *bed.headers("u-nobody").items(), page, body=BODY)],
            404: [send(bed, "GET", "/v1/no-such", page), send(bed, "GET", "/", page)],
            415: [send(bed, "POST", CHAT, *own(bed), page)],
        }
        for status, requests in asked.items():
            for answered in await asyncio.gather(*requests):
                assert (answered.status, answered.about_pages) == (status, expected())
                assert answered.all("Vary") == ["Origin"]


async def test_a_failure_of_ours_is_readable_too(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_of(redis, tmp_path) as bed:

        class Broken:
            def current(self) -> object:
                raise RuntimeError("secret-detail")

        bed.gate.gateway.admissions.directory = Broken()  # type: ignore[assignment]
        answered = await send(bed, "POST", CHAT, *own(bed), ("Origin", ORIGIN), body=BODY)
        assert (answered.status, answered.about_pages) == (500, expected())


async def test_credentials_of_the_browser_never_count(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_of(redis, tmp_path) as bed:
        for answered in (
            await preflight(bed),
            await send(bed, "POST", CHAT, *own(bed), ("Origin", ORIGIN), body=BODY),
            await send(bed, "POST", CHAT, ("Origin", ORIGIN), ("Cookie", "__Host-saltgate=x"), body=BODY),
        ):
            assert not answered.all("Access-Control-Allow-Credentials")
            assert "*" not in answered.about_pages.values()


async def test_the_pages_for_people_let_no_other_page_in(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_of(redis, tmp_path) as bed:
        for page in Page:
            method, path = page.value
            answered = await preflight(bed, path, method=method)
            assert (answered.status, answered.about_pages) == (404, {})
            for target in (path, path + "?a=b", path + "/more"):
                answered = await send(bed, method, target, ("Origin", ORIGIN))
                assert (answered.about_pages, answered.all("Vary")) == ({}, [])


NOT_SERVED = (
    ("GET", CHAT),
    ("DELETE", CHAT),
    ("post", CHAT),
    ("OPTIONS", CHAT),
    ("TRACE", CHAT),
    ("", CHAT),
    ("POST, GET", CHAT),
    ("POST", "/v1/no-such"),
    ("POST", "/v1/chat/completions/"),
    ("POST", "/metrics"),
    ("POST", "*"),
)


async def test_a_preflight_of_what_does_not_exist_does_not_exist(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_of(redis, tmp_path) as bed:
        for method, path in NOT_SERVED:
            answered = await preflight(bed, path, method=method)
            assert answered.status == 404
            assert "Access-Control-Allow-Methods" not in answered.about_pages


async def test_options_that_is_no_preflight_does_not_exist(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_of(redis, tmp_path) as bed:
        twice = [("Access-Control-Request-Method", "POST")] * 2
        for lines in ([], [("Origin", ORIGIN)], [("Origin", ORIGIN), *twice]):
            answered = await send(bed, "OPTIONS", CHAT, *own(bed), *lines)
            assert answered.status == 404
            assert "Access-Control-Allow-Methods" not in answered.about_pages


async def test_a_preflight_opens_nothing_for_what_follows_on_its_connection(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_of(redis, tmp_path) as bed:
        reader, writer = await asyncio.open_connection("127.0.0.1", bed.port)
        asked = f"Origin: {ORIGIN}\r\nAccess-Control-Request-Method: POST\r\n"
        writer.write(
            f"OPTIONS {CHAT} HTTP/1.1\r\nHost: x\r\n{asked}\r\n"
            "GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
        )
        first, _, second = (await reader.read()).partition(b"HTTP/1.1 401 ")
        writer.close()
        assert first.startswith(b"HTTP/1.1 200 ")
        assert b"Access-Control" not in second


async def test_switched_off_there_is_no_word_of_pages(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_of(redis, tmp_path, listed=()) as bed:
        answered = await preflight(bed)
        assert (answered.status, answered.about_pages, answered.all("Vary")) == (404, {}, [])
        answered = await send(bed, "POST", CHAT, *own(bed), ("Origin", ORIGIN), body=BODY)
        assert (answered.status, answered.about_pages, answered.all("Vary")) == (200, {}, [])


@pytest.mark.parametrize("origin", HOSTILE)
def test_only_bytes_of_the_configuration_are_ever_repeated(origin: str) -> None:
    assert CrossOrigin(frozenset(LISTED)).lines([origin]) == b"Vary: Origin\r\n"


async def test_a_preflight_is_recorded_by_its_route(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_of(redis, tmp_path) as bed:
        await preflight(bed, "/w/acme/p/apollo/v1/models/tiny", method="GET")
        (line,) = await bed.completed(1)
        assert (line["route"], line["outcome"], line["status"]) == (
            "/w/{workspace}/p/{project}/v1/models/{model}",
            "ok",
            200,
        )
