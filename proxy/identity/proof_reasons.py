"""Why a DPoP proof is not accepted: a fine word for the operator, and a fixed text for the caller."""

from __future__ import annotations

from enum import Enum
from typing import Final

from proxy.refusals import InvalidProof


class ProofReason(Enum):
    """The classes of refused proofs. The value is what `explain` and the log say, and `Refusal.reason` holds."""

    MISSING = "proof_missing"
    SEVERAL = "proof_several"
    FORM = "proof_form"
    HEADER = "proof_header"
    ALGORITHM = "proof_algorithm"
    KEY = "proof_key"
    SIGNATURE = "proof_signature"
    METHOD = "proof_method"
    TARGET = "proof_target"
    TIME = "proof_time"
    ID = "proof_jti"
    TOKEN = "proof_token"  # noqa: S105 - a word for a log, no secret
    OTHER_KEY = "proof_other_key"
    REPLAYED = "proof_replayed"


def invalid_proof(reason: ProofReason) -> InvalidProof:
    """The 401 for this reason."""
    return InvalidProof(_TEXTS[reason], reason=reason.value)


_FORM: Final = "The DPoP header holds no proof as RFC 9449 has it. Check the client's DPoP library."
_HOLDER: Final = (
    "The DPoP proof does not belong to this access token. Send both of the same sign-in, or sign in again with your "
    "key."
)

_TEXTS: Final = {
    ProofReason.MISSING: "The request lacks its DPoP proof. Send one in a DPoP header, made for this request.",
    ProofReason.SEVERAL: "The request has several DPoP headers. Send one.",
    ProofReason.FORM: _FORM,
    ProofReason.HEADER: _FORM,
    ProofReason.ALGORITHM: (
        "The DPoP proof is signed with an algorithm that is not accepted here. Have your client use an ES256 or "
        "Ed25519 key."
    ),
    ProofReason.KEY: "The DPoP proof has no usable public key. Have your client put in its ES256 or Ed25519 key alone.",
    ProofReason.SIGNATURE: _HOLDER,
    ProofReason.METHOD: "The DPoP proof was made for another HTTP method. Have your client make one for each request.",
    ProofReason.TARGET: (
        "The DPoP proof was made for another address. Have your client put in the address that it asks, beginning with "
        "this gateway's public one."
    ),
    ProofReason.TIME: (
        "The DPoP proof was not made within the last minute. Check the client's clock, and have it make one for each "
        "request."
    ),
    ProofReason.ID: "The DPoP proof has no jti. Have your client put a new random one into each proof.",
    ProofReason.TOKEN: _HOLDER,
    ProofReason.OTHER_KEY: _HOLDER,
    ProofReason.REPLAYED: (
        "The DPoP proof came before. Have your client make one for each request, also when it sends a request again."
    ),
}
