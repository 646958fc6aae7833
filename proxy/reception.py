"""Everybody who may come, and what people see and change of their own: the parts of one worker that know callers."""

from __future__ import annotations

import hmac
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from config.addresses import UnixAddress, listen_address
from config.client_tls import client_context
from config.settings import Issuer as IssuerSettings
from config.settings import Settings
from proxy.account.account import Account
from proxy.account.administrators import Administrators
from proxy.account.clerks import Around, open_clerks
from proxy.account.logins import Logins
from proxy.account.pace import Pace
from proxy.account.persons import Bearers
from proxy.account.token_pages import TokenPages
from proxy.account.tokens import AccountTokens
from proxy.accounting import Accounting
from proxy.desk import Clerk, Desk
from proxy.directory.connect import open_tokens
from proxy.directory.store import Store
from proxy.directory.token_store import StoredTokens, TokenStore
from proxy.directory.used_proofs import open_used_proofs
from proxy.directory.view import DirectoryView
from proxy.identity.callers import Callers
from proxy.identity.fronts import Fronts
from proxy.identity.issuers import TrustedIssuers, open_issuers
from proxy.identity.native_sign_in import NativeSignIn
from proxy.identity.opaque import IssuerOfWorkspace, OpaqueTokens, open_introspection
from proxy.identity.personal_records import PersonalRules
from proxy.identity.personal_tokens import PersonalTokens
from proxy.identity.possession import Possession
from proxy.isolation.unit import Level
from proxy.plan import admin_origin
from proxy.routes import Page


@dataclass(frozen=True, slots=True)
class Reception:
    """`callers` is the one door for every credential; the others are the parts behind it that have a state."""

    callers: Fronts
    issuers: TrustedIssuers
    opaque: OpaqueTokens
    personal: PersonalTokens
    tokens: TokenStore


@asynccontextmanager
async def open_reception(settings: Settings, view: DirectoryView) -> AsyncIterator[Reception]:
    """It opens also while issuers are away, and heals by itself. `view` says whose users a workspace names."""
    tls = issuer_tls(settings.issuers)
    async with AsyncExitStack() as stack:
        issuers = await stack.enter_async_context(
            open_issuers(settings.issuers, clock=time.time, tls=tls, sign_in_url=sign_in_url(settings))
        )
        opaque = await stack.enter_async_context(
            open_introspection(
                settings.issuers,
                issuer_of_workspace=issuer_of_workspace(view),
                key=introspection_key(settings),
                clock=time.time,
                tls=tls,
            )
        )
        tokens = open_tokens(settings.directory)
        stack.push_async_callback(tokens.close)
        personal = personal_tokens(settings, tokens)
        stack.push_async_callback(personal.tell_uses_now)
        used_proofs = open_used_proofs(settings.directory)
        stack.push_async_callback(used_proofs.close)
        possession = Possession(public_url=public_url(settings), clock=time.time, used=used_proofs)
        known = Callers(issuers, opaque=opaque, personal=personal, possession=possession)
        callers = Fronts(known, settings.fronts, clock=time.time)
        yield Reception(callers, issuers, opaque, personal, tokens)


@asynccontextmanager
async def open_desk(
    settings: Settings, reception: Reception, view: DirectoryView, store: Store, accounting: Accounting
) -> AsyncIterator[Desk]:
    """The pages that this deployment has, for people and for programs."""
    logins = Logins(reception.tokens, groups_max_age=settings.tokens.groups_max_age)
    account = _account_tokens(settings, reception.tokens, store, accounting)
    pace = Pace(clock=time.monotonic)  # one for a person, whichever way he comes
    programs = _programs_clerks(settings, reception.callers, view, account, logins, pace)
    around = Around(
        issuers=reception.issuers.issuers,
        tls=issuer_tls(settings.issuers),
        directory=view,
        store=store,
        directory_settings=settings.directory,
        sessions=settings.sessions,
        isolation_secrets=tuple(key.secret.value for key in settings.isolation.keys),
        public_url=public_url(settings),
        clock=time.time,
        tokens=account,
        accounting=accounting,
        token_pace=pace,
        token_settings=settings.tokens,
        administrators=Administrators.of(settings.admin.administrators),
        admin_origin=admin_origin(settings.admin),
    )
    async with open_clerks(around, program=programs[Page.ACCOUNT], seen=(logins.note,)) as people:
        yield Desk({**programs, **people})


def public_url(settings: Settings) -> str:
    """The address that clients use: every absolute URL begins with it."""
    if settings.public.url is not None:
        return settings.public.url.rstrip("/")
    address = listen_address(settings.public.listen)
    if isinstance(address, UnixAddress):
        return "http://localhost"
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{'https' if settings.public.tls else 'http'}://{host}:{address.port}"


def sign_in_url(settings: Settings) -> str:
    """Our own page where people sign in, for those issuers that have `[issuers.login] client_id`."""
    return public_url(settings) + Page.SIGN_IN.value[1]


def personal_tokens(settings: Settings, tokens: TokenStore) -> PersonalTokens:
    return PersonalTokens(
        StoredTokens(tokens),
        personal_rules(settings),
        max_stale=settings.directory.max_stale,
        clock=time.time,
        monotonic=time.monotonic,
    )


def personal_rules(settings: Settings) -> PersonalRules:
    """Whose personal access tokens count. The owner of a local issuer has no groups that a sign-in could tell."""
    return PersonalRules(
        issuers=frozenset(issuer.issuer for issuer in settings.issuers),
        without_groups=frozenset(i.issuer for i in settings.issuers if i.kind == "local" or not i.groups),
        groups_max_age=settings.tokens.groups_max_age,
    )


def _account_tokens(settings: Settings, tokens: TokenStore, store: Store, accounting: Accounting) -> AccountTokens:
    return AccountTokens(
        tokens,
        store.change,
        settings.tokens,
        settings.admin.administrators,
        max_stale=settings.directory.max_stale,
        clock=time.time,
        accounting=accounting,
    )


def _programs_clerks(
    settings: Settings, callers: Fronts, view: DirectoryView, account: AccountTokens, logins: Logins, pace: Pace
) -> Mapping[Page, Clerk]:
    """The pages of the account, for programs that show a credential."""
    pages = TokenPages(
        Bearers(callers, view, logins).person,
        account,
        pace,
        default_lifetime=int(settings.tokens.default_lifetime),
    )
    shown = Account(callers, view, logins, Level(settings.isolation.unit))
    return {Page.ACCOUNT: shown.serve, **pages.clerks()}


def native_sign_ins(settings: Settings) -> tuple[NativeSignIn, ...]:
    """Where `saltgate login` may sign people in."""
    return tuple(
        NativeSignIn(
            issuer=issuer.issuer,
            client_id=issuer.login.native_client_id,
            scopes=issuer.login.native_scopes,
            resource=issuer.login.resource,
        )
        for issuer in settings.issuers
        if issuer.login is not None and issuer.login.native_client_id is not None
    )


def issuer_tls(issuers: tuple[IssuerSettings, ...]) -> dict[str, ssl.SSLContext]:
    """The contexts of those issuers that have an authority or a client certificate of their own."""
    return {i.issuer: client_context(i.ca, i.client_cert) for i in issuers if i.ca or i.client_cert}


def issuer_of_workspace(view: DirectoryView) -> IssuerOfWorkspace:
    def issuer_of(name: str) -> str | None:
        workspace = view.current().directory.workspaces.get(name)
        return None if workspace is None else workspace.issuer

    return issuer_of


def introspection_key(settings: Settings) -> bytes:
    """Of what all workers of all machines have in common, for this purpose alone."""
    return hmac.digest(settings.isolation.keys[0].secret.value, b"saltgate introspection stand-in", "sha256")
