"""What the simulated engine does with a salt: as strict and as lenient as vLLM 0.32."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping

import pytest

from proxy.demo.simulator import ALL_ENDPOINTS, AT_ONCE, Endpoint, EngineShape, Flaws, Simulator
from tests.parts.gone_client import Answer, GoneClient

LONG = "the same long words that all of them send, often " * 4
ENDPOINTS = sorted(Endpoint, key=lambda endpoint: endpoint.value)


def ask(salt: object = None, **more: object) -> dict[str, object]:
    """A body that every route understands: the routes ignore each other's members."""
    given = {"messages": [{"role": "user", "content": LONG}], "prompt": LONG, "input": LONG, "max_tokens": 2}
    return given | more | ({} if salt is None else {"cache_salt": salt})


async def send(engine: Simulator, endpoint: Endpoint, body: Mapping[str, object] | bytes) -> Answer:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with GoneClient.to(engine.url) as client:
        head = (
            f"POST {endpoint.value} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(raw)}"
        )
        await client.send(head.encode() + b"\r\n\r\n" + raw)
        return await client.read_answer()


async def reused(engine: Simulator, endpoint: Endpoint, body: Mapping[str, object] | bytes) -> bool:
    answer = await send(engine, endpoint, body)
    assert answer.status == 200, answer.body
    return bool(engine.last.reused)


@pytest.fixture
async def engine() -> AsyncIterator[Simulator]:
    async with Simulator(EngineShape(pace=AT_ONCE)) as simulator:
        yield simulator


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_every_route_reuses_within_a_salt_and_never_across(engine: Simulator, endpoint: Endpoint) -> None:
    assert not await reused(engine, endpoint, ask("one"))
    assert await reused(engine, endpoint, ask("one"))
    for other in ("two", " one", None):
        assert not await reused(engine, endpoint, ask(other))
    assert await reused(engine, endpoint, ask(None))


async def test_null_is_the_same_as_no_salt(engine: Simulator) -> None:
    await send(engine, Endpoint.CHAT, ask())
    assert await reused(engine, Endpoint.CHAT, {**ask(), "cache_salt": None})


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("salt", ["", 7, ["one"], "a" * 129, "a@b", "a/b", "a\\b", "a\0b", "\ud800"])
async def test_a_salt_that_vllm_refuses_is_400(engine: Simulator, endpoint: Endpoint, salt: object) -> None:
    answer = await send(engine, endpoint, ask(salt))
    assert answer.status == 400
    assert json.loads(answer.body)["error"]["code"] == 400
    assert engine.last.reused is None


async def test_a_salt_of_128_characters_with_any_others_is_taken(engine: Simulator) -> None:
    assert not await reused(engine, Endpoint.CHAT, ask("ä \n" + "x" * 125))


@pytest.mark.parametrize(
    "body",
    [
        b'{"cache_salt":"two","cache_salt":"one",%s}',
        b'{"cache_salt":"two","cache\\u005fsalt":"one",%s}',
        b'\xef\xbb\xbf{"cache_salt":"one",%s}',
        b'{"cache_salt":"one","temperature":NaN,"Cache_Salt":"two","extra_body":{"cache_salt":"two"},%s}',
    ],
)
async def test_json_is_read_as_leniently_as_by_python(engine: Simulator, body: bytes) -> None:
    rest = json.dumps(ask()).encode()[1:-1]
    await send(engine, Endpoint.CHAT, ask("one"))
    assert await reused(engine, Endpoint.CHAT, body.replace(b"%s", rest))
    assert engine.last.salt == "one"


async def test_utf16_is_read_whatever_the_content_type_says(engine: Simulator) -> None:
    await send(engine, Endpoint.CHAT, ask("one"))
    assert await reused(engine, Endpoint.CHAT, json.dumps(ask("one")).encode("utf-16"))


@pytest.mark.parametrize("body", [b"", b"{", b'{"a":1} x', b"[1]", b"[" * 100_000])
async def test_a_body_that_is_no_json_object_is_400_in_fastapis_form(engine: Simulator, body: bytes) -> None:
    answer = await send(engine, Endpoint.CHAT, body)
    assert (answer.status, list(json.loads(answer.body))) == (400, ["detail"])


@pytest.mark.parametrize("word", ["true", "yes", 1, "on"])
async def test_a_lax_true_is_a_stream(engine: Simulator, word: object) -> None:
    answer = await send(engine, Endpoint.CHAT, ask(stream=word))
    assert answer.body.endswith(b"data: [DONE]\n\n")


async def test_stream_options_without_a_stream_are_400(engine: Simulator) -> None:
    assert (await send(engine, Endpoint.CHAT, ask(stream_options={"include_usage": True}))).status == 400


async def test_a_route_that_ignores_the_salt_shares_with_everybody_and_the_others_do_not() -> None:
    flaws = Flaws(ignores_salt=frozenset({Endpoint.RESPONSES}))
    async with Simulator(EngineShape(pace=AT_ONCE, flaws=flaws)) as engine:
        await send(engine, Endpoint.RESPONSES, ask("one"))
        assert await reused(engine, Endpoint.RESPONSES, ask("two"))
        assert not await reused(engine, Endpoint.CHAT, ask("one"))
        assert not await reused(engine, Endpoint.CHAT, ask("two"))


async def test_an_engine_without_a_prefix_cache_reuses_and_keeps_nothing() -> None:
    async with Simulator(EngineShape(pace=AT_ONCE, flaws=Flaws(no_prefix_cache=True))) as engine:
        assert not await reused(engine, Endpoint.CHAT, ask("one"))
        assert not await reused(engine, Endpoint.CHAT, ask("one"))
        assert len(engine.engine.cache) == 0


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("endpoint", [e for e in ENDPOINTS if e is not Endpoint.EMBEDDINGS])
async def test_an_engine_that_hides_reuse_reuses_and_says_nothing(endpoint: Endpoint, stream: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if stream else {}
    body = ask("one", stream=stream, **options)
    for hidden in (frozenset[Endpoint](), ALL_ENDPOINTS):
        async with Simulator(EngineShape(pace=AT_ONCE, flaws=Flaws(hides_cached_tokens=hidden))) as engine:
            await send(engine, endpoint, body)
            answer = await send(engine, endpoint, body)
            assert engine.last.reused
            told = b'"cached_tokens":' in answer.body or b'"cache_read_input_tokens":' in answer.body
            assert told is not bool(hidden)
