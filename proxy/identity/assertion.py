"""For whom a front end asks, as its signed assertion says: one HS256 JWT beside the front end's own credential.

Open WebUI's is the model (backend/open_webui/utils/headers.py, `_mint_forward_user_jwt`): issuer `open-webui`, `sub`,
`email`, `name`, `role`, `iat`, `exp`, and no audience. It proves nothing alone: nobody who shows only an assertion is
let in. Open WebUI makes one for each request, so nothing is remembered of it; shown again, it is taken until it is too
old, by the same front end only.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Final

from config.settings import TrustedFront
from proxy.identity.claims import FRONT_PREFIX, MAXIMUM_SUBJECT_CHARACTERS, named_subject, numeric_date
from proxy.identity.reasons import Reason
from proxy.identity.token import CompactToken, compact_token
from proxy.refusals import InvalidToken

ALGORITHM: Final = "HS256"
"""The only algorithm of an assertion, and no algorithm of anything else: see `proxy.identity.keys.ALGORITHMS`."""
MAXIMUM_AGE: Final = 300.0  # seconds since `iat`
CLOCKS_DIFFER: Final = 30.0  # how far in the future `iat` and `nbf` may be, in seconds


@dataclass(frozen=True, slots=True)
class Asserted:
    """Whom the assertion names, as `front:NAME/SUBJECT`, and when it ends, in Unix seconds."""

    subject: str
    expires_at: float


def asserted(text: str, front: TrustedFront, *, now: float) -> Asserted:
    """The person for whom the front end asks, at `now` in Unix seconds.

    Raises `InvalidToken` for whatever is not a fresh assertion that this front end signed; its `reason` names the rule
    and begins with `assertion_`.
    """
    try:
        token = compact_token(text)
        _check_signature(token, front.secret.value)
        _check_kind(token, front)
        ends = _checked_times(token, now)
        return Asserted(_subject(token, front), ends)
    except InvalidToken as refused:
        # What is said of a person's token would mislead him: this one is not his.
        raise InvalidToken(_TEXT, reason=f"assertion_{refused.reason}") from None


_TEXT: Final = (
    "The chat front end's signed word for whom it asks is not valid here. "
    "Tell its operator: its secret, issuer and clock must agree with this gateway's."
)


def _check_signature(token: CompactToken, secret: bytes) -> None:
    """By one algorithm that no header can change, so that no public key can ever be taken for the secret."""
    if token.algorithm != ALGORITHM:
        raise _broken(Reason.ALGORITHM)
    if not hmac.compare_digest(hmac.digest(secret, token.signing_input, "sha256"), token.signature):
        raise _broken(Reason.SIGNATURE)


# What says that a JWT is something else than an assertion about its subject: for another audience (RFC 7519 section
# 4.1.3: who is not named there must refuse), an event, an ID token, a token bound to a key.
_REFUSED_CLAIMS: Final = ("aud", "events", "nonce", "at_hash", "c_hash", "cnf")


def _check_kind(token: CompactToken, front: TrustedFront) -> None:
    if token.issuer != front.assertion_issuer:
        raise _broken(Reason.ISSUER)
    if token.type is not None and token.type.lower().removeprefix("application/") != "jwt":
        raise _broken(Reason.TYPE)
    if any(name in token.claims for name in _REFUSED_CLAIMS):
        raise _broken(Reason.PAYLOAD)


def _checked_times(token: CompactToken, now: float) -> float:
    """When the assertion ends. `iat` is required: without it, no assertion could be known to be young."""
    expires_at = numeric_date(token.claims, "exp", Reason.LIFETIME)
    issued_at = numeric_date(token.claims, "iat", Reason.LIFETIME)
    not_before = numeric_date(token.claims, "nbf", Reason.NOT_YET_VALID)
    if expires_at is None or issued_at is None or expires_at <= issued_at:
        raise _broken(Reason.LIFETIME)
    if max(issued_at, not_before or 0.0) > now + CLOCKS_DIFFER:
        raise _broken(Reason.NOT_YET_VALID)
    ends = min(expires_at, issued_at + MAXIMUM_AGE)
    if ends <= now:
        raise _broken(Reason.TOO_OLD)
    return ends


def _subject(token: CompactToken, front: TrustedFront) -> str:
    """A front end's name has no slash, so no two of them can name one subject."""
    subject = f"{FRONT_PREFIX}{front.name}/{named_subject(token.claims, front.subject_claim)}"
    if len(subject) > MAXIMUM_SUBJECT_CHARACTERS:
        raise _broken(Reason.SUBJECT)
    return subject


def _broken(reason: Reason) -> InvalidToken:
    return InvalidToken(_TEXT, reason=reason.value)
