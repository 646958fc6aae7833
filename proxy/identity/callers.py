"""Who is calling: what a request shows is judged in the way of its form, and in no other."""

from __future__ import annotations

from proxy.identity import Identity
from proxy.identity.confirmation import Bound, bearer
from proxy.identity.credential import Credential, Form, Scheme, credential
from proxy.identity.issuers import TrustedIssuers
from proxy.identity.opaque import OpaqueTokens
from proxy.identity.personal_tokens import PersonalTokens
from proxy.identity.possession import Possession
from proxy.identity.reasons import Reason, invalid_token
from proxy.identity.shown import Shown


class Callers:
    """The door to every kind of credential. What a deployment does not accept is told so."""

    def __init__(
        self,
        signed: TrustedIssuers,
        *,
        opaque: OpaqueTokens | None = None,
        personal: PersonalTokens | None = None,
        possession: Possession | None = None,
    ) -> None:
        """Without `opaque` no issuer is asked about tokens, without `personal` no personal access token gets in.
        Without `possession` only bearer tokens do: nobody could check what else is shown.
        """
        self._signed = signed
        self._opaque = opaque
        self._possession = possession
        self._personal = personal

    async def identify(self, shown: Shown) -> Identity:
        """Who is calling. Does not suspend for a token that was verified a moment ago.

        Raises a 401 Refusal, `InvalidRequest` for two credentials, `ScopeRequired` where an opaque token could be of
        several issuers, or a 503 where saltgate cannot know.
        """
        presented = credential(shown.headers)
        if self._possession is None:
            return await self._bearer(presented, shown)
        found = await self._judged(presented, shown)
        return await self._possession.confirmed(found, presented, shown)

    async def _bearer(self, presented: Credential, shown: Shown) -> Identity:
        if presented.scheme is not Scheme.BEARER:
            raise invalid_token(Reason.SENDER_CONSTRAINED)
        return bearer(await self._judged(presented, shown))

    async def _judged(self, presented: Credential, shown: Shown) -> Identity | Bound:
        match presented.form:
            case Form.SIGNED:
                return await self._signed.judged(presented.token)
            case Form.PERSONAL if self._personal is not None:
                return await self._personal.identify(presented.token)
            case Form.PERSONAL:
                raise invalid_token(Reason.PERSONAL)
            case Form.OPAQUE if self._opaque is not None:
                return await self._opaque.judged(presented.token, shown.workspace)
            case Form.OPAQUE:
                raise invalid_token(Reason.OPAQUE)
