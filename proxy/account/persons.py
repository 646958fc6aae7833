"""Who stands at the account pages for programs: a person with a sign-in of his own, no token that stands for one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from proxy.account.account import Directory, Identities, shown_at
from proxy.account.logins import is_sign_in
from proxy.desk import Visit
from proxy.directory.membership import admit
from proxy.directory.model import Member
from proxy.directory.snapshot import Snapshot
from proxy.identity import Identity
from proxy.identity.personal_records import Owner
from proxy.identity.reasons import Reason, invalid_token


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who signed in himself, is not blocked, and whose sign-in is not over. `members` is as whom the directory
    may know him."""

    identity: Identity
    members: frozenset[Member]
    snapshot: Snapshot

    @property
    def owner(self) -> Owner:
        return Owner(self.identity.issuer, self.identity.subject)


WhoVisits = Callable[[Visit], Awaitable[Person]]
"""Raises a 401 or 403 Refusal, or an Unavailable."""


class Notes(Protocol):
    """Remembers sign-ins. Raises DirectoryUnavailable."""

    async def note(self, identity: Identity) -> None: ...


class Bearers:
    """People with a credential in a header. No cookie is looked at, so no page of another site can act for them."""

    def __init__(self, identities: Identities, directory: Directory, logins: Notes) -> None:
        self._identities = identities
        self._directory = directory
        self._logins = logins

    async def person(self, visit: Visit) -> Person:
        """Raises as `WhoVisits` says; 401 also for a personal access token, which cannot make or renew others."""
        identity = await self._identities.identify(shown_at(visit))
        if not is_sign_in(identity):
            raise invalid_token(Reason.PERSONAL)
        snapshot = self._directory.current()
        person = Person(identity, frozenset(admit(snapshot, identity)), snapshot)
        await self._logins.note(identity)
        return person
