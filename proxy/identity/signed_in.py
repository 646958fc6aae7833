"""Who has signed in at saltgate's own pages, by an ID token and by the issuer's rules for people and groups. Pure.

`id_token` says whether the token is to be believed; here is whom the directory knows the person as.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from config.settings import Issuer
from proxy.identity import Identity
from proxy.identity.claims import claimed_groups, claimed_session, claimed_subject, groups_overflow, numeric_date
from proxy.identity.id_token import IdTokenRefusedError, id_token_claims
from proxy.identity.reasons import Reason, invalid_token
from proxy.identity.token import Json, VerifiedToken
from proxy.refusals import InvalidToken

_LONGEST_NAME: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedIn:
    """Who has signed in. `identity.method` is "session"; `subject` is the token's own `sub`, which a logout token
    repeats and which need not be what the directory knows the person by.
    """

    identity: Identity
    subject: str
    name: str | None = field(repr=False)


def signed_in(
    token: VerifiedToken,
    *,
    algorithm: str,
    rules: Issuer,
    client_id: str,
    nonce: str,
    access_token: str | None,
    now: float,
) -> SignedIn:
    """Who has signed in, by a token that `rules.issuer` signed with `algorithm`. `nonce` was sent for this sign-in,
    `access_token` came beside the token.

    Raises InvalidToken; its `reason` names the rule.
    """
    claims = token.claims
    try:
        believed = id_token_claims(
            token,
            issuer=rules.issuer,
            client_id=client_id,
            nonce=nonce,
            access_token=access_token,
            algorithm=algorithm,
            now=now,
            leeway=rules.leeway,
            maximum_lifetime=rules.max_lifetime,
        )
    except IdTokenRefusedError as error:
        raise InvalidToken("Your ID token is not accepted here. Sign in again.", reason=f"id_token_{error}") from None
    # A token bound to a key proves nothing without that key's proof.
    if "cnf" in claims:
        raise invalid_token(Reason.SENDER_CONSTRAINED)
    identity = Identity(
        issuer=rules.issuer,
        subject=claimed_subject(claims, id_token_subject(rules)),
        groups=claimed_groups(claims, rules),
        groups_complete=not groups_overflow(claims, rules),
        expires_at=numeric_date(claims, "exp", Reason.LIFETIME) or 0.0,
        client=client_id,
        method="session",
        session=claimed_session(claims),
        issued_at=numeric_date(claims, "iat", Reason.LIFETIME),
    )
    return SignedIn(identity=identity, subject=believed.subject, name=_name(claims))


def id_token_subject(rules: Issuer) -> tuple[str, ...]:
    """Where an ID token names whom the access tokens name at `rules.subject`.

    Okta's access tokens hold the person's id in `uid`, its ID tokens hold the same id in `sub`. All others use one
    claim in both.
    """
    return ("sub",) if rules.kind == "okta" and rules.subject == ("uid",) else rules.subject


def _name(claims: Mapping[str, Json]) -> str | None:
    """What a page calls the person. It decides nothing, so a strange one is left out, not refused."""
    for member in ("name", "preferred_username", "email"):
        value = claims.get(member)
        if isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME and value.isprintable():
            return value
    return None
