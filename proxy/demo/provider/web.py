"""The provider over HTTP. Thin: each handler reads a request, asks `Provider`, and writes the answer.

Every request passes `_guard` first: a Host that is not this loopback address is a web page that had its name resolved
to 127.0.0.1 (DNS rebinding), and hears nothing.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Mapping
from math import ceil
from typing import Final
from urllib.parse import urlsplit

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from proxy.demo.pages.sign_in import confirm_page, device_page, message_page, sign_in_page, sign_out_page
from proxy.demo.provider.authorization import (
    AuthorizationRequest,
    DeviceRequest,
    LogoutRequest,
    Step,
    Wish,
    authorization_request,
    location_with,
    next_step,
)
from proxy.demo.provider.client_authentication import allowed_grant, authenticated_client, bearer_token
from proxy.demo.provider.clients import Client, Grant
from proxy.demo.provider.errors import OAuthError, PageRefusal, RedirectRefusal
from proxy.demo.provider.metadata import DISCOVERY_PATHS, metadata
from proxy.demo.provider.parameters import Parameters, parse_parameters
from proxy.demo.provider.people import NOBODY, Person
from proxy.demo.provider.provider import Provider, Session, SignIn
from proxy.demo.provider.tokens import TokenResponse
from proxy.frame import page_headers

_PROVIDER: Final = web.AppKey("provider", Provider)
_LARGEST_FORM: Final = 32 * 1024
_FORM: Final = "application/x-www-form-urlencoded"
_FOR_PROGRAMS: Final = frozenset({*DISCOVERY_PATHS, "/jwks", "/token", "/userinfo", "/revoke", "/device_authorization"})
_COOKIE_VALUE: Final = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_TOO_LATE: Final = "This page is no longer good. Go back to where you came from and start again."
_DEVICE_TRIES: Final = (
    "\N{NULL}device codes"  # a name that no form can carry: the tries of user codes, counted together
)


def provider_application(provider: Provider) -> web.Application:
    """The application that serves `provider`."""
    app = web.Application(middlewares=[_guard], client_max_size=_LARGEST_FORM)
    app[_PROVIDER] = provider
    routes: Mapping[tuple[str, str], Handler] = {
        **{(hdrs.METH_GET, path): _metadata for path in DISCOVERY_PATHS},
        (hdrs.METH_GET, "/jwks"): _jwks,
        (hdrs.METH_GET, "/authorize"): _authorize,
        (hdrs.METH_POST, "/authorize"): _authorize,
        (hdrs.METH_POST, "/sign-in"): _sign_in,
        (hdrs.METH_POST, "/confirm"): _confirm,
        (hdrs.METH_POST, "/token"): _token,
        (hdrs.METH_POST, "/revoke"): _revoke,
        (hdrs.METH_GET, "/userinfo"): _userinfo,
        (hdrs.METH_POST, "/userinfo"): _userinfo,
        (hdrs.METH_POST, "/device_authorization"): _device_authorization,
        (hdrs.METH_GET, "/device"): _device,
        (hdrs.METH_POST, "/device"): _device_code,
        (hdrs.METH_GET, "/logout"): _logout,
        (hdrs.METH_POST, "/logout"): _logout,
    }
    app.add_routes([web.route(method, path, handler) for (method, path), handler in routes.items()])
    return app


@web.middleware
async def _guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    provider = request.app[_PROVIDER]
    if request.headers.getall(hdrs.HOST, []) != [provider.address.authority]:
        return web.Response(status=421, text="This is not the address of the sign-in service.\n")
    try:
        return await handler(request)
    except OAuthError as error:
        if request.path in _FOR_PROGRAMS:
            return _error(error)
        return _page(
            message_page("This cannot be done", f"The request is wrong: {error.description}."), status=error.status
        )
    except PageRefusal as refusal:
        return _page(message_page("This cannot be done", refusal.message), status=refusal.status)
    except RedirectRefusal as refusal:
        members = {"error": refusal.error, "error_description": refusal.description, "state": refusal.to.state}
        return _see_other(location_with(refusal.to.redirect_uri, {**members, "iss": provider.issuer}))


# --- for programs


async def _metadata(request: web.Request) -> web.Response:
    return web.json_response(metadata(request.app[_PROVIDER].issuer))


async def _jwks(request: web.Request) -> web.Response:
    return web.json_response(request.app[_PROVIDER].keys.document(), headers={hdrs.CACHE_CONTROL: "max-age=60"})


async def _token(request: web.Request) -> web.Response:
    provider, parameters, client = await _called_by(request)
    grant = allowed_grant(client, parameters.required("grant_type"))
    return _json(_granted(provider, grant, client, parameters).document())


def _granted(provider: Provider, grant: Grant, client: Client, parameters: Parameters) -> TokenResponse:
    match grant:
        case Grant.AUTHORIZATION_CODE:
            return provider.exchange_code(client, parameters)
        case Grant.REFRESH_TOKEN:
            return provider.refresh(client, parameters)
        case Grant.CLIENT_CREDENTIALS:
            return provider.service_token(client, parameters)
        case Grant.DEVICE_CODE:
            return provider.poll_device(client, parameters)


async def _revoke(request: web.Request) -> web.Response:
    provider, parameters, client = await _called_by(request)
    provider.revoke(client, parameters.required("token"))
    return web.Response(headers={hdrs.CACHE_CONTROL: "no-store"})


async def _userinfo(request: web.Request) -> web.Response:
    token = bearer_token(request.headers.getall(hdrs.AUTHORIZATION, []))
    return _json(request.app[_PROVIDER].userinfo(token))


async def _device_authorization(request: web.Request) -> web.Response:
    provider, parameters, client = await _called_by(request)
    allowed_grant(client, Grant.DEVICE_CODE.value)
    device = provider.authorize_device(client, parameters.words("scope"))
    page = f"{provider.issuer}/device"
    return _json(
        {
            "device_code": device.device_code,
            "user_code": device.user_code,
            "verification_uri": page,
            "verification_uri_complete": location_with(page, {"user_code": device.user_code}),
            "expires_in": device.expires_in,
            "interval": device.interval,
        }
    )


async def _called_by(request: web.Request) -> tuple[Provider, Parameters, Client]:
    provider, parameters = request.app[_PROVIDER], await _form(request)
    authorization = request.headers.getall(hdrs.AUTHORIZATION, [])
    return provider, parameters, authenticated_client(authorization, parameters, provider.clients)


# --- for people


async def _authorize(request: web.Request) -> web.Response:
    provider = request.app[_PROVIDER]
    wish = authorization_request(await _query_or_form(request), provider.clients)
    session = _session(request)
    step = next_step(wish, signed_in_at=session.signed_in_at if session else None, now=provider.clock())
    if session is None or step is Step.SIGN_IN:
        return _ask_password(request, _begin(request, wish), username=wish.login_hint or "")
    if step is Step.CONFIRM:
        return _ask_consent(request, wish, session)
    return _answered(provider, wish, session)


async def _sign_in(request: web.Request) -> web.Response:
    provider, form = request.app[_PROVIDER], await _own_form(request)
    sign_in, username = _shown(request, form), form.get("username") or ""
    wait = provider.attempts.seconds_to_wait(username, now=provider.clock())
    if wait > 0:
        fault = f"Too many tries. Wait {ceil(wait)} seconds."
        return _ask_password(request, sign_in, username=username, fault=fault, status=429, retry_after=ceil(wait))
    person = await _person(provider, username, form.get("password") or "")
    if person is None:
        return _ask_password(request, sign_in, username=username, fault="Username or password is wrong.", status=403)
    if not provider.finish(sign_in):
        raise PageRefusal(_TOO_LATE, status=403)
    provider.attempts.succeeded(username, now=provider.clock())
    session = provider.start_session(person)
    response = _answered(provider, sign_in.wish, session)
    _set_cookie(response, _cookie_name(request, "session"), session.id)
    return response


async def _confirm(request: web.Request) -> web.Response:
    provider, form = request.app[_PROVIDER], await _own_form(request)
    sign_in, session, choice = _shown(request, form), _session(request), form.required("choice")
    if choice == "other" and not isinstance(sign_in.wish, LogoutRequest):
        return _ask_password(request, sign_in, username="")
    if choice not in ("allow", "deny"):
        raise PageRefusal(_TOO_LATE)
    if choice == "allow" and (session is None or session.id != sign_in.shown):
        raise PageRefusal(_TOO_LATE, status=403)
    if not provider.finish(sign_in):
        raise PageRefusal(_TOO_LATE, status=403)
    if choice == "deny" and isinstance(sign_in.wish, LogoutRequest):
        return _page(message_page("You are still signed in", "You can close this page."))
    return _answered(provider, sign_in.wish, session if choice == "allow" else None)


async def _device(request: web.Request) -> web.Response:
    typed = parse_parameters(request.rel_url.raw_query_string).get("user_code") or ""
    return _page(device_page(user_code=typed, fault=None))


async def _device_code(request: web.Request) -> web.Response:
    provider, form = request.app[_PROVIDER], await _own_form(request)
    typed = form.get("user_code") or ""
    wait = provider.attempts.seconds_to_wait(_DEVICE_TRIES, now=provider.clock())
    if wait > 0:
        fault = f"Too many tries. Wait {ceil(wait)} seconds."
        return _page(device_page(user_code=typed, fault=fault), status=429, retry_after=ceil(wait))
    wish, session = provider.device_wish(typed), _session(request)
    if wish is None:
        return _page(device_page(user_code=typed, fault="No device waits with this code."), status=403)
    provider.attempts.succeeded(_DEVICE_TRIES, now=provider.clock())
    if session is None:
        return _ask_password(request, _begin(request, wish), username="")
    return _ask_consent(request, wish, session)


async def _logout(request: web.Request) -> web.Response:
    """OIDC RP-Initiated Logout. Without a hint that names the person, he is asked first."""
    provider, parameters = request.app[_PROVIDER], await _query_or_form(request)
    token = parameters.get("id_token_hint")
    hint = provider.logout_hint(token) if token is not None else None
    wish = LogoutRequest(_after_logout(provider, parameters, hint.client_id if hint is not None else None))
    session = _session(request)
    if session is None or (hint is not None and hint.subject == session.person.subject):
        return _answered(provider, wish, session)
    sign_in = _begin(request, wish, shown=session)
    return _asking(request, sign_in, sign_out_page(sign_in.id, name=session.person.name))


def _after_logout(provider: Provider, parameters: Parameters, hinted_client: str | None) -> str | None:
    uri = parameters.get("post_logout_redirect_uri")
    if uri is None:
        return None
    client_id = parameters.get("client_id") or hinted_client
    client = provider.clients.get(client_id or "")
    if client is None or hinted_client not in (None, client_id) or uri not in client.post_logout_redirect_uris:
        raise PageRefusal("The program that sent you here wants you back at an address that is not its own.")
    return location_with(uri, {"state": parameters.get("state")})


def _answered(provider: Provider, wish: Wish, session: Session | None) -> web.Response:
    """What the person decided, carried out. Without a session he said no (or, at sign-out, was not signed in)."""
    match wish:
        case AuthorizationRequest(to=to):
            if session is None:
                raise RedirectRefusal(to, "access_denied", "the person said no")
            code = provider.issue_code(wish, session)
            return _see_other(location_with(to.redirect_uri, {"code": code, "state": to.state, "iss": provider.issuer}))
        case DeviceRequest():
            if not provider.answer_device(wish, session):
                raise PageRefusal("The device has stopped waiting. Start again there.")
            said = "You can go back to it, and close this page."
            return _page(message_page("The device may go on" if session else "The device was refused", said))
        case LogoutRequest(location):
            return _signed_out(provider, location, session)


def _signed_out(provider: Provider, location: str | None, session: Session | None) -> web.Response:
    if session is not None:
        provider.end_session(session)
    if location is not None:
        return _see_other(location)
    return _page(message_page("You are signed out", "You can close this page."))


async def _person(provider: Provider, username: str, password: str) -> Person | None:
    """Who knows this password. An unknown username takes as long as a wrong password."""
    person = provider.people.get(username)
    kept = person.password if person is not None else NOBODY
    return person if await asyncio.to_thread(kept.matches, password) else None


# --- pages


def _ask_password(
    request: web.Request,
    sign_in: SignIn,
    *,
    username: str,
    fault: str | None = None,
    status: int = 200,
    retry_after: int | None = None,
) -> web.Response:
    page = sign_in_page(
        sign_in.id, _purpose(sign_in.wish), user_code=_user_code(sign_in.wish), username=username, fault=fault
    )
    return _asking(request, sign_in, page, status=status, retry_after=retry_after)


def _ask_consent(request: web.Request, wish: AuthorizationRequest | DeviceRequest, session: Session) -> web.Response:
    sign_in = _begin(request, wish, shown=session)
    page = confirm_page(sign_in.id, _purpose(wish), name=session.person.name, user_code=_user_code(wish))
    return _asking(request, sign_in, page)


def _begin(request: web.Request, wish: Wish, *, shown: Session | None = None) -> SignIn:
    browser = _cookie(request, "browser") or secrets.token_urlsafe(32)
    return request.app[_PROVIDER].begin(browser, wish, shown=shown)


def _asking(
    request: web.Request, sign_in: SignIn, page: str, *, status: int = 200, retry_after: int | None = None
) -> web.Response:
    response = _page(page, status=status, form_targets=_form_targets(sign_in.wish), retry_after=retry_after)
    _set_cookie(response, _cookie_name(request, "browser"), sign_in.browser)
    return response


def _purpose(wish: Wish) -> str:
    match wish:
        case AuthorizationRequest(client=client):
            return f"{client.id} wants to know who you are and to act for you."
        case DeviceRequest(client=client):
            return f"{client.id}, on another device or in a terminal, wants to act for you."
        case LogoutRequest():
            return "You are about to sign out."


def _user_code(wish: Wish) -> str | None:
    return wish.user_code if isinstance(wish, DeviceRequest) else None


def _form_targets(wish: Wish) -> tuple[str, ...]:
    match wish:
        case AuthorizationRequest(to=to):
            return (_origin(to.redirect_uri),)
        case LogoutRequest(str() as location):
            return (_origin(location),)
        case _:
            return ()


def _origin(uri: str) -> str:
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc}"


def _page(
    page: str, *, status: int = 200, form_targets: tuple[str, ...] = (), retry_after: int | None = None
) -> web.Response:
    headers = dict(page_headers(form_targets=form_targets))
    if retry_after is not None:
        headers[hdrs.RETRY_AFTER] = str(retry_after)
    return web.Response(text=page, content_type="text/html", charset="utf-8", status=status, headers=headers)


def _see_other(location: str) -> web.Response:
    # 303, so that the browser does not send the form with the password on (RFC 9700 section 4.12).
    headers = {hdrs.LOCATION: location, hdrs.CACHE_CONTROL: "no-store", "Referrer-Policy": "no-referrer"}
    return web.Response(status=303, headers=headers)


def _json(document: Mapping[str, object], *, status: int = 200, challenge: str | None = None) -> web.Response:
    headers = {hdrs.CACHE_CONTROL: "no-store"}
    if challenge is not None:
        headers[hdrs.WWW_AUTHENTICATE] = challenge
    return web.json_response(document, status=status, headers=headers)


def _error(error: OAuthError) -> web.Response:
    challenge = None
    if error.error in ("invalid_token", "insufficient_scope"):
        challenge = f'Bearer error="{error.error}"'
    elif error.status == 401:
        challenge = 'Basic realm="saltgate"'
    document = {"error": error.error, "error_description": error.description}
    return _json(document, status=error.status, challenge=challenge)


# --- what comes in


async def _query_or_form(request: web.Request) -> Parameters:
    """Endpoints for browsers take both (OIDC Core section 3.1.2.1)."""
    if request.method == hdrs.METH_POST:
        return await _form(request)
    return parse_parameters(request.rel_url.raw_query_string)


async def _form(request: web.Request) -> Parameters:
    if request.content_type != _FORM:
        raise OAuthError("invalid_request", f"send the parameters as {_FORM}")
    # Bytes outside ASCII become characters outside ASCII, which the parser refuses.
    return parse_parameters((await request.read()).decode("latin-1"))


async def _own_form(request: web.Request) -> Parameters:
    """A form of one of our pages, posted by one of our pages."""
    origin, site = request.headers.get(hdrs.ORIGIN), request.headers.get("Sec-Fetch-Site")
    if origin not in (None, request.app[_PROVIDER].issuer) or site not in (None, "same-origin"):
        raise PageRefusal("This form was sent by a page of another site.", status=403)
    return await _form(request)


def _shown(request: web.Request, form: Parameters) -> SignIn:
    sign_in = request.app[_PROVIDER].sign_in(form.get("sign_in") or "", _cookie(request, "browser"))
    if sign_in is None:
        raise PageRefusal(_TOO_LATE, status=403)
    return sign_in


def _session(request: web.Request) -> Session | None:
    return request.app[_PROVIDER].session(_cookie(request, "session"))


def _cookie(request: web.Request, kind: str) -> str | None:
    value = request.cookies.get(_cookie_name(request, kind), "")
    return value if _COOKIE_VALUE.fullmatch(value) is not None else None


def _cookie_name(request: web.Request, kind: str) -> str:
    # Browsers share cookies between the ports of one host: the port keeps two providers of one computer apart.
    return f"saltgate-{kind}-{request.app[_PROVIDER].address.port}"


def _set_cookie(response: web.Response, name: str, value: str) -> None:
    response.set_cookie(name, value, httponly=True, samesite="Lax", path="/")
