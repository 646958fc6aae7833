"""The last step to an `Identity`: the request shows what its token is bound to, or the token is bound to nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from proxy.identity import Identity
from proxy.identity.confirmation import Bound, Confirmation, check_certificate
from proxy.identity.credential import Credential, Scheme
from proxy.identity.dpop import ACCEPTED_SECONDS, Proof, checked_proof, proof_lines
from proxy.identity.proof_reasons import ProofReason, invalid_proof
from proxy.identity.reasons import Reason, invalid_token
from proxy.identity.shown import Shown

REMEMBERED_SECONDS: Final = 180
"""How long a used proof is remembered: one is accepted for two minutes at most, and clocks of machines differ."""

if REMEMBERED_SECONDS <= 2 * ACCEPTED_SECONDS:
    raise AssertionError("a proof that is forgotten while it is accepted could come twice")


class UsedProofs(Protocol):
    """The proofs that have come, known to all workers of all machines at once."""

    async def first_use(self, proof: Proof) -> bool:
        """Whether the proof comes for the first time within `REMEMBERED_SECONDS`; of any number at once, one does.

        Raises a 503 Refusal where that cannot be known.
        """
        ...


class Possession:
    """What a request shows beside its token. Every kind of token goes through here; no other way leads further."""

    def __init__(self, *, public_url: str, clock: Callable[[], float], used: UsedProofs) -> None:
        """`public_url` is where clients reach us, without a slash at its end; `clock` gives Unix seconds."""
        self._public_url = public_url
        self._clock = clock
        self._used = used

    async def confirmed(self, found: Identity | Bound, presented: Credential, shown: Shown) -> Identity:
        """The caller, if the request shows all that his token is bound to. Does not suspend for a bearer token.

        A bound token is never taken as a bearer token, nor one that is not bound under the DPoP scheme (RFC 9449
        section 7.1). Raises `InvalidToken`, `InvalidProof`, or a 503 where saltgate cannot know.
        """
        confirmation = found.confirmation if isinstance(found, Bound) else Confirmation()
        if presented.scheme is Scheme.DPOP and confirmation.key is None:
            raise invalid_token(Reason.NOT_BOUND)
        if presented.scheme is Scheme.BEARER and confirmation.key is not None:
            raise invalid_token(Reason.BOUND)
        if confirmation.certificate is not None:
            check_certificate(confirmation.certificate, shown.certificate)
        if confirmation.key is not None:
            await self._check_proof(confirmation.key, presented.token, shown)
        return found.caller if isinstance(found, Bound) else found

    async def _check_proof(self, key: str, token: str, shown: Shown) -> None:
        proof = checked_proof(
            proof_lines(shown.headers),
            method=shown.method,
            target=self._public_url + shown.path,
            token=token,
            key=key,
            now=self._clock(),
        )
        if not await self._used.first_use(proof):
            raise invalid_proof(ProofReason.REPLAYED)
