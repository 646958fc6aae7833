"""What an issuer says of itself (OpenID Connect Discovery 1.0 section 3), as far as a sign-in needs it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from proxy.identity.asking import NoAnswerError, trusted_address
from proxy.identity.token import Json, strict_json

DISCOVERY_PATH: Final = "/.well-known/openid-configuration"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderMetadata:
    """Addresses where browsers are sent and saltgate asks. `names_itself`: `iss` comes with each code (RFC 9207)."""

    authorization_endpoint: str
    token_endpoint: str
    end_session_endpoint: str | None
    names_itself: bool
    takes_secret_in_header: bool


def provider_metadata(document: bytes, *, issuer: str) -> ProviderMetadata:
    """Raises NoAnswerError for what is no metadata of this issuer, or names an address that is not to be trusted."""
    try:
        members = strict_json(document)
    except ValueError as error:
        raise NoAnswerError("the metadata is not JSON") from error
    # Section 4.3: byte for byte, else one issuer's answers could be passed off as another's.
    if not isinstance(members, dict) or members.get("issuer") != issuer:
        raise NoAnswerError("the metadata does not name this issuer, byte for byte")
    authorization, token = _endpoint(members, "authorization_endpoint"), _endpoint(members, "token_endpoint")
    if authorization is None or token is None:
        raise NoAnswerError("the metadata has no authorization_endpoint or no token_endpoint")
    return ProviderMetadata(
        authorization_endpoint=authorization,
        token_endpoint=token,
        end_session_endpoint=_endpoint(members, "end_session_endpoint"),
        names_itself=members.get("authorization_response_iss_parameter_supported") is True,
        takes_secret_in_header=_takes_secret_in_header(members.get("token_endpoint_auth_methods_supported")),
    )


def _endpoint(members: Mapping[str, Json], name: str) -> str | None:
    """Passwords and codes travel there: no less protected than the issuer, and no fragment that hides a query."""
    value = members.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise NoAnswerError(f"the metadata's {name} is no text")
    address = trusted_address(value)
    issuer = trusted_address(str(members["issuer"]))
    if (address.scheme != "https" and issuer.scheme == "https") or "#" in value:
        raise NoAnswerError(f"the metadata's {name} is less protected than the issuer, or has a fragment")
    written = str(address)
    if not _WRITTEN.fullmatch(written):
        raise NoAnswerError(f"the metadata's {name} is no address")
    return written


_WRITTEN: Final = re.compile(r"[!-~]{1,2048}")  # it stands in a header line


def _takes_secret_in_header(methods: Json) -> bool:
    """Where it is not told, the header is the default (RFC 8414 section 2)."""
    if not isinstance(methods, list):
        return True
    return "client_secret_basic" in methods or "client_secret_post" not in methods
