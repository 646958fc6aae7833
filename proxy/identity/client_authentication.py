"""How saltgate proves at an issuer which client it is (RFC 6749 section 2.3.1, RFC 7523 section 2.2)."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol
from urllib.parse import quote_plus

from authlib.common.security import generate_token  # type: ignore[import-untyped]
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from config.faults import Fault
from config.settings import Introspection, Settings

ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
ASSERTION_SECONDS: Final = 60

PrivateKey = RSAKey | ECKey | OKPKey


@dataclass(frozen=True, slots=True)
class Proof:
    """What one request carries of it, in its header and in its form. For one request only."""

    headers: Mapping[str, str] = field(repr=False)
    form: Mapping[str, str] = field(repr=False)


class ClientAuthentication(Protocol):
    def proof(self) -> Proof: ...


def client_authentication(settings: Introspection, *, issuer: str, clock: Callable[[], float]) -> ClientAuthentication:
    """By the client's own settings. Raises ValueError for a key that does not fit: see `faulty_client_keys`."""
    if settings.client_auth == "private_key_jwt":
        return _PrivateKeyJwt(settings, private_key(settings), issuer, clock)
    secret = settings.client_secret.value.decode("ascii") if settings.client_secret is not None else ""
    if settings.client_auth == "client_secret_post":
        return _Unchanging(Proof({}, {"client_id": settings.client_id, "client_secret": secret}))
    # Each of the two is encoded before they are joined: RFC 6749 section 2.3.1.
    pair = f"{quote_plus(settings.client_id)}:{quote_plus(secret)}"
    return _Unchanging(Proof({"Authorization": f"Basic {b64encode(pair.encode('ascii')).decode('ascii')}"}, {}))


def faulty_client_keys(settings: Settings) -> Iterator[Fault]:
    """The private keys that cannot sign with their algorithm, tried before anything is served."""
    for number, issuer in enumerate(settings.issuers):
        if issuer.introspection is not None and issuer.introspection.client_auth == "private_key_jwt":
            try:
                private_key(issuer.introspection)
            except ValueError as error:
                yield Fault(f"issuers.{number}.introspection.client_key", str(error))


def private_key(settings: Introspection) -> PrivateKey:
    """The key that signs. Raises ValueError where it cannot."""
    algorithm = settings.client_key_algorithm
    kind: type[PrivateKey] = _KINDS[algorithm[:2]]
    try:
        key = kind.import_key(settings.client_key.value if settings.client_key is not None else b"")
        _signed({"alg": algorithm}, {}, key)
    except (JoseError, ValueError, TypeError) as error:
        raise ValueError(f"is no unencrypted PEM private key that signs with {algorithm}") from error
    return key


_KINDS: Final[Mapping[str, type[PrivateKey]]] = {"RS": RSAKey, "PS": RSAKey, "ES": ECKey, "Ed": OKPKey}


@dataclass(frozen=True, slots=True)
class _Unchanging:
    _proof: Proof

    def proof(self) -> Proof:
        return self._proof


@dataclass(frozen=True, slots=True)
class _PrivateKeyJwt:
    settings: Introspection
    key: PrivateKey = field(repr=False)
    issuer: str
    clock: Callable[[], float]

    def proof(self) -> Proof:
        """An assertion for the issuer itself, so that no other one could use it, and never twice the same."""
        now = int(self.clock())
        header = {"alg": self.settings.client_key_algorithm, "kid": self.settings.client_key_id}
        claims = {
            "iss": self.settings.client_id,
            "sub": self.settings.client_id,
            "aud": self.issuer,
            "iat": now,
            "exp": now + ASSERTION_SECONDS,
            "jti": generate_token(32),
        }
        assertion = _signed({name: value for name, value in header.items() if value is not None}, claims, self.key)
        form = {"client_assertion_type": ASSERTION_TYPE, "client_assertion": assertion}
        return Proof({}, {"client_id": self.settings.client_id} | form)


def _signed(header: dict[str, str], claims: Mapping[str, object], key: PrivateKey) -> str:
    return jwt.encode(header, dict(claims), key, registry=JWSRegistry(algorithms=[header["alg"]]))
