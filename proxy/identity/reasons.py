"""Why a token is not accepted: a fine word for the operator, and a fixed text for the caller.

The text says what to do and never holds anything from the token (RFC 6750 section 3 lets a caller read it).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from proxy.refusals import InvalidToken


class Reason(Enum):
    """The classes of refused tokens. The value is what `explain` and the log say, and `Refusal.reason` holds."""

    TEMPLATE = "template"
    WHITE_SPACE = "white_space"
    NOT_ASCII = "not_ascii"
    TOO_LONG = "too_long"
    PERSONAL = "personal_access_token"
    PERSONAL_FORM = "personal_form"
    PERSONAL_UNKNOWN = "personal_unknown"
    PERSONAL_ENDED = "personal_ended"
    OPAQUE = "opaque"
    INACTIVE = "inactive"
    ENCRYPTED = "encrypted"
    ENCODING = "encoding"
    HEADER = "header"
    PAYLOAD = "payload"
    CRITICAL = "critical_header"
    ALGORITHM = "algorithm"
    ISSUER = "issuer"
    UNKNOWN_KEY = "unknown_key"
    AMBIGUOUS_KEY = "ambiguous_key"
    SIGNATURE = "signature"
    TYPE = "typ"
    LIFETIME = "lifetime"
    NOT_YET_VALID = "not_yet_valid"
    TOO_OLD = "too_old"
    AUDIENCE = "audience"
    SUBJECT = "subject"
    NO_SUBJECT = "no_subject"
    NOT_AN_ACCESS_TOKEN = "not_an_access_token"  # noqa: S105 - a word for a log, no secret
    SENDER_CONSTRAINED = "sender_constrained"
    BOUND = "bound"
    NOT_BOUND = "not_bound"
    NO_CERTIFICATE = "no_certificate"
    OTHER_CERTIFICATE = "other_certificate"
    SESSION = "session"
    ENDED = "ended"
    CLIENT = "client"
    GROUPS = "groups"
    NOT_A_LOGOUT_TOKEN = "not_a_logout_token"  # noqa: S105 - a word for a log, no secret
    REPLAYED = "replayed"
    FAULT = "fault"


def invalid_token(reason: Reason) -> InvalidToken:
    """The 401 for this reason."""
    return InvalidToken(_TEXTS.get(reason, _ANY), reason=reason.value)


# Whether there ever was such a token is not for a guesser to know.
_NO_PERSONAL: Final = (
    "This personal access token is not valid here: it was revoked, or there is none. "
    "Make a new one with `saltgate pat create`, or at /account."
)

_ANY: Final = "This token is not valid here. Sign in again, or have your client fetch a fresh access token."

_TEXTS: Final = {
    Reason.TEMPLATE: (
        "The credential is an unexpanded template, not a token: your client sent a placeholder in its place. "
        "Check the variable's name in the client's configuration, and that you are signed in there."
    ),
    Reason.WHITE_SPACE: "The credential holds white space. Send 'Authorization: Bearer', one space, and the token.",
    Reason.NOT_ASCII: "The credential holds characters that no token has. Copy the token again.",
    Reason.TOO_LONG: "The token is longer than 16 KiB. Ask your identity provider for a token with fewer claims.",
    Reason.PERSONAL: "Personal access tokens are not accepted here. Send an access token of your identity provider.",
    Reason.PERSONAL_FORM: "This personal access token is not whole. Copy it again; it has 63 characters.",
    Reason.PERSONAL_UNKNOWN: _NO_PERSONAL,
    Reason.PERSONAL_ENDED: _NO_PERSONAL,
    Reason.OPAQUE: (
        "The credential is not a signed token (JWT). Send an access token that your identity provider issued for this "
        "gateway; a provider that gives opaque tokens needs an audience or resource in the request."
    ),
    Reason.INACTIVE: (
        "The identity provider does not know this token: it has ended, was revoked, or is of somebody else. Sign in "
        "again, and see that the request names your own workspace."
    ),
    Reason.ENCRYPTED: "Encrypted tokens (JWE) are not accepted. Ask your identity provider for a signed access token.",
    Reason.ALGORITHM: "The token is signed with an algorithm that is not accepted here. Tell your administrator.",
    Reason.ISSUER: "The token's issuer is not accepted here. Sign in at the identity provider of this gateway.",
    Reason.TYPE: "This type of token is not accepted here. Send an access token, not an ID token or a refresh token.",
    Reason.LIFETIME: "The token has no acceptable lifetime. Ask your identity provider for one that expires sooner.",
    Reason.NOT_YET_VALID: "The token is not valid yet. Check the clocks of this gateway and the identity provider.",
    Reason.TOO_OLD: "What was signed is too old by now. Send one that was made for this request.",
    Reason.AUDIENCE: (
        "The token was issued for another audience. "
        "Have your client ask the identity provider for this gateway's audience."
    ),
    Reason.SUBJECT: "The token does not name its subject as this gateway needs it. Tell your administrator.",
    Reason.NO_SUBJECT: (
        "The identity provider does not say whose token this is. Tell your administrator; a service account's client "
        "must be listed in `service_accounts` of [issuers.introspection]."
    ),
    Reason.NOT_AN_ACCESS_TOKEN: "This is not an access token. Send one, not an ID, refresh or logout token.",
    Reason.SENDER_CONSTRAINED: (
        "The token is bound in a way that is not accepted here. Ask for one that is bound by DPoP or mutual TLS, or "
        "for a bearer token."
    ),
    Reason.BOUND: (
        "The token is bound to a key. Send it as 'Authorization: DPoP TOKEN' with a DPoP proof, or ask for a bearer "
        "token."
    ),
    Reason.NOT_BOUND: "The token is not bound to a DPoP key. Send it as 'Authorization: Bearer TOKEN'.",
    Reason.NO_CERTIFICATE: (
        "The token is bound to a client certificate, and none came with the request. Have your client show it to this "
        "gateway, or ask for a bearer token."
    ),
    Reason.OTHER_CERTIFICATE: (
        "The token is bound to another client certificate. Send the request with the one that the token was issued to."
    ),
    Reason.ENDED: "This sign-in was ended. Sign in again.",
    Reason.CLIENT: "The token was issued to a client that is not accepted here. Sign in through one that is.",
    Reason.GROUPS: "The token's groups are not lists of names. Tell your administrator.",
}
