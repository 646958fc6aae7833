"""The barrier inside vLLM, as an ASGI application of its own: what it lets in, refuses, and leaves alone."""

from __future__ import annotations

import ast
import asyncio
import json
import sys
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from config.settings import AddedField, Engine, EngineLimits, Public
from proxy.engines import body as body_bounds
from proxy.engines.body import read_body
from proxy.engines.kinds import VLLM, profile_of
from proxy.engines.profile import Operation
from proxy.engines.stamp import count
from proxy.isolation.salt import SaltKey, salt_for
from proxy.isolation.unit import ProjectUnit
from tests.engine.server import BARRIER
from tests.parts.barrier import barrier
from tests.proxy.engines.asking import ENDPOINT, body_of

Message = MutableMapping[str, Any]
KEY = b"barrier-key-0123456789"
SALT = salt_for(ProjectUnit("acme", "apollo"), epoch=3, key=SaltKey("k1", b"0123456789abcdef0123456789abcdef")).value
CHAT = "/v1/chat/completions"
SALTED = json.dumps({"model": "tiny", "messages": [], "cache_salt": SALT}).encode()
UNSALTED = json.dumps({"model": "tiny", "messages": []}).encode()


class App:
    """What is behind the barrier: it reads the request, and answers in two pieces once it was read."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.kinds: list[str] = []

    async def __call__(
        self, scope: MutableMapping[str, Any], receive: Callable[[], Any], send: Callable[[Message], Any]
    ) -> None:
        self.kinds.append(scope["type"])
        if scope["type"] != "http":
            return
        body = b""
        while True:
            message = await receive()
            body += message["body"]
            if not message.get("more_body"):
                break
        self.bodies.append(body)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await send({"type": "http.response.body", "body": b"two"})


class Wire:
    """One request: the messages that it is made of, and those that came back."""

    def __init__(self, *pieces: bytes, end: str = "http.request") -> None:
        self.read = 0
        self.sent: list[Message] = []
        self._messages: list[Message] = [
            {"type": "http.request", "body": piece, "more_body": number + 1 < len(pieces) or end != "http.request"}
            for number, piece in enumerate(pieces)
        ]
        if end != "http.request":
            self._messages.append({"type": end})

    async def receive(self) -> Message:
        self.read += 1
        return self._messages.pop(0) if self._messages else {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def status(self) -> int:
        status: int = self.sent[0]["status"]
        return status


def scope(
    path: str = CHAT, method: str = "POST", headers: Iterable[tuple[bytes, bytes]] = (), **more: object
) -> MutableMapping[str, Any]:
    return {"type": "http", "method": method, "path": path, "root_path": "", "headers": list(headers)} | more


async def asked(
    body: bytes | Sequence[bytes] = SALTED,
    *,
    on: MutableMapping[str, Any] | None = None,
    key: bytes | None = None,
    end: str = "http.request",
    **options: object,
) -> tuple[Wire, App]:
    app = App()
    wire = Wire(*([body] if isinstance(body, bytes) else body), end=end)
    await barrier.Barrier(app, key=key, **options)(scope() if on is None else on, wire.receive, wire.send)
    return wire, app


def refused(wire: Wire, app: App) -> str:
    assert not app.kinds
    assert wire.status == 403
    error = json.loads(wire.sent[1]["body"])["error"]
    assert error["code"] == "saltgate_barrier"
    assert SALT not in error["message"]
    message: str = error["message"]
    return message


# What is let in.


@pytest.mark.parametrize("endpoint", VLLM.salted, ids=lambda endpoint: endpoint.operation.value)
async def test_every_endpoint_of_saltgates_is_let_in_with_a_salt_and_refused_without_one(endpoint: Any) -> None:
    wire, app = await asked(on=scope(endpoint.path))
    assert (wire.status, app.bodies) == (200, [SALTED])
    assert "send the request to saltgate" in refused(*await asked(UNSALTED, on=scope(endpoint.path)))


async def test_the_answer_passes_piece_by_piece_as_it_was_sent() -> None:
    wire, _ = await asked()
    assert [message.get("body") for message in wire.sent] == [None, b"one", b"two"]


async def test_a_body_in_pieces_is_given_on_whole_and_then_the_clients_leaving_is_seen() -> None:
    pieces = [SALTED[:5], b"", SALTED[5:]]
    left: list[Message] = []

    async def app(scope: Any, receive: Callable[[], Any], send: Any) -> None:
        left.extend([await receive(), await receive()])

    wire = Wire(*pieces)
    await barrier.Barrier(app, key=None)(scope(), wire.receive, wire.send)
    assert left == [
        {"type": "http.request", "body": SALTED, "more_body": False},
        {"type": "http.disconnect"},
    ]


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/metrics", "/version", "/openapi.json"])
async def test_the_pages_that_saltgate_asks_for_are_let_in(path: str) -> None:
    wire, app = await asked(b"", on=scope(path, "GET"))
    assert (wire.status, app.kinds) == (200, ["http"])


COUNT = "/v1/messages/count_tokens"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"system": "s", "tools": [{"name": "f", "input_schema": {"type": "image", "source": {}}}]},
        {"system": [{"type": "text", "text": "s"}], "thinking": {"type": "adaptive"}, "output_config": {}},
        {"messages": [{"role": "user", "content": [
            {"type": "text", "text": "a"},
            {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "b"}], "is_error": False},
            {"type": "tool_result", "tool_use_id": "1", "content": "c"},
        ]}]},
        {"messages": [{"role": "assistant", "content": [
            {"type": "thinking", "thinking": "t", "signature": "s"},
            {"type": "tool_use", "id": "1", "name": "f", "input": {"type": "image", "source": {"url": "http://x"}}},
        ]}]},
    ],
)  # fmt: skip
async def test_counting_tokens_of_texts_needs_no_salt_because_nothing_is_computed(fields: dict[str, object]) -> None:
    body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], **fields}).encode()
    wire, app = await asked(body, on=scope(COUNT))
    assert (wire.status, app.bodies) == (200, [body])


IMAGE = {"type": "image", "source": {"type": "url", "url": "http://10.0.0.1/"}}


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [{"role": "user", "content": [IMAGE]}]},
        {"messages": [{"role": "user", "content": IMAGE}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, IMAGE]}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [IMAGE]}]}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": IMAGE}]}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "source": IMAGE["source"]}]}]},
        {"messages": [{"role": "user", "content": [{"type": ["image"]}]}]},
        {"messages": [{"role": "user", "content": [{"source": {}}]}]},
        {"messages": [{"role": "user", "content": ["x"]}]},
        {"messages": [{"role": "user", "content": 1}]},
        {"messages": [{"role": "user", "content": "x", "image": IMAGE}]},
        {"messages": ["x"]},
        {"messages": {}},
        {"messages": None},
        {"system": [IMAGE]},
        {"mm_processor_kwargs": {}},
        {"cache_salt": SALT},
    ],
)
async def test_of_media_nothing_is_counted(fields: dict[str, object]) -> None:
    """Counting fills vLLM's processor cache, which knows no salt, and fetches what an address names."""
    body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], **fields}).encode()
    assert "only texts are counted" in refused(*await asked(body, on=scope(COUNT)))


async def test_what_an_operator_adds_to_requests_does_not_keep_their_tokens_from_being_counted() -> None:
    added = EngineLimits(fields=(AddedField(name="fast_mode", type="boolean"),))
    engine = Engine(name="main", kind="vllm", urls=("http://h",), limits=added)
    endpoint = profile_of(engine).endpoint(Operation.COUNT_TOKENS)
    assert endpoint is not None
    sent = count(read_body(endpoint, body_of(Operation.COUNT_TOKENS, fast_mode=True)), request_id="r-1")
    wire, app = await asked(sent.body, on=scope(COUNT))
    assert (wire.status, app.bodies) == (200, [sent.body])


async def test_what_saltgate_sends_to_be_counted_is_let_in() -> None:
    content: list[object] = [
        {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}},
        {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "y"}], "is_error": None},
    ]
    asks = body_of(
        Operation.COUNT_TOKENS,
        messages=[{"role": "user", "content": content}],
        system=[{"type": "text", "text": "s"}],
        tools=[{"name": "f", "input_schema": {"type": "object"}}],
        tool_choice={"type": "auto"},
        thinking={"type": "adaptive"},
        output_config={"effort": "low"},
        chat_template_kwargs={"thinking": True},
    )
    sent = count(read_body(ENDPOINT[Operation.COUNT_TOKENS], asks), request_id="r-1")
    wire, app = await asked(sent.body, on=scope(COUNT))
    assert (wire.status, app.bodies) == (200, [sent.body])


async def test_the_start_and_end_of_the_server_pass() -> None:
    app = App()
    await barrier.Barrier(app, key=KEY)({"type": "lifespan"}, Wire().receive, Wire().send)
    assert app.kinds == ["lifespan"]


# What is refused.

OTHER_SALTS: dict[str, object] = {
    "null": None,
    "empty": "",
    "a number": 1,
    "a list": [SALT],
    "an object": {"cache_salt": SALT},
    "another form": "tenant-a",
    "no key id": "sg1--" + "A" * 43,
    "a long key id": "sg1-" + "k" * 33 + "-" + "A" * 43,
    "too short": SALT[:-1],
    "too long": SALT + "A",
    "a line after it": SALT + "\n",
    "a blank before it": " " + SALT,
    "standard base64": SALT[:-4] + "a/+A",
    "padded": SALT[:-1] + "=",
    "bits that 32 bytes do not have": SALT[:-1] + "B",
    "other digits": SALT[:-2] + "\u0661A",
    "another scheme": "sg2" + SALT[3:],
}


@pytest.mark.parametrize("salt", OTHER_SALTS.values(), ids=OTHER_SALTS.keys())
async def test_what_is_not_exactly_a_salt_of_saltgates_form_is_none(salt: object) -> None:
    refused(*await asked(json.dumps({"model": "tiny", "cache_salt": salt}).encode()))


def _members(*members: str) -> bytes:
    return ("{" + ",".join(('"model":"tiny"', *members)) + "}").encode()


GOOD = f'"cache_salt":"{SALT}"'
HOSTILE: dict[str, bytes] = {
    "no body": b"",
    "no object": f'["cache_salt","{SALT}"]'.encode(),
    "a text": json.dumps(SALT).encode(),
    "in a message": _members(f'"messages":[{{{GOOD}}}]'),
    "in an extension": _members(f'"nvext":{{{GOOD}}}'),
    "twice, the last unsalted": _members(GOOD, '"cache_salt":null'),
    "twice, the first unsalted": _members('"cache_salt":""', GOOD),
    "twice alike": _members(GOOD, GOOD),
    "twice, one escaped": _members(GOOD, '"cache\\u005fsalt":"other"'),
    "another member twice": _members(GOOD, '"model":"other"'),
    "another case": _members(GOOD.replace("cache_salt", "Cache_Salt")),
    "UTF-16": SALTED.decode().encode("utf-16"),
    "UTF-16 without a mark": SALTED.decode().encode("utf-16-le"),
    "UTF-32": SALTED.decode().encode("utf-32"),
    "a byte order mark": b"\xef\xbb\xbf" + SALTED,
    "no UTF-8": SALTED[:-1] + b',"user":"\xff"}',
    "two documents": SALTED + SALTED,
    "something after it": SALTED + b"x",
    "not a number": _members(GOOD, '"temperature":NaN'),
    "infinity": _members(GOOD, '"temperature":-Infinity'),
    "a comment": SALTED + b"/* */",
    "too deep": _members(GOOD, '"x":' + "[" * 100_000 + "]" * 100_000),
    "a number without end": _members(GOOD, '"x":' + "9" * 10_000),
    "a form": b"cache_salt=" + SALT.encode(),
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
async def test_a_body_that_readers_could_read_differently_or_that_has_no_salt_is_refused(body: bytes) -> None:
    refused(*await asked(body))


async def test_an_escaped_name_is_the_name_as_for_every_json_reader() -> None:
    wire, _ = await asked(_members(GOOD.replace("cache", "\\u0063ache")))
    assert wire.status == 200


async def test_a_member_twice_further_down_is_saltgates_own_business() -> None:
    """saltgate relays schemas and arguments as they are, so the barrier must not be stricter than the gate."""
    wire, _ = await asked(_members(GOOD, '"tools":[{"a":1,"a":2}]'))
    assert wire.status == 200


DOORS = [
    ("POST", "/invocations"),
    ("POST", "/inference/v1/generate"),
    ("POST", "/v1/chat/completions/batch"),
    ("POST", "/v1/chat/completions/render"),
    ("POST", "/v1/chat/completions/"),
    ("POST", "//v1/chat/completions"),
    ("POST", "/V1/chat/completions"),
    ("POST", "/v1/audio/transcriptions"),
    ("POST", "/v2/embed"),
    ("POST", "/pooling"),
    ("POST", "/score"),
    ("POST", "/generative_scoring"),
    ("POST", "/v1/systemone"),
    ("POST", "/tokenize"),
    ("POST", "/reset_prefix_cache"),
    ("POST", "/collective_rpc"),
    ("POST", "/v1/load_lora_adapter"),
    ("POST", "/scale_elastic_ep"),
    ("POST", "/health"),
    ("GET", "/v1/responses/resp_1"),
    ("GET", "/metricsfoo"),
    ("GET", "/metrics/../invocations"),
    ("GET", "/kv_event_sources"),
    ("GET", "/docs"),
    ("GET", CHAT),
    ("OPTIONS", CHAT),
    ("HEAD", "/health"),
    ("PUT", CHAT),
    ("post", CHAT),
    ("CONNECT", "/health"),
]


@pytest.mark.parametrize(("method", "path"), DOORS)
async def test_every_other_door_is_shut_also_for_who_has_a_salt_and_the_key(method: str, path: str) -> None:
    refused(*await asked(on=scope(path, method, [(b"authorization", b"Bearer " + KEY)]), key=KEY))


async def test_a_websocket_is_refused_before_its_handshake_ends() -> None:
    app, wire = App(), Wire()
    on = {"type": "websocket", "path": "/v1/realtime", "headers": []}
    await barrier.Barrier(app, key=None)(on, wire.receive, wire.send)
    assert not app.kinds
    assert [message["type"] for message in wire.sent] == ["websocket.close"]


async def test_a_salt_in_a_header_is_refused_beside_one_in_the_body() -> None:
    refused(*await asked(on=scope(headers=[(b"X-Cache-Salt", b"other")])))


async def test_with_a_root_path_nothing_is_let_in_because_the_routes_are_elsewhere() -> None:
    refused(*await asked(on=scope("/api" + CHAT, root_path="/api")))
    refused(*await asked(on=scope(root_path="/api")))


async def test_a_large_body_is_refused_before_it_is_read_and_while_it_is() -> None:
    told, app = await asked(on=scope(headers=[(b"content-length", b"101")]), maximum_body_bytes=100)
    refused(told, app)
    assert told.read == 0
    untold, app = await asked([b" " * 60] * 10, maximum_body_bytes=100)
    refused(untold, app)
    assert untold.read == 2


JUNK: dict[str, bytes] = {
    "objects": b"{},",
    "lists": b"[],",
    "members": b'{"a":1},',
    "values": b"1,",
    "texts": b'"",',
}


@pytest.mark.parametrize("path", [CHAT, COUNT])
@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK.keys())
async def test_a_body_made_to_keep_a_reader_busy_is_refused_before_it_is_decoded(path: str, junk: bytes) -> None:
    """No JSON at all: were it decoded, the answer would be that it must be a JSON object."""
    body = b"x" * barrier.LARGE_BODY_BYTES + junk * (max(barrier.MAXIMUM_COUNTS.values()) + 1)
    assert "more objects or values" in refused(*await asked(body, on=scope(path)))


def test_the_barrier_is_no_stricter_than_the_gate() -> None:
    assert Public().max_body < barrier.MAXIMUM_BODY_BYTES
    assert barrier.LARGE_BODY_BYTES > body_bounds.LARGE_BODY_BYTES
    gates = (body_bounds.MAX_OBJECTS, body_bounds.MAX_LISTS, body_bounds.MAX_COLONS, body_bounds.MAX_VALUES)
    assert all(ours > gate for ours, gate in zip(barrier.MAXIMUM_COUNTS.values(), gates, strict=True))
    assert list(barrier.MAXIMUM_COUNTS) == [b"{", b"[", b":", b","]


def test_a_small_body_or_one_of_long_texts_is_decoded_whatever_it_holds() -> None:
    small = SALTED[:-1] + b',"x":[' + b"{}," * 200_000 + b"{}]}"
    long = SALTED[:-1] + b',"x":"' + b"a" * 2_000_000 + b'"}'
    assert all(barrier.read_members(body)["cache_salt"] == SALT for body in (small, long))


def test_how_large_a_body_may_be_is_read_from_the_environment() -> None:
    assert barrier.configured_maximum({}) == barrier.MAXIMUM_BODY_BYTES
    assert barrier.configured_maximum({"SALTGATE_BARRIER_MAX_BODY": "1000"}) == 1000
    for text in ("", "0", "-1", "1e9", "64MiB", "9" * 30, " 1"):
        with pytest.raises(ValueError, match="SALTGATE_BARRIER_MAX_BODY"):
            barrier.configured_maximum({"SALTGATE_BARRIER_MAX_BODY": text})


@pytest.mark.parametrize("missing", ["method", "path", "headers", "root_path"])
async def test_a_scope_that_lacks_something_is_refused_or_served_and_no_error(missing: str) -> None:
    on = scope()
    del on[missing]
    wire, app = await asked(on=on)
    if missing in ("method", "path"):
        refused(wire, app)
    else:
        assert wire.status == 200


@pytest.mark.parametrize(
    "on", [{}, {"type": "http"}, {"type": "websocket"}, {"type": "http", "path": None}, {"type": "x"}, {"type": None}]
)
@pytest.mark.parametrize("key", [None, KEY])
async def test_whatever_a_scope_is_it_reaches_no_engine(on: MutableMapping[str, Any], key: bytes | None) -> None:
    app, wire = App(), Wire()
    await barrier.Barrier(app, key=key)(on, wire.receive, wire.send)
    assert not app.kinds
    told = {"http": "http.response.start", "websocket": "websocket.close"}.get(str(on.get("type")))
    assert [message["type"] for message in wire.sent[:1]] == ([] if told is None else [told])


@pytest.mark.parametrize("length", [b"-1", b"+1", b"1e3", b"", b"9" * 5000, "\u00b2".encode()])
async def test_a_length_that_is_none_is_refused(length: bytes) -> None:
    refused(*await asked(on=scope(headers=[(b"content-length", length)])))


async def test_a_client_that_leaves_while_it_sends_reaches_no_engine() -> None:
    refused(*await asked([SALTED], end="http.disconnect"))


# The key.

WRONG_KEYS: dict[str, list[tuple[bytes, bytes]]] = {
    "none": [],
    "another": [(b"authorization", b"Bearer barrier-key-012345678x")],
    "longer": [(b"authorization", b"Bearer " + KEY + b" ")],
    "another scheme": [(b"authorization", b"Basic " + KEY)],
    "bare": [(b"authorization", KEY)],
    "two, the first right": [(b"authorization", b"Bearer " + KEY), (b"authorization", b"Bearer x")],
    "two, the last right": [(b"authorization", b"Bearer x"), (b"authorization", b"Bearer " + KEY)],
    "in another header": [(b"x-api-key", KEY)],
    "bytes beyond ASCII": [(b"authorization", b"Bearer \xff")],
}


@pytest.mark.parametrize("headers", WRONG_KEYS.values(), ids=WRONG_KEYS.keys())
@pytest.mark.parametrize(("method", "path"), [("POST", CHAT), ("GET", "/metrics"), ("GET", "/openapi.json")])
async def test_with_a_key_everything_asks_for_it(method: str, path: str, headers: list[tuple[bytes, bytes]]) -> None:
    assert KEY.decode() not in refused(*await asked(on=scope(path, method, headers), key=KEY))


async def test_with_the_key_it_is_as_without_and_health_needs_none() -> None:
    for name, value in ((b"authorization", b"Bearer " + KEY), (b"Authorization", b"bearer " + KEY)):
        wire, _ = await asked(on=scope(headers=[(name, value)]), key=KEY)
        assert wire.status == 200
    refused(*await asked(UNSALTED, on=scope(headers=[(b"authorization", b"Bearer " + KEY)]), key=KEY))
    wire, _ = await asked(b"", on=scope("/health", "GET"), key=KEY)
    assert wire.status == 200


def test_the_key_is_read_from_its_file_and_a_file_that_holds_none_stops_the_engine(tmp_path: Path) -> None:
    file = tmp_path / "key"
    environment = {"SALTGATE_BARRIER_KEY_FILE": str(file)}
    assert barrier.configured_key({}) is None
    with pytest.raises(FileNotFoundError):
        barrier.configured_key(environment)
    file.write_bytes(KEY + b"\n")
    assert barrier.configured_key(environment) == KEY
    for text in (b"", b"\n", b"short", KEY + b"\n\n", KEY + b" x", b"\xff" * 20):
        file.write_bytes(text)
        with pytest.raises(ValueError, match="visible ASCII"):
            barrier.configured_key(environment)


# The file.


def test_the_file_needs_nothing_but_the_standard_library_and_no_salt_key() -> None:
    tree = ast.parse(BARRIER.read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names


async def test_many_at_once_do_not_mix() -> None:
    async def one(number: int) -> None:
        body = json.dumps({"model": str(number), "cache_salt": SALT if number % 2 else None}).encode()
        wire, app = await asked([body[:9], body[9:]])
        assert wire.status == (200 if number % 2 else 403)
        assert app.bodies == ([body] if number % 2 else [])

    await asyncio.gather(*(one(number) for number in range(20)))
