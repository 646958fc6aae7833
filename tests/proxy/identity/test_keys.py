"""Which keys of an issuer are used, and for what."""

from __future__ import annotations

import json
import warnings

import pytest
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from proxy.identity.keys import KeysRefusedError, NoSuchKeyError, key_set, verification_key
from proxy.identity.reasons import Reason
from proxy.identity.token import compact_token
from proxy.refusals import InvalidToken
from tests.parts.tokens import ABSENT, TokenMint, base64url, signing_key
from tests.proxy.identity.judging import judged, mint

ALGORITHMS = ("RS256", "PS256", "ES256", "ES384", "EdDSA", "Ed25519")


def document(*keys: object) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


def verifies(m: TokenMint, *jwks: object, algorithm: str | None = None, **header: object) -> bool:
    """Whether a token of the mint is verified by exactly these published keys."""
    token = compact_token(m.token(algorithm=algorithm, header=header))
    try:
        key_set(document(*jwks)).verified(token, algorithms=ALGORITHMS)
    except (NoSuchKeyError, KeysRefusedError):
        return False
    return True


def test_a_key_verifies_its_issuers_token() -> None:
    m = mint()
    assert verifies(m, m.key().jwk())


@pytest.mark.parametrize(
    "broken",
    [
        None,
        "key",
        {},
        {"kty": "RSA", "kid": "x"},
        {"kty": "RSA", "kid": "x", "n": "AQAB", "e": "AQAB"},
        {"kty": "RSA", "kid": "x", "n": 5, "e": "AQAB"},
        {"kty": "RSA", "kid": "x", "n": "A" * 400 + "=", "e": "AQAB"},
        {"kty": "RSA", "kid": "x", "n": "_" * 342, "e": "AA"},
        {"kty": "EC", "kid": "x", "crv": "P-256", "x": "AAAA", "y": "AAAA"},
        {"kty": "EC", "kid": "x", "crv": "P-257", "x": "AAAA", "y": "AAAA"},
        {"kty": "EC", "kid": "x", "crv": ["P-256"]},
        {"kty": "OKP", "kid": "x", "crv": "Ed25519", "x": "AAAA"},
        {"kty": "OKP", "kid": "x", "crv": "X25519", "x": "A" * 43},
        {"kty": "PQ", "kid": "x"},
        {"kty": ["RSA"], "kid": "x"},
    ],
)
def test_a_broken_key_does_not_take_the_good_ones_with_it(broken: object) -> None:
    m = mint()
    assert verifies(m, broken, m.key().jwk(), broken)
    with pytest.raises(KeysRefusedError):
        key_set(document(broken))


@pytest.mark.parametrize(
    "change",
    [
        {"use": "enc"},
        {"use": 5},
        {"key_ops": ["sign"]},
        {"key_ops": "verify"},
        {"key_ops": []},
        {"alg": "RSA-OAEP"},
        {"alg": "PS256"},
        {"alg": "HS256"},
        {"alg": ["RS256"]},
        {"alg": ""},
        {"kid": "other"},
        {"kid": 1},
        {"kid": None},
        {"kty": "EC"},
        {"kty": "oct"},
        {"d": "AQAB"},
    ],
)
def test_a_key_meant_for_something_else_verifies_nothing(change: dict[str, object]) -> None:
    m = mint()
    assert not verifies(m, {**m.key().jwk(), **change})


@pytest.mark.parametrize("change", [{"key_ops": ["verify"]}, {"use": "sig"}, {"x5t": 7, "x5c": "junk", "unheard": {}}])
def test_members_that_forbid_nothing_change_nothing(change: dict[str, object]) -> None:
    m = mint()
    assert verifies(m, {**m.key().jwk(), **change})


def test_a_key_without_alg_verifies_what_its_type_can() -> None:
    m = mint("RS256", "PS256")
    rsa = {name: value for name, value in m.key("RS256").jwk().items() if name != "alg"}
    pss = {name: value for name, value in m.key("PS256").jwk().items() if name != "alg"}
    assert verifies(m, rsa, algorithm="RS256")
    assert verifies(m, pss, algorithm="PS256")


def test_a_symmetric_key_is_never_a_key() -> None:
    secret = {**OctKey.generate_key(256).as_dict(private=True), "kid": "x", "alg": "HS256", "use": "sig"}
    with pytest.raises(KeysRefusedError):
        key_set(document(secret))


def test_an_rsa_key_needs_2048_bits() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weak = RSAKey.generate_key(1024).as_dict(private=False)
    with pytest.raises(KeysRefusedError):
        key_set(document({**weak, "kid": "x"}))


def test_a_leading_zero_does_not_make_a_modulus_longer() -> None:
    with pytest.raises(KeysRefusedError):
        key_set(document({"kty": "RSA", "kid": "x", "n": "AAAA" * 100 + "AQAB", "e": "AQAB"}))


def test_a_published_private_key_is_not_trusted() -> None:
    for key in (RSAKey.generate_key(2048), ECKey.generate_key("P-256"), OKPKey.generate_key("Ed25519")):
        with pytest.raises(KeysRefusedError):
            key_set(document({**key.as_dict(private=True), "kid": "x"}))


def test_the_same_kid_on_keys_of_two_types_is_told_apart_by_alg() -> None:
    m = mint("RS256", "ES256")
    jwks = [{**key.jwk(), "kid": "same"} for key in m.keys]
    assert verifies(m, *jwks, algorithm="RS256", kid="same")
    assert verifies(m, *jwks, algorithm="ES256", kid="same")


def test_two_keys_that_fit_are_one_too_many() -> None:
    m = mint()
    other = {**signing_key("RS256", m.key().key_id, number=5).jwk()}
    with pytest.raises(InvalidToken) as caught:
        verifies(m, m.key().jwk(), other)
    assert caught.value.reason == Reason.AMBIGUOUS_KEY.value


def test_the_same_key_published_twice_is_one_key() -> None:
    m = mint()
    assert verifies(m, m.key().jwk(), m.key().jwk())


def test_a_token_without_kid_is_verified_by_the_only_key_that_fits() -> None:
    m = mint("RS256", "ES256")
    assert verifies(m, *(key.jwk() for key in m.keys), kid=ABSENT)


def test_a_token_without_kid_is_not_tried_with_one_key_after_the_other() -> None:
    m = mint()
    with pytest.raises(InvalidToken) as caught:
        verifies(m, m.key().jwk(), signing_key("RS256", "other", number=5).jwk(), kid=ABSENT)
    assert caught.value.reason == Reason.AMBIGUOUS_KEY.value


def test_a_token_with_kid_is_not_verified_by_a_key_without() -> None:
    m = mint()
    assert not verifies(m, {name: value for name, value in m.key().jwk().items() if name != "kid"})


@pytest.mark.parametrize("names", [("EdDSA", "Ed25519"), ("Ed25519", "EdDSA")])
def test_both_names_of_ed25519_mean_the_same(names: tuple[str, str]) -> None:
    m = mint(names[0])
    assert verifies(m, {**m.key().jwk(), "alg": names[1]})
    assert judged(m.token(), m, algorithms=(names[1],)).subject == "u-alice-0001"


def test_a_p_384_key_does_not_verify_es256() -> None:
    m = mint("ES384")
    assert not verifies(m, {**m.key().jwk(), "alg": "ES256"})


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"keys":{}}', b'{"keys":"x"}', b'{"keys":[]}', b"null"])
def test_what_is_no_jwk_set_with_a_usable_key_is_refused(data: bytes) -> None:
    with pytest.raises(KeysRefusedError):
        key_set(data)


def test_more_than_100_keys_are_refused() -> None:
    jwk = mint().key().jwk()
    assert key_set(document(*[jwk] * 100)).skipped == 99
    with pytest.raises(KeysRefusedError, match="100"):
        key_set(document(*[jwk] * 101))


def test_the_order_of_the_keys_makes_no_other_set() -> None:
    jwks = [key.jwk() for key in mint("RS256", "ES256").keys]
    assert key_set(document(*jwks)) == key_set(document(*reversed(jwks)))
    assert key_set(document(*jwks)) != key_set(document(jwks[0]))


FIELD = 2**255 - 19
CURVE = -121665 * pow(121666, -1, FIELD) % FIELD
Point = tuple[int, int]


def added(a: Point, b: Point) -> Point:
    """The sum of two points of edwards25519 (RFC 8032 section 5.1)."""
    product = CURVE * a[0] * b[0] * a[1] * b[1]
    x = (a[0] * b[1] + b[0] * a[1]) * pow(1 + product, -1, FIELD)
    y = (a[1] * b[1] + a[0] * b[0]) * pow(1 - product, -1, FIELD)
    return x % FIELD, y % FIELD


def point_of_order_8() -> Point:
    """Any point, times the order of the large group: of these, one whose multiples are eight."""
    order, y = 2**252 + 27742317777372353535851937790883648493, 2
    while True:
        y += 1
        square = (y * y - 1) * pow(CURVE * y * y + 1, -1, FIELD) % FIELD
        x = pow(square, (FIELD + 3) // 8, FIELD)
        x = x if x * x % FIELD == square else x * pow(2, (FIELD - 1) // 4, FIELD) % FIELD
        if x * x % FIELD != square:
            continue
        point, total = (x, y), (0, 1)
        for bit in f"{order:b}":
            total = added(total, total)
            total = added(total, point) if bit == "1" else total
        if added(added(total, total), added(total, total)) != (0, 1):
            return total


def weak_points() -> list[bytes]:
    """Every spelling of every point under which a signature says nothing of who made it."""
    step, point = point_of_order_8(), (0, 1)
    ys = set()
    for _ in range(8):
        point = added(point, step)
        ys.add(point[1])
    spelt = [y + more for y in ys for more in (0, FIELD) if y + more < 2**255]
    return [(y | sign << 255).to_bytes(32, "little") for y in spelt for sign in (0, 1)]


def test_an_ed25519_key_that_anybody_could_sign_with_is_none() -> None:
    """OpenSSL takes points of small order for keys: the signature of `forged` in test_dpop needs no private one."""
    points = weak_points()
    assert len(points) == 14
    assert (1).to_bytes(32, "little") in points
    for point in points:
        assert verification_key({"kty": "OKP", "crv": "Ed25519", "x": base64url(point)}) is None


def test_an_ed25519_key_has_one_spelling() -> None:
    for y in (FIELD + 3, FIELD + 4, 2**255 - 1):
        for sign in (0, 1):
            x = base64url((y | sign << 255).to_bytes(32, "little"))
            assert verification_key({"kty": "OKP", "crv": "Ed25519", "x": x}) is None
