"""The provider's signing keys: one for each algorithm that signs, and those that signed before and still verify."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias, cast

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey

Algorithm: TypeAlias = Literal["RS256", "ES256"]
ALGORITHMS: Final[tuple[Algorithm, ...]] = ("RS256", "ES256")


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key. `retired_at` is Unix seconds, None while the key signs."""

    algorithm: Algorithm
    jwk: RSAKey | ECKey = field(repr=False)
    retired_at: float | None = None

    @property
    def kid(self) -> str:
        """The key's thumbprint (RFC 7638), so that the same key has the same name after a restart."""
        return self.jwk.thumbprint()

    def public(self) -> dict[str, object]:
        """The JWK that others verify with (RFC 7517)."""
        return {**self.jwk.as_dict(private=False), **self._parameters()}

    def private(self) -> dict[str, object]:
        return {**self.jwk.as_dict(private=True), **self._parameters()}

    def _parameters(self) -> dict[str, object]:
        return {"kid": self.kid, "use": "sig", "alg": self.algorithm}


@dataclass(frozen=True, slots=True)
class SigningKeys:
    """All keys that may verify. The first of an algorithm that is not retired signs."""

    keys: tuple[SigningKey, ...]

    def signing(self, algorithm: Algorithm) -> SigningKey:
        return next(key for key in self.keys if key.algorithm == algorithm and key.retired_at is None)

    def verifying(self, kid: object) -> SigningKey | None:
        return next((key for key in self.keys if key.kid == kid), None)

    def rotated(self, *, now: float, keep_seconds: float) -> SigningKeys:
        """New keys sign from now on. The old ones verify for `keep_seconds`: as long as a token they signed may live.

        Takes up to a second (an RSA key is made); call it off the event loop.
        """
        known = self.kept(now=now, keep_seconds=keep_seconds).keys
        retired = tuple(key if key.retired_at is not None else replace(key, retired_at=now) for key in known)
        return SigningKeys((*new_keys().keys, *retired))

    def kept(self, *, now: float, keep_seconds: float) -> SigningKeys:
        """Without the keys whose last token must have expired."""
        return SigningKeys(tuple(k for k in self.keys if k.retired_at is None or now < k.retired_at + keep_seconds))

    def document(self) -> dict[str, object]:
        """The JWK Set (RFC 7517 section 5), public halves only."""
        return {"keys": [key.public() for key in self.keys]}


def new_keys() -> SigningKeys:
    """Fresh keys, one for each algorithm. Takes up to a second; call it off the event loop."""
    return SigningKeys(
        (SigningKey("RS256", RSAKey.generate_key(2048)), SigningKey("ES256", ECKey.generate_key("P-256")))
    )


def dump_keys(keys: SigningKeys) -> bytes:
    """The keys with their private halves, for a file that only the owner reads."""
    return json.dumps({"keys": [{"jwk": k.private(), "retired_at": k.retired_at} for k in keys.keys]}).encode("ascii")


def load_keys(document: bytes) -> SigningKeys:
    """What `dump_keys` wrote. Raises ValueError where it is anything else."""
    try:
        entries = json.loads(document)["keys"]
        keys = SigningKeys(tuple(_load_key(entry["jwk"], entry["retired_at"]) for entry in entries))
    except (ValueError, KeyError, TypeError, JoseError) as error:
        raise ValueError("the file of signing keys is damaged") from error
    if any(all(k.algorithm != a or k.retired_at is not None for k in keys.keys) for a in ALGORITHMS):
        raise ValueError("the file of signing keys lacks a key that signs")
    return keys


def _load_key(jwk: dict[str, str | list[str]], retired_at: float | None) -> SigningKey:
    algorithm = cast("Algorithm", jwk["alg"])
    key = RSAKey.import_key(jwk) if algorithm == "RS256" else ECKey.import_key(jwk)
    if algorithm not in ALGORITHMS or not key.is_private or not isinstance(retired_at, int | float | None):
        raise ValueError("not a signing key")
    return SigningKey(algorithm, key, retired_at)
