"""What a person may do with personal access tokens: his own, and those of others where he is an administrator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import structlog
from msgspec import structs

from config.settings import Administrator
from config.settings import Tokens as Settings
from observability.audit.entries import Act, timestamp
from proxy.account.administrators import Administrators
from proxy.account.persons import Person
from proxy.accounting import Accounting
from proxy.directory.changes import Change, Deed
from proxy.directory.membership import check_member
from proxy.directory.token_store import OwnedToken, TokenStore, TooManyTokens, asked_for_a_caller, revocation
from proxy.identity.personal import ID, PersonalToken, new_personal_token
from proxy.identity.personal_records import Owner, TokenRecord
from proxy.refusals import InvalidRequest, NotAMember

_log = structlog.get_logger("saltgate.account")


@dataclass(frozen=True, slots=True)
class Wish:
    """The token that a person wants. `lifetime` is in seconds; `projects` None: for all that he has."""

    name: str
    lifetime: int
    projects: tuple[tuple[str, str], ...] | None


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just made: the only moment at which its secret is there."""

    token: PersonalToken = field(repr=False)
    record: TokenRecord


def new_token(owner: Owner, wish: Wish, *, now: float) -> NewToken:
    """A token of the owner's that is kept nowhere yet."""
    token = new_personal_token()
    record = TokenRecord(
        id=token.id,
        digest=token.digest,
        owner=owner,
        name=wish.name,
        projects=wish.projects,
        created=int(now),
        expires=int(now) + wish.lifetime,
    )
    return NewToken(token, record)


def token_created(record: TokenRecord) -> Act:
    """Whose it is, and what it is good for."""
    return Act(
        event="token.created",
        issuer=record.owner.issuer,
        subject=record.owner.subject,
        token_id=record.id,
        projects=None if record.projects is None else tuple("/".join(project) for project in record.projects),
        expires=timestamp(record.expires * 1_000_000_000),
    )


def _by(person: Person) -> dict[str, str]:
    return {"by_issuer": person.identity.issuer, "by": person.identity.subject}


def lifetime_words(seconds: float) -> str:
    """As people say it: "365 days", "36 hours", "1 minute"; in seconds only what is no whole number of these."""
    whole = int(seconds)
    unit, length = next(each for each in _UNITS if whole % each[1] == 0)
    count = whole // length
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"


_UNITS: Final = (("day", 24 * 3600), ("hour", 3600), ("minute", 60), ("second", 1))


class AccountTokens:
    """Each deed judges by itself whether this person may do it. `clock` is Unix seconds."""

    def __init__(
        self,
        store: TokenStore,
        change: Callable[[Deed], Awaitable[Change]],
        settings: Settings,
        administrators: Iterable[Administrator],
        *,
        max_stale: float,
        clock: Callable[[], float],
        accounting: Accounting,
    ) -> None:
        self._accounting = accounting
        self._store = store
        self._change = change
        self._settings = settings
        self._administrators = Administrators.of(administrators)
        self._max_stale = max_stale
        self._clock = clock

    async def owned(self, person: Person, owner: Owner) -> tuple[OwnedToken, ...]:
        """The owner's tokens. Raises NotAMember where they are not the person's to see."""
        self._check(person, owner)
        with asked_for_a_caller():
            return await self._store.owned(owner)

    async def create(self, person: Person, wish: Wish) -> NewToken:
        """A token of the person's own. Raises InvalidRequest for one that may not be, and NotAMember for projects that
        are not his."""
        if wish.lifetime > self._settings.max_lifetime:
            raise InvalidRequest(
                f"A token may live {lifetime_words(self._settings.max_lifetime)} at most.", param="expires_in"
            )
        for workspace, project in wish.projects or ():
            check_member(person.snapshot, person.identity, workspace, project)
        made = new_token(person.owner, wish, now=self._clock())
        with asked_for_a_caller():
            try:
                async with self._accounting.acting(structs.replace(token_created(made.record), **_by(person))):
                    await self._store.create(made.record, limit=self._settings.per_owner)
            except TooManyTokens:
                raise InvalidRequest(
                    f"One person gets no more than {self._settings.per_owner} personal access tokens. "
                    "Revoke one that you do not need, with `saltgate pat revoke` or at /account.",
                    reason="too_many_tokens",
                ) from None
        _log.info("personal_token_created", token_id=made.record.id, issuer=made.record.owner.issuer)
        return made

    async def revoke(self, person: Person, token_id: str) -> None:
        """Make the token over. Raises InvalidRequest, the same where there is none and where it is not the person's to
        revoke."""
        kept = None
        if ID.fullmatch(token_id):
            with asked_for_a_caller():
                kept = await self._store.find(token_id)
        if kept is None or not self._may(person, kept.record.owner):
            raise InvalidRequest(
                "You have no token of this id. Its id is the 8 characters behind sgp_; list yours to see them.",
                param="id",
                reason="no_such_token",
            )
        await self._revoke([token_id], person, kept.record.owner)

    async def revoke_all(self, person: Person, owner: Owner) -> int:
        """Make all the owner's tokens over; how many there were. Raises as `owned`."""
        ids = [token.record.id for token in await self.owned(person, owner)]
        if ids:
            await self._revoke(ids, person, owner)
        return len(ids)

    async def _revoke(self, ids: list[str], person: Person, owner: Owner) -> None:
        """Also where it cannot be told now: a token that leaked must not wait for a disk."""
        own = owner == person.owner
        with asked_for_a_caller():
            await self._change(revocation(ids, now=self._clock(), max_stale=self._max_stale))
        revoked = Act(event="token.revoked", issuer=owner.issuer, subject=owner.subject, token_ids=tuple(ids))
        self._accounting.tell(structs.replace(revoked, **_by(person)))
        for token_id in ids:
            _log.info("personal_token_revoked", token_id=token_id, by="owner" if own else "administrator")

    def _check(self, person: Person, owner: Owner) -> None:
        if not self._may(person, owner):
            raise NotAMember(
                "Only an administrator of this saltgate ([[admin.administrators]]) sees and changes what others have.",
                reason="not_an_administrator",
            )

    def _may(self, person: Person, owner: Owner) -> bool:
        return person.owner == owner or self._administrators.include(person.identity.issuer, person.members)
