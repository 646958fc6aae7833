"""Who is there: the clerks of this deployment, opened in order and closed in reverse."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

import aiohttp

from config.addresses import origin_of
from config.settings import Directory as DirectorySettings
from config.settings import Sessions, Tokens
from proxy.account.admin_section import AdminSection
from proxy.account.administrators import Administrators
from proxy.account.attempt import AttemptSeal
from proxy.account.back_channel import BackChannel
from proxy.account.cookies import cookies_of
from proxy.account.for_people import for_people
from proxy.account.overview import Overview
from proxy.account.pace import Pace
from proxy.account.sign_in import LoginSeen, SignIn
from proxy.account.sign_out import SignOut
from proxy.account.store import SessionStore
from proxy.account.token_section import TokenSection
from proxy.account.tokens import AccountTokens
from proxy.account.visitors import Directory, Visitors
from proxy.accounting import Accounting
from proxy.desk import Clerk, PageAnswer, Visit
from proxy.directory.redis_connection import connection_pool
from proxy.directory.store import Store
from proxy.identity.credential import API_KEY_HEADERS
from proxy.identity.issuer import TrustedIssuer
from proxy.identity.login_provider import LoginProvider
from proxy.refusals import CredentialRequired
from proxy.routes import Page
from proxy.ticket import ticket_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What the clerks share with the rest of the worker. `clock` gives Unix seconds; `tls` holds, by issuer identifier,
    the contexts of those that have one of their own; `isolation_secrets` are those of the isolation keys, the current
    one first.
    """

    issuers: Sequence[TrustedIssuer]
    tls: Mapping[str, ssl.SSLContext]
    directory: Directory
    store: Store
    directory_settings: DirectorySettings
    sessions: Sessions
    isolation_secrets: tuple[bytes, ...]
    public_url: str
    clock: Callable[[], float]
    tokens: AccountTokens
    accounting: Accounting
    token_pace: Pace
    token_settings: Tokens
    administrators: Administrators
    admin_origin: str | None


@asynccontextmanager
async def open_clerks(
    around: Around,
    *,
    program: Clerk,
    seen: Sequence[LoginSeen] = (),
) -> AsyncIterator[Mapping[Page, Clerk]]:
    """The clerks, for as long as the context is open. `program` serves /account to whoever shows a credential; without
    an issuer where browsers sign in, only he is there.
    """
    async with AsyncExitStack() as stack:
        providers = await _providers(stack, around)
        people: Mapping[Page, Clerk] = {}
        if providers:
            sessions = SessionStore(
                connection_pool(around.directory_settings),
                clock=around.clock,
                idle=around.sessions.idle,
                absolute=around.sessions.absolute,
            )
            stack.push_async_callback(sessions.close)
            people = _for_browsers(around, providers, sessions, tuple(seen))
        yield {**people, Page.ACCOUNT: _by_credential(people.get(Page.ACCOUNT), program)}


async def _providers(stack: AsyncExitStack, around: Around) -> Mapping[str, LoginProvider]:
    """Those issuers where browsers sign in, by their identifier."""
    chosen = [
        (issuer, login, login.client_id)
        for issuer in around.issuers
        if (login := issuer.rules.login) is not None and login.client_id is not None
    ]
    if not chosen:
        return {}
    # Cookies would travel between issuers; a body that unpacks itself would escape the bound on its length.
    session = await stack.enter_async_context(
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False)
    )
    return {
        issuer.rules.issuer: LoginProvider(
            issuer,
            client_id=client_id,
            login=login,
            session=session,
            clock=around.clock,
            monotonic=time.monotonic,
            tls=around.tls.get(issuer.rules.issuer),
        )
        for issuer, login, client_id in chosen
    }


def _for_browsers(
    around: Around,
    providers: Mapping[str, LoginProvider],
    sessions: SessionStore,
    seen: tuple[LoginSeen, ...],
) -> Mapping[Page, Clerk]:
    cookies = cookies_of(around.public_url)
    visitors = Visitors(sessions, around.directory, cookies, origin=origin_of(around.public_url), issuers=providers)
    sign_in = SignIn(
        providers=providers,
        seal=AttemptSeal(around.isolation_secrets),
        cookies=cookies,
        sessions=sessions,
        visitors=visitors,
        directory=around.directory,
        public_url=around.public_url,
        clock=around.clock,
        seen=seen,
        accounting=around.accounting,
    )
    sign_out = SignOut(
        providers=providers,
        cookies=cookies,
        sessions=sessions,
        visitors=visitors,
        public_url=around.public_url,
        accounting=around.accounting,
    )
    tokens = TokenSection(
        tokens=around.tokens,
        sessions=sessions,
        visitors=visitors,
        public_url=around.public_url,
        pace=around.token_pace,
        default_lifetime=around.token_settings.default_lifetime,
        max_lifetime=around.token_settings.max_lifetime,
    )
    accounting = around.accounting
    admin = AdminSection(
        administrators=around.administrators,
        visitors=visitors,
        origin=around.admin_origin,
        ticket_key=ticket_key(around.isolation_secrets[0]),
        clock=around.clock,
        accounting=accounting,
    )
    overview = Overview(sessions=sessions, visitors=visitors, accounting=accounting, sections=(admin, tokens))
    back_channel = BackChannel(
        providers=providers, sessions=sessions, store=around.store, clock=around.clock, accounting=accounting
    )
    return {
        Page.SIGN_IN: for_people(sign_in.begin),
        Page.CALLBACK: for_people(sign_in.finish),
        Page.SIGN_OUT: for_people(sign_out.end),
        Page.SIGNED_OUT: for_people(sign_out.ended),
        Page.ACCOUNT: for_people(overview.show),
        Page.END_SESSIONS: for_people(overview.end_sessions),
        Page.TO_ADMIN_PAGES: for_people(admin.lead_on),
        Page.MAKE_TOKEN_BY_FORM: for_people(tokens.make),
        Page.END_TOKEN_BY_FORM: for_people(tokens.revoke),
        Page.BACK_CHANNEL_LOGOUT: back_channel.end,
    }


def _by_credential(people: Clerk | None, program: Clerk) -> Clerk:
    """/account: whoever shows a credential is a program, also where a cookie comes with it; a browser wants HTML."""

    async def serve(visit: Visit) -> PageAnswer:
        if _shows_credential(visit.headers):
            return await program(visit)
        if people is not None and _is_browser(visit.headers):
            return await people(visit)
        raise CredentialRequired(_SEND if people is None else _SEND_OR_OPEN)

    return serve


_SEND: Final = (
    "Send your access token as 'Authorization: Bearer TOKEN'. This gate has no sign-in for browsers; "
    "its administrator sets one up with `client_id` of [issuers.login]."
)
_SEND_OR_OPEN: Final = "Send your access token as 'Authorization: Bearer TOKEN', or open this address in a browser."
_CREDENTIAL_HEADERS: Final = frozenset({"authorization", *API_KEY_HEADERS})


def _shows_credential(headers: Iterable[tuple[str, str]]) -> bool:
    return any(name.lower() in _CREDENTIAL_HEADERS for name, _ in headers)


def _is_browser(headers: Iterable[tuple[str, str]]) -> bool:
    return any(name.lower() == "accept" and "text/html" in value for name, value in headers)
