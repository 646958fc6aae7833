"""Spans, as a collector gets them; and what a collector that does not work changes: nothing."""

from __future__ import annotations

import asyncio
import atexit
import socket
from collections.abc import Callable, Iterator, Sequence
from threading import Event, Thread
from typing import Any, Literal

import pytest

from config import settings
from config.secret import Secret
from observability.names import Outcome
from observability.record import Record
from observability.telemetry import MOST_SPANS, Backlog, Telemetry
from tests.observability.telling import START_WALL_NS, SUBJECT, Ledger, Time, answers, goes_up, recorder, took
from tests.parts.otlp_sink import Fault, OtlpSink, ReceivedSpan, Value


async def test_a_good_request_is_one_server_and_one_client_span_with_exactly_these_attributes() -> None:
    time = Time()

    def one(record: Record) -> None:
        time.passes(milliseconds=1)
        record.link(["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"])
        took(record, "auth", time, milliseconds=0.2)
        goes_up(record)
        answers(record, time)

    record, (client, server) = await exported(one, time=time)
    trace_id, span_id = record.traceparent.split("-")[1:3]
    common: dict[str, Value] = {
        "saltgate.request.id": record.request_id,
        "saltgate.outcome": "ok",
        "saltgate.workspace": "acme",
        "saltgate.project": "apollo",
        "saltgate.unit": "project:acme/apollo",
        "saltgate.cache_salt.fingerprint": "baa6d2677094",
        "saltgate.cache_salt.key_id": "k1",
        "saltgate.cache_salt.epoch": 7,
        "saltgate.time_to_first_token": 0.053,
        "saltgate.time_to_first_token.kind": "content",
        "saltgate.time_to_first_visible": 0.053,
    }
    assert server == ReceivedSpan(
        name="POST /v1/chat/completions",
        kind="SERVER",
        trace_id=trace_id,
        span_id=record.server_span_id,
        parent_id="",
        start_ns=START_WALL_NS,
        end_ns=START_WALL_NS + 351_000_000,
        status="UNSET",
        attributes={
            **common,
            "http.request.method": "POST",
            "http.route": "/v1/chat/completions",
            "http.response.status_code": 200,
            "url.path": "/v1/chat/completions",
            "url.scheme": "http",
            "saltgate.model": "tiny",
            "saltgate.prompt_tokens": 120,
            "saltgate.reused_prompt_tokens": 96,
            "saltgate.output_tokens": 31,
            "saltgate.issuer": "https://sso.example.com/realms/acme",
            "saltgate.client": "chat-ui",
            "saltgate.auth.method": "jwt",
            "saltgate.bytes_in": 340,
            "saltgate.bytes_out": 1200,
            "saltgate.stage.auth": 0.0002,
            "saltgate.stage.relay": 0.002,
        },
        links=[("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")],
        events=0,
        resource=server.resource,
    )
    assert client == ReceivedSpan(
        name="chat tiny",
        kind="CLIENT",
        trace_id=trace_id,
        span_id=span_id,
        parent_id=server.span_id,
        start_ns=START_WALL_NS + 1_000_000,
        end_ns=START_WALL_NS + 351_000_000,
        status="UNSET",
        attributes={
            **common,
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "vllm",
            "gen_ai.request.model": "tiny",
            "gen_ai.request.stream": True,
            "gen_ai.response.id": "chatcmpl-1",
            "gen_ai.response.finish_reasons": ("stop",),
            "gen_ai.response.time_to_first_chunk": 0.01,
            "gen_ai.usage.input_tokens": 120,
            "gen_ai.usage.cache_read.input_tokens": 96,
            "gen_ai.usage.output_tokens": 31,
            "server.address": "10.0.0.7",
            "server.port": 8000,
            "saltgate.engine": "main",
            "saltgate.upstream_time_to_first_token": 0.05,
            "saltgate.time_per_output_token": 0.01,
            "saltgate.largest_gap": 0.202,
            "saltgate.held": 0.0,
            "saltgate.events": 6,
        },
        links=[],
        events=0,
        resource=client.resource,
    )
    assert server.resource["service.name"] == "saltgate"
    assert server.resource["service.instance.id"] == "worker-1"
    assert server.resource["service.version"] == "0.1.0"


@pytest.mark.parametrize(
    ("outcome", "server_status", "client_status"),
    [
        ("ok", "UNSET", "UNSET"),
        ("client_gone", "UNSET", "UNSET"),
        ("refused", "UNSET", "UNSET"),
        ("engine_failed", "ERROR", "ERROR"),
        ("truncated", "ERROR", "ERROR"),
        ("engine_timeout", "ERROR", "ERROR"),
        ("drained", "ERROR", "UNSET"),
        ("gate_error", "ERROR", "UNSET"),
    ],
)
async def test_the_status_is_error_for_faults_and_unset_for_what_callers_do(
    outcome: Outcome, server_status: str, client_status: str
) -> None:
    def one(record: Record) -> None:
        goes_up(record)
        record.answered(200)
        record.ended(outcome, "some_class" if server_status == "ERROR" else None)

    _, (client, server) = await exported(one)
    assert (server.status, client.status) == (server_status, client_status)
    assert server.attributes.get("error.type") == ("some_class" if server_status == "ERROR" else None)
    assert client.attributes.get("error.type") == ("some_class" if client_status == "ERROR" else None)


@pytest.mark.parametrize(("status", "server_status"), [(400, "UNSET"), (429, "ERROR"), (503, "ERROR")])
async def test_to_who_called_the_engines_no_is_an_error_whosever_fault_it_was(status: int, server_status: str) -> None:
    def one(record: Record) -> None:
        goes_up(record)
        record.engine_status = status
        if status == 400:
            record.answered(400)
        else:
            record.refused("engine_busy", 503, f"engine_{status}")

    _, (client, server) = await exported(one)
    assert (client.status, client.attributes["error.type"]) == ("ERROR", str(status))
    assert server.status == server_status


@pytest.mark.parametrize(
    ("code", "status", "expected"), [("not_a_member", 403, "UNSET"), ("salt_unavailable", 503, "ERROR")]
)
async def test_a_refusal_is_a_server_span_alone_and_an_error_from_500_on(code: str, status: int, expected: str) -> None:
    def one(record: Record) -> None:
        record.asked("chat", "claimed-model", stream=True)
        record.refused(code, status, "finer_word")

    _, (server,) = await exported(one, route="/w/{workspace}/p/{project}/v1/chat/completions")
    assert (server.kind, server.status) == ("SERVER", expected)
    assert server.attributes["saltgate.refusal.code"] == code
    assert server.attributes["saltgate.refusal.reason"] == "finer_word"
    assert server.attributes["http.response.status_code"] == status
    assert "url.path" not in server.attributes
    assert "claimed" not in str(server)


async def test_the_path_is_put_together_from_the_confirmed_scope() -> None:
    def one(record: Record) -> None:
        record.scoped("acme", "apollo")
        record.answered(200)

    _, (server,) = await exported(one, route="/w/{workspace}/p/{project}/v1/models")
    assert server.attributes["url.path"] == "/w/acme/p/apollo/v1/models"
    assert server.name == "POST /w/{workspace}/p/{project}/v1/models"


@pytest.mark.parametrize(
    ("operation", "named"),
    [
        ("chat", "chat"),
        ("completions", "text_completion"),
        ("responses", "chat"),
        ("messages", "chat"),
        ("embeddings", "embeddings"),
    ],
)
async def test_the_operation_has_the_name_of_the_genai_conventions(operation: str, named: str) -> None:
    def one(record: Record) -> None:
        goes_up(record)
        record.asked(operation, "tiny", stream=True)
        record.ended("ok")

    _, (client, _server) = await exported(one)
    assert (client.name, client.attributes["gen_ai.operation.name"]) == (f"{named} tiny", named)


@pytest.mark.parametrize(
    ("conventions", "name"),
    [("1.41", "gen_ai.usage.cache_creation.input_tokens"), ("dev", "gen_ai.usage.cache_write.input_tokens")],
)
async def test_the_genai_names_are_of_the_conventions_that_are_chosen_and_ours_stay(
    conventions: Literal["1.41", "dev"], name: str
) -> None:
    def one(record: Record) -> None:
        goes_up(record)
        record.used(120, 96, 31, cache_written=16, reasoning=7)
        record.ended("ok")

    _, (client, _server) = await exported(one, genai_conventions=conventions)
    assert client.attributes[name] == 16
    assert [key for key in client.attributes if "cache_creation" in key or "cache_write" in key] == [name]
    assert client.attributes["gen_ai.usage.reasoning.output_tokens"] == 7


@pytest.mark.parametrize(("engine", "provider"), [("main", "sglang"), ("other", "vllm"), (None, "vllm")])
async def test_the_provider_is_the_kind_of_the_engine_that_answered(engine: str | None, provider: str) -> None:
    def one(record: Record) -> None:
        goes_up(record)
        record.engine = engine
        record.ended("ok")

    _, (client, _server) = await exported(
        one, engines=[settings.Engine(name="main", kind="sglang", urls=("http://x",))]
    )
    assert client.attributes["gen_ai.provider.name"] == provider


async def test_a_pseudonym_is_told_only_with_its_key_and_is_one_callers() -> None:
    async def told(key: bytes | None, issuer: str, subject: str) -> Value | None:
        async with OtlpSink() as sink:
            telemetry = started(sink.url)
            with recorder(telemetry, user_hash_key=key).request(method="POST", route="/v1/x") as record:
                record.identified(issuer, subject, None, "jwt")
                record.ended("ok")
            await asyncio.to_thread(telemetry.stop, 20.0)
        (server,) = sink.spans
        assert SUBJECT not in str(server)
        return server.attributes.get("user.hash")

    key, other = b"k" * 32, b"o" * 32
    first = await told(key, "https://i", SUBJECT)
    assert isinstance(first, str)
    assert len(first) == 16
    assert await told(None, "https://i", SUBJECT) is None
    assert await told(key, "https://i", SUBJECT) == first
    assert first not in {
        await told(other, "https://i", SUBJECT),
        await told(key, "https://j", SUBJECT),
        await told(key, "https://i", SUBJECT + "x"),
    }


async def test_nobody_has_no_pseudonym() -> None:
    with recorder(user_hash_key=b"k" * 32).request(method="POST", route="/v1/x") as record:
        record.refused("invalid_token", 401)
    assert record.user_hash is None


async def test_a_slow_request_is_kept_and_says_so() -> None:
    time = Time()

    def one(record: Record) -> None:
        goes_up(record)
        answers(record, time)

    _, spans = await exported(one, time=time, trace_ratio=0.0, slow_first_token=0.05)
    assert [span.attributes.get("saltgate.kept_for") for span in spans] == [None, "slow"]
    _, spans = await exported(one, time=time, trace_ratio=0.0, slow_first_token=0.06)
    assert spans == []


async def test_a_path_that_holds_what_only_the_client_said_is_left_out() -> None:
    def one(record: Record) -> None:
        record.scoped("acme", "apollo")
        record.answered(200)

    _, (server,) = await exported(one, route="/w/{workspace}/p/{project}/v1/models/{id}")
    assert "url.path" not in server.attributes


async def test_failures_are_always_kept_and_the_rest_by_the_ratio() -> None:
    ends: list[Outcome] = ["ok", "refused", "client_gone", "engine_failed", "drained", "gate_error"]
    async with OtlpSink() as sink:
        telemetry = started(sink.url)
        for outcome in ends:
            with recorder(telemetry, trace_ratio=0.0).request(method="POST", route="/v1/x") as record:
                assert record.traceparent.endswith("-00")
                record.ended(outcome)
        await asyncio.to_thread(telemetry.stop, 20.0)
    assert [s.attributes["saltgate.outcome"] for s in sink.spans] == ["engine_failed", "drained", "gate_error"]
    assert all(span.attributes["saltgate.kept_for"] == "failure" for span in sink.spans)


async def test_no_span_has_the_subject_or_a_salt() -> None:
    time = Time()

    def one(record: Record) -> None:
        goes_up(record)
        record.scoped("acme", "apollo")
        record.decided(f"user:acme/apollo/{SUBJECT}")
        answers(record, time)

    async with OtlpSink() as sink:
        await sent_to(sink, one, time=time)
    assert SUBJECT.encode() not in b"".join(sink.raw)


async def test_exports_are_compressed_protobuf_to_v1_traces_with_the_headers_of_the_secret() -> None:
    async with OtlpSink() as sink:
        headers = Secret(b"Authorization: Basic abc:def\n\nx-scope-orgid: acme", "file /run/otlp")
        telemetry = Telemetry.start(
            settings.Telemetry(otlp_endpoint=sink.url + "/", otlp_headers=headers), instance="worker-1"
        )
        with recorder(telemetry).request(method="POST", route="/v1/x") as record:
            record.ended("ok")
        await asyncio.to_thread(telemetry.stop, 20.0)
    (received,) = sink.headers
    assert sink.paths == ["/v1/traces"]
    assert received["content-encoding"] == "gzip"
    assert received["content-type"] == "application/x-protobuf"
    assert (received["authorization"], received["x-scope-orgid"]) == ("Basic abc:def", "acme")


def test_a_line_that_is_no_header_is_named_by_its_number_and_not_by_its_content() -> None:
    wanted = settings.Telemetry(otlp_endpoint="http://127.0.0.1:9", otlp_headers=Secret(b"a: b\nhunter2", "env X"))
    with pytest.raises(ValueError, match="line 2") as caught:
        Telemetry.start(wanted, instance="worker-1")
    assert "hunter2" not in str(caught.value)


async def test_a_process_that_ends_without_a_stop_does_not_wait_for_the_collector() -> None:
    # The SDK would register a shutdown of 30 seconds for the interpreter's end.
    registered = atexit._ncallbacks()
    async with OtlpSink() as sink:
        telemetry = started(sink.url)
        assert atexit._ncallbacks() == registered
        await asyncio.to_thread(telemetry.stop, 20.0)


def test_without_an_endpoint_there_is_no_exporter_and_nothing_is_counted_as_lost() -> None:
    telemetry = Telemetry.start(settings.Telemetry(), instance="worker-1")
    with recorder(telemetry).request(method="POST", route="/v1/x") as record:
        record.ended("gate_error")
    telemetry.stop()
    assert telemetry.dropped() == 0


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["hang", "unavailable", None], ids=["hangs", "says 503", "refuses"])
async def test_a_collector_that_does_not_work_harms_no_request_and_holds_no_stop(
    fault: Fault | None, closed_port: str
) -> None:
    async with OtlpSink(fault=fault) as sink:
        telemetry, ledger = started(closed_port if fault is None else sink.url), Ledger()
        for _ in range(MOST_SPANS // 2):
            with recorder(telemetry, ledger).request(method="POST", route="/v1/x") as record:
                goes_up(record)
                record.ended("ok")
        if fault is not None:
            await sink.wait_for_request()
        stopped = Event()
        # Eight batches of three seconds each would be left where the collector hangs.
        Thread(target=stop_and_tell, args=(telemetry, stopped), daemon=True).start()
        assert await asyncio.to_thread(stopped.wait, 12.0)
    assert len(ledger.records) == MOST_SPANS // 2
    assert telemetry.dropped() == MOST_SPANS


def test_the_backlog_refuses_what_is_over_its_bound_and_counts_each_lost_span_once() -> None:
    backlog = Backlog(3)
    assert [backlog.take() for _ in range(5)] == [True, True, True, False, False]
    backlog.settle(2, delivered=2)
    assert backlog.dropped() == 2
    assert [backlog.take() for _ in range(3)] == [True, True, False]
    backlog.settle(2, delivered=0)
    assert backlog.dropped() == 5
    backlog.close()
    assert backlog.dropped() == 6
    backlog.settle(1, delivered=0)
    assert backlog.dropped() == 6
    assert not backlog.take()


async def test_a_full_queue_loses_the_newest_spans_and_keeps_counting_requests() -> None:
    async with OtlpSink(fault="hang") as sink:
        telemetry = started(sink.url)
        for _ in range(MOST_SPANS + 100):
            with recorder(telemetry).request(method="POST", route="/v1/x") as record:
                record.ended("ok")
        # The first batch is on its way and fails only after the exporter's own timeout.
        assert telemetry.dropped() >= 100
        await asyncio.to_thread(telemetry.stop, 0.0)
    assert telemetry.dropped() == MOST_SPANS + 100


def stop_and_tell(telemetry: Telemetry, stopped: Event) -> None:
    telemetry.stop(0.2)
    stopped.set()


@pytest.fixture
def closed_port() -> Iterator[str]:
    """An address where nobody listens: bound, so that nobody else takes it."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def started(url: str, engines: Sequence[settings.Engine] = (), **more: Any) -> Telemetry:
    written = settings.Telemetry(otlp_endpoint=url, **more)
    return Telemetry.start(written, instance="worker-1", version="0.1.0", engines=engines)


async def exported(
    one: Callable[[Record], None],
    *,
    route: str = "/v1/chat/completions",
    time: Time | None = None,
    trace_ratio: float = 1.0,
    **more: Any,
) -> tuple[Record, list[ReceivedSpan]]:
    async with OtlpSink() as sink:
        record = await sent_to(sink, one, route=route, time=time, trace_ratio=trace_ratio, **more)
    return record, sink.spans


async def sent_to(
    sink: OtlpSink,
    one: Callable[[Record], None],
    *,
    route: str = "/v1/chat/completions",
    time: Time | None = None,
    trace_ratio: float = 1.0,
    **more: Any,
) -> Record:
    telemetry = started(sink.url, **more)
    with recorder(telemetry, time=time, trace_ratio=trace_ratio).request(method="POST", route=route) as record:
        one(record)
    await asyncio.to_thread(telemetry.stop, 20.0)
    assert telemetry.dropped() == 0
    return record
