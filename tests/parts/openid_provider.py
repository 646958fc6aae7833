"""An OpenID Provider of a test's own, whose every answer can be made wrong, and a browser that follows nothing.

It signs its tokens really and serves them on loopback. Who signs in there is `person`; nobody is asked for a password.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import aiohttp
from aiohttp import web
from yarl import URL

from tests.parts.tokens import ABSENT, IssuerServer, TokenMint

CLIENT: Final = "saltgate-web"
ALICE: Final = {"sub": "u-alice-0001", "name": "Alice <i>", "groups": ["eng"], "sid": "sid-alice"}


class OpenIdProvider(IssuerServer):
    """`changed` are claims of the next ID tokens, `header` members of their headers; `given` replaces members of the
    token endpoint's answer, `status` its status. `asked` are the forms that came there, `authorizations` its
    Authorization headers. `metadata` changes what discovery says. With `moved` discovery, with `status` 307 the token
    endpoint sends on to where all is well; `followed` says who went there.
    """

    def __init__(self, mint: TokenMint | None = None) -> None:
        super().__init__(mint or TokenMint(algorithms=("RS256", "ES256")))
        self.person: dict[str, object] = dict(ALICE)
        self.changed: dict[str, object] = {}
        self.header: dict[str, object] = {}
        self.given: dict[str, object] = {}
        self.status = 200
        self.metadata: dict[str, object] = {}
        self.asked: list[dict[str, str]] = []
        self.authorizations: list[str | None] = []
        self.moved = False
        self.followed: list[str] = []
        self._codes: dict[str, dict[str, str]] = {}

    def code_for(self, request: Mapping[str, str]) -> str:
        """What a browser brings back that came with this authorization request."""
        code = secrets.token_urlsafe(16)
        self._codes[code] = dict(request)
        return code

    def id_token(self, nonce: str, access_token: str) -> str:
        digest = hashlib.sha256(access_token.encode()).digest()
        hashed = urlsafe_b64encode(digest[:16]).rstrip(b"=").decode()
        claims = {**self.person, "nonce": nonce, "at_hash": hashed, "client_id": ABSENT, **self.changed}
        return self.mint.token(header={"typ": "JWT", **self.header}, audience=CLIENT, claims=claims)

    def logout_token(self, *, header: Mapping[str, object] | None = None, **changed: object) -> str:
        """One that is right, but for what is changed; `tests.parts.tokens.ABSENT` leaves a claim out."""
        claims: dict[str, object] = {
            "sub": ABSENT,
            "groups": ABSENT,
            "client_id": ABSENT,
            "aud": CLIENT,
            "sid": self.person.get("sid", ABSENT),
            "jti": secrets.token_hex(8),
            "events": {"http://schemas.openid.net/event/backchannel-logout": {}},
        }
        return self.mint.token(header={"typ": "logout+jwt", **(header or {})}, claims=claims | changed, lifetime=120)

    def _add_pages(self, app: web.Application) -> None:
        app.router.add_post("/token", self._token)
        app.router.add_route("*", "/moved/{what}", self._followed)

    def _more_metadata(self) -> Mapping[str, object]:
        return {
            "authorization_endpoint": f"{self.url}/authorize?theme=dark",
            "token_endpoint": f"{self.url}/token",
            "end_session_endpoint": f"{self.url}/logout",
            "authorization_response_iss_parameter_supported": True,
            **self.metadata,
        }

    async def _serve_discovery(self, request: web.Request) -> web.StreamResponse:
        if self.moved:
            return web.Response(status=307, headers={"Location": "/moved/metadata"})
        return await super()._serve_discovery(request)

    async def _followed(self, request: web.Request) -> web.StreamResponse:
        """Where a client lands that follows redirects: all would be well there."""
        self.followed.append(request.match_info["what"])
        return await (self._token(request) if request.method == "POST" else super()._serve_discovery(request))

    async def _token(self, request: web.Request) -> web.StreamResponse:
        if self.status == 307 and request.path == "/token":
            return web.Response(status=307, headers={"Location": "/moved/token"})
        form = {str(name): str(value) for name, value in (await request.post()).items()}
        self.asked.append(form)
        self.authorizations.append(request.headers.get("Authorization"))
        begun = self._codes.pop(form.get("code", ""), None)
        challenge = urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest()).rstrip(b"=")
        if begun is None or begun["code_challenge"] != challenge.decode():
            return web.json_response({"error": "invalid_grant", "error_description": "<b>no</b>"}, status=400)
        access_token = secrets.token_urlsafe(24)
        answer = {"access_token": access_token, "token_type": "Bearer", "expires_in": 300}
        answer["id_token"] = self.id_token(begun["nonce"], access_token)
        kept = {name: value for name, value in (answer | self.given).items() if value is not None}
        return web.Response(body=json.dumps(kept).encode(), content_type="application/json", status=self.status)


@dataclass(slots=True)
class Browser:
    """One person's browser at the gate. `url` is where the gate listens, `origin` what the browser takes it for."""

    session: aiohttp.ClientSession
    url: str
    origin: str = "http://gate.test"
    cookies: dict[str, str] = field(default_factory=dict)

    async def get(self, path: str, *headers: tuple[str, str]) -> Shown:
        return await self._asked("GET", path, headers, None)

    async def post(self, path: str, form: Mapping[str, str] | bytes, *headers: tuple[str, str]) -> Shown:
        """By default as a form of the page itself is sent; a header given here replaces the browser's own."""
        return await self._asked("POST", path, headers, form)

    async def begin(self, query: str = "") -> dict[str, str]:
        """/auth/login: what the authorization request holds, with its address under `""`."""
        shown = await self.get(f"/auth/login{query}")
        assert shown.status == 303, shown.text
        address, _, parameters = shown.headers["Location"].partition("?")
        return {**dict(parse_qsl(parameters)), "": address}

    async def sign_in(self, provider: OpenIdProvider, query: str = "") -> Shown:
        """The whole way, as far as the answer to the callback."""
        request = await self.begin(query)
        return await self.back(code=provider.code_for(request), state=request["state"], iss=provider.mint.issuer)

    async def back(self, **parameters: str) -> Shown:
        """/auth/callback with these parameters; an empty one is left out."""
        kept = {name: value for name, value in parameters.items() if value}
        return await self.get(str(URL("/auth/callback").with_query(kept)))

    async def _asked(
        self, method: str, path: str, headers: tuple[tuple[str, str], ...], form: Mapping[str, str] | bytes | None
    ) -> Shown:
        own = {"Accept": "text/html"}
        if self.cookies:
            own["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        if method == "POST":
            own |= {"Origin": self.origin, "Content-Type": "application/x-www-form-urlencoded"}
        sent = own | dict(headers)
        kept = {name: value for name, value in sent.items() if value}
        address = URL(self.url + path, encoded=True)
        async with self.session.request(method, address, data=form, headers=kept, allow_redirects=False) as answer:
            lines = answer.headers.getall("Set-Cookie", [])
            self._keep(lines)
            return Shown(answer.status, dict(answer.headers), await answer.text(), tuple(lines))

    def _keep(self, lines: list[str]) -> None:
        for line in lines:
            for name, morsel in SimpleCookie(line).items():
                self.cookies.pop(name, None)
                if morsel["max-age"] != "0":
                    self.cookies[name] = morsel.value


@dataclass(frozen=True, slots=True)
class Shown:
    """What the browser got."""

    status: int
    headers: Mapping[str, str]
    text: str
    cookies: tuple[str, ...]

    @property
    def form_token(self) -> str:
        """What the page's forms carry."""
        return self.text.partition('name="form_token" value="')[2].partition('"')[0]

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.headers["Location"]).query))
