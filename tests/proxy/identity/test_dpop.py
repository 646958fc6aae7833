"""DPoP proofs (rule 74): one right way to make one, and every way to make it wrong."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwk import ECKey, OKPKey, RSAKey

from proxy.identity.dpop import ACCEPTED_SECONDS, Proof, checked_proof
from proxy.identity.proof_reasons import ProofReason, invalid_proof
from proxy.refusals import InvalidProof
from tests.parts.dpop import DpopClient
from tests.parts.tokens import ABSENT, SigningKey, base64url, signing_key
from tests.proxy.identity.judging import NOW, fixed_clock

URL = "https://llm.example.com/v1/chat/completions"
TOKEN = "eyJh.eyJi.c2ln"
CLIENT = DpopClient(clock=fixed_clock)
OTHER = DpopClient(number=71, clock=fixed_clock)


def check(*lines: str, key: str = CLIENT.thumbprint, token: str = TOKEN, method: str = "POST") -> Proof:
    return checked_proof(lines, method=method, target=URL, token=token, key=key, now=NOW)


@pytest.mark.parametrize("algorithm", ["ES256", "Ed25519", "EdDSA"])
def test_a_right_proof_is_accepted(algorithm: str) -> None:
    client = DpopClient(algorithm, clock=fixed_clock)
    proof = check(client.proof(TOKEN, URL), key=client.thumbprint)
    assert proof.issued_at == NOW


@pytest.mark.parametrize(
    "claims",
    [
        {"iat": NOW - ACCEPTED_SECONDS},
        {"iat": NOW + ACCEPTED_SECONDS},
        {"iat": NOW - 0.5},
        {"htu": URL + "?stream=true"},
        {"htu": URL + "#top"},
        {"htu": "HTTPS://LLM.example.com:443/v1/chat/%63ompletions"},
        {"nonce": "of-somebody-else"},
        {"aud": "anything", "exp": 1, "more": {"deep": [1]}},
        {"jti": "é" * 100},
    ],
    ids=str,
)
def test_what_the_standard_allows_is_accepted(claims: dict[str, object]) -> None:
    check(CLIENT.proof(TOKEN, URL, claims=claims))


def test_the_key_may_have_a_name_and_a_use_beside_it() -> None:
    jwk = CLIENT.jwk | {"kid": "mine", "use": "sig", "alg": "ES256", "key_ops": ["verify"]}
    check(CLIENT.proof(TOKEN, URL, header={"jwk": jwk, "kid": "mine"}))


def test_no_part_of_a_proof_is_in_its_repr() -> None:
    assert repr(check(CLIENT.proof(TOKEN, URL))) == f"Proof(issued_at={NOW})"


def test_a_proof_has_one_name_by_its_key_and_id() -> None:
    first = check(CLIENT.proof(TOKEN, URL, jti="a"))
    assert check(CLIENT.proof(TOKEN, URL, jti="a", iat=NOW - 1)).name == first.name
    assert check(CLIENT.proof(TOKEN, URL, jti="b")).name != first.name
    assert check(OTHER.proof(TOKEN, URL, jti="a"), key=OTHER.thumbprint).name != first.name
    assert set(first.name) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    assert len(first.name) == 43


def claims(reason: ProofReason, **more: object) -> object:
    return pytest.param(reason, lambda: CLIENT.proof(TOKEN, URL, claims=more), id=f"{reason.value} {' '.join(more)}")


def header(reason: ProofReason, **more: object) -> object:
    def made() -> str:
        return CLIENT.proof(TOKEN, URL, header=more)

    return pytest.param(reason, made, id=f"{reason.value} {' '.join(more)}")


def other(what: str, reason: ProofReason, make: Callable[[], str]) -> object:
    return pytest.param(reason, make, id=f"{reason.value} {what}")


RIGHT = CLIENT.proof(TOKEN, URL)
PRIVATE = dict(CLIENT.key.key.as_dict(private=True))


def parts(proof: str, **replaced: str) -> str:
    names = ("header", "payload", "signature")
    return ".".join(replaced.get(name, part) for name, part in zip(names, proof.split("."), strict=True))


def flipped(proof: str) -> str:
    signature = proof.rpartition(".")[2]
    return parts(proof, signature=("A" if signature[0] != "A" else "B") + signature[1:])


def without_signature() -> str:
    return CLIENT.proof(TOKEN, URL, header={"alg": "none"}).rpartition(".")[0] + "."


def keyed_with_the_public_key() -> str:
    """HMAC under the public key's own text, which everybody has."""
    return CLIENT.proof(TOKEN, URL, header={"alg": "HS256"})


def by_rsa() -> str:
    return CLIENT.proof(
        TOKEN,
        URL,
        header={"alg": "RS256", "jwk": RSA.key.as_dict(private=False)},
        signed_by=RSA,
    )


RSA = SigningKey("rsa", "RS256", RSAKey.generate_key(2048))
P384 = signing_key("ES384", "p384", number=70)


WRONG = [
    # The header
    header(ProofReason.HEADER, typ="JWT"),
    header(ProofReason.HEADER, typ="at+jwt"),
    header(ProofReason.HEADER, typ="DPOP+JWT"),
    header(ProofReason.HEADER, typ=ABSENT),
    header(ProofReason.HEADER, typ=["dpop+jwt"]),
    header(ProofReason.HEADER, typ=None),
    header(ProofReason.HEADER, jku="https://evil.example/keys"),
    header(ProofReason.HEADER, x5u="https://evil.example/chain"),
    header(ProofReason.HEADER, x5c=["MIIB"]),
    header(ProofReason.HEADER, x5t="AAAA"),
    header(ProofReason.HEADER, **{"x5t#S256": "AAAA"}),
    header(ProofReason.FORM, crit=["exp"]),
    header(ProofReason.FORM, b64=False),
    header(ProofReason.FORM, cty="JWT"),
    header(ProofReason.FORM, enc="A128GCM"),
    header(ProofReason.FORM, padding="x" * 4096),
    # The algorithm
    header(ProofReason.ALGORITHM, alg="none"),
    header(ProofReason.ALGORITHM, alg="HS256"),
    header(ProofReason.ALGORITHM, alg="RS256"),
    header(ProofReason.ALGORITHM, alg="ES384"),
    header(ProofReason.ALGORITHM, alg="es256"),
    header(ProofReason.ALGORITHM, alg=["ES256"]),
    header(ProofReason.ALGORITHM, alg=None),
    header(ProofReason.ALGORITHM, alg=ABSENT),
    other("an RSA key, all else right", ProofReason.ALGORITHM, by_rsa),
    other("HMAC", ProofReason.ALGORITHM, keyed_with_the_public_key),
    other("no signature", ProofReason.FORM, without_signature),
    # The key
    header(ProofReason.KEY, jwk=ABSENT),
    header(ProofReason.KEY, jwk=None),
    header(ProofReason.KEY, jwk="https://evil.example/key"),
    header(ProofReason.KEY, jwk=[CLIENT.jwk]),
    header(ProofReason.KEY, jwk={}),
    header(ProofReason.KEY, jwk={"keys": [CLIENT.jwk]}),
    header(ProofReason.KEY, jwk=PRIVATE),
    header(ProofReason.KEY, jwk=CLIENT.jwk | {"d": ""}),
    header(ProofReason.KEY, jwk=CLIENT.jwk | {"k": "AAAA"}),
    header(ProofReason.KEY, jwk=CLIENT.jwk | {"p": "AAAA"}),
    header(ProofReason.KEY, jwk={"kty": "oct", "alg": "HS256"}),
    header(ProofReason.KEY, jwk=CLIENT.jwk | {"x": "AAAA"}),
    header(ProofReason.KEY, jwk=CLIENT.jwk | {"y": CLIENT.jwk["x"]}),
    header(ProofReason.KEY, jwk=CLIENT.jwk | {"crv": "P-384"}),
    header(ProofReason.KEY, jwk=CLIENT.jwk | {"kty": "RSA"}),
    header(ProofReason.KEY, jwk=CLIENT.jwk | {"use": "enc"}),
    header(ProofReason.KEY, jwk=CLIENT.jwk | {"alg": "ES384"}),
    header(ProofReason.KEY, jwk=P384.key.as_dict(private=False)),
    header(ProofReason.KEY, jwk=signing_key("Ed25519", "ed", number=70).key.as_dict(private=False)),
    # The signature
    header(ProofReason.SIGNATURE, jwk=OTHER.jwk),
    other("of another key", ProofReason.SIGNATURE, lambda: CLIENT.proof(TOKEN, URL, signed_by=OTHER.key)),
    other("changed", ProofReason.SIGNATURE, lambda: flipped(RIGHT)),
    other("cut", ProofReason.SIGNATURE, lambda: parts(RIGHT, signature="AAAA")),
    other(
        "of other claims", ProofReason.SIGNATURE, lambda: parts(RIGHT, payload=OTHER.proof(TOKEN, URL).split(".")[1])
    ),
    # The request
    claims(ProofReason.METHOD, htm="GET"),
    claims(ProofReason.METHOD, htm="post"),
    claims(ProofReason.METHOD, htm=ABSENT),
    claims(ProofReason.METHOD, htm=["POST"]),
    claims(ProofReason.METHOD, htm=None),
    claims(ProofReason.TARGET, htu="http://llm.example.com/v1/chat/completions"),
    claims(ProofReason.TARGET, htu="https://llm.example.com/v1/responses"),
    claims(ProofReason.TARGET, htu="https://evil.example/v1/chat/completions"),
    claims(ProofReason.TARGET, htu="https://llm.example.com:8443/v1/chat/completions"),
    claims(ProofReason.TARGET, htu="/v1/chat/completions"),
    claims(ProofReason.TARGET, htu=""),
    claims(ProofReason.TARGET, htu=ABSENT),
    claims(ProofReason.TARGET, htu=[URL]),
    # The time
    claims(ProofReason.TIME, iat=NOW - ACCEPTED_SECONDS - 1),
    claims(ProofReason.TIME, iat=NOW + ACCEPTED_SECONDS + 1),
    claims(ProofReason.TIME, iat=0),
    claims(ProofReason.TIME, iat=10**400),
    claims(ProofReason.TIME, iat=-(10**400)),
    claims(ProofReason.TIME, iat=str(NOW)),
    claims(ProofReason.TIME, iat=True),
    claims(ProofReason.TIME, iat=None),
    claims(ProofReason.TIME, iat=ABSENT),
    claims(ProofReason.FORM, iat=float("nan")),
    claims(ProofReason.FORM, iat=float("inf")),
    # The token
    claims(ProofReason.TOKEN, ath=ABSENT),
    claims(ProofReason.TOKEN, ath=""),
    claims(ProofReason.TOKEN, ath=TOKEN),
    claims(ProofReason.TOKEN, ath=None),
    claims(ProofReason.TOKEN, ath="é"),
    other("for another token", ProofReason.TOKEN, lambda: CLIENT.proof("eyJh.eyJj.c2ln", URL)),
    other("for the token endpoint", ProofReason.TOKEN, lambda: CLIENT.proof(TOKEN, URL, ath=ABSENT, nonce="n")),
    # The id
    claims(ProofReason.ID, jti=ABSENT),
    claims(ProofReason.ID, jti=""),
    claims(ProofReason.ID, jti=7),
    claims(ProofReason.ID, jti=None),
    claims(ProofReason.ID, jti="x" * 513),
    # The holder
    other("of another client", ProofReason.OTHER_KEY, lambda: OTHER.proof(TOKEN, URL)),
    # The form
    other("empty", ProofReason.FORM, lambda: ""),
    other("two in one line", ProofReason.FORM, lambda: f"{RIGHT}, {RIGHT}"),
    other("in quotes", ProofReason.FORM, lambda: f'"{RIGHT}"'),
    other("with a space", ProofReason.FORM, lambda: f" {RIGHT}"),
    other("padded", ProofReason.FORM, lambda: f"{RIGHT}=="),
    other("no ASCII", ProofReason.FORM, lambda: RIGHT + "\udc80"),
    other("encrypted", ProofReason.FORM, lambda: "a.b.c.d.e"),
    other("too long", ProofReason.FORM, lambda: CLIENT.proof(TOKEN, URL, more="x" * 4096)),
    other("a payload that is a list", ProofReason.FORM, lambda: parts(RIGHT, payload=base64url(b"[]"))),
    other(
        "a member twice",
        ProofReason.FORM,
        lambda: parts(RIGHT, payload=base64url(json.dumps({"htm": "POST"}).encode()[:-1] + b',"htm":"GET"}')),
    ),
    other("nested deeply", ProofReason.FORM, lambda: parts(RIGHT, payload=base64url(b"[" * 2000 + b"]" * 2000))),
]


@pytest.mark.parametrize(("reason", "make"), WRONG)
def test_a_wrong_proof_is_refused(reason: ProofReason, make: Callable[[], str]) -> None:
    with pytest.raises(InvalidProof) as caught:
        check(make())
    assert caught.value.reason == reason.value


@pytest.mark.parametrize(
    ("lines", "reason"),
    [((), ProofReason.MISSING), ((RIGHT, RIGHT), ProofReason.SEVERAL), ((RIGHT, ""), ProofReason.SEVERAL)],
)
def test_there_is_exactly_one_proof(lines: Sequence[str], reason: ProofReason) -> None:
    with pytest.raises(InvalidProof) as caught:
        check(*lines)
    assert caught.value.reason == reason.value


def test_a_key_on_no_curve_is_refused() -> None:
    """A point off the curve would let some signatures pass under a weak group."""
    key = ECKey.generate_key("P-256").as_dict(private=False)
    with pytest.raises(InvalidProof):
        check(CLIENT.proof(TOKEN, URL, header={"jwk": key | {"y": base64url(b"\1" * 32)}}))


def test_the_same_key_written_otherwise_is_another_key() -> None:
    """A leading zero byte gives the same number, and another thumbprint: the token is not bound to that."""
    x = str(CLIENT.jwk["x"])
    longer = base64url(b"\0" + _decoded(x))
    with pytest.raises(InvalidProof):
        check(CLIENT.proof(TOKEN, URL, header={"jwk": CLIENT.jwk | {"x": longer}}))


@pytest.mark.parametrize("reason", ProofReason)
def test_every_reason_tells_what_to_do_and_nothing_of_the_proof(reason: ProofReason) -> None:
    refusal = invalid_proof(reason)
    assert refusal.reason == reason.value
    assert any(word in refusal.message for word in ("Send", "Check", "Have"))


def test_no_holder_can_tell_a_stolen_token_from_a_forged_proof() -> None:
    alike = (ProofReason.SIGNATURE, ProofReason.TOKEN, ProofReason.OTHER_KEY)
    assert len({invalid_proof(reason).message for reason in alike}) == 1


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
MEMBERS = st.sampled_from(["typ", "alg", "jwk", "kid", "crv", "kty", "x", "y", "use", "key_ops"])


@given(
    header=st.dictionaries(MEMBERS, JSON_VALUES, max_size=3),
    jwk=st.dictionaries(MEMBERS, JSON_VALUES, max_size=3),
    more=st.dictionaries(st.sampled_from(["htm", "htu", "iat", "jti", "ath"]), JSON_VALUES, max_size=3),
)
def test_whatever_is_signed_is_accepted_or_refused_and_never_a_fault(
    header: dict[str, object], jwk: dict[str, object], more: dict[str, object]
) -> None:
    with suppress(InvalidProof):
        check(CLIENT.proof(TOKEN, URL, header={"jwk": CLIENT.jwk | jwk} | header, claims=more))


@given(text=st.text(max_size=200) | st.from_regex(r"[A-Za-z0-9_-]{1,40}\.[A-Za-z0-9_-]{1,40}\.[A-Za-z0-9_-]{1,40}"))
def test_garbage_is_refused_and_never_a_fault(text: str) -> None:
    with pytest.raises(InvalidProof):
        check(text)


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def test_a_token_bound_to_a_key_that_nobody_holds_is_nobodys() -> None:
    """Under the neutral point of the curve one signature fits every proof: whoever steals the token could use it."""
    neutral = (1).to_bytes(32, "little")
    jwk = {"kty": "OKP", "crv": "Ed25519", "x": base64url(neutral)}
    honest = DpopClient("Ed25519", clock=fixed_clock).proof(TOKEN, URL, header={"jwk": jwk})
    forged = honest.rpartition(".")[0] + "." + base64url(neutral + bytes(32))
    thumbprint = OKPKey.import_key(dict(jwk)).thumbprint()
    with pytest.raises(InvalidProof) as refused:
        check(forged, key=thumbprint)
    assert refused.value.reason == ProofReason.KEY.value
