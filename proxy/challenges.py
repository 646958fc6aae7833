"""How a caller without an accepted credential is told what to send: `WWW-Authenticate`. Pure.

RFC 6750 section 3 for bearer tokens, RFC 9449 section 7.1 for DPoP, RFC 9728 section 5.1 for where the rest is told.
"""

from __future__ import annotations

from typing import Final

from proxy.identity.credential import Scheme
from proxy.identity.dpop import ALGORITHMS
from proxy.refusals import Unauthenticated
from proxy.routes import METADATA_PATH

_ALGORITHMS: Final = " ".join(ALGORITHMS)


def challenges(refusal: Unauthenticated, *, tried: Scheme, resource: str, public_url: str) -> bytes:
    """The header lines, one for each scheme; the error stands at the one that was tried.

    `resource` is the path of the base URL that was asked, a path of ours as `proxy.routes.resource_of` gives it.
    """
    where = f'realm="saltgate", resource_metadata="{public_url}{METADATA_PATH}{resource}"'
    error = ""
    if refusal.challenge_error is not None:
        error = f', error="{refusal.challenge_error}", error_description="{refusal.challenge_description}"'
    bearer = f"Bearer {where}{error if tried is Scheme.BEARER else ''}"
    dpop = f'DPoP {where}, algs="{_ALGORITHMS}"{error if tried is Scheme.DPOP else ""}'
    return f"WWW-Authenticate: {bearer}\r\nWWW-Authenticate: {dpop}\r\n".encode("ascii")


def tried_scheme(authorization: str) -> Scheme:
    """The scheme under which the credential came, if one came: API key headers are as good as Bearer."""
    return Scheme.DPOP if authorization[:5].lower() == "dpop " else Scheme.BEARER
