"""The invariants of the gate, each with a test that tries to break it: here, or named in `ELSEWHERE`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from config.secret import Secret
from config.settings import Telemetry
from proxy.demo.simulator import AT_ONCE, EngineShape, Fault, FaultKind, Simulator
from proxy.directory.changes import grant
from proxy.directory.model import user
from tests.parts.gate_bed import KEY, GateBed, chat, gate_bed
from tests.parts.hostile import ANSWERS, KINDS, NEVER_SERVED, WITHIN_A_SCHEMA
from tests.parts.hostile.sending import send
from tests.parts.hostile.writing import EVIL
from tests.parts.otlp_sink import OtlpSink
from tests.parts.redis_server import RedisServer
from tests.parts.scraped import page_of
from tests.proxy.stamped import SALT, assert_stamped

TESTS = Path(__file__).parent.parent
# Which tests try to break which invariant, by its number in the design.
ELSEWHERE: Mapping[int, tuple[str, ...]] = {
    1: (
        "proxy/engines/test_stamp.py::test_a_stamped_request_cannot_be_made_of_bytes",
        "proxy/engines/test_stamp.py::test_a_stamped_request_cannot_be_changed_or_derived_from",
    ),
    2: (
        "proxy/test_invariants.py::test_whatever_a_client_sends_the_engine_gets_the_scopes_salt_or_nothing",
        "proxy/engines/test_stamp.py::test_whatever_a_client_writes_the_engine_gets_one_salt_and_listed_fields_only",
        "proxy/test_never_unsalted.py::test_from_the_first_probe_to_the_last_answer",
        "proxy/test_never_unsalted.py::test_once_more_and_on_another_replica",
        "test_barrier.py::test_every_endpoint_of_saltgates_is_let_in_with_a_salt_and_refused_without_one",
    ),
    3: (
        "proxy/test_routes.py::test_everything_else_does_not_exist",
        "proxy/engines/test_fields.py::test_a_field_that_is_not_the_clients_to_set_never_reaches_the_engine",
    ),
    4: (
        "proxy/test_gateway.py::test_the_engine_gets_our_headers_and_no_other",
        "proxy/relay/test_relay.py::test_doubtful_framing_is_refused_and_quoted_nowhere",
    ),
    5: (
        "proxy/isolation/test_salt.py::test_two_different_units_or_epochs_never_have_the_same_salt",
        "proxy/isolation/test_salt.py::test_a_boundary_between_fields_cannot_be_moved",
        "proxy/isolation/test_salt.py::test_names_that_look_alike_or_hold_separators_are_all_different",
        "proxy/isolation/test_unit_table.py::test_two_requests_have_one_salt_exactly_under_the_borders_of_the_table",
        "proxy/isolation/test_salt.py::test_the_same_unit_epoch_and_key_always_have_the_same_salt",
        "proxy/test_gates_in_a_row.py::test_the_first_gates_borders_are_exactly_those_at_the_engine",
    ),
    6: (
        "proxy/isolation/test_scope.py::test_a_caller_may_name_the_same_or_a_narrower_border_and_no_wider_one",
        "proxy/test_gates_in_a_row.py::test_what_a_gate_presents_never_reaches_another_unit_and_never_its_own_bare_one",
        "proxy/isolation/test_scope.py::test_what_is_in_a_request_narrows_every_border_and_widens_none",
        "proxy/test_gateway.py::test_nobody_learns_which_workspaces_projects_collections_and_models_there_are",
    ),
    7: (
        "proxy/test_gateway.py::test_a_missing_or_bad_credential_is_challenged_as_rfc_6750_and_rfc_9728_say",
        "proxy/test_gateway.py::test_where_the_issuer_was_never_reached_it_is_503_and_no_401",
        "proxy/test_gateway.py::test_a_directory_that_was_never_read_is_503_and_no_403",
        "proxy/test_gateway.py::test_a_ring_that_is_missing_or_names_a_key_that_is_not_configured_is_503",
        "proxy/assurance/test_engines.py::test_strict_refuses_what_is_not_proven_and_names_the_check",
    ),
    8: (
        "proxy/test_gateway.py::test_a_revoked_or_blocked_person_is_refused_within_a_second",
        "proxy/test_gateway.py::test_a_membership_revoked_while_the_body_is_on_its_way_counts",
        "proxy/directory/test_view.py::test_a_change_is_in_force_on_every_view",
    ),
    9: (
        "proxy/test_invariants.py::test_nothing_that_is_emitted_holds_a_token_a_salt_a_secret_or_a_prompt",
        "proxy/test_narrowing.py::test_rules_are_told_by_name_and_never_what_they_found",
        "observability/test_logs.py::test_a_credential_or_salt_is_cut_out_wherever_it_stands",
    ),
    10: (
        "proxy/relay/test_relay.py::test_the_bytes_of_a_stream_reach_the_client_unchanged",
        "proxy/relay/test_relay.py::test_an_event_reaches_the_client_before_the_engine_sends_the_next_one",
    ),
    11: ("proxy/relay/test_relay.py::test_a_client_that_leaves_frees_the_engine",),
    12: (
        "proxy/relay/test_relay.py::test_a_client_that_does_not_read_stops_the_engine_and_gets_every_byte_later",
        "proxy/relay/test_sse.py::test_what_waits_is_bounded",
    ),
    13: (
        "proxy/test_invariants.py::test_a_running_stream_does_not_feel_that_redis_and_the_collector_are_gone",
        "observability/test_logs.py::test_a_stalled_reader_holds_nobody_and_its_lines_are_dropped_and_counted",
    ),
    14: (
        "proxy/test_invariants.py::test_no_name_that_a_caller_made_up_becomes_a_label",
        "observability/test_metrics.py::test_scopes_and_models_over_the_bound_are_counted_as_other",
    ),
}


@pytest.mark.parametrize("number", range(1, 15))
def test_every_invariant_has_a_test(number: int) -> None:
    for place in ELSEWHERE[number]:
        path, _, name = place.partition("::")
        source = (TESTS / path).read_text(encoding="utf-8")
        assert f"def {name}(" in source, place


# Invariant 2.


@pytest.mark.parametrize("kind", KINDS)
async def test_whatever_a_client_sends_the_engine_gets_the_scopes_salt_or_nothing(
    kind: str, redis: RedisServer, tmp_path: Path
) -> None:
    shape = EngineShape(pace=AT_ONCE, answer_tokens=2)
    async with Simulator(shape) as engine, gate_bed(redis.settings(), [engine.url], tmp_path) as bed:
        assert all(received.salt is not None for received in engine.requests), "a probe without a salt"
        for name, sent in KINDS[kind].items():
            engine.requests.clear()
            await _send(bed, sent, answers=ANSWERS.get(name, 1))
            assert len(engine.requests) <= (2 if name.startswith("pipelined") else 1), name
            assert not (engine.requests and name in NEVER_SERVED), name
            for received in engine.requests:
                assert_stamped(received, name)
                assert EVIL.encode() not in received.body or name in WITHIN_A_SCHEMA, name
                assert EVIL not in str(received.headers), name
        assert (await bed.post())[0] == 200


def test_the_corpus_is_large() -> None:
    cases = [case for kind in KINDS.values() for case in kind.values()]
    assert len(set(cases)) >= 450


async def test_most_disguises_are_of_requests_that_are_served(redis: RedisServer, tmp_path: Path) -> None:
    """Else nothing would have been tried: a request that is refused for another reason proves nothing."""
    shape = EngineShape(pace=AT_ONCE, answer_tokens=2)
    async with Simulator(shape) as engine, gate_bed(redis.settings(), [engine.url], tmp_path) as bed:
        for kind in ("members", "headers", "fields"):
            engine.requests.clear()
            for sent in KINDS[kind].values():
                await _send(bed, sent)
            assert len(engine.requests) > len(KINDS[kind]) / 2, kind


async def _send(bed: GateBed, sent: bytes, *, answers: int = 1) -> None:
    await send(bed.port, bed.headers(), sent, answers=answers)


# Invariant 9.


async def test_nothing_that_is_emitted_holds_a_token_a_salt_a_secret_or_a_prompt(
    redis: RedisServer, tmp_path: Path
) -> None:
    prompt, cookie, engine_key = "correct horse battery", "session-cookie-7", "engine-api-key-7"
    shape = EngineShape(pace=AT_ONCE, answer_tokens=2, api_key=engine_key)
    shown: list[str] = []
    async with OtlpSink() as sink, Simulator(shape) as engine:
        telemetry = Telemetry(otlp_endpoint=sink.url, trace_ratio=1.0)
        async with gate_bed(
            redis.settings(),
            [engine.url],
            tmp_path,
            telemetry=telemetry,
            api_key=Secret(engine_key.encode(), "test"),
        ) as bed:
            alice = bed.headers() | {"Cookie": f"s={cookie}"}
            stranger = bed.headers("u-mallory-0009")
            foreign = bed.mint.token(audience="another")
            requests: list[tuple[dict[str, str], dict[str, object]]] = [
                (alice, chat(prompt)),
                (alice, chat(prompt, stream=True)),
                (alice, chat(prompt, n=10**6)),
                (alice, chat(prompt, model=prompt)),
                (alice, chat(prompt, model=SALT)),
                (stranger, chat(prompt)),
                ({"Authorization": f"Bearer {foreign}"}, chat(prompt)),
                ({"x-api-key": foreign, "api-key": foreign + "x"}, chat(prompt)),
                ({"Authorization": f"Basic {cookie}"}, chat(prompt)),
                (alice | {"OpenAI-Project": prompt}, chat(prompt)),
                (alice | {"Content-Type": "text/plain"}, chat(prompt)),
            ]
            for headers, document in requests:
                status, answered, body = await bed.post(document=document, headers=headers)
                shown.append(str(answered) + (body.decode() if status != 200 else ""))
            for kind in (FaultKind.DIE_BEFORE_HEAD, FaultKind.STATUS_500, FaultKind.GARBAGE):
                engine.faults.add(Fault(kind))
                _, answered, body = await bed.post(document=chat(prompt), headers=alice)
                shown.append(str(answered) + body.decode())
            await _send(bed, b"POST / HTTP/1.1\r\n@credentials@\r\nX-Bad header: x\r\n\r\n")
            secrets = [alice["Authorization"], stranger["Authorization"], foreign]
            secrets = [token.rpartition(" ")[2].rpartition(".")[2] for token in secrets]  # the signatures
            shown.append(page_of(bed.gate.metrics))
        # Leaving the bed wrote out the last spans and lines.
        shown += [bed.log.read_text(), *(raw.decode("latin-1") for raw in sink.raw)]
    assert len(sink.spans) >= len(requests)
    assert any(line["outcome"] == "engine_failed" for line in bed.lines() if "outcome" in line)
    everything = "\n".join(shown)
    people = ["u-alice-0001", "u-mallory-0009"]
    forbidden = [*secrets, SALT, SALT.rpartition("-")[2], KEY.value.decode(), prompt, cookie, engine_key, *people]
    assert [text for text in forbidden if text in everything] == []


async def test_a_clients_trace_is_linked_and_never_the_parent(redis: RedisServer, tmp_path: Path) -> None:
    theirs = "0af7651916cd43dd8448eb211c80319c"
    async with OtlpSink() as sink, Simulator(EngineShape(pace=AT_ONCE)) as engine:
        telemetry = Telemetry(otlp_endpoint=sink.url)
        async with gate_bed(redis.settings(), [engine.url], tmp_path, telemetry=telemetry) as bed:
            await bed.post(headers=bed.headers() | {"traceparent": f"00-{theirs}-b7ad6b7169203331-01"})
            (sent,) = engine.last.header("traceparent")
    assert theirs.encode() not in sent
    assert all(span.trace_id != theirs for span in sink.spans)
    assert [link for span in sink.spans for link in span.links] == [(theirs, "b7ad6b7169203331")]


# Invariant 13.


@pytest.mark.slow
async def test_a_running_stream_does_not_feel_that_redis_and_the_collector_are_gone(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    async with OtlpSink(fault="unavailable") as sink, Simulator(EngineShape(answer_tokens=60)) as engine:
        telemetry = Telemetry(otlp_endpoint=sink.url)
        async with gate_bed(own_redis.settings(), [engine.url], tmp_path, telemetry=telemetry) as bed:
            async with bed.session.post(
                bed.url + "/v1/chat/completions", json=chat(stream=True), headers=bed.headers()
            ) as s:
                await s.content.readline()
                own_redis.pause()
                rest = await s.read()
            assert rest.rstrip().endswith(b"data: [DONE]")
            assert (await bed.post())[0] == 200
            own_redis.resume()


# Invariant 14.


async def test_no_name_that_a_caller_made_up_becomes_a_label(redis: RedisServer, tmp_path: Path) -> None:
    async with (
        Simulator(EngineShape(pace=AT_ONCE)) as engine,
        gate_bed(redis.settings(), [engine.url], tmp_path) as bed,
    ):
        await bed.change(grant("acme", "hermes", user("u-alice-0001")))
        made_up = "made-up-name"
        for headers, document in (
            (bed.headers(project=made_up), chat()),
            (bed.headers(workspace=made_up), chat()),
            (bed.headers() | {"X-Saltgate-Collection": made_up}, chat()),
            (bed.headers(), chat(model=made_up)),
        ):
            assert (await bed.post(document=document, headers=headers))[0] == 403
        assert (await bed.post(f"/w/{made_up}/p/{made_up}/v1/chat/completions"))[0] in (400, 403)
        assert (await bed.post(f"/{made_up}"))[0] == 404
        async with bed.session.request("MADEUPNAME", bed.url + "/v1/models") as answer:
            assert answer.status in (400, 404)
        await asyncio.sleep(0)
        page = page_of(bed.gate.metrics).lower()
        assert "made" not in page
