"""Signing in without a browser: the same pages and the same code flow, driven by a program.

For the demo, which knows its people's passwords, and for tests. It stands at the client's side: it knows the provider
only through HTTP.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import unescape
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from aiohttp import ClientResponse, ClientSession, hdrs

from proxy.demo.provider.tokens import TokenResponse, challenge_of

_REDIRECT_URI: Final = "http://127.0.0.1:1/callback"  # Nobody listens there: the answer is read off the redirect.
_SCOPE: Final = "openid profile groups"
_HIDDEN: Final = re.compile(r'<input type="hidden" name="sign_in" value="([^"]+)">')


class SignInFailed(Exception):  # noqa: N818 - an answer, not a fault of the program
    """The provider said no, or not what OpenID Connect says it must. The message holds no secret."""


@dataclass(frozen=True, slots=True)
class _Endpoints:
    authorization: str
    token: str


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What the client remembers between leaving and coming back."""

    state: str = field(default_factory=lambda: secrets.token_urlsafe(16), repr=False)
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(16), repr=False)
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48), repr=False)


async def sign_in(
    session: ClientSession, issuer: str, username: str, password: str, *, client_id: str = "saltgate-cli"
) -> TokenResponse:
    """The tokens of a person, by authorization code and PKCE. `client_id` is a public client with a loopback address.

    Raises SignInFailed.
    """
    endpoints, attempt = await _discover(session, issuer), _Attempt()
    page, cookies = await _open_page(session, endpoints, attempt, client_id)
    location = await _send_password(session, issuer, page, cookies, username, password)
    return await _exchange(session, endpoints, attempt, client_id, _code(location, issuer, attempt))


async def _discover(session: ClientSession, issuer: str) -> _Endpoints:
    async with session.get(f"{issuer}/.well-known/openid-configuration") as response:
        document = await _object(response)
    if document.get("issuer") != issuer:
        raise SignInFailed(f"{issuer} says that it is another issuer")
    return _Endpoints(str(document["authorization_endpoint"]), str(document["token_endpoint"]))


async def _open_page(
    session: ClientSession, endpoints: _Endpoints, attempt: _Attempt, client_id: str
) -> tuple[str, str]:
    query = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": _REDIRECT_URI,
        "scope": _SCOPE,
        "state": attempt.state,
        "nonce": attempt.nonce,
        "code_challenge": challenge_of(attempt.verifier),
        "code_challenge_method": "S256",
        "prompt": "login",
    }
    async with session.get(endpoints.authorization, params=query, allow_redirects=False) as response:
        page = await response.text()
        # By hand, since a cookie jar takes no cookies of addresses such as 127.0.0.1.
        cookies = "; ".join(f"{name}={morsel.value}" for name, morsel in response.cookies.items())
    return page, cookies


async def _send_password(
    session: ClientSession, issuer: str, page: str, cookies: str, username: str, password: str
) -> str:
    hidden = _HIDDEN.search(page)
    if hidden is None:
        raise SignInFailed("the provider showed no sign-in page")
    form = {"sign_in": unescape(hidden[1]), "username": username, "password": password}
    headers = {hdrs.COOKIE: cookies, hdrs.ORIGIN: issuer}
    async with session.post(f"{issuer}/sign-in", data=form, headers=headers, allow_redirects=False) as response:
        if response.status != 303:
            raise SignInFailed(f"the provider did not take the username and password (status {response.status})")
        return response.headers[hdrs.LOCATION]


def _code(location: str, issuer: str, attempt: _Attempt) -> str:
    """The code, if the answer is to our question (`state`) and from whom we asked (`iss`, RFC 9207)."""
    answer = dict(parse_qsl(urlsplit(location).query))
    if (
        not location.startswith(_REDIRECT_URI + "?")
        or answer.get("state") != attempt.state
        or answer.get("iss") != issuer
    ):
        raise SignInFailed("the answer is not to this sign-in")
    if "code" not in answer:
        raise SignInFailed(f"the provider answered {answer.get('error', 'without a code')}")
    return answer["code"]


async def _exchange(
    session: ClientSession, endpoints: _Endpoints, attempt: _Attempt, client_id: str, code: str
) -> TokenResponse:
    form = {
        "grant_type": "authorization_code",
        "client_id": client_id,
        "code": code,
        "redirect_uri": _REDIRECT_URI,
        "code_verifier": attempt.verifier,
    }
    async with session.post(endpoints.token, data=form, allow_redirects=False) as response:
        document = await _object(response)
    if response.status != 200:
        raise SignInFailed(f"the provider answered {document.get('error')}")
    return TokenResponse(
        access_token=str(document["access_token"]),
        expires_in=int(str(document["expires_in"])),
        scope=str(document.get("scope", "")),
        id_token=_text(document, "id_token"),
        refresh_token=_text(document, "refresh_token"),
    )


async def _object(response: ClientResponse) -> Mapping[str, object]:
    document = await response.json()
    if not isinstance(document, dict):
        raise SignInFailed("the provider did not answer with a JSON object")
    return document


def _text(document: Mapping[str, object], name: str) -> str | None:
    value = document.get(name)
    return value if isinstance(value, str) else None
