"""Whose traces go on here, on whole gates: what the engine is told, and what the collector gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from config.settings import Proxies, ScopeTraces, Telemetry, TrustedCaller
from proxy.identity import Identity
from proxy.peers import Trusted, address_of
from proxy.tracing import Tracing
from tests.parts.gate_bed import GateBed, chat, gate_bed
from tests.parts.otlp_sink import OtlpSink, ReceivedSpan
from tests.parts.raw_engine import RawEngine, Send, json_answer
from tests.parts.redis_server import RedisServer
from tests.proxy.relay.relay_parts import ANSWER

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
THEIRS = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "vendor=1", "baggage": "user=alice"}
CHAT_UI = TrustedCaller(issuer="", client="chat-ui")
ALICE = TrustedCaller(issuer="", subject="u-alice-0001")
BOB = TrustedCaller(issuer="", subject="u-bob-0002")


async def asked(
    redis: RedisServer,
    folder: Path,
    telemetry: Telemetry,
    sent: Mapping[str, str] = THEIRS,
    *,
    proxies: Proxies | None = None,
) -> tuple[dict[str, bytes], list[ReceivedSpan]]:
    """One request of alice's with these header lines: what the engine was told of its trace, and the spans of it."""
    told: dict[str, bytes] = {}
    async with OtlpSink() as sink, RawEngine((Send(json_answer(ANSWER)),)) as engine:
        written = replace(telemetry, otlp_endpoint=sink.url)
        async with gate_bed(
            redis.settings(),
            [engine.url],
            folder,
            proof="off",
            models=("tiny",),
            telemetry=written,
            proxies=proxies,
        ) as bed:
            assert (await bed.post(document=chat(), headers=bed.headers() | dict(sent)))[0] == 200
            for name in ("traceparent", "tracestate", "baggage"):
                if lines := engine.requests[-1].header(name.encode()):
                    (told[name],) = lines
    return told, sink.spans


@pytest.mark.slow
@pytest.mark.parametrize("trusted", [(CHAT_UI,), (ALICE,), (BOB, ALICE)], ids=["client", "subject", "among others"])
async def test_a_trusted_callers_trace_goes_on_to_the_engine_and_his_span_is_the_parent(
    redis: RedisServer, tmp_path: Path, trusted: tuple[TrustedCaller, ...]
) -> None:
    told, spans = await asked(redis, tmp_path, Telemetry(trusted_callers=trusted, trace_ratio=0.0))
    client, server = spans
    assert told["traceparent"].decode() == f"00-{TRACE}-{client.span_id}-01"
    assert told["tracestate"] == b"vendor=1"
    assert (server.trace_id, server.parent_id, server.links) == (TRACE, SPAN, [])
    assert (client.trace_id, client.parent_id) == (TRACE, server.span_id)


@pytest.mark.slow
@pytest.mark.parametrize("trusted", [(), (BOB,), (TrustedCaller(issuer="", client="chat-u"),)])
async def test_anybody_elses_trace_is_a_link_and_nothing_of_it_goes_up(
    redis: RedisServer, tmp_path: Path, trusted: tuple[TrustedCaller, ...]
) -> None:
    told, spans = await asked(redis, tmp_path, Telemetry(trusted_callers=trusted))
    client, server = spans
    assert told["traceparent"].decode() == f"00-{server.trace_id}-{client.span_id}-01"
    assert TRACE not in (server.trace_id, client.trace_id)
    assert (server.parent_id, server.links) == ("", [(TRACE, SPAN)])
    assert "tracestate" not in told


@pytest.mark.slow
async def test_baggage_goes_up_for_nobody(redis: RedisServer, tmp_path: Path) -> None:
    told, _ = await asked(redis, tmp_path, Telemetry(trusted_callers=(CHAT_UI,)))
    assert "baggage" not in told


@pytest.mark.slow
async def test_a_stranger_cannot_have_his_requests_recorded(redis: RedisServer, tmp_path: Path) -> None:
    told, spans = await asked(redis, tmp_path, Telemetry(trace_ratio=0.0))
    assert told["traceparent"].endswith(b"-00")
    assert spans == []


@pytest.mark.slow
async def test_a_trusted_caller_who_does_not_record_his_trace_has_none_here_either(
    redis: RedisServer, tmp_path: Path
) -> None:
    quiet = {"traceparent": f"00-{TRACE}-{SPAN}-00"}
    told, spans = await asked(redis, tmp_path, Telemetry(trusted_callers=(CHAT_UI,), trace_ratio=1.0), quiet)
    assert told["traceparent"].startswith(f"00-{TRACE}-".encode())
    assert told["traceparent"].endswith(b"-00")
    assert spans == []


@pytest.mark.slow
@pytest.mark.parametrize(("trusted", "goes_on"), [("127.0.0.0/8", True), ("10.0.0.0/8", False)])
async def test_behind_a_trusted_proxy_every_trace_goes_on_and_behind_another_none(
    redis: RedisServer, tmp_path: Path, trusted: str, goes_on: bool
) -> None:
    proxies = Proxies(trusted=(trusted,))
    _, (_, server) = await asked(redis, tmp_path, Telemetry(trusted_proxies=True), proxies=proxies)
    assert (server.trace_id == TRACE) is goes_on


@pytest.mark.slow
async def test_a_trusted_proxy_alone_lets_no_trace_go_on(redis: RedisServer, tmp_path: Path) -> None:
    _, (_, server) = await asked(redis, tmp_path, Telemetry(), proxies=Proxies(trusted=("127.0.0.0/8",)))
    assert server.trace_id != TRACE


@pytest.mark.slow
@pytest.mark.parametrize(("project", "kept"), [("apollo", True), ("ares", False)])
async def test_the_share_of_a_scope_is_that_of_its_requests(
    redis: RedisServer, tmp_path: Path, project: str, kept: bool
) -> None:
    scopes = (ScopeTraces(workspace="acme", project="apollo", trace_ratio=1.0),)
    sent = {"OpenAI-Project": project}
    told, spans = await asked(redis, tmp_path, Telemetry(trace_ratio=0.0, scopes=scopes), sent)
    assert told["traceparent"].endswith(b"-01" if kept else b"-00")
    assert len(spans) == (2 if kept else 0)


@pytest.mark.slow
async def test_whoever_is_refused_before_he_is_known_is_linked_and_no_more(redis: RedisServer, tmp_path: Path) -> None:
    async with OtlpSink() as sink, RawEngine(()) as engine:
        telemetry = Telemetry(otlp_endpoint=sink.url, trusted_callers=(CHAT_UI,))
        async with gate_bed(
            redis.settings(), [engine.url], tmp_path, proof="off", models=("tiny",), telemetry=telemetry
        ) as bed:
            assert (await _unknown(bed))[0] == 401
    (server,) = sink.spans
    assert (server.trace_id != TRACE, server.links) == (True, [(TRACE, SPAN)])


async def _unknown(bed: GateBed) -> tuple[int, Mapping[str, str], bytes]:
    return await bed.post(headers=THEIRS | {"Authorization": "Bearer " + bed.mint.token(audience="another")})


def caller(subject: str = "s", client: str | None = None, actor: Identity | None = None) -> Identity:
    return Identity(
        issuer="https://i", subject=subject, groups=frozenset(), groups_complete=True, expires_at=1.0, client=client,
        actor=actor,
    )  # fmt: skip


def test_a_name_is_one_issuers_and_a_client_is_no_subject() -> None:
    trusts = Tracing(clients=frozenset({("https://i", "c")}), subjects=frozenset({("https://i", "s")}))
    assert trusts.goes_on(caller("s"), None)
    assert trusts.goes_on(caller("x", "c"), None)
    assert not trusts.goes_on(caller("c", "s"), None)
    assert not trusts.goes_on(caller("x"), None)
    other = Tracing(clients=frozenset({("https://j", "c")}), subjects=frozenset({("https://j", "s")}))
    assert not other.goes_on(caller("s", "c"), None)


def test_a_front_end_that_is_trusted_is_so_for_its_people() -> None:
    trusts = Tracing(clients=frozenset({("https://i", "ui")}))
    assert trusts.goes_on(caller("person", actor=caller("front", "ui")), None)
    assert not trusts.goes_on(caller("person", actor=caller("front", "other")), None)


def test_a_proxy_is_known_by_where_the_connection_comes_from() -> None:
    trusts = Tracing(proxies=Trusted(unix=True))
    assert trusts.goes_on(caller(), "unix")
    assert not trusts.goes_on(caller(), address_of("127.0.0.1"))
    assert not Tracing().goes_on(caller(), "unix")


@pytest.mark.slow
async def test_an_engine_that_says_no_is_an_error_to_the_gate_that_called_it(
    redis: RedisServer, tmp_path: Path
) -> None:
    statuses = ("400 Bad Request", "404 Not Found", "429 Too Many Requests", "503 Service Unavailable", "200 OK")
    scripts = [(Send(json_answer(ANSWER, status)),) for status in statuses]
    async with OtlpSink() as sink, RawEngine(*scripts) as engine:
        telemetry = Telemetry(otlp_endpoint=sink.url, trace_ratio=1.0)
        async with gate_bed(
            redis.settings(), [engine.url], tmp_path, proof="off", models=("tiny",), telemetry=telemetry
        ) as bed:
            ids = [(await bed.post(document=chat()))[1]["X-Request-Id"] for _ in statuses]
    calls = {span.attributes["saltgate.request.id"]: span for span in sink.spans if span.kind == "CLIENT"}
    told = [(calls[one].status, calls[one].attributes.get("error.type")) for one in ids]
    assert told == [*(("ERROR", status[:3]) for status in statuses[:-1]), ("UNSET", None)]
