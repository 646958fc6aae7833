"""A signed token as it came: JWS compact serialization (RFC 7515 section 7.1) that holds a JWT (RFC 7519).

Stricter than the RFCs where leniency lets two readers see two tokens: canonical base64url, no member twice, no NaN.
Nothing here is verified; `proxy.identity.keys` makes a `VerifiedToken` of a `CompactToken`.
"""

# ruff: noqa: A005 - the standards' word; imports are absolute, so nothing is shadowed

from __future__ import annotations

import json
import math
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn, TypeAlias

from proxy.identity.reasons import Reason, invalid_token

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

MAXIMUM_TOKEN_BYTES: Final = 16 * 1024
MAXIMUM_HEADER_BYTES: Final = 4 * 1024


@dataclass(frozen=True, slots=True)
class CompactToken:
    """A well-formed token that nobody has verified. `issuer` serves to choose the keys, `claims` to be verified."""

    algorithm: str
    key_id: str | None
    type: str | None
    issuer: str
    claims: Mapping[str, Json] = field(repr=False)
    signing_input: bytes = field(repr=False)
    signature: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """What an issuer's key has signed. Only `proxy.identity.keys` makes one. No claim of it is judged yet."""

    issuer: str
    type: str | None
    claims: Mapping[str, Json] = field(repr=False)


def is_compact(text: str) -> bool:
    """Whether the text is three base64url parts between dots, none of them empty."""
    return _COMPACT.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class SignedJwt:
    """The parts of any well-formed signed JWT, whatever it is for. Nobody has verified them."""

    header: Mapping[str, Json] = field(repr=False)
    claims: Mapping[str, Json] = field(repr=False)
    signing_input: bytes = field(repr=False)
    signature: bytes = field(repr=False)


def signed_jwt(text: str) -> SignedJwt:
    """The JWT's parts. Raises `InvalidToken` for whatever is not exactly a signed JWT."""
    header_text, payload_text, signature_text = _parts(text)
    return SignedJwt(
        header=_header(header_text),
        claims=_object(_decoded(payload_text), Reason.PAYLOAD),
        signing_input=f"{header_text}.{payload_text}".encode("ascii"),
        signature=_decoded(signature_text),
    )


def compact_token(text: str) -> CompactToken:
    """The token's parts. Raises `InvalidToken` for whatever is not exactly a signed JWT.

    `jwk`, `jku`, `x5u` and `x5c` of the header are not even read: a key comes from the issuer or not at all.
    """
    jwt = signed_jwt(text)
    return CompactToken(
        algorithm=_text(jwt.header, "alg", Reason.ALGORITHM),
        key_id=_optional_text(jwt.header, "kid"),
        type=_optional_text(jwt.header, "typ"),
        issuer=_text(jwt.claims, "iss", Reason.ISSUER),
        claims=jwt.claims,
        signing_input=jwt.signing_input,
        signature=jwt.signature,
    )


def base64url(text: str) -> bytes:
    """The bytes behind canonical, unpadded base64url (RFC 7515 section 2). Raises ValueError otherwise.

    Encoding again is what makes it canonical: else the last character could differ and the bytes stay the same.
    """
    data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if urlsafe_b64encode(data).rstrip(b"=") != text.encode("ascii"):
        raise ValueError("not canonical base64url")
    return data


def strict_json(data: bytes) -> Json:
    """The JSON value in UTF-8 bytes, as I-JSON (RFC 7493) has it. Raises ValueError otherwise.

    Refused are: a member that comes twice, at any level; NaN and numbers too large for a float; lone surrogates;
    nesting too deep to read.
    """
    try:
        value: Json = json.loads(
            data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_not_a_number, parse_float=_finite
        )
        if b"\\u" in data:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return value


_COMPACT: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


def _parts(text: str) -> tuple[str, str, str]:
    if len(text) > MAXIMUM_TOKEN_BYTES:
        raise invalid_token(Reason.TOO_LONG)
    if text.count(".") == 4:
        raise invalid_token(Reason.ENCRYPTED)
    if not is_compact(text):
        raise invalid_token(Reason.ENCODING)
    header, payload, signature = text.split(".")
    return header, payload, signature


# RFC 7515 section 4.1.11 lets us refuse what we do not understand, and we understand no extension. `b64` (RFC 7797)
# changes what is signed, `cty` announces a token within the token, `enc` belongs to JWE.
_REFUSED_MEMBERS: Final = ("crit", "b64", "cty", "enc")


def _header(text: str) -> dict[str, Json]:
    data = _decoded(text)
    if len(data) > MAXIMUM_HEADER_BYTES:
        raise invalid_token(Reason.HEADER)
    header = _object(data, Reason.HEADER)
    if any(member in header for member in _REFUSED_MEMBERS):
        raise invalid_token(Reason.CRITICAL)
    return header


def _decoded(text: str) -> bytes:
    try:
        return base64url(text)
    except ValueError as error:
        raise invalid_token(Reason.ENCODING) from error


def _object(data: bytes, reason: Reason) -> dict[str, Json]:
    try:
        value = strict_json(data)
    except ValueError as error:
        raise invalid_token(reason) from error
    if not isinstance(value, dict):
        raise invalid_token(reason)
    return value


def _text(members: Mapping[str, Json], name: str, reason: Reason) -> str:
    value = members.get(name)
    if not isinstance(value, str):
        raise invalid_token(reason)
    return value


def _optional_text(header: Mapping[str, Json], name: str) -> str | None:
    """The header's member where it is sent; sent empty, it says nothing that could be relied on."""
    if name not in header:
        return None
    if not (text := _text(header, name, Reason.HEADER)):
        raise invalid_token(Reason.HEADER)
    return text


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member comes twice")
    return members


def _not_a_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number
