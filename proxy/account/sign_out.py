"""Signing out: here first, then at the issuer (OpenID Connect RP-Initiated Logout 1.0)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from proxy.account.acts import sessions_ended
from proxy.account.cookies import Cookies
from proxy.account.pages import html_page, see_other, signed_out_page
from proxy.account.return_to import ACCOUNT
from proxy.account.session import Session
from proxy.account.store import SessionStore
from proxy.account.visitors import Visitors
from proxy.accounting import Accounting
from proxy.desk import PageAnswer, Visit
from proxy.identity.login_provider import LoginProvider, with_query
from proxy.refusals import IssuerUnavailable

SIGNED_OUT: Final = "/auth/signed-out"

_log = structlog.get_logger("saltgate.account")


@dataclass(frozen=True, slots=True, kw_only=True)
class SignOut:
    """The clerks of the way out."""

    providers: Mapping[str, LoginProvider]
    cookies: Cookies
    sessions: SessionStore
    visitors: Visitors
    public_url: str
    accounting: Accounting

    async def end(self, visit: Visit) -> PageAnswer:
        """POST /auth/logout: the session ends whatever the issuer does.

        The browser goes on by itself from a page of ours: a redirect as the answer to the form would be one that
        browsers hold `form-action` against, at every site that the issuer sends it on to.
        """
        cookie, _ = self.visitors.own_form(visit)
        session = await self.sessions.find(cookie)
        await self.sessions.end(cookie)
        leads_on = None if session is None else await self._end_session_address(session)
        if session is not None:
            self.accounting.tell(sessions_ended(session.identity, 1, by=session.identity))
            _log.info("signed_out", issuer=session.identity.issuer)
        issuer = None if session is None else session.identity.issuer
        headers = (self.cookies.session.ended(), self.cookies.sign_in.ended())
        return html_page(signed_out_page(issuer=issuer, leads_on=leads_on), headers=headers)

    async def ended(self, visit: Visit) -> PageAnswer:
        """GET /auth/signed-out, where the issuer sends the browser back to. Who is signed in is not told otherwise."""
        if await self.visitors.visitor(visit) is not None:
            return see_other(ACCOUNT)
        return html_page(signed_out_page(issuer=None, leads_on=None))

    async def _end_session_address(self, session: Session) -> str | None:
        provider = self.providers.get(session.identity.issuer)
        if provider is None:
            return None
        try:
            address = (await provider.metadata()).end_session_endpoint
        except IssuerUnavailable:
            return None
        if address is None:
            return None
        hint = {} if session.id_token is None else {"id_token_hint": session.id_token}
        there = {"client_id": provider.client_id, "post_logout_redirect_uri": self.public_url + SIGNED_OUT}
        return with_query(address, {**hint, **there})
