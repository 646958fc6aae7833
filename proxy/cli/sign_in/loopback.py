"""Signing in with the browser of this machine (RFC 8252): the answer comes back to a listener on loopback.

The listener exists for one sign-in, on a port that the system chooses. It believes one answer: to the question that was
asked (`state`), from whom it was asked (`iss`, RFC 9207). What else knocks is sent away and changes nothing.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from aiohttp import web as http
from authlib.common.security import generate_token  # type: ignore[import-untyped]
from authlib.oauth2.rfc7636 import create_s256_code_challenge  # type: ignore[import-untyped]

from proxy.cli.sign_in import SignInFailed
from proxy.cli.sign_in.issuer import Endpoints, Tokens, ask_for_tokens
from proxy.cli.sign_in.web import Web, shown
from proxy.identity.native_sign_in import NativeSignIn

WAIT_SECONDS: Final = 300.0
_PATH: Final = "/callback"


@dataclass(frozen=True, slots=True)
class Attempt:
    """What binds the answer to the question: 256 bits each, good for one sign-in."""

    state: str = field(default_factory=lambda: str(generate_token(43)), repr=False)
    nonce: str = field(default_factory=lambda: str(generate_token(43)), repr=False)
    verifier: str = field(default_factory=lambda: str(generate_token(64)), repr=False)


@dataclass(frozen=True, slots=True)
class BrowserSignIn:
    """What came of it, and the nonce that its ID token must carry."""

    tokens: Tokens
    nonce: str = field(repr=False)


async def sign_in_by_browser(
    web: Web, endpoints: Endpoints, sign_in: NativeSignIn, show: Callable[[str], None], *, seconds: float = WAIT_SECONDS
) -> BrowserSignIn:
    """The tokens, as soon as the browser has brought the code; `show` takes the address that it is to open.

    Raises SignInFailed, also where that took longer than `seconds`.
    """
    if endpoints.authorization is None:
        raise SignInFailed(f"{sign_in.issuer} has no sign-in with a browser; use --device")
    attempt = Attempt()
    async with _listening(attempt.state, endpoints) as (redirect_uri, answer):
        show(authorization_address(endpoints.authorization, sign_in, attempt, redirect_uri))
        try:
            code = await asyncio.wait_for(answer, seconds)
        except TimeoutError:
            raise SignInFailed("nobody signed in with the browser in time; run saltgate login again") from None
    form = {
        "grant_type": "authorization_code",
        "client_id": sign_in.client_id,
        "code": code,
        "redirect_uri": redirect_uri,
        "code_verifier": attempt.verifier,
    }
    if sign_in.resource is not None:
        form["resource"] = sign_in.resource
    return BrowserSignIn(await ask_for_tokens(web, endpoints, form), attempt.nonce)


def authorization_address(endpoint: str, sign_in: NativeSignIn, attempt: Attempt, redirect_uri: str) -> str:
    """The authorization request (RFC 6749 section 4.1.1, RFC 7636 section 4.3). Nothing in it is worth stealing."""
    query = {
        "response_type": "code",
        "client_id": sign_in.client_id,
        "redirect_uri": redirect_uri,
        "scope": " ".join(sign_in.scopes),
        "state": attempt.state,
        "nonce": attempt.nonce,
        "code_challenge": create_s256_code_challenge(attempt.verifier),
        "code_challenge_method": "S256",
    }
    if sign_in.resource is not None:
        query["resource"] = sign_in.resource
    if "offline_access" in sign_in.scopes:
        query["prompt"] = "consent"  # OpenID Connect Core 1.0 section 11
    return f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(query)}"


class NotOurs(Exception):  # noqa: N818 - somebody knocked at the wrong door
    """A request that does not answer our question."""


def answered_code(query: str, *, state: str, endpoints: Endpoints) -> str:
    """The code in the answer's query. Raises NotOurs for an answer to another question, and SignInFailed for one to
    ours that says no, or comes from another issuer than was asked (RFC 9207 section 2.4).
    """
    pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=32)
    answer = dict(pairs)
    if len(answer) != len(pairs) or not hmac.compare_digest(answer.get("state", "").encode(), state.encode()):
        raise NotOurs
    if answer.get("iss", None if endpoints.names_itself else endpoints.issuer) != endpoints.issuer:
        raise SignInFailed(
            "the browser brought an answer of another issuer; nothing was kept, run saltgate login again"
        )
    if "error" in answer:
        raise SignInFailed(f"{endpoints.issuer} says {shown(answer['error'])}; run saltgate login again")
    if not answer.get("code"):
        raise SignInFailed(f"{endpoints.issuer} answered without a code; tell its owner")
    return answer["code"]


@asynccontextmanager
async def _listening(state: str, endpoints: Endpoints) -> AsyncIterator[tuple[str, asyncio.Future[str]]]:
    """The redirect URI, and the code that will come to it."""
    code: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    authority = ""

    async def serve(request: http.BaseRequest) -> http.StreamResponse:
        path, _, query = request.raw_path.partition("?")
        # A page that had its own name resolved to 127.0.0.1 sends that name.
        if request.method != "GET" or path != _PATH or request.headers.getall("Host", ()) != [authority] or code.done():
            return _page("There is nothing here.", status=404)
        try:
            code.set_result(answered_code(query, state=state, endpoints=endpoints))
        except (NotOurs, ValueError):
            return _page("This is not the answer that saltgate waits for.", status=400)
        except SignInFailed as failed:
            code.set_exception(failed)
        return _page("You may close this window, and go back to the terminal.")

    runner = http.ServerRunner(http.Server(serve, access_log=None), shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = http.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        authority = f"127.0.0.1:{runner.addresses[0][1]}"
        yield f"http://{authority}{_PATH}", code
    finally:
        await runner.cleanup()
        code.cancel()


# The page is one of this machine's: it loads nothing, and tells nobody the address with the code in it.
_HEADERS: Final[Mapping[str, str]] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Connection": "close",
}


def _page(text: str, *, status: int = 200) -> http.Response:
    page = f"<!doctype html><meta charset=utf-8><title>saltgate</title><p>{text}"
    return http.Response(text=page, status=status, content_type="text/html", headers=_HEADERS)
