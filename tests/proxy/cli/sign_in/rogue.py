"""A gate and an identity provider on one loopback address, right in all they say until a test bends it.

    async with Rogue() as rogue:
        rogue.device["verification_uri"] = "http://evil.example"
        ... await sign_in_of(web, rogue.url, None) ...

What was asked stands in `asked`, in order. Tokens are really signed, by `mint`.
"""

from __future__ import annotations

import hashlib
import json
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl

from aiohttp import web

from proxy.identity.native_sign_in import NativeSignIn
from tests.parts.tokens import ABSENT, TokenMint

CLIENT = "saltgate-cli"
SECRETS = ("device-code-secret", "refresh-secret", "authorization-code-secret")


@dataclass(frozen=True, slots=True)
class Asked:
    path: str
    form: Mapping[str, str]
    bearer: str | None


@dataclass(slots=True)
class Rogue:
    """`metadata`, `discovery`, `device` and `token` are laid over the good documents; ABSENT takes a member out.

    `polls` are what the token endpoint says before it gives tokens: error codes, or statuses. `instead` replaces the
    answer at a path.
    """

    mint: TokenMint = field(default_factory=lambda: TokenMint(algorithms=("RS256",)))
    metadata: dict[str, object] = field(default_factory=dict)
    discovery: dict[str, object] = field(default_factory=dict)
    device: dict[str, object] = field(default_factory=dict)
    token: dict[str, object] = field(default_factory=dict)
    id_token: dict[str, object] | None = field(default_factory=dict)
    polls: list[str | int] = field(default_factory=list)
    instead: dict[str, Callable[[], web.StreamResponse]] = field(default_factory=dict)
    refuse_token: int | None = None
    nonce: str | None = None
    asked: list[Asked] = field(default_factory=list)
    refresh_tokens: int = 0
    url: str = ""
    _runner: web.ServerRunner | None = None

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(web.Server(self._serve, access_log=None), shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = self.mint.issuer = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    @property
    def sign_in(self) -> NativeSignIn:
        return NativeSignIn(issuer=self.url, client_id=CLIENT, scopes=("openid", "offline_access"), resource="urn:llm")

    def forms(self, path: str) -> Sequence[Mapping[str, str]]:
        return [asked.form for asked in self.asked if asked.path == path]

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        form = dict(parse_qsl((await request.read()).decode(), keep_blank_values=True))
        self.asked.append(Asked(path, form, request.headers.get("Authorization")))
        if path in self.instead:
            return self.instead[path]()
        match path:
            case "/.well-known/oauth-protected-resource":
                return _json(self._metadata())
            case "/.well-known/openid-configuration":
                return _json(self._discovery())
            case "/jwks":
                return _json(self.mint.jwks())
            case "/device":
                return _json(self._device())
            case "/token":
                return self._token(form)
            case "/revoke":
                return web.Response()
            case "/account":
                return self._account()
            case _:
                return web.Response(status=404)

    def _metadata(self) -> dict[str, object]:
        entry = {
            "issuer": self.url,
            "client_id": CLIENT,
            "scopes": ["openid", "offline_access"],
            "resource": "urn:llm",
        }
        good = {"resource": self.url, "authorization_servers": [self.url], "saltgate_sign_in": [entry]}
        return good | self.metadata

    def _discovery(self) -> dict[str, object]:
        good = {
            "issuer": self.url,
            "token_endpoint": f"{self.url}/token",
            "authorization_endpoint": f"{self.url}/authorize",
            "device_authorization_endpoint": f"{self.url}/device",
            "revocation_endpoint": f"{self.url}/revoke",
            "jwks_uri": f"{self.url}/jwks",
            "authorization_response_iss_parameter_supported": True,
        }
        return good | self.discovery

    def _device(self) -> dict[str, object]:
        good = {
            "device_code": SECRETS[0],
            "user_code": "ABCD-EFGH",
            "verification_uri": f"{self.url}/activate",
            "verification_uri_complete": f"{self.url}/activate?user_code=ABCD-EFGH",
            "expires_in": 300,
            "interval": 5,
        }
        return good | self.device

    def _token(self, form: Mapping[str, str]) -> web.StreamResponse:
        if self.polls:
            said = self.polls.pop(0)
            return _json({"error": said}, 400) if isinstance(said, str) else web.Response(status=said)
        if form.get("grant_type") == "refresh_token":
            if form["refresh_token"] != f"{SECRETS[1]}-{self.refresh_tokens}":
                return _json({"error": "invalid_grant"}, 400)
            self.refresh_tokens += 1
        access_token = self.mint.token(audience="saltgate", client_id=CLIENT)
        good: dict[str, object] = {
            "access_token": access_token,
            "token_type": "Bearer",
            "expires_in": 300,
            "refresh_token": f"{SECRETS[1]}-{self.refresh_tokens}",
        }
        if self.id_token is not None and form.get("grant_type") != "refresh_token":
            good["id_token"] = self._id_token(access_token)
        return _json(good | self.token)

    def _id_token(self, access_token: str) -> str:
        half = hashlib.sha256(access_token.encode()).digest()[:16]
        claims: dict[str, object] = {
            "at_hash": urlsafe_b64encode(half).rstrip(b"=").decode(),
            "nonce": ABSENT if self.nonce is None else self.nonce,
            "client_id": ABSENT,
        }
        return self.mint.token(audience=CLIENT, header={"typ": ABSENT}, claims=claims | (self.id_token or {}))

    def _account(self) -> web.StreamResponse:
        if self.refuse_token is not None:
            message = "This token is not valid here. \x1b[2J Sign in again."
            return _json({"error": {"message": message, "code": "x"}}, self.refuse_token)
        identity = {"issuer": self.url, "subject": "u-alice-0001", "groups": ["eng"], "groups_complete": True}
        memberships = [{"workspace": "acme", "project": "apollo", "unit": "project"}]
        return _json({"identity": identity, "memberships": memberships, "more": False})


def _json(document: Mapping[str, Any], status: int = 200) -> web.Response:
    kept = {name: value for name, value in document.items() if value is not ABSENT}
    return web.Response(text=json.dumps(kept), status=status, content_type="application/json")


def huge() -> web.StreamResponse:
    return web.Response(body=b'{"x": "' + b"y" * (1024 * 1024) + b'"}', content_type="application/json")


def redirect_to(address: str) -> Callable[[], web.StreamResponse]:
    return lambda: web.Response(status=307, headers={"Location": address})
