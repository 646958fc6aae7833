"""Who visits saltgate's own account pages: a person with a sign-in of his own, never a token that stands for one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

from proxy.desk import Visit
from proxy.directory.membership import admit
from proxy.directory.model import Member
from proxy.directory.snapshot import Snapshot
from proxy.directory.token_store import TokenStore, asked_for_a_caller
from proxy.identity import Identity
from proxy.identity.personal_records import Login, Owner
from proxy.identity.reasons import Reason, invalid_token
from proxy.identity.shown import Shown
from proxy.routes import Page, Route, named_scope

SIGN_INS: Final = frozenset({"jwt", "introspection", "session"})
"""The methods (`Identity.method`) by which a person shows that he signed in at his issuer himself."""

_LOGIN_OUTLIVES_SECONDS: Final = 24 * 3600.0


class Identities(Protocol):
    """Who is calling. Raises a 401 Refusal, or an Unavailable where saltgate cannot know."""

    async def identify(self, shown: Shown) -> Identity: ...


class Directory(Protocol):
    """What callers may act for, as of now. Raises DirectoryUnavailable where that is not known any more."""

    def current(self) -> Snapshot: ...


@dataclass(frozen=True, slots=True)
class Visitor:
    """A person who signed in himself, is not blocked, and whose sign-in is not over. `members` is as whom the
    directory may know him."""

    identity: Identity
    members: frozenset[Member]
    snapshot: Snapshot

    @property
    def owner(self) -> Owner:
        return Owner(self.identity.issuer, self.identity.subject)


WhoVisits = Callable[[Visit], Awaitable[Visitor]]
"""Raises a 401 or 403 Refusal, or an Unavailable."""


class BearerVisitors:
    """Visitors with a credential in a header. No cookie is looked at, so no page of another site can act for them.

    A visit renews what personal access tokens know of their owner's groups: `groups_max_age` counts from when the token
    that he shows was issued.
    """

    def __init__(
        self, identities: Identities, directory: Directory, tokens: TokenStore, *, groups_max_age: float
    ) -> None:
        self._identities = identities
        self._directory = directory
        self._tokens = tokens
        self._groups_max_age = groups_max_age

    async def visitor(self, visit: Visit) -> Visitor:
        """Raises as `WhoVisits` says; 401 also for a personal access token, which cannot make or renew others."""
        identity = await self._identities.identify(
            Shown(
                headers=visit.headers,
                method=visit.method,
                path=visit.path,
                workspace=named_scope(Route(Page.ACCOUNT, visit.path), visit.headers).workspace,
                certificate=visit.certificate,
            )
        )
        if identity.method not in SIGN_INS or identity.token_id is not None:
            raise invalid_token(Reason.PERSONAL)
        snapshot = self._directory.current()
        visitor = Visitor(identity, frozenset(admit(snapshot, identity)), snapshot)
        await self._note_login(visitor)
        return visitor

    async def _note_login(self, visitor: Visitor) -> None:
        identity = visitor.identity
        if identity.issued_at is None:
            return  # How old its groups are is not known, so they are none to rely on later.
        login = Login(identity.groups, identity.groups_complete, identity.issued_at)
        with asked_for_a_caller():
            await self._tokens.log_in(visitor.owner, login, keep_seconds=self._groups_max_age + _LOGIN_OUTLIVES_SECONDS)
