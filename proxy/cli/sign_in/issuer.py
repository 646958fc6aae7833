"""The identity provider as a program on a person's machine sees it: its endpoints, and its token endpoint's answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from proxy.cli.sign_in import SignInFailed
from proxy.cli.sign_in.web import Unreachable, Web, WebAnswer, checked_address, shown
from proxy.identity.token import Json

DISCOVERY: Final = "/.well-known/openid-configuration"
# What an answer without `expires_in` (RFC 6749 section 5.1 only recommends it) is taken to be good for.
ASSUMED_LIFETIME: Final = 300.0
# An address is also shown on a terminal, and must not be able to draw on it; a fragment would swallow its parameters.
_ADDRESS: Final = re.compile(r"[!\"$-~]{1,2048}")
LONGEST_LIFETIME: Final = 366 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """What the issuer says of itself (OpenID Connect Discovery 1.0 section 3, RFC 8414). Each address may be asked.

    `names_itself`: its answers by way of the browser carry `iss` (RFC 9207 section 3).
    """

    issuer: str
    token: str
    authorization: str | None
    device: str | None
    revocation: str | None
    jwks: str | None
    names_itself: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """A token endpoint's good answer. `lifetime` is in seconds, that of the access token."""

    access_token: str = field(repr=False)
    refresh_token: str | None = field(repr=False)
    id_token: str | None = field(repr=False)
    lifetime: float


class Refused(SignInFailed):
    """The token endpoint answered with an error (RFC 6749 section 5.2, RFC 8628 section 3.5); `error` is its code."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(message)
        self.error = error


async def discover(web: Web, issuer: str) -> Endpoints:
    """Raises SignInFailed, Unreachable where the issuer does not answer."""
    secure = checked_address(issuer).scheme == "https"
    answer = await web.get(issuer.removesuffix("/") + DISCOVERY)
    members = answer.members()
    if answer.status != 200 or not members:
        raise _unusable(issuer, answer, "it has no metadata there")
    # OpenID Connect Discovery 1.0 section 4.3: else the answers of one issuer could be passed off as another's.
    if members.get("issuer") != issuer:
        raise SignInFailed(
            f"{shown(issuer)} says that it is another issuer, and is not believed; tell the gate's owner"
        )

    def endpoint(name: str) -> str | None:
        address = members.get(name)
        if address is None:
            return None
        if not isinstance(address, str) or not _ADDRESS.fullmatch(address):
            raise SignInFailed(f"{shown(issuer)} has a broken {name}; tell its owner")
        if checked_address(address).scheme != "https" and secure:
            raise SignInFailed(f"{shown(issuer)} has a {name} that is less protected than itself; tell its owner")
        return address

    token = endpoint("token_endpoint")
    if token is None:
        raise SignInFailed(f"{shown(issuer)} has no token_endpoint; tell its owner")
    return Endpoints(
        issuer=issuer,
        token=token,
        authorization=endpoint("authorization_endpoint"),
        device=endpoint("device_authorization_endpoint"),
        revocation=endpoint("revocation_endpoint"),
        jwks=endpoint("jwks_uri"),
        names_itself=members.get("authorization_response_iss_parameter_supported") is True,
    )


async def ask_for_tokens(web: Web, endpoints: Endpoints, form: Mapping[str, str]) -> Tokens:
    """The tokens of one grant. Raises Refused, Unreachable, and SignInFailed for an answer that is none."""
    answer = await web.post(endpoints.token, form)
    if answer.status == 200:
        return _tokens(answer.members(), endpoints.issuer)
    raise refusal_of(answer, endpoints.issuer)


def refusal_of(answer: WebAnswer, issuer: str) -> SignInFailed:
    """What an answer that is not 200 means. The issuer's own words (`error_description`) are not repeated."""
    error = answer.members().get("error")
    if 400 <= answer.status < 500 and answer.status != 429 and isinstance(error, str) and _CODE.fullmatch(error):
        return Refused(error, f"{shown(issuer)} says {error}; {_REMEDIES.get(error, 'tell the owner of the gate')}")
    return _unusable(issuer, answer, "try again")


def _unusable(issuer: str, answer: WebAnswer, remedy: str) -> SignInFailed:
    return Unreachable(f"{shown(issuer)} answered {answer.status}; {remedy}")


_CODE: Final = re.compile(r"[a-z_]{1,60}")
_REMEDIES: Final = {
    "access_denied": "the sign-in was refused there; run saltgate login again",
    "expired_token": "the code was not used in time; run saltgate login again",
    "invalid_grant": "the sign-in is over; run saltgate login again",
    "temporarily_unavailable": "try again",
    "server_error": "try again",
}
_TOKEN: Final = re.compile(r"[!-~]{1,65536}")  # RFC 6749 appendix A.12 and A.17, without the space


def _tokens(members: Mapping[str, Json], issuer: str) -> Tokens:
    kind, access_token = members.get("token_type"), members.get("access_token")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise SignInFailed(f"{shown(issuer)} gives no bearer tokens to saltgate login; tell the gate's owner")
    if not isinstance(access_token, str) or not _TOKEN.fullmatch(access_token):
        raise SignInFailed(f"{shown(issuer)} gave no access token; tell the gate's owner")
    return Tokens(
        access_token=access_token,
        refresh_token=_token_or_none(members.get("refresh_token"), issuer),
        id_token=_token_or_none(members.get("id_token"), issuer),
        lifetime=_lifetime(members.get("expires_in")),
    )


def _token_or_none(value: Json, issuer: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        raise SignInFailed(f"{shown(issuer)} gave a token that is none; tell the gate's owner")
    return value


def _lifetime(value: Json) -> float:
    if isinstance(value, str) and value.isascii() and value.isdecimal():  # some providers quote it
        value = int(value[:12])
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ASSUMED_LIFETIME
    return float(min(max(value, 0), LONGEST_LIFETIME))
