"""A certified OpenID Provider (oidc-provider) in a process of its own, and a person who signs in at it.

    with CertifiedProvider(gateway="http://127.0.0.1:8080") as provider:
        token = (await provider.sign_in(session, "alice")).access_token

Needs Node.js and `make provider`; without them tests fail and say so. What clients, people and kinds of token it has
stands at the head of `provider.mjs`. Tests with it are marked `process`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

import aiohttp

from tests.parts.redis_server import free_port

FOLDER: Final = Path(__file__).parent
CHAT_UI: Final = "chat-ui"
CHAT_UI_REDIRECT: Final = "http://127.0.0.1:3000/oauth/oidc/callback"
RESOURCE: Final = "urn:llm-gateway"


@dataclass(frozen=True, slots=True)
class SignedIn:
    """What the provider gave for a sign-in."""

    access_token: str = field(repr=False)
    id_token: str = field(repr=False)
    refresh_token: str | None = field(repr=False)


class CertifiedProvider:
    """`gateway` is the base address of the gate that the client `gateway-web` signs in for. `introspection_key` is the
    public JWK of the client `gateway-rs-key`, which introspects with private_key_jwt.
    """

    def __init__(
        self,
        gateway: str = "http://127.0.0.1:8080",
        *,
        access_token_seconds: int = 300,
        introspection_key: Mapping[str, object] | None = None,
    ) -> None:
        self.port = free_port()
        self.issuer = f"http://127.0.0.1:{self.port}"
        self._command = [
            "node",
            str(FOLDER / "provider.mjs"),
            *("--port", str(self.port), "--gateway", gateway, "--at-ttl", str(access_token_seconds)),
        ]
        if introspection_key is not None:
            self._command += ["--rs-jwk", json.dumps(introspection_key)]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if not (FOLDER / "node_modules").is_dir():
            raise RuntimeError("the certified provider is not installed: make provider")
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        if b'"ready":true' not in self._process.stdout.readline():
            raise RuntimeError("the certified provider did not start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    async def admin(self, session: aiohttp.ClientSession, method: str, path: str) -> dict[str, object]:
        """An order to the provider: `POST /admin/rotate?alg=RS256&mode=instant`, `GET /admin/hits`, …"""
        async with session.request(method, self.issuer + path, headers={"x-admin": "test"}) as answer:
            found: dict[str, object] = await answer.json()
            return found

    async def service_token(self, session: aiohttp.ClientSession, resource: str = RESOURCE) -> str:
        """The access token of the service account `svc-batch` (client credentials)."""
        form = {"grant_type": "client_credentials", "resource": resource, "scope": "llm.chat"}
        basic = "Basic " + base64.b64encode(b"svc-batch:svc-batch-secret").decode()
        async with session.post(self.issuer + "/token", data=form, headers={"Authorization": basic}) as answer:
            return str((await answer.json())["access_token"])

    async def sign_in(
        self, session: aiohttp.ClientSession, person: str, *, resource: str = RESOURCE, scope: str = "openid llm.chat"
    ) -> SignedIn:
        """The person signs in at the public client `chat-ui`, whose cookies in `session` stay for the next sign-in."""
        verifier = secrets.token_urlsafe(48)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "client_id": CHAT_UI,
            "response_type": "code",
            "redirect_uri": CHAT_UI_REDIRECT,
            "scope": scope,
            "state": "s",
            "nonce": "n",
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "resource": resource,
        }
        if "offline_access" in scope:
            query["prompt"] = "consent"
        landed = await self.walk(session, f"{self.issuer}/auth?{urlencode(query)}", person, until=CHAT_UI_REDIRECT)
        form = {
            "grant_type": "authorization_code",
            "code": parse_qs(urlsplit(landed).query)["code"][0],
            "redirect_uri": CHAT_UI_REDIRECT,
            "code_verifier": verifier,
            "client_id": CHAT_UI,
        }
        async with session.post(self.issuer + "/token", data=form) as answer:
            found = json.loads(await answer.read())
        return SignedIn(found["access_token"], found["id_token"], found.get("refresh_token"))

    async def walk(self, session: aiohttp.ClientSession, address: str, person: str, *, until: str) -> str:
        """Follows redirects and fills in the sign-in form, until it is sent to an address that begins with `until`."""
        answer = await session.get(address, allow_redirects=False)
        for _ in range(12):
            text = await answer.text()
            if answer.status in {302, 303}:
                address = urljoin(address, answer.headers["Location"])
                if address.startswith(until):
                    return address
                answer = await session.get(address, allow_redirects=False)
            elif match := re.search(r'action="([^"]+)"', text):
                form = {"username": person, "password": f"{person}-pw"}
                answer = await session.post(urljoin(self.issuer, match[1]), data=form, allow_redirects=False)
            else:
                raise RuntimeError(f"the sign-in went astray: {answer.status} {text[:200]}")
        raise RuntimeError("the sign-in goes in circles")
