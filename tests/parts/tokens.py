"""An identity provider for tests: tokens really signed, and an issuer really served on loopback.

mint = TokenMint()
async with IssuerServer(mint) as issuer:
    token = mint.token(subject="u-alice-0001", groups=["eng"], audience="saltgate")
    settings = issuer.settings()      # config.settings.Issuer for it, audience "saltgate"
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import Final, Literal, Self

from aiohttp import web
from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from config.settings import Issuer

PrivateKey = RSAKey | ECKey | OKPKey


class Absent:
    """Given for a claim or a header member: leave it out."""

    def __repr__(self) -> str:
        return "ABSENT"  # the same in every process that names tests by their arguments


ABSENT: Final = Absent()

_CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
_SIGNERS: Final = JWSRegistry(
    algorithms=[f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512)] + ["Ed25519"]
)


@dataclass(frozen=True, slots=True)
class SigningKey:
    """One key of an issuer. `algorithm` is what it signs with, and what its JWK says."""

    key_id: str
    algorithm: str
    key: PrivateKey

    def jwk(self) -> dict[str, object]:
        """The public key as the JWK Set holds it."""
        return {**self.key.as_dict(private=False), "kid": self.key_id, "use": "sig", "alg": self.algorithm}

    def sign(self, header: bytes, payload: bytes) -> str:
        """A compact JWS of exactly these bytes, whatever they say."""
        signing_input = f"{base64url(header)}.{base64url(payload)}"
        name = "Ed25519" if self.algorithm == "EdDSA" else self.algorithm
        signature = _SIGNERS.get_alg(name).sign(signing_input.encode("ascii"), self.key)
        return f"{signing_input}.{base64url(signature)}"


def base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def signing_key(algorithm: str, key_id: str, *, number: int = 0) -> SigningKey:
    """A key for the algorithm. Equal numbers give equal keys within one run, because RSA keys are slow to make."""
    return SigningKey(key_id, algorithm, _private_key(algorithm, number))


@cache
def _private_key(algorithm: str, number: int) -> PrivateKey:
    assert number >= 0
    if algorithm in _CURVES:
        return ECKey.generate_key(_CURVES[algorithm])
    if algorithm in {"EdDSA", "Ed25519"}:
        return OKPKey.generate_key("Ed25519")
    return RSAKey.generate_key(2048)


class TokenMint:
    """Signs tokens as an issuer does, by default with the first of its algorithms. All its keys are published."""

    def __init__(
        self,
        *,
        issuer: str = "https://sso.example.test/realms/acme",
        algorithms: Sequence[str] = ("RS256",),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.issuer = issuer
        self.algorithm = algorithms[0]
        self.clock = clock
        self.keys: list[SigningKey] = []
        self._made: Counter[str] = Counter()
        for algorithm in algorithms:
            self.rotate(algorithm)

    def token(
        self,
        subject: str = "u-alice-0001",
        groups: Iterable[str] | Absent = ("eng",),
        audience: object = "saltgate",
        *,
        algorithm: str | None = None,
        lifetime: float = 300.0,
        header: Mapping[str, object] | None = None,
        claims: Mapping[str, object] | None = None,
        key: SigningKey | None = None,
        **overrides: object,
    ) -> str:
        """An access token in the form of RFC 9068. `claims` and `overrides` replace or add claims; `header` members."""
        key = key or self.key(algorithm)
        now = int(self.clock())
        head = {"typ": "at+jwt", "alg": key.algorithm, "kid": key.key_id, **(header or {})}
        named = groups if isinstance(groups, Absent) else list(groups)
        body: dict[str, object] = {"iss": self.issuer, "sub": subject, "aud": audience, "groups": named}
        body |= {"iat": now, "exp": now + lifetime, "client_id": "chat-ui", "jti": f"jti-{self._made.total()}"}
        return key.sign(_json(head), _json(body | dict(claims or {}) | overrides))

    def key(self, algorithm: str | None = None) -> SigningKey:
        """The key that signs: the newest of the algorithm, by default of the mint's first one."""
        wanted = algorithm or self.algorithm
        return next(key for key in reversed(self.keys) if key.algorithm == wanted)

    def rotate(self, algorithm: str = "RS256") -> SigningKey:
        """Publishes a new key, which signs from now on; the older ones stay published until they are retired."""
        number = self._made[algorithm]
        self._made[algorithm] += 1
        self.keys.append(signing_key(algorithm, f"{algorithm.lower()}-{number}", number=number))
        return self.keys[-1]

    def retire(self, key: SigningKey) -> None:
        """Takes the key out of the published set."""
        self.keys.remove(key)

    def jwks(self) -> dict[str, object]:
        return {"keys": [key.jwk() for key in self.keys]}


def _json(members: Mapping[str, object]) -> bytes:
    kept = {name: value for name, value in members.items() if value is not ABSENT}
    return json.dumps(kept, separators=(",", ":")).encode("utf-8")


Fault = Literal["status", "garbage", "empty", "hang", "redirect", "large", "other_issuer"]
Document = Literal["discovery", "jwks"]


class IssuerServer:
    """Serves discovery and the JWK Set of a mint on loopback, and breaks them as told.

    From `start` on, `mint.issuer` is this server's address. `hits` counts the requests of each document. `faults` holds
    what is wrong with a document just now; `release` ends the wait of a hanging one. `stop` and `start` are an outage:
    the port stays the same. With a `tls` context it is served over https.
    """

    def __init__(self, mint: TokenMint, *, path: str = "", tls: ssl.SSLContext | None = None) -> None:
        self.mint = mint
        self.hits: Counter[Document] = Counter()
        self.faults: dict[Document, Fault] = {}
        self.cache_control: str | None = None
        self.discovered_jwks_uri: str | None = None
        self._path = path
        self._tls = tls
        self._port = 0
        self._runner: web.AppRunner | None = None
        self._released = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}{self._path}"

    @property
    def jwks_uri(self) -> str:
        return f"{self.url}/jwks"

    def settings(
        self,
        *,
        audiences: tuple[str, ...] = ("saltgate",),
        algorithms: tuple[str, ...] = ("RS256", "ES256"),
        jwks_uri: str | None = None,
    ) -> Issuer:
        """The settings of this issuer, for access tokens as the mint makes them."""
        return Issuer(issuer=self.mint.issuer, audiences=audiences, algorithms=algorithms, jwks_uri=jwks_uri)

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get(f"{self._path}/.well-known/openid-configuration", self._serve_discovery)
        app.router.add_get(f"{self._path}/jwks", self._serve_jwks)
        self._add_pages(app)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=self._tls)
        await site.start()
        self._port = self._runner.addresses[0][1]
        self.mint.issuer = self.url

    def release(self) -> None:
        """Lets what hangs answer now, and ends all faults."""
        self.faults.clear()
        self._released.set()
        self._released = asyncio.Event()

    async def stop(self) -> None:
        """Closes the port and every connection."""
        self._released.set()
        self._released = asyncio.Event()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _add_pages(self, app: web.Application) -> None:
        """For an issuer that has more than its keys."""

    def _more_metadata(self) -> Mapping[str, object]:
        """For an issuer that has more than its keys."""
        return {}

    async def _serve_discovery(self, _: web.Request) -> web.StreamResponse:
        issuer = self.url + "/" if self.faults.get("discovery") == "other_issuer" else self.url
        document = {"issuer": issuer, "jwks_uri": self.discovered_jwks_uri or self.jwks_uri, **self._more_metadata()}
        return await self._answer("discovery", json.dumps(document).encode())

    async def _serve_jwks(self, _: web.Request) -> web.StreamResponse:
        return await self._answer("jwks", json.dumps(self.mint.jwks()).encode())

    async def _answer(self, document: Document, body: bytes) -> web.StreamResponse:
        self.hits[document] += 1
        match self.faults.get(document):
            case "status":
                return web.Response(body=body, content_type="application/json", status=503)
            case "garbage":
                body = b'{"keys":"no'
            case "empty":
                body = b'{"keys":[]}'
            case "hang":
                await self._released.wait()
            case "redirect":
                return web.Response(status=302, headers={"Location": f"{self.url}/jwks"})
            case "large":
                body = body + b" " * (512 * 1024)
            case "other_issuer" | None:
                pass
        headers = {"Cache-Control": self.cache_control} if self.cache_control else {}
        return web.Response(body=body, content_type="application/json", headers=headers)
