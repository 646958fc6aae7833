"""A DPoP proof (RFC 9449 section 4): whoever sends this request holds the key that his token is bound to. Pure.

All checks of section 4.3 but two: that a proof comes once is for `possession`, which remembers them, and there is no
nonce of the server's, since proofs are remembered for longer than any of them is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Final

from proxy.identity.confirmation import base64url_digest
from proxy.identity.keys import VerificationKey, verification_key
from proxy.identity.proof_reasons import ProofReason, invalid_proof
from proxy.identity.request_target import same_target
from proxy.identity.token import Json, SignedJwt, signed_jwt
from proxy.refusals import InvalidToken

ALGORITHMS: Final = ("ES256", "Ed25519", "EdDSA")
"""What a proof may be signed with. The client makes the key, for this alone: so two good kinds are enough, and a key
that is dear to check is nobody's choice to make us check. The last is the old name of the second."""

ACCEPTED_SECONDS: Final = 60.0
"""How far `iat` may lie from our clock, before or after."""

MAXIMUM_PROOF_CHARACTERS: Final = 4096
MAXIMUM_ID_CHARACTERS: Final = 512


@dataclass(frozen=True, slots=True)
class Proof:
    """A proof that holds for the request at hand, unless it came before. `issued_at` is Unix seconds.

    `name` is the same for the same key and `jti` only, of letters, digits, hyphens and underscores.
    """

    name: str = field(repr=False)
    issued_at: float


def proof_lines(headers: Sequence[tuple[str, str]]) -> list[str]:
    """What the DPoP header lines hold."""
    return [value for name, value in headers if name.lower() == "dpop"]


def checked_proof(lines: Sequence[str], *, method: str, target: str, token: str, key: str, now: float) -> Proof:
    """The proof in a request's DPoP header lines, checked at `now` in Unix seconds.

    `method` and `target` are the request's, the target as an absolute URL without query; `token` is the access token
    that comes with it, `key` the thumbprint that it is bound to. Raises `InvalidProof`.
    """
    if not lines:
        raise invalid_proof(ProofReason.MISSING)
    if len(lines) > 1:
        raise invalid_proof(ProofReason.SEVERAL)
    jwt = _parsed(lines[0])
    signer = _signer(jwt)
    _check_request(jwt.claims, method, target)
    issued_at = _issued_at(jwt.claims, now)
    _check_token(jwt.claims, token)
    if not compare_digest(signer.thumbprint, key):
        raise invalid_proof(ProofReason.OTHER_KEY)
    return Proof(_name(signer, jwt.claims), issued_at)


def _parsed(text: str) -> SignedJwt:
    if not text.isascii() or len(text) > MAXIMUM_PROOF_CHARACTERS:
        raise invalid_proof(ProofReason.FORM)
    try:
        return signed_jwt(text)
    except InvalidToken as error:
        raise invalid_proof(ProofReason.FORM) from error


# Keys by other ways than `jwk`, which would let the proof say two things about who signed it.
_OTHER_KEYS: Final = ("jku", "x5u", "x5c", "x5t", "x5t#S256")
_PRIVATE: Final = ("d", "p", "q", "dp", "dq", "qi", "oth", "k")


def _signer(jwt: SignedJwt) -> VerificationKey:
    """The key in the proof's header, after its signature has been checked with it."""
    header = jwt.header
    if header.get("typ") != "dpop+jwt" or any(name in header for name in _OTHER_KEYS):
        raise invalid_proof(ProofReason.HEADER)
    algorithm, member = header.get("alg"), header.get("jwk")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise invalid_proof(ProofReason.ALGORITHM)
    if not isinstance(member, dict) or any(name in member for name in _PRIVATE):
        raise invalid_proof(ProofReason.KEY)
    key = verification_key(member)
    if key is None or algorithm not in key.algorithms:
        raise invalid_proof(ProofReason.KEY)
    if not key.signed(jwt.signing_input, jwt.signature, algorithm):
        raise invalid_proof(ProofReason.SIGNATURE)
    return key


def _check_request(claims: Mapping[str, Json], method: str, target: str) -> None:
    if claims.get("htm") != method:
        raise invalid_proof(ProofReason.METHOD)
    named = claims.get("htu")
    if not isinstance(named, str) or not same_target(named, target):
        raise invalid_proof(ProofReason.TARGET)


def _issued_at(claims: Mapping[str, Json], now: float) -> float:
    issued_at = claims.get("iat")
    if not isinstance(issued_at, int | float):
        raise invalid_proof(ProofReason.TIME)
    # Compared, not subtracted: a whole number may be too large for a float.
    if not now - ACCEPTED_SECONDS <= issued_at <= now + ACCEPTED_SECONDS:
        raise invalid_proof(ProofReason.TIME)
    return float(issued_at)


def _check_token(claims: Mapping[str, Json], token: str) -> None:
    """The proof was made for this token (`ath`): one for another token of the same key does not count."""
    shown = claims.get("ath")
    if not isinstance(shown, str) or not shown.isascii():
        raise invalid_proof(ProofReason.TOKEN)
    if not compare_digest(shown, base64url_digest(token.encode("ascii"))):
        raise invalid_proof(ProofReason.TOKEN)


def _name(signer: VerificationKey, claims: Mapping[str, Json]) -> str:
    identifier = claims.get("jti")
    if not isinstance(identifier, str) or not 0 < len(identifier) <= MAXIMUM_ID_CHARACTERS:
        raise invalid_proof(ProofReason.ID)
    # The thumbprint has a fixed length, so no two pairs give the same bytes.
    return base64url_digest(signer.thumbprint.encode("ascii") + identifier.encode("utf-8"))
