"""Who stands at the desk, by the cookie of his browser, and whether a form is his own.

A session counts as long as the store has it, the directory knows of no end of it, and nobody has blocked the person.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from proxy.account.cookies import Cookies
from proxy.account.forms import form
from proxy.account.session import Session, form_token
from proxy.account.store import SessionStore
from proxy.desk import Visit
from proxy.directory.membership import admit
from proxy.directory.snapshot import Snapshot
from proxy.refusals import InvalidRequest, InvalidToken


class Directory(Protocol):
    """What people may act for, as of now. Raises DirectoryUnavailable where that is not known any more."""

    def current(self) -> Snapshot: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """Somebody who is signed in. `cookie` is the session's secret, `form_token` what each of his forms carries."""

    session: Session
    snapshot: Snapshot
    cookie: str = field(repr=False)

    @property
    def form_token(self) -> str:
        return form_token(self.cookie)


class Visitors:
    """`origin` is this site's, as browsers write it (RFC 6454 section 6.2); at `issuers` people sign in."""

    def __init__(
        self, sessions: SessionStore, directory: Directory, cookies: Cookies, *, origin: str, issuers: Collection[str]
    ) -> None:
        self._sessions = sessions
        self._directory = directory
        self._cookies = cookies
        self._origin = origin
        self._issuers = issuers

    async def visitor(self, visit: Visit) -> Visitor | None:
        """Who is signed in at this browser; None where nobody is.

        Raises Blocked, and DirectoryUnavailable where saltgate cannot know.
        """
        cookie = self._cookies.session.value(visit.headers)
        session = None if cookie is None else await self._sessions.find(cookie)
        if cookie is None or session is None:
            return None
        # An issuer that is no longer used here has no say in who anybody is, whatever it said before.
        if session.identity.issuer not in self._issuers:
            await self._sessions.end(cookie)
            return None
        snapshot = self._directory.current()
        try:
            admit(snapshot, session.identity)
        except InvalidToken:
            await self._sessions.end(cookie)
            return None
        return Visitor(session=session, snapshot=snapshot, cookie=cookie)

    def own_form(self, visit: Visit) -> tuple[str, Mapping[str, str]]:
        """The session's cookie and the fields of a form that one of our pages showed to this session.

        Raises InvalidRequest for a form that another site, another session or nobody's session sent: a browser tells
        from where it posts (`Origin`), and only our page knows the token.
        """
        cookie = self._cookies.session.value(visit.headers)
        origins = [value for name, value in visit.headers if name.lower() == "origin"]
        if origins != [self._origin]:
            raise InvalidRequest("This form was sent by a page of another site.", reason="other_origin")
        fields = form(visit.body)
        shown = fields.get("form_token", "").encode()
        if cookie is None or not hmac.compare_digest(shown, form_token(cookie).encode()):
            raise InvalidRequest(
                "This page is no longer good. Open your account anew and try again.", reason="form_token"
            )
        return cookie, fields
