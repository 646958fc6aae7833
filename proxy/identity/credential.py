"""The one credential that a request shows (RFC 6750 section 2.1, and the two headers of model clients)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from proxy.identity.reasons import Reason, invalid_token
from proxy.identity.token import MAXIMUM_TOKEN_BYTES, is_compact
from proxy.refusals import CredentialRequired, InvalidRequest

API_KEY_HEADERS: Final = ("x-api-key", "api-key")


class Form(Enum):
    """How a credential is to be judged. A credential that fails in its own way is never tried in another."""

    SIGNED = "signed"  # Three parts between dots: a JWT.
    PERSONAL = "personal"  # saltgate's own: a personal access token.
    OPAQUE = "opaque"  # Only its issuer can say what it means.


class Scheme(Enum):
    """Whether the credential is shown alone, or with a proof of the key that it is bound to (RFC 9449 section 7.1)."""

    BEARER = "Bearer"
    DPOP = "DPoP"


PERSONAL_PREFIX: Final = "sgp_"


@dataclass(frozen=True, slots=True)
class Credential:
    """What the caller showed: ASCII, of a bounded length, without white space. Nothing of it is verified."""

    token: str = field(repr=False)
    form: Form
    scheme: Scheme


def credential(headers: Iterable[tuple[str, str]]) -> Credential:
    """The credential in a request's header lines, all of them, as they came.

    Several headers with one value count once: some clients send the token twice. Under the scheme DPoP it comes alone:
    beside a header that would be a bearer token, it would be two. Raises `InvalidRequest` for two different ones or two
    Authorization lines, `CredentialRequired` where none is shown, `InvalidToken` for what can be no token of any form.
    """
    authorization, api_keys = _lines(headers)
    if len(authorization) == 1 and not api_keys and authorization[0].startswith("Bearer ") and authorization[0][7:]:
        return _plausible(authorization[0][7:], Scheme.BEARER)  # nearly always
    if len(authorization) > 1:
        raise InvalidRequest("The request has two Authorization headers. Send one.")
    shown = {
        (value, scheme)
        for value, scheme in (*map(_authorized, authorization), *((key, Scheme.BEARER) for key in api_keys))
        if value
    }
    if len(shown) > 1:
        raise InvalidRequest(
            "The request shows two different credentials. Send one of Authorization, x-api-key and api-key."
        )
    if not shown:
        raise CredentialRequired(
            "Send your access token as 'Authorization: Bearer TOKEN' (most clients call it the API key)."
        )
    return _plausible(*shown.pop())


def _lines(headers: Iterable[tuple[str, str]]) -> tuple[list[str], list[str]]:
    authorization: list[str] = []
    api_keys: list[str] = []
    for name, value in headers:
        lowered = name.lower()
        if lowered == "authorization":
            authorization.append(value)
        elif lowered in API_KEY_HEADERS:
            api_keys.append(value)
    return authorization, api_keys


_AUTHORIZATION: Final = re.compile(r"(bearer|dpop)(?: (.*))?", re.IGNORECASE | re.ASCII | re.DOTALL)
_AND_TAB: Final = re.compile(r"(?:bearer|dpop)\s", re.IGNORECASE | re.ASCII)


def _authorized(authorization: str) -> tuple[str, Scheme]:
    """What follows the scheme and exactly one space (RFC 9110 section 11.4); "" where nothing does."""
    if match := _AUTHORIZATION.fullmatch(authorization):
        return match[2] or "", Scheme.DPOP if match[1].lower() == "dpop" else Scheme.BEARER
    if _AND_TAB.match(authorization):
        raise invalid_token(Reason.WHITE_SPACE)
    if not authorization:
        return "", Scheme.BEARER
    raise CredentialRequired(
        "The Authorization header has another scheme. Send 'Authorization: Bearer TOKEN'.", reason="scheme"
    )


# What clients send when a variable was not filled in: {{NAME}}, ${NAME}, $NAME, %NAME%, <your token>, null.
_TEMPLATE: Final = re.compile(
    r".*(?:\{\{|\}\}|\$\{).*|\$\w+|%\w+%|<.*>|null|none|undefined", re.IGNORECASE | re.ASCII | re.DOTALL
)


def _plausible(value: str, scheme: Scheme) -> Credential:
    # Nearly always; no template has this form, and a token of ours may.
    if len(value) <= MAXIMUM_TOKEN_BYTES and is_compact(value) and not value.startswith(PERSONAL_PREFIX):
        return Credential(value, Form.SIGNED, scheme)
    if _TEMPLATE.fullmatch(value):
        raise invalid_token(Reason.TEMPLATE)
    # aiohttp decodes bytes from 0x80 to lone surrogates, which no later step could encode.
    if not value.isascii():
        raise invalid_token(Reason.NOT_ASCII)
    if len(value) > MAXIMUM_TOKEN_BYTES:
        raise invalid_token(Reason.TOO_LONG)
    if " " in value or "\t" in value:
        raise invalid_token(Reason.WHITE_SPACE)
    if value.startswith(PERSONAL_PREFIX):
        return Credential(value, Form.PERSONAL, scheme)
    if value.count(".") == 4:
        raise invalid_token(Reason.ENCRYPTED)
    if _B64TOKEN.fullmatch(value):
        return Credential(value, Form.OPAQUE, scheme)
    raise invalid_token(Reason.OPAQUE)


_B64TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750 section 2.1: what a bearer token may be of
