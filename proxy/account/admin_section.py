"""The way from somebody's account to the pages of the admin listener, for administrators."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from proxy.account.acts import admin_ticket_made
from proxy.account.administrators import Administrators
from proxy.account.pages import html_page, leads_to_admin_page, section, to_admin_pages_form
from proxy.account.session import session_key
from proxy.account.visitors import Visitor, Visitors
from proxy.accounting import Accounting
from proxy.desk import PageAnswer, Visit
from proxy.directory.membership import admit
from proxy.identity.kept import identity_to_json
from proxy.refusals import InvalidToken, NotAMember
from proxy.ticket import Holder, new_ticket


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSection:
    """`origin` is that of the admin listener; None: there are no pages. `ticket_key` signs the tickets to it, `clock`
    is Unix seconds.
    """

    administrators: Administrators
    visitors: Visitors
    origin: str | None
    ticket_key: bytes = field(repr=False)
    clock: Callable[[], float]
    accounting: Accounting

    async def __call__(self, visitor: Visitor) -> str:
        """Nothing for who is no administrator."""
        if self.origin is None or not self._is_administrator(visitor):
            return ""
        return section("admin", "Administration", to_admin_pages_form(visitor.form_token, self.origin))

    async def lead_on(self, visit: Visit) -> PageAnswer:
        """POST /account/admin: a ticket, and the browser goes on with it. It stands behind the `#` of the address,
        which browsers send to no server.
        """
        self.visitors.own_form(visit)
        visitor = await self.visitors.visitor(visit)
        if visitor is None:
            raise InvalidToken("Sign in again.")
        if self.origin is None or not self._is_administrator(visitor):
            raise NotAMember(
                "Only an administrator of this saltgate ([[admin.administrators]]) sees its pages.",
                reason="not_an_administrator",
            )
        session = visitor.session
        holder = Holder(
            name=session.name or session.identity.subject,
            identity=json.dumps(identity_to_json(session.identity)).encode(),
            session=session_key(visitor.cookie),
        )
        async with self.accounting.acting(admin_ticket_made(session.identity)):
            ticket = new_ticket(self.ticket_key, holder, audience=self.origin, now=self.clock())
        return html_page(leads_to_admin_page(f"{self.origin}/sign-in#{ticket}"))

    def _is_administrator(self, visitor: Visitor) -> bool:
        identity = visitor.session.identity
        return self.administrators.include(identity.issuer, admit(visitor.snapshot, identity))
