"""Requests, good ones and bad ones, that carry a secret wherever a request can carry one."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tests.parts.assertions import HEADER, SERVICE, assertion
from tests.parts.canaries import Canaries
from tests.parts.tokens import TokenMint, base64url, signing_key

ANSWER_SECONDS: Final = 5.0
MOMENT_SECONDS: Final = 0.1
PATH: Final = "/w/acme/p/apollo/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Telling:
    """`status` is what is answered; None where the connection may just end."""

    name: str
    wire: bytes
    status: int | None


@dataclass(frozen=True, slots=True)
class Telltale:
    """Makes the requests. `credentials` are secrets of callers: they may go nowhere at all. `contents` are what people
    write: it may go to the engine and back to its caller.
    """

    mint: TokenMint
    credentials: Canaries
    contents: Canaries

    def requests(self) -> Iterator[Telling]:
        """All of them. The issuer must not have been asked for an unknown key within the cool-down."""
        yield from self._good()
        yield from self._credentials()
        yield from self._tokens()
        yield from self._places()
        yield from self._fronts()
        yield from self._bodies()
        yield from self._broken()

    def one(self) -> bytes:
        """A good request, whatever becomes of it."""
        return request(self._bearer(), self._chat(stream=True))

    def _token(self, name: str = "access token", **claims: object) -> str:
        subject = claims.pop("subject", "u-alice-0001")
        assert isinstance(subject, str)
        return self.credentials.known(name, self.mint.token(subject=subject, groups=(), claims=claims))

    def _secret(self, name: str, length: int = 48) -> str:
        return self.credentials.new(name, length)

    def _bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token()}"}

    def _good(self) -> Iterator[Telling]:
        token = self._token("token in both headers")
        both = {"Authorization": f"Bearer {token}", "x-api-key": token}
        cookies = f"token={self._secret('session cookie')}; oauth_id_token={self._secret('ID token cookie')}"
        yield Telling("a token", request(self._bearer(), self._chat()), 200)
        yield Telling("a key", request({"x-api-key": self._token("x-api-key")}, self._chat()), 200)
        yield Telling("another key", request({"api-key": self._token("api-key")}, self._chat()), 200)
        yield Telling("both headers, as Claude Code", request(both, self._chat()), 200)
        yield Telling("cookies, as Open WebUI", request(self._bearer() | {"Cookie": cookies}, self._chat()), 200)
        yield Telling("a stream", request(self._bearer(), self._chat(stream=True)), 200)
        yield Telling("models", request(self._bearer(), None, path="/w/acme/p/apollo/v1/models"), 200)

    def _credentials(self) -> Iterator[Telling]:
        def bad(name: str, *lines: tuple[str, str], status: int = 401) -> Telling:
            return Telling(name, raw(lines, self._chat()), status)

        secret = self._secret
        yield bad("an opaque token", ("Authorization", f"Bearer {secret('opaque')}"))
        yield bad("a personal access token", ("Authorization", f"Bearer sgp_{secret('personal')}"))
        yield bad("an API key of others", ("x-api-key", f"sk-ant-{secret('foreign key')}"))
        yield bad("a template", ("Authorization", "Bearer {{" + secret("template") + "}}"))
        yield bad("basic", ("Authorization", f"Basic {b64encode(secret('basic').encode()).decode()}"))
        yield bad("another scheme", ("Authorization", f"DPoP {self._token('DPoP scheme')}"))
        yield bad("no scheme", ("Authorization", secret("bare")))
        yield bad("a tab", ("Authorization", f"Bearer\t{secret('behind a tab')}"))
        yield bad("two spaces", ("Authorization", f"Bearer  {secret('behind spaces')}"))
        yield bad("bytes", ("Authorization", f"Bearer {secret('bytes')}\xff\xfe"))
        yield bad("five parts", ("Authorization", "Bearer " + ".".join(secret("JWE") for _ in range(5))))
        yield bad("long", ("Authorization", f"Bearer {secret('17 KiB', 17 * 1024)}"))
        yield bad("two", ("Authorization", f"Bearer {secret('one')}"), ("x-api-key", secret("two")), status=400)
        lines = [("Authorization", f"Bearer {secret('first line')}"), ("Authorization", f"Bearer {secret('second')}")]
        yield bad("two lines", *lines, status=400)

    def _tokens(self) -> Iterator[Telling]:
        strange = signing_key("RS256", "stranger", number=77)
        claims: dict[str, dict[str, object]] = {
            "expired": {"iat": 999_999_000, "exp": 1_000_000_000},
            "of another issuer": {"iss": f"https://{self._secret('issuer')}.example"},
            "for another audience": {"aud": self._secret("audience")},
            "bound": {"cnf": {"jkt": self._secret("thumbprint")}},
            "with a subject that is none": {"sub": f"{self._secret('subject')}\n"},
            "with groups that are none": {"groups": self._secret("groups")},
            "with a client that is none": {"client_id": [self._secret("client")]},
        }
        for name, changed in claims.items():
            yield self._judged(f"a token {name}", self._token(name, **changed))
        for member, value in (("alg", "none"), ("crit", ["exp"]), ("typ", self._secret("typ")), ("alg", "HS256")):
            head = self.mint.token(header={member: value})
            yield self._judged(f"{member} {value!r:.8}", self.credentials.known(f"token with {member}", head))
        stranger = self.mint.token(key=strange, header={"kid": self._secret("kid")})
        yield self._judged("an unknown key", self.credentials.known("stranger's token", stranger))
        forged = self.mint.token().rsplit(".", 1)[0] + "." + base64url(self._secret("signature").encode())
        yield self._judged("a wrong signature", self.credentials.known("forged token", forged))
        twice = self.mint.key().sign(b'{"alg":"RS256","alg":"RS256"}', self._secret("payload").encode())
        yield self._judged("a header twice", self.credentials.known("ambiguous token", twice))

    def _judged(self, name: str, token: str) -> Telling:
        return Telling(name, request({"Authorization": f"Bearer {token}"}, self._chat()), 401)

    def _places(self) -> Iterator[Telling]:
        secret = self._secret
        for name in (
            *(
                "DPoP",
                "Proxy-Authorization",
                "X-Auth-Token",
                "X-Forwarded-User",
                "X-Forwarded-Access-Token",
                "Forwarded",
            ),
            *("Origin", "Referer", "User-Agent", "X-Request-Id", "traceparent", "tracestate", "baggage", "From"),
            *("Accept", "Accept-Encoding", "Content-Encoding", "X-OpenWebUI-User-Id", "anthropic-beta", "X-Real-Ip"),
        ):
            status = 415 if name == "Content-Encoding" else 200
            yield Telling(name, request(self._bearer() | {name: secret(name)}, self._chat()), status)
        for name in ("OpenAI-Organization", "OpenAI-Project", "X-Saltgate-Unit", "X-Saltgate-Collection"):
            path = "/v1/chat/completions"
            named = {"OpenAI-Organization": "acme", "OpenAI-Project": "apollo", name: secret(name)}
            status = 400 if name == "X-Saltgate-Unit" else 403
            yield Telling(name, request(self._bearer() | named, self._chat(), path=path), status)
        targets: dict[str, int | None] = {
            f"{PATH}?access_token={secret('query')}": 200,
            f"{PATH}?api-version={secret('another query')}": 200,
            f"/v1/{secret('path')}": 404,
            f"/w/{secret('workspace')}/p/{secret('project')}/v1/chat/completions": 403,
            f"/w/acme/p/apollo/v1/models/{secret('model in the path')}": 403,
            f"http://user:{secret('userinfo')}@127.0.0.1{PATH}": 404,
            f"//{secret('authority')}/v1/models": 404,
            f"/.well-known/oauth-protected-resource/{secret('resource')}": 404,
            f"/auth/callback?code={secret('code')}&state={secret('state')}": None,
            f"/auth/login?return_to=https://{secret('return_to')}.example": None,
        }
        for target, answer in targets.items():
            method = "GET" if "/auth/" in target or "models" in target or "well-known" in target else "POST"
            body = None if method == "GET" else self._chat()
            yield Telling("a target", request(self._bearer(), body, path=target), answer)
        form = f"logout_token={self._token('logout token')}&state={secret('form')}".encode()
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        cookie = {"Cookie": f"__Host-saltgate={secret('our session')}"}
        for path in ("/auth/backchannel-logout", "/auth/logout"):
            yield Telling(f"a form to {path}", request(kind | cookie, form, path=path), None)
        yield Telling("a form as a chat", request(self._bearer() | kind, form), 415)

    def _fronts(self) -> Iterator[Telling]:
        service = {"Authorization": f"Bearer {self._token('front credential', subject=SERVICE)}"}
        words = {
            "a good assertion": assertion("u-alice-0001"),
            "another's assertion": assertion("alice", secret=b"x" * 32),
            "an old assertion": assertion("alice", iat=1_000_000_000),
            "an assertion that is none": self._secret("assertion"),
        }
        for name, word in words.items():
            known = self.credentials.known(name, word)
            status = 200 if name == "a good assertion" else 401
            yield Telling(name, request(service | {HEADER: known}, self._chat()), status)
            yield Telling(f"{name} of nobody", request(self._bearer() | {HEADER: known}, self._chat()), 200)
        plain = {"X-OpenWebUI-User-Email": f"{self._secret('e-mail')}@example.test"}
        yield Telling("a front without its word", request(service | plain, self._chat()), 401)

    def _bodies(self) -> Iterator[Telling]:
        content = self.contents.new
        key = content("salt of a client")
        yield Telling("a client's salt", request(self._bearer(), self._chat(cache_salt=key)), 200)
        for name, body in {
            "no JSON": f'{{"model":"tiny","messages":[{{"content":"{content("broken JSON")}'.encode(),
            "a member twice": f'{{"model":"tiny","{content("name")}":1,"model":"tiny"}}'.encode(),
            "no object": json.dumps([content("list")]).encode(),
            "bytes": b'{"model":"tiny","x":"' + content("bytes").encode() + b'\xff"}',
            "deep": b"[" * 3000 + content("deep").encode(),
        }.items():
            yield Telling(f"a body: {name}", request(self._bearer(), body), 400)
        refused = self._chat(tools=[{"type": "web_search", content("tool"): content("option")}])
        yield Telling("a field that is refused", request(self._bearer(), refused), 400)
        yield Telling(
            "a type that is none", request(self._bearer() | {"Content-Type": self._secret("type")}, b"{}"), 415
        )

    def _broken(self) -> Iterator[Telling]:
        """Nothing in these is certain to be a request at all. aiohttp's own errors quote what they could not read."""
        secret = self._secret
        token = self._token()
        head = f"POST {PATH} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n"
        for name, text in {
            "a long header": f"{head}x-api-key: {secret('33 KiB', 33 * 1024)}\r\n\r\n",
            "a longer header": f"GET / HTTP/1.1\r\nHost: a\r\nX: {secret('200 KiB', 200 * 1024)}\r\n\r\n",
            "a long header name": f"GET / HTTP/1.1\r\nHost: a\r\n{secret('name', 40 * 1024)}: x\r\n\r\n",
            "a long target": f"GET /{secret('target', 40 * 1024)} HTTP/1.1\r\nHost: a\r\n\r\n",
            "a long cookie": f"{head}Cookie: {secret('cookie', 34 * 1024)}\r\n\r\n",
            "a method": f"{secret('method', 32).upper()} / HTTP/1.1\r\nHost: a\r\n\r\n",
            "a version": f"GET / HTTP/{secret('version')}\r\nHost: a\r\n\r\n",
            "no request line": f"{secret('line')}\r\n\r\n",
            "no colon": f"{head}Bearer {secret('no colon')}\r\n\r\n",
            "a space before the colon": f"GET / HTTP/1.1\r\nHost: a\r\n{secret('space')} : x\r\n\r\n",
            "a folded line": f"GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n {secret('folded')}\r\n\r\n",
            "NUL": f"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {secret('before NUL')}\0x\r\n\r\n",
            "a bare CR": f"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {secret('CR')}\rX: y\r\n\r\n",
            "a length": f"{head}Content-Length: {secret('length')}\r\n\r\n",
            "two lengths": f"{head}Content-Length: 5\r\nContent-Length: 6\r\nCookie: {secret('lengths')}\r\n\r\n",
            "a coding": f"{head}Transfer-Encoding: {secret('coding')}\r\n\r\n",
            "a host": f"GET /v1/models HTTP/1.1\r\nHost: {secret('host')}@b\r\n\r\n",
            "a chunk's size": f"{head}Transfer-Encoding: chunked\r\n\r\n{secret('chunk size')}\r\n",
            "a trailer": f"{head}Transfer-Encoding: chunked\r\n\r\n0\r\nCookie: {secret('trailer')}\r\n\r\n",
            "an upgrade": f"{head}Upgrade: {secret('upgrade')}\r\nConnection: upgrade\r\nContent-Length: 2\r\n\r\n{{}}",
            "an expectation": f"{head}Expect: {secret('expectation')}\r\nContent-Length: 2\r\n\r\n{{}}",
            "CONNECT": f"CONNECT {secret('connect')}.example:443 HTTP/1.1\r\nHost: a\r\n\r\n",
            "HTTP/2": f"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{secret('HTTP/2')}",
            "a head that ends": f"{head}Cookie: {secret('half a head')}",
            "a body that ends": f"{head}Content-Type: application/json\r\nContent-Length: 999\r\n\r\n{secret('half')}",
            "rubbish behind": f"{head}Content-Length: 0\r\n\r\n{secret('behind')}\r\n\r\n",
        }.items():
            yield Telling(name, text.encode("latin-1"), None)
        yield Telling("TLS", b"\x16\x03\x01\x02\x00\x01" + secret("TLS").encode() + b"\r\n\r\n", None)

    def _chat(self, **more: object) -> bytes:
        text = self.contents.new("prompt")
        return json.dumps({"model": "tiny", "messages": [{"role": "user", "content": text}]} | more).encode()


def request(headers: Mapping[str, str], body: bytes | None, *, path: str = PATH) -> bytes:
    return raw(list(headers.items()), body, path=path)


def raw(lines: list[tuple[str, str]] | tuple[tuple[str, str], ...], body: bytes | None, *, path: str = PATH) -> bytes:
    """The bytes of one request, after which the connection ends."""
    fields = [("Host", "127.0.0.1"), *lines, ("Connection", "close")]
    if body is not None:
        if not any(name.lower() == "content-type" for name, _ in lines):
            fields.append(("Content-Type", "application/json"))
        fields.append(("Content-Length", str(len(body))))
    head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\n"
    return (head + "".join(f"{name}: {value}\r\n" for name, value in fields) + "\r\n").encode("latin-1") + (body or b"")


async def answered(port: int, telling: Telling) -> bytes:
    """All that comes back. What is no whole request is left alone after a moment, and ends with us."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    got = b""
    with suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(MOMENT_SECONDS if telling.status is None else ANSWER_SECONDS):
            writer.write(telling.wire)
            await writer.drain()
            while data := await reader.read(64 * 1024):
                got += data
    writer.close()
    return got
