"""Signing in: a browser is sent to its issuer, comes back with a code, and gets a session of its own.

Whatever is wrong on the way back, nothing changes for the browser: no session begins and none ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

import structlog

from proxy.account.acts import session_began
from proxy.account.attempt import ATTEMPT_SECONDS, Attempt, AttemptSeal, fresh_attempt
from proxy.account.browser_word import browser_word
from proxy.account.cookies import Cookies, fresh_value
from proxy.account.forms import parameters
from proxy.account.pages import choice_page, html_page, see_other
from proxy.account.return_to import ACCOUNT, return_path
from proxy.account.session import MAXIMUM_HINT_CHARACTERS, Session
from proxy.account.store import SessionStore
from proxy.account.visitors import Directory, Visitors
from proxy.accounting import Accounting
from proxy.desk import PageAnswer, Visit
from proxy.directory.membership import admit
from proxy.identity import Identity
from proxy.identity.login_provider import CodeAnswer, LoginProvider
from proxy.identity.signed_in import SignedIn
from proxy.refusals import InvalidRequest, IssuerUnavailable

CALLBACK: Final = "/auth/callback"
_LONGEST_CODE: Final = 4096

_log = structlog.get_logger("saltgate.account")


class LoginSeen(Protocol):
    """Whoever wants to know of each sign-in, such as the keeper of what personal access tokens may use."""

    async def __call__(self, identity: Identity) -> None:
        """`identity` has just signed in; its `issued_at` is when the issuer said so. Raises DirectoryUnavailable."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """The clerks of a sign-in. `clock` gives Unix seconds; `seen` hear of each sign-in before its session begins."""

    providers: Mapping[str, LoginProvider]
    seal: AttemptSeal
    cookies: Cookies
    sessions: SessionStore
    visitors: Visitors
    directory: Directory
    public_url: str
    clock: Callable[[], float]
    accounting: Accounting
    seen: tuple[LoginSeen, ...] = ()

    async def begin(self, visit: Visit) -> PageAnswer:
        """GET /auth/login: to the issuer, or a choice where there are several."""
        asked = parameters(visit.query)
        return_to = return_path(asked.get("return_to"))
        provider = self._chosen(asked.get("issuer"))
        if provider is None:
            return html_page(choice_page(self.providers, return_to))
        await self._refuse_mixed_up(provider)
        # Kept where it is there: a second tab must not spoil the first one's sign-in.
        browser = self.cookies.sign_in.value(visit.headers) or fresh_value()
        attempt = fresh_attempt(provider.rules.issuer, return_to=return_to, now=self.clock())
        address = await provider.authorization_address(
            redirect_uri=self.public_url + callback_path(provider.callback),
            state=self.seal.seal(attempt, browser),
            nonce=attempt.nonce,
            verifier=attempt.verifier,
        )
        return see_other(address, self.cookies.sign_in.set_to(browser, seconds=ATTEMPT_SECONDS))

    async def finish(self, visit: Visit) -> PageAnswer:
        """GET /auth/callback: the browser is back from the issuer."""
        answer = parameters(visit.query)
        try:
            attempt = self._attempt(visit, answer)
        except InvalidRequest:
            if await self.visitors.visitor(visit) is None:
                raise
            return see_other(ACCOUNT)  # Signed in meanwhile, in another tab.
        provider = await self._provider(attempt, visit, answer)
        once = f"sign-in {answer['state']}"
        if await self.sessions.was_seen(once):
            raise _used()
        redirect_uri = self.public_url + callback_path(provider.callback)
        code_answer = await provider.redeem(_code(answer), redirect_uri=redirect_uri, verifier=attempt.verifier)
        signed_in = await provider.signed_in(code_answer, nonce=attempt.nonce)
        # Remembered when the code was good: invented ones fill no memory. Of several at once one is the first.
        if not await self.sessions.first_time(once, seconds=2 * ATTEMPT_SECONDS):
            raise _used()
        return await self._started(visit, signed_in, code_answer, attempt.return_to)

    def _chosen(self, issuer: str | None) -> LoginProvider | None:
        if len(self.providers) == 1:
            return next(iter(self.providers.values()))
        return None if issuer is None else self.providers.get(issuer)

    def _attempt(self, visit: Visit, answer: Mapping[str, str]) -> Attempt:
        browser = self.cookies.sign_in.value(visit.headers)
        if browser is None:
            raise InvalidRequest(
                "This browser did not begin this sign-in, or keeps no cookies. Sign in again.",
                reason="no_sign_in_cookie",
            )
        return self.seal.open(answer.get("state", ""), browser, now=self.clock())

    async def _refuse_mixed_up(self, provider: LoginProvider) -> None:
        """Among several issuers, one could send a browser on to another and get the code that comes of it, unless the
        answer says from whom it is (RFC 9700 section 4.4): by `iss`, or by a redirect URI that only one issuer has.
        """
        if len(self.providers) == 1 or provider.callback is not None or (await provider.metadata()).names_itself:
            return
        _log.error(
            "sign_in_could_be_mixed_up",
            issuer=provider.rules.issuer,
            remedy="set [issuers.login] callback, and register /auth/callback/NAME as the redirect URI",
        )
        raise IssuerUnavailable(
            "Nobody can sign in at this identity provider before its set-up here is complete. Tell your administrator.",
            reason="could_be_mixed_up",
        )

    async def _provider(self, attempt: Attempt, visit: Visit, answer: Mapping[str, str]) -> LoginProvider:
        """The issuer that the browser was sent to, which must be the one that it comes from."""
        provider = self.providers.get(attempt.issuer)
        if provider is None:
            raise InvalidRequest("This identity provider is no longer used here. Sign in again.", reason="no_issuer")
        if visit.path != callback_path(provider.callback):
            raise InvalidRequest(_OTHER_ISSUER, reason="callback")
        await self._refuse_mixed_up(provider)
        # RFC 9207 section 2.4.
        is_named = "iss" in answer or (await provider.metadata()).names_itself
        if is_named and answer.get("iss") != attempt.issuer:
            raise InvalidRequest(_OTHER_ISSUER, reason="iss")
        return provider

    async def _started(self, visit: Visit, signed_in: SignedIn, code_answer: CodeAnswer, return_to: str) -> PageAnswer:
        """A session under a secret that nobody can have known before; the one that was there is over."""
        admit(self.directory.current(), signed_in.identity)
        now = self.clock()
        identity = replace(signed_in.identity, expires_at=now + self.sessions.absolute)
        session = Session(
            identity=identity,
            subject=signed_in.subject,
            name=signed_in.name,
            browser=browser_word(visit.headers),
            started_at=now,
            id_token=code_answer.id_token if len(code_answer.id_token) <= MAXIMUM_HINT_CHARACTERS else None,
        )
        for seen in self.seen:
            await seen(identity)
        cookie = fresh_value()
        await self.sessions.start(session, cookie)
        before = self.cookies.session.value(visit.headers)
        if before is not None:
            await self.sessions.end(before)
        self.accounting.tell(session_began(identity))
        _log.info("signed_in", issuer=identity.issuer)
        return see_other(return_to, self.cookies.session.set_to(cookie), self.cookies.sign_in.ended())


def callback_path(name: str | None) -> str:
    """Where an issuer sends browsers back to, under our own address; `name` is that of its own callback."""
    return CALLBACK if name is None else f"{CALLBACK}/{name}"


def _used() -> InvalidRequest:
    return InvalidRequest("This sign-in was completed before. Sign in again.", reason="state_used")


_OTHER_ISSUER: Final = "Another identity provider answered than the one that was asked. Sign in again."


def _code(answer: Mapping[str, str]) -> str:
    """The code; where the issuer sent an error instead, nothing of it is repeated but whether the person said no."""
    if answer.get("error") == "access_denied":
        raise InvalidRequest("The sign-in was cancelled, or is not allowed to you. Sign in again.", reason="denied")
    code = answer.get("code", "")
    if "error" in answer or not 0 < len(code) <= _LONGEST_CODE:
        raise InvalidRequest(
            "The identity provider did not sign you in. Sign in again; if it happens again, tell your administrator.",
            reason="issuer_error",
        )
    return code
