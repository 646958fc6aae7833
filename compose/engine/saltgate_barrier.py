"""A second border inside vLLM: it refuses whatever would compute without a salt of saltgate's.

    PYTHONPATH=/folder/of/this/file vllm serve … --middleware saltgate_barrier.Barrier

One file that needs nothing but the standard library, so it can be mounted into any image of vLLM: saltgate is not
installed there, and the salt key must never be. Without the key nobody can tell a salt of saltgate's from one that was
made up in its form, and nobody has to: a made-up salt is a cache of its own, in which nothing of anybody's is found.
What the barrier ends is the cache that all unsalted requests share, every door of vLLM that knows no salt
(`/invocations`, `/inference/v1/generate`, audio, WebSockets, development routes), and two salts in one body.

`SALTGATE_BARRIER_KEY_FILE` names a file with a key: then everything but `GET /health` must also show it as bearer
token, as saltgate does with the engine's `api_key`. vLLM's own `--api-key` guards only some of its paths.

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

# Larger than saltgate's own `public.max_body` needs. The body is kept whole before vLLM sees it, as vLLM itself does.
MAXIMUM_BODY_BYTES: Final = 64 * 1024 * 1024

SALTED: Final = frozenset(
    {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"}
)
# Counting renders a prompt and computes nothing.
COUNTING: Final = frozenset({"/v1/messages/count_tokens"})
PAGES: Final = frozenset({"/health", "/v1/models", "/metrics", "/version", "/openapi.json"})
HEALTH: Final = "/health"

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


_KEY: Final = configured_key(os.environ)


class Barrier:
    """The ASGI middleware. Answers pass untouched and at once; of a request, only the body is waited for."""

    def __init__(self, app: App, *, key: bytes | None = _KEY, maximum_body_bytes: int = MAXIMUM_BODY_BYTES) -> None:
        self._app = app
        self._key = None if key is None else hashlib.sha256(key).digest()
        self._maximum_body_bytes = maximum_body_bytes

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        try:
            admitted = await self._admit(scope, receive)
        except Refused as refused:
            _log.warning("refused %.8s %.80r: %s", scope.get("method", scope["type"]), scope.get("path"), refused)
            await _refuse(scope, send, str(refused))
            return
        await self._app(scope, admitted, send)

    async def _admit(self, scope: Mapping[str, Any], receive: Receive) -> Receive:
        """What the engine may read of the request. Raises Refused."""
        if scope["type"] != "http":
            raise Refused("only plain HTTP requests are let in")
        method, path = scope["method"], scope["path"]
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
        if path in COUNTING:
            return receive
        body = await self._read(scope, receive)
        check_salt(body)
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
            if message["type"] != "http.request":
                raise Refused("the request was not sent to its end")
            piece = message.get("body", b"")
            size += len(piece)
            if size > self._maximum_body_bytes:
                raise Refused("the body is too large")
            pieces.append(piece)
            if not message.get("more_body", False):
                return b"".join(pieces)


class _Object(list[tuple[str, object]]):
    """A JSON object, its members as they were written."""


def check_salt(body: bytes) -> None:
    """Raises Refused unless the body is one JSON object, read alike by every reader, with one salt of the right form.

    Strictly UTF-8 without a byte order mark, where vLLM also takes UTF-16 and UTF-32; no member twice at the top, where
    vLLM takes the last.
    """
    try:
        document = json.loads(body.decode("utf-8"), object_pairs_hook=_Object, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Refused("the body must be a JSON object in UTF-8") from error
    if not isinstance(document, _Object):
        raise Refused("the body must be a JSON object in UTF-8")
    members = dict(document)
    if len(members) != len(document):
        raise Refused("a member of the body is there twice")
    salt = members.get("cache_salt")
    if not isinstance(salt, str) or not SALT.fullmatch(salt):
        raise Refused("the body carries no salt of saltgate's; send the request to saltgate")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _values(scope: Mapping[str, Any], name: bytes) -> list[bytes]:
    return [value for key, value in scope["headers"] if key.lower() == name]


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body once, whole; then whatever comes after it: a client that leaves."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay


async def _refuse(scope: Mapping[str, Any], send: Send, message: str) -> None:
    """vLLM's own form of an error; before the handshake of a WebSocket, its closing is a 403 as well."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": ""})
        return
    error = {"message": message, "type": "permission_error", "param": None, "code": "saltgate_barrier"}
    body = json.dumps({"error": error}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body})
