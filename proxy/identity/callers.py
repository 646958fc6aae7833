"""Who is calling: what a request shows is judged in the way of its form, and in no other."""

from __future__ import annotations

from proxy.identity import Identity
from proxy.identity.credential import Form, credential
from proxy.identity.issuers import TrustedIssuers
from proxy.identity.opaque import OpaqueTokens
from proxy.identity.reasons import Reason, invalid_token
from proxy.identity.shown import Shown


class Callers:
    """The door to every kind of credential. What a deployment does not accept is told so."""

    def __init__(self, signed: TrustedIssuers, opaque: OpaqueTokens) -> None:
        self._signed = signed
        self._opaque = opaque

    async def identify(self, shown: Shown) -> Identity:
        """Who is calling. Does not suspend for a token that was verified a moment ago.

        Raises a 401 Refusal, `InvalidRequest` for two credentials, `ScopeRequired` where an opaque token could be of
        several issuers, or `IssuerUnavailable` (for an opaque token also `DirectoryUnavailable`) where saltgate cannot
        know.
        """
        presented = credential(shown.headers)
        match presented.form:
            case Form.SIGNED:
                return await self._signed.identify(presented.token)
            case Form.PERSONAL:
                raise invalid_token(Reason.PERSONAL)
            case Form.OPAQUE:
                return await self._opaque.identify(presented.token, shown.workspace)
