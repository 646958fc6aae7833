"""The OAuth clients: what each may ask for, and where an answer to it may go."""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from proxy.demo.provider.keys import Algorithm

# RFC 8252 section 7.3: the literal addresses only. Whatever follows the port is compared whole with what is registered.
_LOOPBACK_REDIRECT: Final = re.compile(r"(http://(?:127\.0\.0\.1|\[::1\])):([1-9][0-9]{0,4})((?:/.*)?)", re.ASCII)
_REGISTRABLE: Final = re.compile(r"https?://[A-Za-z0-9.\[\]:-]+(?:/[!-~]*)?", re.ASCII)


class Grant(Enum):
    """The grant types, as the token endpoint spells them."""

    AUTHORIZATION_CODE = "authorization_code"
    REFRESH_TOKEN = "refresh_token"  # noqa: S105 - a grant type
    CLIENT_CREDENTIALS = "client_credentials"
    DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One OAuth client. Without a secret it is a public one: a program on the person's own machine (RFC 8252).

    `audience` is the `aud` of its access tokens, `algorithm` what they are signed with. `groups` are those of a service
    account, whose subject is the client itself.
    """

    id: str
    secret: str | None = field(default=None, repr=False)
    redirect_uris: tuple[str, ...] = ()
    post_logout_redirect_uris: tuple[str, ...] = ()
    grants: frozenset[Grant]
    audience: str
    algorithm: Algorithm = "RS256"
    groups: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for uri in (*self.redirect_uris, *self.post_logout_redirect_uris):
            if _REGISTRABLE.fullmatch(uri) is None or "#" in uri:
                raise ValueError(f"{uri!r} cannot be registered: an http(s) address without a fragment is needed")
        if self.secret is None and Grant.CLIENT_CREDENTIALS in self.grants:
            raise ValueError(f"client {self.id!r} has no secret, so it cannot have client_credentials (RFC 6749 4.4)")

    @property
    def is_public(self) -> bool:
        return self.secret is None

    def secret_is(self, presented: str) -> bool:
        """Whether this is the client's secret; a public client has none, so nothing is."""
        if self.secret is None:
            return False
        return hmac.compare_digest(self.secret.encode("utf-8"), presented.encode("utf-8", "surrogatepass"))

    def may_redirect_to(self, uri: str) -> bool:
        """Exactly a registered address (RFC 9700 2.1); for a public client's loopback one any port (RFC 8252 7.3)."""
        return uri in self.redirect_uris or (self.is_public and _without_port(uri) in self.redirect_uris)


def _without_port(uri: str) -> str | None:
    match = _LOOPBACK_REDIRECT.fullmatch(uri)
    if match is None or int(match[2]) > 65535:
        return None
    return match[1] + match[3]
