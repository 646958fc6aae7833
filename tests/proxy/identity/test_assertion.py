"""The assertions of a chat front end: what Open WebUI makes, and what somebody would like us to take for one."""

from __future__ import annotations

import json
import string
from base64 import urlsafe_b64decode

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from joserfc.jwk import RSAKey

from proxy.directory.model import parse_member, user
from proxy.identity.assertion import asserted
from proxy.identity.keys import ALGORITHMS
from proxy.refusals import InvalidToken
from tests.parts.assertions import SECRET, assertion, front, signed
from tests.parts.tokens import ABSENT, base64url
from tests.proxy.identity.judging import NOW, mint

FRONT = front()


def made(subject: object = "alice", **more: object) -> str:
    return assertion(subject, now=NOW, **more)  # type: ignore[arg-type]  # the members of the one below


def reason(text: str) -> str:
    with pytest.raises(InvalidToken) as refused:
        asserted(text, FRONT, now=NOW)
    assert refused.value.__cause__ is None
    assert text[:16] not in refused.value.message or not text
    return refused.value.reason


def test_an_assertion_names_one_of_the_fronts_people() -> None:
    found = asserted(made("671fa9fb-0000"), FRONT, now=NOW)
    assert (found.subject, found.expires_at) == ("front:webui/671fa9fb-0000", NOW + 300)
    assert parse_member(f"user:{found.subject}") == user(found.subject)


@pytest.mark.parametrize(
    "text",
    [
        made(header={"typ": ABSENT}),
        made(header={"typ": "application/jwt"}),
        made(header={"kid": "1", "jku": "http://127.0.0.1:1", "x": {}}),
        made(email=ABSENT, name=ABSENT, role=ABSENT),
        made(iat=NOW - 299, exp=NOW + 3600),
        made(iat=NOW + 30, nbf=NOW + 30),
        made(iat=NOW - 0.5, exp=NOW + 0.25),
    ],
)
def test_what_a_front_may_say_otherwise_changes_nothing(text: str) -> None:
    assert asserted(text, FRONT, now=NOW).subject == "front:webui/alice"


def hs(bits: int) -> str:
    return made(header={"alg": f"HS{bits}"}, digest=f"sha{bits}")


def unsigned(algorithm: str, signature: str = "AAAA") -> str:
    return f"{base64url(json.dumps({'alg': algorithm}).encode())}.{made().split('.')[1]}.{signature}"


def flipped(text: str) -> str:
    head, payload, signature = text.split(".")
    data = bytearray(urlsafe_b64decode(signature + "=" * (-len(signature) % 4)))
    data[0] ^= 1
    return f"{head}.{payload}.{base64url(bytes(data))}"


def other_tail(text: str) -> str:
    """The same bytes of the signature, spelt with other unused bits at the end."""
    alphabet = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
    return text[:-1] + alphabet[alphabet.index(text[-1]) ^ 1]


RSA = RSAKey.generate_key(2048)
PEM = RSA.as_pem(private=False)
HEADER = b'{"alg":"HS256","typ":"JWT"}'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        # Not a signed JWT at all.
        ("", "encoding"),
        ("alice", "encoding"),
        (f"Bearer {made()}", "encoding"),
        (f"{made()}, {made()}", "encrypted"),  # four dots
        (f" {made()}", "encoding"),
        (f"{made()}\n", "encoding"),
        (made() + "=", "encoding"),
        (other_tail(made()), "encoding"),
        ("a.b.c.d.e", "encrypted"),
        ("\udcff" * 8, "encoding"),
        ("é.é.é", "encoding"),
        (made(x="x" * 20_000), "too_long"),
        # The algorithm.
        (unsigned("none"), "algorithm"),
        (unsigned("None"), "algorithm"),
        (unsigned("none", ""), "encoding"),
        (made(header={"alg": "hs256"}), "algorithm"),
        (made(header={"alg": ["HS256"]}), "algorithm"),
        (made(header={"alg": ABSENT}), "algorithm"),
        (made(header={"alg": "RS256"}), "algorithm"),
        (hs(384), "algorithm"),
        (hs(512), "algorithm"),
        (mint().token(), "algorithm"),
        # Key confusion, other keys, other texts than were signed.
        (made(secret=PEM), "signature"),
        (made(secret=b""), "signature"),
        (made(secret=SECRET + b"\n"), "signature"),
        (made(secret=SECRET[:-1]), "signature"),
        (made(secret=b"another-front-ends-secret-0123456789"), "signature"),
        (made(header={"jwk": {"kty": "oct", "k": base64url(b"mine")}}, secret=b"mine"), "signature"),
        (made(header={"kid": "../../dev/null"}, secret=b""), "signature"),
        (flipped(made()), "signature"),
        (made()[:-20] + "A" * 20, "signature"),
        (made().rsplit(".", 1)[0] + ".AAAA", "signature"),
        (".".join([made("bob").split(".")[0], made("bob").split(".")[1], made().split(".")[2]]), "signature"),
        # Members that change what is read.
        (made(header={"crit": ["exp"]}), "critical_header"),
        (made(header={"crit": []}), "critical_header"),
        (made(header={"b64": False}), "critical_header"),
        (made(header={"cty": "JWT"}), "critical_header"),
        (made(header={"enc": "A256GCM"}), "critical_header"),
        (signed(b'{"alg":"HS256","alg":"HS256"}', made().encode()), "header"),
        (signed(b'["alg","HS256"]', b"{}"), "header"),
        (signed(HEADER, b'{"iss":"open-webui","sub":"alice","sub":"bob"}'), "payload"),
        (signed(HEADER, b'{"iss":"open-webui","sub":"alice","\\u0073ub":"bob"}'), "payload"),
        (signed(HEADER, b'{"iss":"open-webui","iat":NaN}'), "payload"),
        (signed(HEADER, b"[" * 5000), "payload"),
        (signed(HEADER, b"null"), "payload"),
        (made(header={"typ": "at+jwt"}), "typ"),
        (made(header={"typ": "dpop+jwt"}), "typ"),
        (made(header={"typ": "logout+jwt"}), "typ"),
        (made(header={"typ": ""}), "header"),
        (made(header={"typ": 1}), "header"),
        # Who says it, and what else it is.
        (made(iss="Open-WebUI"), "issuer"),
        (made(iss="open-webui "), "issuer"),
        (made(iss="https://sso.example.test/realms/acme"), "issuer"),
        (made(iss=["open-webui"]), "issuer"),
        (made(iss=ABSENT), "issuer"),
        (made(aud="another-service"), "payload"),
        (made(aud="saltgate"), "payload"),
        (made(aud=None), "payload"),
        (made(cnf={"jkt": "x"}), "payload"),
        (made(nonce="n"), "payload"),
        (made(events={}), "payload"),
        # When.
        (made(iat=ABSENT), "lifetime"),
        (made(exp=ABSENT), "lifetime"),
        (made(iat=True), "lifetime"),
        (made(iat=str(int(NOW))), "lifetime"),
        (made(iat=None), "lifetime"),
        (made(iat=-1), "lifetime"),
        (made(exp=10**400), "lifetime"),
        (made(exp=253_402_300_800), "lifetime"),
        (made(iat=NOW, exp=NOW), "lifetime"),
        (made(iat=NOW + 10, exp=NOW + 5), "lifetime"),
        (made(iat=NOW - 300, exp=NOW + 3600), "too_old"),
        (made(iat=NOW - 10, exp=NOW), "too_old"),
        (made(iat=NOW - 86400, exp=NOW + 86400), "too_old"),
        (made(iat=NOW + 31, exp=NOW + 300), "not_yet_valid"),
        (made(nbf=NOW + 31), "not_yet_valid"),
        (made(nbf="0"), "not_yet_valid"),
        # For whom.
        (made(ABSENT), "subject"),
        (made(""), "subject"),
        (made(None), "subject"),
        (made(7), "subject"),
        (made(["alice"]), "subject"),
        (made({"alice": 1}), "subject"),
        (made("alice\n"), "subject"),
        (made("alice\u200b"), "subject"),
        (made("\u202eecila"), "subject"),
        (made("alice\0"), "subject"),
        (made("a" * 244), "subject"),
    ],
)
def test_what_is_no_fresh_word_of_this_front_is_refused(text: str, why: str) -> None:
    assert reason(text) == f"assertion_{why}"


def test_no_access_token_can_be_checked_with_a_secret() -> None:
    assert not any(name.upper().startswith("HS") or name.lower() == "none" for name in ALGORITHMS)


@pytest.mark.parametrize("subject", ["b/c", "front:other/alice", "../other/alice", "/", "webui/alice", ":"])
def test_whatever_a_front_says_it_stays_among_its_own_people(subject: str) -> None:
    """A name has no slash: after `front:NAME/` all is the person's, so no two fronts can mean one subject."""
    assert asserted(made(subject), FRONT, now=NOW).subject == f"front:webui/{subject}"


def test_the_longest_subject_can_still_be_a_member() -> None:
    found = asserted(made("a" * 243), FRONT, now=NOW).subject
    assert len(found) == 255
    assert parse_member(f"user:{found}")


def test_the_person_may_stand_at_another_claim() -> None:
    deeper = front(subject_claim=("person", "https://acme.example/id"))  # type: ignore[arg-type]
    text = made(person={"https://acme.example/id": "a.b"})
    assert asserted(text, deeper, now=NOW).subject == "front:webui/a.b"
    with pytest.raises(InvalidToken):
        asserted(made(), deeper, now=NOW)


def test_an_assertion_ends_with_its_exp_or_its_age_whichever_is_first() -> None:
    assert asserted(made(exp=NOW + 60), FRONT, now=NOW).expires_at == NOW + 60
    assert asserted(made(exp=NOW + 3600), FRONT, now=NOW).expires_at == NOW + 300


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(
    header=st.dictionaries(st.sampled_from(["alg", "typ", "kid", "crit", "x"]), json_values),
    claims=st.dictionaries(st.sampled_from(["sub", "iss", "iat", "exp", "nbf", "aud", "cnf"]), json_values),
)
@example(header={}, claims={})
def test_whatever_stands_in_a_well_signed_assertion_it_names_a_person_or_is_refused(
    header: dict[str, object], claims: dict[str, object]
) -> None:
    try:
        found = asserted(made(header=header, **claims), FRONT, now=NOW)
    except InvalidToken:
        return
    assert found.subject.startswith("front:webui/")
    assert NOW < found.expires_at <= NOW + 330


@settings(max_examples=150, deadline=None)
@given(text=st.text(alphabet=string.printable + "\udc80é", max_size=200))
def test_any_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidToken):
        asserted(text, FRONT, now=NOW)
