"""An issuer's public keys (JWK Set, RFC 7517), and what they do: a `CompactToken` becomes a `VerifiedToken`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from proxy.identity.reasons import Reason, invalid_token
from proxy.identity.token import CompactToken, Json, VerifiedToken, base64url, strict_json

MAXIMUM_KEYS: Final = 100
MINIMUM_RSA_BITS: Final = 2048  # RFC 7518 section 3.3
MAXIMUM_RSA_BITS: Final = 8192  # a larger one makes each signature dear to check

PublicKey: TypeAlias = RSAKey | ECKey | OKPKey

_RSA_ALGORITHMS: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_ED25519: Final = frozenset({"EdDSA", "Ed25519"})  # the old name and RFC 9864's; issuers use both for the same
_CURVE_ALGORITHMS: Final = {
    ("EC", "P-256"): frozenset({"ES256"}),
    ("EC", "P-384"): frozenset({"ES384"}),
    ("EC", "P-521"): frozenset({"ES512"}),
    ("OKP", "Ed25519"): _ED25519,
}
ALGORITHMS: Final = _RSA_ALGORITHMS.union(*_CURVE_ALGORITHMS.values())
"""All that can ever verify: asymmetric ones, so no public key can serve as a secret (RFC 8725 section 2.1)."""


class KeysRefusedError(ValueError):
    """A document that is no JWK Set with a usable key in it; the text says why and holds nothing of the document."""


class NoSuchKeyError(LookupError):
    """No key of the set fits the token's `kid` and `alg`: perhaps the issuer has a newer set."""


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A public key, with the algorithms that it may verify. Equal keys verify the same signatures."""

    key_id: str | None
    algorithms: frozenset[str]
    thumbprint: str  # RFC 7638
    key: PublicKey = field(repr=False, compare=False)

    def signed(self, signing_input: bytes, signature: bytes, algorithm: str) -> bool:
        """Whether the key made the signature. `algorithm` is one of `algorithms`; another signs nothing."""
        if algorithm not in self.algorithms:
            return False
        # joserfc warns of the old name, and has one implementation for both.
        name = "Ed25519" if algorithm in _ED25519 else algorithm
        return bool(_REGISTRY.get_alg(name).verify(signing_input, signature, self.key))


@dataclass(frozen=True, slots=True)
class KeySet:
    """The usable keys of one issuer, each once. `skipped` counts the others of the document."""

    keys: frozenset[VerificationKey]
    skipped: int = field(compare=False)

    def verified(self, token: CompactToken, *, algorithms: Collection[str]) -> VerifiedToken:
        """The token, its signature checked with the one key that fits it.

        Raises `NoSuchKeyError` where none fits and `InvalidToken` where several do, where `alg` is not in `algorithms`,
        and where the signature is wrong.
        """
        names = _ED25519 if token.algorithm in _ED25519 else {token.algorithm}
        if token.algorithm not in ALGORITHMS or names.isdisjoint(algorithms):
            raise invalid_token(Reason.ALGORITHM)
        key = self._fitting(token)
        if not key.signed(token.signing_input, token.signature, token.algorithm):
            raise invalid_token(Reason.SIGNATURE)
        return VerifiedToken(issuer=token.issuer, type=token.type, claims=token.claims)

    def _fitting(self, token: CompactToken) -> VerificationKey:
        """The key by `kid`; for a token without one, the only key that can verify its algorithm."""
        fitting = [
            key
            for key in self.keys
            if token.algorithm in key.algorithms and (token.key_id is None or token.key_id == key.key_id)
        ]
        if not fitting:
            raise NoSuchKeyError
        if len(fitting) > 1:
            raise invalid_token(Reason.AMBIGUOUS_KEY)
        return fitting[0]


def key_set(document: bytes) -> KeySet:
    """The usable keys of a JWK Set. A key that is broken or meant for something else is left out alone.

    Raises `KeysRefusedError` where the document is no JWK Set, has too many keys, or none that is usable.
    """
    members = _members(document)
    keys = frozenset(key for key in map(verification_key, members) if key is not None)
    if not keys:
        raise KeysRefusedError("it holds no usable key")
    return KeySet(keys=keys, skipped=len(members) - len(keys))


_REGISTRY: Final = JWSRegistry(algorithms=sorted(ALGORITHMS))


def _members(document: bytes) -> list[Json]:
    try:
        value = strict_json(document)
    except ValueError as error:
        raise KeysRefusedError("it is not JSON") from error
    members = value.get("keys") if isinstance(value, dict) else None
    if not isinstance(members, list):
        raise KeysRefusedError("it is no JWK Set")
    if len(members) > MAXIMUM_KEYS:
        raise KeysRefusedError(f"it holds more than {MAXIMUM_KEYS} keys")
    return members


def verification_key(member: Json) -> VerificationKey | None:
    """The key, or None where it is broken, private, weak, or not meant for signatures that are accepted here."""
    if not isinstance(member, dict) or not _is_for_verifying(member):
        return None
    key_id = member.get("kid")
    algorithms = _algorithms(member)
    if not algorithms or not (key_id is None or isinstance(key_id, str)):
        return None
    try:
        key = _public_key(member)
        return VerificationKey(key_id=key_id, algorithms=algorithms, thumbprint=key.thumbprint(), key=key)
    except (JoseError, ValueError, KeyError, TypeError):
        return None


def _is_for_verifying(member: Mapping[str, Json]) -> bool:
    """By `use` and `key_ops` (RFC 7517 section 4). A private key that is published is no longer anybody's own."""
    operations = member.get("key_ops", ["verify"])
    return (
        member.get("use", "sig") == "sig"
        and isinstance(operations, list)
        and "verify" in operations
        and "d" not in member
    )


def _algorithms(member: Mapping[str, Json]) -> frozenset[str]:
    """What the key's type and curve can verify, narrowed to its own `alg` where it has one."""
    key_type, curve, algorithm = member.get("kty"), member.get("crv"), member.get("alg")
    if key_type == "RSA":
        possible = _RSA_ALGORITHMS
    elif isinstance(key_type, str) and isinstance(curve, str):
        possible = _CURVE_ALGORITHMS.get((key_type, curve), frozenset())
    else:
        possible = frozenset()
    if algorithm is None:
        return possible
    if key_type == "OKP" and algorithm in possible:
        return possible
    return possible & {algorithm} if isinstance(algorithm, str) else frozenset()


def _public_key(member: Mapping[str, Json]) -> PublicKey:
    """The key of its public parameters alone, so that nothing else in the document can change or break it."""
    match member["kty"]:
        case "RSA":
            modulus, exponent = _parameter(member, "n"), _parameter(member, "e")
            if not MINIMUM_RSA_BITS <= int.from_bytes(base64url(modulus)).bit_length() <= MAXIMUM_RSA_BITS:
                raise ValueError("the modulus has a length that is not accepted")
            return RSAKey.import_key({"kty": "RSA", "n": modulus, "e": exponent})
        case "EC":
            curve, x, y = (_parameter(member, name) for name in ("crv", "x", "y"))
            return ECKey.import_key({"kty": "EC", "crv": curve, "x": x, "y": y})
        case _:
            x = _parameter(member, "x")
            _check_point(base64url(x))
            return OKPKey.import_key({"kty": "OKP", "crv": _parameter(member, "crv"), "x": x})


_FIELD: Final = 2**255 - 19
# The y of all points of edwards25519 whose order divides 8: those of order 8, then of order 4, 1 and 2.
_OF_ORDER_8: Final = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
_SMALL_ORDER: Final = frozenset((_OF_ORDER_8, _FIELD - _OF_ORDER_8, 0, 1, _FIELD - 1))


def _check_point(encoded: bytes) -> None:
    """Raises ValueError for a point under which anybody can sign (of small order), which OpenSSL takes for a key; and
    for a spelling that is not the only one of its point (RFC 8032 section 5.1.3).
    """
    y = int.from_bytes(encoded, "little") & (2**255 - 1)  # the last bit is that of x
    if y >= _FIELD or y in _SMALL_ORDER:
        raise ValueError("the point is none that a private key could have made")


def _parameter(member: Mapping[str, Json], name: str) -> str:
    value = member[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is not text")
    return value
