"""A second border inside vLLM: it refuses whatever would compute without a salt of saltgate's.

    PYTHONPATH=/folder/of/this/file vllm serve … --middleware saltgate_barrier.Barrier

One file that needs nothing but the standard library, so it can be mounted into any image of vLLM: saltgate is not
installed there, and the salt key must never be. Without the key nobody can tell a salt of saltgate's from one that was
made up in its form, and nobody has to: a made-up salt is a cache of its own, in which nothing of anybody's is found.
What the barrier ends is the cache that all unsalted requests share, every door of vLLM that knows no salt
(`/invocations`, `/inference/v1/generate`, audio, WebSockets, development routes), and two salts in one body.

`SALTGATE_BARRIER_KEY_FILE` names a file with a key: then everything but `GET /health` must also show it as bearer
token, as saltgate does with the engine's `api_key`. vLLM's own `--api-key` guards only some of its paths.

`SALTGATE_BARRIER_MAX_BODY` is how many bytes a body may have, 34603008 where it is not set: what saltgate's own default
of `public.max_body` (32 MiB) comes to. Bodies are read on vLLM's own event loop, so what could hold it up for long is
refused before it is decoded: more objects, lists, members or values than saltgate lets through.

The barrier holds for HTTP. What vLLM opens beside it (gRPC, ZMQ, KV transfer) is the network's to close.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any, Final, NoReturn

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

# saltgate's own default of `public.max_body`, and what it adds. The body is kept whole before vLLM sees it, as vLLM
# itself does.
MAXIMUM_BODY_BYTES: Final = 33 * 1024 * 1024
# Somewhat more than saltgate lets through (`proxy/engines/body.py`), because it adds members of its own. What is in
# texts counts too: counting takes a millisecond where decoding takes seconds.
LARGE_BODY_BYTES: Final = 2**20 + 2**16
MAXIMUM_COUNTS: Final[Mapping[bytes, int]] = {
    b"{": 2**18 + 2**12,
    b"[": 2**18 + 2**12,
    b":": 2**18 + 2**12,
    b",": 2**21 + 2**12,
}

SALTED: Final = frozenset(
    {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"}
)
# Counting renders a prompt and computes nothing. With media it would fill a cache that knows no salt: texts only.
COUNTING: Final = frozenset({"/v1/messages/count_tokens"})
PAGES: Final = frozenset({"/health", "/v1/models", "/metrics", "/version", "/openapi.json"})
HEALTH: Final = "/health"

# What saltgate sends to be counted, and the blocks and members that hold no media.
COUNTED: Final = frozenset(
    {"model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "chat_template_kwargs"}
)
_TEXT: Final = frozenset({"type", "text"})
_REFERENCE: Final = frozenset({"type", "tool_name", "name"})
_RESULTS: Final[Mapping[str, frozenset[str]]] = {"text": _TEXT, "tool_reference": _REFERENCE}
_BLOCKS: Final[Mapping[str, frozenset[str]]] = {
    "text": _TEXT,
    "thinking": frozenset({"type", "thinking", "signature"}),
    "redacted_thinking": frozenset({"type", "data"}),
    "tool_use": frozenset({"type", "id", "name", "input"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error"}),
    "tool_reference": _REFERENCE,
}

# Contract section 7. 43 characters hold 32 bytes, so the last of them has only four of its six bits.
SALT: Final = re.compile(r"sg1-[A-Za-z0-9_-]{1,32}-[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]")

_log = logging.getLogger("saltgate.barrier")


class Refused(Exception):  # noqa: N818 - an answer, not an error of the program
    """Its text says why, to the operator and to whoever asked."""


def configured_key(environment: Mapping[str, str]) -> bytes | None:
    """The key that the environment names. Raises ValueError or OSError where it names one that cannot be used: then
    vLLM does not start.
    """
    named = environment.get("SALTGATE_BARRIER_KEY_FILE")
    if named is None:
        return None
    key = Path(named).read_bytes().removesuffix(b"\n")
    if not re.fullmatch(rb"[!-~]{16,}", key):
        raise ValueError(f"SALTGATE_BARRIER_KEY_FILE: {named} must hold 16 or more visible ASCII characters")
    return key


def configured_maximum(environment: Mapping[str, str]) -> int:
    """How many bytes a body may have. Raises ValueError where the environment names no such number."""
    named = environment.get("SALTGATE_BARRIER_MAX_BODY")
    if named is None:
        return MAXIMUM_BODY_BYTES
    if not re.fullmatch(r"[1-9][0-9]{0,17}", named):
        raise ValueError(f"SALTGATE_BARRIER_MAX_BODY: {named} must be a number of bytes, such as {MAXIMUM_BODY_BYTES}")
    return int(named)


_KEY: Final = configured_key(os.environ)
_MAXIMUM: Final = configured_maximum(os.environ)


class Barrier:
    """The ASGI middleware. Answers pass untouched and at once; of a request, only the body is waited for."""

    def __init__(self, app: App, *, key: bytes | None = _KEY, maximum_body_bytes: int = _MAXIMUM) -> None:
        self._app = app
        self._key = None if key is None else hashlib.sha256(key).digest()
        self._maximum_body_bytes = maximum_body_bytes

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        kind = scope.get("type")
        if kind == "lifespan":
            await self._app(scope, receive, send)
            return
        try:
            admitted = await self._admit(scope, receive)
        except Refused as refused:
            _log.warning("refused %.8s %.80r: %s", scope.get("method", kind), scope.get("path"), refused)
            await _refuse(kind, send, str(refused))
            return
        await self._app(scope, admitted, send)

    async def _admit(self, scope: Mapping[str, Any], receive: Receive) -> Receive:
        """What the engine may read of the request. Raises Refused."""
        if scope.get("type") != "http":
            raise Refused("only plain HTTP requests are let in")
        method, path = scope.get("method"), scope.get("path")
        # With a root path vLLM's routes are not where the lists say.
        if scope.get("root_path"):
            raise Refused("saltgate's barrier needs vLLM without --root-path")
        if (method, path) != ("GET", HEALTH):
            self._check_key(scope)
        # vLLM's next versions may let this header override the body (vLLM pull request 57609).
        if _values(scope, b"x-cache-salt"):
            raise Refused("the salt is in the body and nowhere else")
        if method == "GET" and path in PAGES:
            return receive
        if method != "POST" or path not in SALTED | COUNTING:
            raise Refused("this engine serves saltgate, and saltgate uses no such endpoint")
        body = await self._read(scope, receive)
        members = read_members(body)
        if path in COUNTING:
            check_texts(members)
        else:
            check_salt(members)
        return _replayed(body, receive)

    def _check_key(self, scope: Mapping[str, Any]) -> None:
        if self._key is None:
            return
        shown = _values(scope, b"authorization")
        bearer = shown[0][7:] if len(shown) == 1 and shown[0][:7].lower() == b"bearer " else b""
        if not hmac.compare_digest(hashlib.sha256(bearer).digest(), self._key):
            raise Refused("the engine's key is missing or another one; saltgate sends its `api_key`")

    async def _read(self, scope: Mapping[str, Any], receive: Receive) -> bytes:
        for length in _values(scope, b"content-length"):
            if not length.isdigit() or len(length) > 18 or int(length) > self._maximum_body_bytes:
                raise Refused("the body is too large")
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message.get("type") != "http.request":
                raise Refused("the request was not sent to its end")
            piece = message.get("body", b"")
            size += len(piece)
            if size > self._maximum_body_bytes:
                raise Refused("the body is too large")
            pieces.append(piece)
            if not message.get("more_body", False):
                return b"".join(pieces)


class _Objects:
    """Takes the objects of a JSON text, each when it ends, so the outermost last; of doubled names the last value, as
    vLLM does. `doubled` is whether the last object had any.
    """

    __slots__ = ("doubled", "last")

    def __init__(self) -> None:
        self.doubled = False
        self.last: dict[str, object] = {}

    def take(self, pairs: list[tuple[str, object]]) -> dict[str, object]:
        self.last = dict(pairs)
        self.doubled = len(self.last) != len(pairs)
        return self.last


def read_members(body: bytes) -> Mapping[str, object]:
    """The members of the body. Raises Refused unless it is one JSON object, read alike by every reader, and not made
    to keep a reader busy.

    Strictly UTF-8 without a byte order mark, where vLLM also takes UTF-16 and UTF-32; no member twice at the top, where
    vLLM takes the last.
    """
    if len(body) > LARGE_BODY_BYTES and any(body.count(mark) > most for mark, most in MAXIMUM_COUNTS.items()):
        raise Refused("the body holds more objects or values than saltgate lets through")
    objects = _Objects()
    try:
        document: object = json.loads(
            body.decode("utf-8"), object_pairs_hook=objects.take, parse_float=len, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError) as error:
        raise Refused("the body must be a JSON object in UTF-8") from error
    if document is not objects.last:
        raise Refused("the body must be a JSON object in UTF-8")
    if objects.doubled:
        raise Refused("a member of the body is there twice")
    return objects.last


def check_salt(members: Mapping[str, object]) -> None:
    """Raises Refused unless there is one salt of the right form."""
    salt = members.get("cache_salt")
    if not isinstance(salt, str) or not SALT.fullmatch(salt):
        raise Refused("the body carries no salt of saltgate's; send the request to saltgate")


def check_texts(members: Mapping[str, object]) -> None:
    """Raises Refused unless what shall be counted is text, in the form in which saltgate sends it."""
    messages = members.get("messages")
    if not members.keys() <= COUNTED or not isinstance(messages, list):
        raise Refused("only texts are counted, and nothing beside what saltgate sends")
    _check_blocks(members.get("system"), {"text": _TEXT})
    for message in messages:
        if not isinstance(message, dict) or not message.keys() <= {"role", "content"}:
            raise Refused("only texts are counted, and nothing beside what saltgate sends")
        _check_blocks(message.get("content"), _BLOCKS)


def _check_blocks(content: object, shapes: Mapping[str, frozenset[str]]) -> None:
    if content is None or isinstance(content, str):
        return
    for block in content if isinstance(content, list) else [content]:
        kind = block.get("type") if isinstance(block, dict) else None
        if (
            not isinstance(block, dict)
            or not isinstance(kind, str)
            or not block.keys() <= shapes.get(kind, frozenset())
        ):
            raise Refused("only texts are counted, and nothing beside what saltgate sends")
        if kind == "tool_result":
            _check_blocks(block.get("content"), _RESULTS)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _values(scope: Mapping[str, Any], name: bytes) -> list[bytes]:
    return [value for key, value in scope.get("headers", ()) if key.lower() == name]


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body once, whole; then whatever comes after it: a client that leaves."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay


async def _refuse(kind: object, send: Send, message: str) -> None:
    """vLLM's own form of an error; before the handshake of a WebSocket, its closing is a 403 as well. To a protocol
    that is neither there is nothing to say.
    """
    if kind == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": ""})
    if kind != "http":
        return
    error = {"message": message, "type": "permission_error", "param": None, "code": "saltgate_barrier"}
    body = json.dumps({"error": error}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body})
