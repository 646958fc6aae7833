"""What a logout token proves: that its issuer ended a session, or all that a person has (OpenID Connect Back-Channel
Logout 1.0 sections 2.4 and 2.6). Pure.

A logout token travels to the client that saltgate is at the issuer. It proves nothing about who is calling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from config.settings import Issuer
from proxy.identity.claims import claimed_session, claimed_subject, is_accepted_type, numeric_date
from proxy.identity.id_token import audiences
from proxy.identity.reasons import Reason, invalid_token
from proxy.identity.token import Json, VerifiedToken

EVENT: Final = "http://schemas.openid.net/event/backchannel-logout"
LOGOUT_TOKEN_TYPES: Final = ("logout+jwt", "JWT", "")
"""Explicit typing came late: issuers also send `typ: JWT` or none."""

LATEST_SECONDS: Final = 120.0
"""How old a logout token may be when it arrives."""

_MAXIMUM_ID_CHARACTERS: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Logout:
    """What is over: the issuer's session `session`, or where that is None all that `subject` was given until
    `issued_at` (Unix seconds). `subject` is the `sub` of the person's ID tokens. `id` is good once.
    """

    id: str = field(repr=False)
    issuer: str
    session: str | None
    subject: str | None
    issued_at: float


def logout_token_claims(token: VerifiedToken, *, rules: Issuer, client_id: str, now: float) -> Logout:
    """What is over by a logout token whose signature was checked, at `now` in Unix seconds.

    Raises InvalidToken; its `reason` names the rule.
    """
    claims = token.claims
    if token.issuer != rules.issuer:
        raise invalid_token(Reason.ISSUER)
    if not is_accepted_type(token.type, LOGOUT_TOKEN_TYPES) or not _tells_logout(claims) or "nonce" in claims:
        # With a nonce it could be an ID token (section 2.4).
        raise invalid_token(Reason.NOT_A_LOGOUT_TOKEN)
    if client_id not in audiences(claims):
        raise invalid_token(Reason.AUDIENCE)
    issued_at = _fresh(claims, rules, now)
    session = claimed_session(claims)
    subject = claimed_subject(claims, ("sub",)) if "sub" in claims else None
    if session is None and subject is None:
        raise invalid_token(Reason.SUBJECT)
    return Logout(id=_id(claims), issuer=rules.issuer, session=session, subject=subject, issued_at=issued_at)


def _tells_logout(claims: Mapping[str, Json]) -> bool:
    """The member's value should be an empty object; whatever an object holds is not looked at (section 2.4)."""
    events = claims.get("events")
    return isinstance(events, dict) and isinstance(events.get(EVENT), dict)


def _fresh(claims: Mapping[str, Json], rules: Issuer, now: float) -> float:
    """Its `iat`, judged with `exp` and `nbf` where they are there: a logout is told at once or not at all."""
    issued_at = numeric_date(claims, "iat", Reason.LIFETIME)
    expires_at = numeric_date(claims, "exp", Reason.LIFETIME)
    not_before = numeric_date(claims, "nbf", Reason.NOT_YET_VALID)
    if issued_at is None or now - issued_at > LATEST_SECONDS + rules.leeway:
        raise invalid_token(Reason.LIFETIME)
    if max(issued_at, not_before or 0.0) > now + rules.leeway:
        raise invalid_token(Reason.NOT_YET_VALID)
    if expires_at is not None and (expires_at + rules.leeway <= now or expires_at <= issued_at):
        raise invalid_token(Reason.LIFETIME)
    return issued_at


def _id(claims: Mapping[str, Json]) -> str:
    value = claims.get("jti")
    if not isinstance(value, str) or not 0 < len(value) <= _MAXIMUM_ID_CHARACTERS:
        raise invalid_token(Reason.NOT_A_LOGOUT_TOKEN)
    return value
