"""Where people at a command line sign in: what the gate's metadata says of it, written and read in one place. Pure.

RFC 9728 names the issuers of a resource's tokens, but not the client that a program on a person's machine is: that is
told in a member of saltgate's own, beside the standard's. Nothing in it is a secret (RFC 8252 section 8.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from proxy.identity.token import Json

MEMBER: Final = "saltgate_sign_in"
MAXIMUM_SIGN_INS: Final = 32


class NoSignInError(ValueError):
    """A member that does not say where people sign in. The text says why and holds nothing of the member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeSignIn:
    """One issuer, the public client that `saltgate login` is there, and what it asks for.

    `resource` is sent with each request (RFC 8707) where the issuer wants to be told for whom the token is.
    """

    issuer: str
    client_id: str
    scopes: tuple[str, ...]
    resource: str | None = None


def member_of(sign_ins: Iterable[NativeSignIn]) -> list[dict[str, Json]]:
    """The value of `saltgate_sign_in`."""
    return [
        {
            "issuer": sign_in.issuer,
            "client_id": sign_in.client_id,
            "scopes": list(sign_in.scopes),
            **({} if sign_in.resource is None else {"resource": sign_in.resource}),
        }
        for sign_in in sign_ins
    ]


def sign_ins_in(metadata: Mapping[str, Json]) -> tuple[NativeSignIn, ...]:
    """What a gate's metadata says; empty where it has no such sign-in.

    Raises NoSignInError for a member of another form, and for an issuer that is not among `authorization_servers`:
    tokens of another are not for this gate.
    """
    entries = metadata.get(MEMBER, [])
    if not isinstance(entries, list) or len(entries) > MAXIMUM_SIGN_INS:
        raise NoSignInError("it does not list where people sign in")
    issuers = metadata.get("authorization_servers")
    found = tuple(_sign_in(entry) for entry in entries)
    if any(not isinstance(issuers, list) or sign_in.issuer not in issuers for sign_in in found):
        raise NoSignInError("it has people sign in at an issuer whose tokens it does not take")
    return found


def _sign_in(entry: Json) -> NativeSignIn:
    if not isinstance(entry, dict):
        raise NoSignInError("an entry is no object")
    scopes, resource = entry.get("scopes"), entry.get("resource")
    if not isinstance(scopes, list):
        raise NoSignInError("an entry has no scopes")
    return NativeSignIn(
        issuer=_word(entry.get("issuer")),
        client_id=_text(entry.get("client_id")),
        scopes=tuple(_word(scope) for scope in scopes),
        resource=None if resource is None else _word(resource),
    )


def _text(value: Json) -> str:
    """Printable ASCII: it stands in a request and on a terminal (RFC 6749 appendix A)."""
    if not isinstance(value, str) or not 0 < len(value) <= 2048 or not (value.isascii() and value.isprintable()):
        raise NoSignInError("an entry lacks a text, or has one that cannot be sent")
    return value


def _word(value: Json) -> str:
    text = _text(value)
    if " " in text:
        raise NoSignInError("an entry has a space where none can be")
    return text
