"""What an issuer answers when it is asked about an opaque token, and what that proves (RFC 7662 section 2.2). Pure.

Signed answers (RFC 9701) are not asked for: the answer comes over a connection whose other end is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from config.settings import Issuer
from proxy.identity import Identity
from proxy.identity.claims import proved
from proxy.identity.confirmation import Bound
from proxy.identity.reasons import Reason, invalid_token
from proxy.identity.token import Json, strict_json


class FaultyAnswerError(Exception):
    """An answer that says nothing about the token: the fault of the issuer, or of how saltgate is set up there.

    The text is for the log and holds nothing of the answer, which may repeat the token.
    """


class RefusedClientError(FaultyAnswerError):
    """The issuer does not know saltgate as it is set up, or does not let it ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer as it came. `media_type` is in lower case and without parameters; `encoded` where a coding hides it."""

    status: int
    media_type: str
    encoded: bool
    body: bytes = field(repr=False)


def active_claims(answer: Answer) -> Mapping[str, Json] | None:
    """What the issuer says of an active token; None of one that is not active.

    Raises FaultyAnswerError for whatever is not exactly one of the two: nobody is let in, and nobody is told that his
    token is bad, by an answer that is not understood.
    """
    members = _members(answer)
    if answer.status == 400 and members.get("error") == "unsupported_token_type":
        return None  # RFC 7009 section 2.2.1, as certified providers answer here, too: no token that it could know
    if answer.status in {401, 403} or members.get("error") in ("invalid_client", "unauthorized_client"):
        raise RefusedClientError(f"it answered {answer.status}: it does not let this client ask")
    if answer.status != 200:
        raise FaultyAnswerError(f"it answered {answer.status}")
    if not members:
        raise FaultyAnswerError("its answer is no JSON object of the kind that was asked for")
    match members.get("active"):
        case True:
            return members
        case False:
            return None
        case _:
            raise FaultyAnswerError("its answer does not say whether the token is active")


def _members(answer: Answer) -> Mapping[str, Json]:
    """The answer's members; none where it is not a JSON object."""
    if answer.encoded or answer.media_type != "application/json":
        return {}
    try:
        value = strict_json(answer.body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def identify(claims: Mapping[str, Json], *, rules: Issuer, now: float) -> Identity | Bound:
    """The caller whom an active token proves, at `now` in Unix seconds; `Bound` where it alone does not prove him.

    Raises `TokenExpired`, or `InvalidToken` for a token that is active, but not for this gate or not of this kind.
    """
    if claims.get("iss", rules.issuer) != rules.issuer:
        raise invalid_token(Reason.ISSUER)
    _check_kind(claims)
    return proved(_with_subject(claims, rules), rules=rules, now=now, method="introspection", unnamed=Reason.NO_SUBJECT)


_ACCESS_TOKEN_USES: Final = ("access_token", "access")  # Dex; Cognito


def _check_kind(claims: Mapping[str, Json]) -> None:
    """Issuers answer about refresh tokens, too (RFC 7662 section 2.1)."""
    kind = claims.get("token_type", "Bearer")
    if not isinstance(kind, str):
        raise invalid_token(Reason.NOT_AN_ACCESS_TOKEN)
    if kind.lower() == "dpop" and "cnf" not in claims:  # RFC 9449 section 6.2: then it says what key that is
        raise invalid_token(Reason.SENDER_CONSTRAINED)
    # RFC 6749 section 5.1: its case does not matter.
    if kind.lower() not in ("bearer", "dpop") or claims.get("token_use", "access") not in _ACCESS_TOKEN_USES:
        raise invalid_token(Reason.NOT_AN_ACCESS_TOKEN)


def _with_subject(claims: Mapping[str, Json], rules: Issuer) -> Mapping[str, Json]:
    """The claims of a service account with its client as the subject (RFC 9068 section 2.2), which providers leave out.

    Only of the clients that the operator has listed: where an answer about a person names nobody, all people of a chat
    UI would become one caller.
    """
    accounts = rules.introspection.service_accounts if rules.introspection is not None else None
    client = claims.get("client_id")
    if rules.subject[0] in claims or "username" in claims or client not in (accounts or ()):
        return claims
    value: Json = client
    for name in reversed(rules.subject[1:]):
        value = {name: value}
    return {**claims, rules.subject[0]: value}
