"""The invariants of the gate, each with a test that tries to break it: here, or named in `ELSEWHERE`."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from config.secret import Secret
from config.settings import Telemetry
from observability.exposition import exposition
from proxy.demo.simulator import AT_ONCE, EngineShape, Fault, FaultKind, Simulator
from proxy.directory.changes import grant
from proxy.directory.model import user
from proxy.isolation.salt import SaltKey, salt_for
from proxy.isolation.unit import ProjectUnit
from tests.parts.gate_bed import BASE_EPOCH, KEY, GateBed, chat, gate_bed
from tests.parts.gone_client import GoneClient
from tests.parts.otlp_sink import OtlpSink
from tests.parts.redis_server import RedisServer

TESTS = Path(__file__).parent.parent
EVIL = "sg1-k1-evil"
SALT = salt_for(ProjectUnit("acme", "apollo"), epoch=BASE_EPOCH, key=SaltKey("k1", KEY.value)).value

# Which tests try to break which invariant, by its number in the design.
ELSEWHERE: Mapping[int, tuple[str, ...]] = {
    1: (
        "proxy/engines/test_stamp.py::test_a_stamped_request_cannot_be_made_of_bytes",
        "proxy/engines/test_stamp.py::test_a_stamped_request_cannot_be_changed_or_derived_from",
    ),
    2: (
        "proxy/test_invariants.py::test_whatever_a_client_sends_the_engine_gets_the_scopes_salt_or_nothing",
        "proxy/engines/test_stamp.py::test_whatever_a_client_writes_the_engine_gets_one_salt_and_listed_fields_only",
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
        "proxy/isolation/test_salt.py::test_the_same_unit_epoch_and_key_always_have_the_same_salt",
    ),
    6: (
        "proxy/isolation/test_scope.py::test_a_caller_may_name_the_same_or_a_narrower_border_and_no_wider_one",
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


def request(
    body: bytes | str | dict[str, object],
    *lines: str,
    path: str = "/v1/chat/completions",
    framing: str | None = None,
    kind: str = "application/json",
    start: str = "POST {path} HTTP/1.1",
) -> bytes:
    """One request of alice's, the credentials to be filled in later."""
    encoded = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
    framing = f"Content-Length: {len(encoded)}" if framing is None else framing
    head = [start.format(path=path), "Host: gate.test", "@credentials@", f"Content-Type: {kind}", *lines]
    return "\r\n".join([*head, framing, "", ""]).encode() + encoded


def chunked(*pieces: bytes, extension: str = "", trailers: str = "") -> bytes:
    encoded = b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extension.encode(), piece) for piece in pieces)
    return encoded + b"0\r\n" + trailers.encode() + b"\r\n"


def member(text: str) -> str:
    """A chat with a member exactly as it is written."""
    return json.dumps(chat())[:-1] + "," + text + "}"


def within_message(**more: object) -> dict[str, object]:
    return {"model": "tiny", "messages": [{"role": "user", "content": "Hello", **more}]}


def within_part(**more: object) -> dict[str, object]:
    part = {"type": "text", "text": "Hello", **more}
    return {"model": "tiny", "messages": [{"role": "user", "content": [part]}]}


EVIL_MEMBER = f'"cache_salt":"{EVIL}"'
DUPLICATE = f'{{"cache_salt":"{EVIL}","model":"tiny","messages":[{{"role":"user","content":"Hello"}}],{EVIL_MEMBER}}}'
UTF8 = json.dumps(chat(cache_salt=EVIL))
NO_CREDENTIALS = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
SMUGGLED = NO_CREDENTIALS + b"Content-Length: %d\r\n\r\n" % len(UTF8) + UTF8.encode()

TOP_LEVEL: dict[str, object] = {
    "a text": EVIL,
    "the right one": SALT,
    "empty": "",
    "null": None,
    "a number": 1,
    "false": False,
    "a list": [EVIL],
    "an object": {"value": EVIL},
    "a slash": "a/b",
    "long": "x" * 5000,
}
NESTED: dict[str, object] = {
    "extra_body": {"cache_salt": EVIL},
    "nvext": {"cache_salt": EVIL, "agent_hints": {"cache_salt": EVIL}},
    "vllm_xargs": {"cache_salt": EVIL, "kv_transfer_params": {"cache_salt": EVIL}},
    "kv_transfer_params": {"cache_salt": EVIL, "remote_block_ids": [1], "remote_host": "x"},
    "ec_transfer_params": {"cache_salt": EVIL},
    "extra_key": EVIL,
    "metadata": {"cache_salt": EVIL},
    "extra_args": {"cache_salt": EVIL},
    "sampling_params": {"cache_salt": EVIL},
    "body": {"cache_salt": EVIL},
    "__proto__": {"cache_salt": EVIL},
    "session_id": EVIL,
    "request_id": EVIL,
    "user": EVIL,
    "prompt_cache_key": EVIL,
    "lora_request": {"lora_name": EVIL},
    "mm_processor_kwargs": {"cache_salt": EVIL},
    "cacheSalt": EVIL,
    "Cache_Salt": EVIL,
    "CACHE_SALT": EVIL,
    "cache-salt": EVIL,
    " cache_salt": EVIL,
    "cache_salt ": EVIL,
    "cache_salt\0": EVIL,
    "cache_s\u0430lt": EVIL,  # Cyrillic
    "\ufeffcache_salt": EVIL,
    "$.cache_salt": EVIL,
}
HOSTILE: dict[str, bytes] = {
    **{f"top level, {name}": request(chat(cache_salt=value)) for name, value in TOP_LEVEL.items()},
    **{f"member {name!r}": request(chat() | {name: value}) for name, value in NESTED.items()},
    "twice": request(DUPLICATE),
    "twice, one escaped": request(member(f'{EVIL_MEMBER},"\\u0063ache_salt":"{EVIL}"')),
    "escaped": request(member(f'"\\u0063\\u0061che\\u005fsalt":"{EVIL}"')),
    "escaped, last": request(member(f'"cache_sal\\u0074":"{EVIL}"')),
    "lone surrogate": request(member(f'"cache_salt\\ud800":"{EVIL}"')),
    "blanks": request(member(f' \t\n"cache_salt" \n: "{EVIL}" ')),
    "in a message": request(within_message(cache_salt=EVIL)),
    "in a part": request(within_part(cache_salt=EVIL)),
    "a part's uuid": request(within_part(uuid=EVIL)),
    "a part's cache_control": request(within_part(cache_control={"type": "ephemeral", "cache_salt": EVIL})),
    "a message's member twice": request(
        f'{{"model":"tiny","messages":[{{"role":"user","content":"a","content":"b",{EVIL_MEMBER}}}]}}'
    ),
    "in a tool": request(chat(tools=[{"type": "function", "function": {"name": "f"}, "cache_salt": EVIL}])),
    "in a text": request(chat(f'"}}],"cache_salt":"{EVIL}"}}'.replace(EVIL, "in-a-text"))),
    "trailing object": request(json.dumps(chat()) + f"{{{EVIL_MEMBER}}}"),
    "trailing line": request(json.dumps(chat()) + f"\n{{{EVIL_MEMBER}}}\n"),
    "leading object": request(f"{{{EVIL_MEMBER}}}" + json.dumps(chat())),
    "a list of two": request(f"[{json.dumps(chat())},{UTF8}]"),
    "a text of JSON": request(json.dumps(UTF8)),
    "no JSON": request(f"cache_salt={EVIL}&model=tiny"),
    "comments": request("/* */" + UTF8),
    "single quotes": request(UTF8.replace('"', "'")),
    "not a number": request(member(f'"temperature":NaN,{EVIL_MEMBER}')),
    "control characters": request(member(f'"\tcache_salt":"{EVIL}"')),
    "UTF-16": request(UTF8.encode("utf-16")),
    "UTF-16 without a mark": request(UTF8.encode("utf-16-le")),
    "UTF-16 that says so": request(UTF8.encode("utf-16-be"), kind="application/json; charset=utf-16be"),
    "UTF-32": request(UTF8.encode("utf-32")),
    "byte order mark": request(b"\xef\xbb\xbf" + UTF8.encode()),
    "UTF-7 that says so": request(UTF8.encode("utf-7"), kind="application/json; charset=utf-7"),
    "Latin-1": request(member('"user":"\xe9"').encode("latin-1")),
    "an overlong sequence": request(member(f'"cache\xc1\x9fsalt":"{EVIL}"').encode("latin-1")),
    "a NUL before": request(b"\0" + UTF8.encode()),
    "gzip": request(gzip.compress(UTF8.encode()), "Content-Encoding: gzip"),
    "gzip that does not say so": request(gzip.compress(UTF8.encode())),
    "a coding that is none": request(UTF8, "Content-Encoding: identity, gzip"),
    "a form": request(f"cache_salt={EVIL}", kind="application/x-www-form-urlencoded"),
    "two content types": request(UTF8, "Content-Type: text/plain"),
    "header": request(chat(), f"cache_salt: {EVIL}", f"X-Cache-Salt: {EVIL}", f"cache-salt: {EVIL}"),
    "header of our own": request(chat(), f"X-Saltgate-Salt: {EVIL}", "X-Saltgate-Workspace: globex"),
    "query": request(chat(), path=f"/v1/chat/completions?cache_salt={EVIL}"),
    "fragment": request(chat(), path=f"/v1/chat/completions#cache_salt={EVIL}"),
    "path": request(chat(), path=f"/v1/chat/completions/{EVIL}"),
    "path parameters": request(chat(), path=f"/v1/chat/completions;cache_salt={EVIL}"),
    "encoded path": request(chat(cache_salt=EVIL), path="/v1/chat%2Fcompletions"),
    "another endpoint": request({"token_ids": [1], "cache_salt": EVIL}, path="/inference/v1/generate"),
    "endpoint without a salt": request({"model": "tiny", "input": "Hello"}, path="/pooling"),
    "absolute target": request(UTF8, start="POST http://gate.test{path} HTTP/1.1"),
    "version 1.0": request(UTF8, start="POST {path} HTTP/1.0"),
    "version 2": request(UTF8, start="POST {path} HTTP/2.0"),
    "method in lower case": request(UTF8, start="post {path} HTTP/1.1"),
    "method overridden": request(UTF8, "X-HTTP-Method-Override: PUT"),
    "upgrade": request(UTF8, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"),
    "chunked": request(chunked(UTF8[:10].encode(), UTF8[10:].encode()), framing="Transfer-Encoding: chunked"),
    "chunked, with an extension": request(
        chunked(UTF8.encode(), extension=f";cache_salt={EVIL}"), framing="Transfer-Encoding: chunked"
    ),
    "chunked, with a trailer": request(
        chunked(UTF8.encode(), trailers=f"cache_salt: {EVIL}\r\n"), framing="Transfer-Encoding: chunked"
    ),
    "chunked and a length": request(
        chunked(UTF8.encode()), framing=f"Content-Length: {len(UTF8)}\r\nTransfer-Encoding: chunked"
    ),
    "chunked, twice said": request(
        chunked(UTF8.encode()), framing="Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"
    ),
    "two lengths": request(UTF8, framing=f"Content-Length: {len(UTF8)}\r\nContent-Length: 3"),
    "a length too short, a request in the rest": request(
        json.dumps(chat()).encode() + SMUGGLED, framing=f"Content-Length: {len(json.dumps(chat()))}"
    ),
    "a request in the body": request(SMUGGLED),
    "pipelined": request(UTF8) + request(DUPLICATE),
    "pipelined, the second without credentials": request(UTF8) + SMUGGLED,
    "completions": request({"model": "tiny", "prompt": "Hello", "cache_salt": EVIL}, path="/v1/completions"),
    "completions, many": request(
        {"model": "tiny", "prompt": ["Hello", "You"], "cache_salt": EVIL, "extra_key": EVIL}, path="/v1/completions"
    ),
    "responses": request({"model": "tiny", "input": "Hello", "cache_salt": EVIL}, path="/v1/responses"),
    "responses, in an item": request(
        {"model": "tiny", "input": [{"role": "user", "content": "Hello", "cache_salt": EVIL}]}, path="/v1/responses"
    ),
    "responses, of another": request(
        {"model": "tiny", "input": "Hello", "previous_response_id": "resp_1", "cache_salt": EVIL}, path="/v1/responses"
    ),
    "messages": request(chat(max_tokens=4, cache_salt=EVIL), path="/v1/messages"),
    "messages, in the system's part": request(
        chat(max_tokens=4, system=[{"type": "text", "text": "x", "cache_salt": EVIL}]), path="/v1/messages"
    ),
    "messages, kv_transfer_params": request(
        chat(max_tokens=4, kv_transfer_params={"cache_salt": EVIL}), path="/v1/messages"
    ),
    "embeddings": request({"model": "tiny", "input": "Hello", "cache_salt": EVIL}, path="/v1/embeddings"),
    "a stream": request(chat(stream=True, cache_salt=EVIL, stream_options={"cache_salt": EVIL})),
}

# Those that are more than one request on their connection, however one reads them.
ANSWERS = {
    "a length too short, a request in the rest": 2,
    "pipelined": 2,
    "pipelined, the second without credentials": 2,
}


async def test_whatever_a_client_sends_the_engine_gets_the_scopes_salt_or_nothing(
    redis: RedisServer, tmp_path: Path
) -> None:
    assert len(HOSTILE) >= 60
    shape = EngineShape(pace=AT_ONCE, answer_tokens=2)
    async with Simulator(shape) as engine, gate_bed(redis.settings(), [engine.url], tmp_path) as bed:
        assert all(received.salt is not None for received in engine.requests), "a probe without a salt"
        reached = 0
        for name, sent in HOSTILE.items():
            engine.requests.clear()
            await _send(bed, sent, answers=ANSWERS.get(name, 1))
            assert len(engine.requests) <= (2 if name.startswith("pipelined") else 1), name
            for received in engine.requests:
                reached += 1
                members = json.loads(received.body, object_pairs_hook=_pairs)
                salts = [value for key, value in members if key == "cache_salt"]
                assert salts == [SALT], name
                assert received.salt == SALT, name
                assert EVIL.encode() not in received.body, name
                assert EVIL not in str(received.headers), name
                assert received.target in {e.value for e in shape.endpoints}, name
        # Most of them are ordinary requests but for the disguise: they must be served, or nothing was tried.
        assert reached > len(HOSTILE) / 2
        assert (await bed.post())[0] == 200


def _pairs(pairs: list[tuple[str, object]]) -> list[tuple[str, object]]:
    return pairs


async def _send(bed: GateBed, sent: bytes, *, answers: int = 1) -> None:
    """Send it, and read so many answers, or until the gate closes."""
    credentials = "\r\n".join(f"{name}: {value}" for name, value in bed.headers().items())
    async with GoneClient(bed.port) as client:
        await client.send(sent.replace(b"@credentials@", credentials.encode()))
        for _ in range(answers):
            try:
                await client.read_answer(seconds=10)
            except (EOFError, ConnectionError):
                return


# Invariant 9.


async def test_nothing_that_is_emitted_holds_a_token_a_salt_a_secret_or_a_prompt(
    redis: RedisServer, tmp_path: Path
) -> None:
    prompt, cookie, engine_key = "correct-horse-battery", "session-cookie-7", "engine-api-key-7"
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
            shown.append(exposition(bed.gate.metrics.snapshot()).body.decode())
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
        page = exposition(bed.gate.metrics.snapshot()).body.decode().lower()
        assert "made" not in page
