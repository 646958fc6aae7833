"""How saltgate proves which client it is, and that nothing of it is shown."""

from __future__ import annotations

import json
from base64 import b64decode, urlsafe_b64decode
from dataclasses import replace

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from config.secret import Secret
from config.settings import Directory, Engine, Introspection, Isolation, IsolationKey, Issuer, Settings
from proxy.identity.client_authentication import PrivateKey, client_authentication, faulty_client_keys

NOW = 1_900_000_000.0
ISSUER = "https://sso.example.test"


def by_secret(secret: bytes, method: str, client_id: str = "saltgate") -> Introspection:
    return Introspection(client_id=client_id, client_auth=method, client_secret=Secret(secret, "test"))  # type: ignore[arg-type]


def by_key(key: PrivateKey, algorithm: str, key_id: str | None = None) -> Introspection:
    return Introspection(
        client_id="saltgate",
        client_auth="private_key_jwt",
        client_key=Secret(key.as_pem(private=True), "test"),
        client_key_algorithm=algorithm,
        client_key_id=key_id,
    )


def test_a_secret_in_the_header_is_encoded_before_it_is_joined() -> None:
    settings = by_secret(b"p:a%ss +/=w0rd", "client_secret_basic", "salt:gate")
    proof = client_authentication(settings, issuer=ISSUER, clock=lambda: NOW).proof()
    scheme, _, pair = proof.headers["Authorization"].partition(" ")
    assert (scheme, b64decode(pair)) == ("Basic", b"salt%3Agate:p%3Aa%25ss+%2B%2F%3Dw0rd")
    assert not proof.form


def test_a_secret_in_the_body_is_there_as_it_is_and_in_no_header() -> None:
    settings = by_secret(b"p:a%ss", "client_secret_post")
    proof = client_authentication(settings, issuer=ISSUER, clock=lambda: NOW).proof()
    assert proof.form == {"client_id": "saltgate", "client_secret": "p:a%ss"}
    assert not proof.headers


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (ECKey.generate_key("P-256"), "ES256"),
        (ECKey.generate_key("P-384"), "ES384"),
        (RSAKey.generate_key(2048), "RS256"),
        (RSAKey.generate_key(2048), "PS256"),
        (OKPKey.generate_key("Ed25519"), "Ed25519"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_assertion_is_for_this_issuer_soon_over_and_never_twice_the_same(key: PrivateKey, algorithm: str) -> None:
    client = client_authentication(by_key(key, algorithm, "k1"), issuer=ISSUER, clock=lambda: NOW)
    proofs = [client.proof() for _ in range(2)]
    found = [jwt.decode(p.form["client_assertion"], key, registry=JWSRegistry(algorithms=[algorithm])) for p in proofs]
    for proof, token in zip(proofs, found, strict=True):
        assert proof.form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        assert (proof.form["client_id"], proof.headers) == ("saltgate", {})
        assert (token.header["alg"], token.header["kid"]) == (algorithm, "k1")
        assert (token.claims["iss"], token.claims["sub"], token.claims["aud"]) == ("saltgate", "saltgate", ISSUER)
        assert (token.claims["iat"], token.claims["exp"]) == (NOW, NOW + 60)
    assert found[0].claims["jti"] != found[1].claims["jti"]


def test_without_a_key_id_none_is_sent() -> None:
    key = ECKey.generate_key("P-256")
    proof = client_authentication(by_key(key, "ES256"), issuer=ISSUER, clock=lambda: NOW).proof()
    header = proof.form["client_assertion"].partition(".")[0]
    assert "kid" not in json.loads(urlsafe_b64decode(header + "=="))


def test_nothing_of_it_is_shown() -> None:
    basic = client_authentication(by_secret(b"password", "client_secret_basic"), issuer=ISSUER, clock=lambda: NOW)
    post = client_authentication(by_secret(b"password", "client_secret_post"), issuer=ISSUER, clock=lambda: NOW)
    key = client_authentication(by_key(ECKey.generate_key("P-256"), "ES256"), issuer=ISSUER, clock=lambda: NOW)
    for client in (basic, post, key):
        for shown in (repr(client), repr(client.proof())):
            assert "password" not in shown
            assert "Basic" not in shown
            assert "eyJh" not in shown
            assert "Key object" not in shown


P256 = ECKey.generate_key("P-256")


@pytest.mark.parametrize(
    ("pem", "algorithm"),
    [
        (b"garbage", "ES256"),
        (P256.as_pem(private=False), "ES256"),
        (P256.as_pem(private=True, password="x"), "ES256"),
        (P256.as_pem(private=True), "ES384"),
        (P256.as_pem(private=True), "RS256"),
        (RSAKey.generate_key(2048).as_pem(private=True), "ES256"),
        (OKPKey.generate_key("X25519").as_pem(private=True), "Ed25519"),
    ],
    ids=range(7),
)
def test_a_key_that_cannot_sign_is_a_fault_before_anything_is_served(pem: bytes, algorithm: str) -> None:
    section = replace(by_key(P256, algorithm), client_key=Secret(pem, "test"))
    (fault,) = faulty_client_keys(_settings(section))
    assert fault.key == "issuers.0.introspection.client_key"
    assert algorithm in fault.message
    assert list(faulty_client_keys(_settings(by_key(P256, "ES256")))) == []
    assert list(faulty_client_keys(_settings(by_secret(b"x", "client_secret_basic")))) == []


def _settings(section: Introspection) -> Settings:
    return Settings(
        engines=(Engine(name="main", urls=("http://127.0.0.1:8000",)),),
        issuers=(Issuer(issuer=ISSUER, audiences=("saltgate",), introspection=section),),
        directory=Directory(redis="redis://127.0.0.1:6379/0"),
        isolation=Isolation(keys=(IsolationKey(id="k1", secret=Secret(b"x" * 32, "test")),)),
    )
