"""The issuer tells that somebody signed out: his sessions and the use of his tokens end at once, on every worker.

OpenID Connect Back-Channel Logout 1.0. Only the issuer's signature counts here: no cookie, no other credential.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from proxy.account.acts import ended_by_issuer
from proxy.account.forms import form
from proxy.account.session import Listed
from proxy.account.store import SessionStore
from proxy.accounting import Accounting
from proxy.desk import PageAnswer, Visit
from proxy.directory.changes import end
from proxy.directory.endings import LONGEST_SECONDS, Ending
from proxy.directory.store import Store, StoreUnavailable
from proxy.identity.login_provider import LoginProvider
from proxy.identity.logout_token import LATEST_SECONDS, Logout
from proxy.identity.reasons import Reason, invalid_token
from proxy.identity.signed_in import id_token_subject
from proxy.identity.token import compact_token
from proxy.refusals import DirectoryUnavailable, Refusal, Unavailable

_log = structlog.get_logger("saltgate.account")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackChannel:
    """The clerk for issuers. `clock` gives Unix seconds."""

    providers: Mapping[str, LoginProvider]
    sessions: SessionStore
    store: Store
    clock: Callable[[], float]
    accounting: Accounting

    async def end(self, visit: Visit) -> PageAnswer:
        """POST /auth/backchannel-logout: 200 where everything is over, else 400 (section 2.8), whatever it was."""
        try:
            provider, logout = await self._logout(visit)
            await self._carry_out(provider, logout)
        except Refusal as refusal:
            return _failed(refusal)
        return PageAnswer(status=200)

    async def _logout(self, visit: Visit) -> tuple[LoginProvider, Logout]:
        token = form(visit.body).get("logout_token", "")
        provider = self.providers.get(compact_token(token).issuer)
        if provider is None:
            raise invalid_token(Reason.ISSUER)
        return provider, await provider.logout(token)

    async def _carry_out(self, provider: LoginProvider, logout: Logout) -> None:
        once = f"logout {logout.issuer} {logout.id}"
        if await self.sessions.was_seen(once):
            raise invalid_token(Reason.REPLAYED)
        found = await self.sessions.end_all(logout.issuer, session=logout.session, subject=logout.subject)
        await self._end_tokens(provider, logout, found)
        # Only now: what was done by half may be told again, and done twice it is the same.
        await self.sessions.first_time(once, seconds=2 * (LATEST_SECONDS + provider.rules.leeway))
        for member in _members(provider, logout, found):
            self.accounting.tell(ended_by_issuer(logout.issuer, member, len(found)))
        _log.info("signed_out_by_issuer", issuer=logout.issuer, sessions=len(found))

    async def _end_tokens(self, provider: LoginProvider, logout: Logout, found: Sequence[Listed]) -> None:
        longest = max(provider.rules.max_lifetime, self.sessions.absolute) + provider.rules.leeway
        until = int(self.clock() + min(longest, LONGEST_SECONDS - _SPARE_SECONDS)) + 1
        at = int(logout.issued_at)
        members = _members(provider, logout, found)
        if logout.session is None:
            endings = [Ending("subject", logout.issuer, member, at, until) for member in members]
        else:
            # Many issuers name the session in ID tokens alone. An access token without a name may be one of it.
            unnamed = [Ending("unnamed", logout.issuer, member, at, until) for member in members]
            endings = [Ending("session", logout.issuer, logout.session, at, until), *unnamed]
        try:
            await self.store.change(end(*endings))
        except StoreUnavailable as error:
            raise DirectoryUnavailable(
                "saltgate cannot reach its directory. Tell it again.", reason="directory_unavailable"
            ) from error


_SPARE_SECONDS: Final = 60.0  # between this clock and the one that the store judges by


def _members(provider: LoginProvider, logout: Logout, found: Sequence[Listed]) -> Sequence[str]:
    """What the directory calls the subject: his own `sub`; where another claim names people, what his sessions say."""
    members = {session.member for session in found}
    if logout.subject is not None and id_token_subject(provider.rules) == ("sub",):
        members.add(logout.subject)
    return sorted(members)


def _failed(refusal: Refusal) -> PageAnswer:
    """The reason is for the log: whoever forges a token learns nothing."""
    error = "temporarily_unavailable" if isinstance(refusal, Unavailable) else "invalid_request"
    document = {"error": error, "error_description": "The logout token was not accepted, or the logout failed."}
    return PageAnswer(status=400, body=json.dumps(document).encode(), refusal=refusal)
