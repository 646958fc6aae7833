"""An introspection endpoint (RFC 7662) on loopback that answers well, or byte for byte as a test wants it.

async with IntrospectionServer() as server:
    server.active["opaque-of-alice"] = server.claims("u-alice-0001")
    settings = server.issuer(audiences=("saltgate",))
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Literal, Self
from urllib.parse import parse_qs, urlsplit

from config.secret import Secret
from config.settings import Introspection, Issuer

CLIENT: Final = "saltgate"
SECRET: Final = "introspection-password"
BASIC: Final = "Basic " + b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
INACTIVE: Final = b'{"active":false}'
PROBE: Final = "saltgate-asks-"

Behaviour = Literal["answer", "hang", "drip", "close", "close_after", "close_reused"]


@dataclass(frozen=True, slots=True)
class Question:
    """One request as it came."""

    target: str
    headers: dict[str, str] = field(repr=False)
    form: dict[str, str] = field(repr=False)

    @property
    def token(self) -> str:
        return self.form.get("token", "")


def http(body: bytes, *, status: str = "200 OK", media_type: str = "application/json", more: str = "") -> bytes:
    """A whole answer."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


class IntrospectionServer:
    """`active` holds what is said of each token that is active. `raw` replaces the answers to callers' tokens, byte for
    byte, `raw_for` that to one token; with `probes_too` also the answers to saltgate's own questions. `behaviour` is
    what it does instead of answering in one go; `seconds` is how long it thinks before.
    """

    def __init__(self, *, credentials: str = BASIC, tls: ssl.SSLContext | None = None) -> None:
        self.active: dict[str, dict[str, object]] = {}
        self.questions: list[Question] = []
        self.raw: bytes | None = None
        self.raw_for: dict[str, bytes] = {}
        self.probes_too = False
        self.behaviour: Behaviour = "answer"
        self.seconds = 0.0
        self.most_at_once = 0
        self.discovery: bytes | None = None
        self.port = 0
        self._credentials = credentials
        self._tls = tls
        self._at_once = 0
        self._released = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self.release()
        assert self._server is not None
        self._server.close()
        for writer in list(self._open):
            writer.transport.abort()
        await self._server.wait_closed()
        while self._open:
            await asyncio.sleep(0.001)

    def release(self) -> None:
        """Lets what hangs answer now."""
        self._released.set()
        self._released = asyncio.Event()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def endpoint(self) -> str:
        return f"{self.url}/introspect"

    def issuer(
        self,
        *,
        name: str | None = None,
        clients: tuple[str, ...] | None = None,
        groups: tuple[tuple[str, ...], ...] = (("groups",),),
        subject: tuple[str, ...] = ("sub",),
        **introspection: object,
    ) -> Issuer:
        """Settings of an issuer that is asked here, by default one of this server's own name."""
        settings: dict[str, object] = {"client_id": CLIENT, "client_secret": Secret(SECRET.encode(), "test")}
        return Issuer(
            issuer=name or self.url,
            audiences=("saltgate",),
            clients=clients,
            groups=groups,
            subject=subject,
            introspection=Introspection(**(settings | {"endpoint": self.endpoint} | introspection)),  # type: ignore[arg-type]
        )

    def claims(self, subject: str, *, lifetime: float = 300.0, **more: object) -> dict[str, object]:
        """What is said of an active token."""
        told: dict[str, object] = {"active": True, "sub": subject, "aud": "saltgate", "client_id": "chat-ui"}
        return told | {"exp": int(time.time() + lifetime), "token_type": "Bearer"} | more

    @property
    def asked(self) -> list[str]:
        """The tokens that callers were asked for, in order."""
        return [question.token for question in self.questions if not question.token.startswith(PROBE)]

    @property
    def probes(self) -> int:
        return len(self.questions) - len(self.asked)

    @property
    def hits(self) -> Counter[str]:
        return Counter(self.asked)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while await self._serve_one(reader, writer) and self.behaviour != "close_reused":
                pass
            if self.behaviour == "close_reused":
                await reader.readuntil(b"\r\n\r\n")  # and no answer
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection goes on."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        target = head[0].split(" ")[1]
        if head[0].startswith("GET"):
            writer.write(http(self.discovery or self._discovered()))
            return True
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        question = Question(target, headers, form)
        self.questions.append(question)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            return await self._answer(question, writer)
        finally:
            self._at_once -= 1

    async def _answer(self, question: Question, writer: asyncio.StreamWriter) -> bool:
        spared = question.token.startswith(PROBE) and not self.probes_too
        if self.seconds:
            await asyncio.sleep(self.seconds)
        answer = self._said(question, spared=spared)
        match "answer" if spared else self.behaviour:
            case "hang":
                await self._released.wait()
                writer.write(answer)
            case "close":
                return False
            case "close_after":
                writer.write(answer)
                return False
            case "drip":
                for byte in answer:
                    writer.write(bytes([byte]))
                    await writer.drain()
                    await asyncio.sleep(0.05)
            case "answer" | "close_reused":
                writer.write(answer)
        return True

    def _said(self, question: Question, *, spared: bool) -> bytes:
        if question.token in self.raw_for:
            return self.raw_for[question.token]
        if self.raw is not None and not spared:
            return self.raw
        if urlsplit(question.target).path != "/introspect":
            return http(b'{"error":"not_found"}', status="404 Not Found")
        if question.headers.get("authorization") != self._credentials:
            return http(b'{"error":"invalid_client"}', status="401 Unauthorized", more="WWW-Authenticate: Basic\r\n")
        found = self.active.get(question.token)
        return http(INACTIVE if found is None else json.dumps(found).encode())

    def _discovered(self) -> bytes:
        return json.dumps({"issuer": self.url, "introspection_endpoint": self.endpoint}).encode()


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)
