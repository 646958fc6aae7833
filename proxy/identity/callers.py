"""Who is calling: what a request shows is judged in the way of its form, and in no other."""

from __future__ import annotations

from proxy.identity import Identity
from proxy.identity.credential import Form, credential
from proxy.identity.issuers import TrustedIssuers
from proxy.identity.personal_tokens import PersonalTokens
from proxy.identity.reasons import Reason, invalid_token
from proxy.identity.shown import Shown


class Callers:
    """The door to every kind of credential. What a deployment does not accept is told so."""

    def __init__(self, signed: TrustedIssuers, *, personal: PersonalTokens | None = None) -> None:
        self._signed = signed
        self._personal = personal

    async def identify(self, shown: Shown) -> Identity:
        """Who is calling. Does not suspend for a token that was verified a moment ago.

        Raises a 401 Refusal, `InvalidRequest` for two credentials, or `IssuerUnavailable` and `DirectoryUnavailable`
        where saltgate cannot know.
        """
        presented = credential(shown.headers)
        match presented.form:
            case Form.SIGNED:
                return await self._signed.identify(presented.token)
            case Form.PERSONAL if self._personal is not None:
                return await self._personal.identify(presented.token)
            case Form.PERSONAL:
                raise invalid_token(Reason.PERSONAL)
            case Form.OPAQUE:
                raise invalid_token(Reason.OPAQUE)
