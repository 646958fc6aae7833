"""The account: who somebody is, what he may use, and what is his to end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

from proxy.account.acts import sessions_ended
from proxy.account.pages import account_page, html_page, see_other, sessions_section, sign_in_address
from proxy.account.return_to import ACCOUNT
from proxy.account.session import session_key
from proxy.account.store import SessionStore
from proxy.account.visitors import Visitor, Visitors
from proxy.accounting import Accounting
from proxy.desk import PageAnswer, Visit
from proxy.directory.membership import memberships

_MOST_MEMBERSHIPS: Final = 101


class Section(Protocol):
    """A part of the account page."""

    async def __call__(self, visitor: Visitor) -> str:
        """HTML whose values are escaped, by `pages.section`. Its forms carry `pages.hidden(visitor.form_token)`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The clerks of the account. `sections` stand between the projects and the sessions."""

    sessions: SessionStore
    visitors: Visitors
    accounting: Accounting
    sections: Sequence[Section] = ()

    async def show(self, visit: Visit) -> PageAnswer:
        """GET /account, for somebody with a browser."""
        visitor = await self.visitors.visitor(visit)
        if visitor is None:
            return see_other(sign_in_address(ACCOUNT))
        session = visitor.session
        projects = list(islice(memberships(visitor.snapshot, session.identity), _MOST_MEMBERSHIPS))
        sections = [await section(visitor) for section in (*self.sections, self._sessions)]
        return html_page(
            account_page(
                name=session.name or session.identity.subject,
                identity=session.identity,
                memberships=projects,
                sections=sections,
                form_token=visitor.form_token,
            )
        )

    async def end_sessions(self, visit: Visit) -> PageAnswer:
        """POST /account/sessions: end one of his other sessions, or all of them."""
        cookie, fields = self.visitors.own_form(visit)
        session, wanted = await self.sessions.find(cookie), fields.get("session", "")
        if session is not None:
            others = [one for one in await self.sessions.listed(session) if one.key != session_key(cookie)]
            ended = [one for one in others if wanted in {one.handle, "others"}]
            await self.sessions.end_listed(ended)
            self.accounting.tell(sessions_ended(session.identity, len(ended), by=session.identity))
        return see_other(ACCOUNT)

    async def _sessions(self, visitor: Visitor) -> str:
        return sessions_section(
            await self.sessions.listed(visitor.session),
            current=session_key(visitor.cookie),
            form_token=visitor.form_token,
        )
