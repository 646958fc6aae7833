"""What is kept of a personal access token, and whom it proves. Pure."""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from typing import Final

from proxy.identity import Identity
from proxy.identity.personal import PersonalToken
from proxy.identity.reasons import Reason, invalid_token
from proxy.refusals import TokenExpired

METHOD: Final = "pat"


@dataclass(frozen=True, slots=True)
class Owner:
    """The person whose tokens they are."""

    issuer: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRecord:
    """A token as it is kept: everything but its secret, of which `digest` is the SHA-256.

    `projects` limits it to these of its owner's (workspace, project); None: all that he has. `created` and `expires`
    are Unix seconds.
    """

    id: str
    digest: bytes = field(repr=False)
    owner: Owner
    name: str
    projects: tuple[tuple[str, str], ...] | None
    created: int
    expires: int


@dataclass(frozen=True, slots=True)
class Login:
    """The groups that a person's own sign-in brought, at `at` in Unix seconds."""

    groups: frozenset[str]
    groups_complete: bool
    at: float


@dataclass(frozen=True, slots=True)
class Kept:
    """A token's record and its owner's last known login."""

    record: TokenRecord
    login: Login | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonalRules:
    """`issuers` are those whose people may have tokens, `without_groups` those among them whose people have no groups
    at all. Groups of a login older than `groups_max_age` seconds are not known any more.
    """

    issuers: frozenset[str]
    without_groups: frozenset[str]
    groups_max_age: float


def identify_personal(token: PersonalToken, kept: Kept | None, *, rules: PersonalRules, now: float) -> Identity:
    """The owner, acting by this token at `now` in Unix seconds. `kept` is what was found under the token's id.

    Raises InvalidToken, the same for an id that nobody has, a token that was revoked and a wrong secret, after the same
    steps; TokenExpired for the right token that is over.
    """
    record = NOBODYS if kept is None else kept.record
    matches = hmac.compare_digest(token.digest, record.digest)
    if not matches or kept is None or record.id != token.id or record.owner.issuer not in rules.issuers:
        raise invalid_token(Reason.PERSONAL_UNKNOWN)
    if record.expires <= now:
        raise TokenExpired(
            "Your personal access token has expired. Make a new one with `saltgate pat create`, or at /account.",
            reason="personal_expired",
        )
    groups, groups_complete = _groups(kept, rules, now)
    return Identity(
        issuer=record.owner.issuer,
        subject=record.owner.subject,
        groups=groups,
        groups_complete=groups_complete,
        expires_at=float(record.expires),
        method=METHOD,
        issued_at=float(record.created),
        token_id=record.id,
        projects=None if record.projects is None else frozenset(record.projects),
    )


NOBODYS: Final = TokenRecord(
    id="", digest=bytes(32), owner=Owner("", ""), name="", projects=(), created=0, expires=0
)  # stands in for a record that there is not; no secret has this digest that anybody could find


def _groups(kept: Kept, rules: PersonalRules, now: float) -> tuple[frozenset[str], bool]:
    """The owner's groups, and whether these are all. Too old, they are unknown, which is not the same as none."""
    if kept.record.owner.issuer in rules.without_groups:
        return frozenset(), True
    login = kept.login
    if login is None or now - login.at > rules.groups_max_age:
        return frozenset(), False
    return login.groups, login.groups_complete
