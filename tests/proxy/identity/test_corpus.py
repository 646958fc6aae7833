"""The corpus: tokens as real providers issue them, and tokens that somebody would like us to take."""

from __future__ import annotations

import hmac
import json
import warnings
from base64 import urlsafe_b64decode
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from joserfc.jwk import RSAKey

from config.settings import Issuer
from proxy.identity.issuers import open_issuers
from proxy.identity.reasons import Reason
from proxy.refusals import InvalidToken, TokenExpired, Unauthenticated
from tests.parts.tokens import ABSENT, IssuerServer, SigningKey, TokenMint, base64url, signing_key
from tests.proxy.identity.judging import ISSUER, NOW, RULES, judged, mint

EXPIRED = "token_expired"


@dataclass(frozen=True)
class Wrong:
    name: str
    reason: str
    make: Callable[[TokenMint], str]
    rules: Issuer = RULES


def wrong(name: str, reason: Reason | str, make: Callable[[TokenMint], str], rules: Issuer = RULES) -> Wrong:
    return Wrong(name, reason.value if isinstance(reason, Reason) else reason, make, rules)


def claims(name: str, reason: Reason | str, rules: Issuer = RULES, /, **members: object) -> Wrong:
    """A token signed well that says something wrong."""
    return wrong(name, reason, lambda m: m.token(claims=members), rules)


def head(name: str, reason: Reason | str, /, **members: object) -> Wrong:
    """A token signed well whose header says something wrong."""
    return wrong(name, reason, lambda m: m.token(header=members), RULES)


def payload(name: str, reason: Reason | str, edit: Callable[[bytes], bytes]) -> Wrong:
    """A token whose payload is other bytes than a JSON library would write, signed well."""

    def make(m: TokenMint) -> str:
        header, body, _ = m.token().split(".")
        return m.key().sign(_bytes(header), edit(_bytes(body)))

    return wrong(name, reason, make)


def header_bytes(name: str, reason: Reason | str, data: bytes) -> Wrong:
    return wrong(name, reason, lambda m: m.key().sign(data, _bytes(m.token().split(".")[1])))


def part(name: str, reason: Reason | str, number: int, edit: Callable[[str], str]) -> Wrong:
    """A good token, one of whose parts was changed afterwards."""

    def make(m: TokenMint) -> str:
        parts = m.token().split(".")
        parts[number] = edit(parts[number])
        return ".".join(parts)

    return wrong(name, reason, make)


def _bytes(part: str) -> bytes:
    return urlsafe_b64decode(part + "=" * (-len(part) % 4))


_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def _other_tail(part: str) -> str:
    """The same bytes, spelt with other unused bits at the end."""
    return part[:-1] + _ALPHABET[_ALPHABET.index(part[-1]) ^ 1]


def _flipped(signature: str) -> str:
    data = bytearray(_bytes(signature))
    data[10] ^= 1
    return base64url(bytes(data))


def _hmac_signed(m: TokenMint, secret: bytes, **header: object) -> str:
    """The old attack: the public key as the secret of HS256."""
    body = m.token().split(".")[1]
    head = base64url(json.dumps({"alg": "HS256", "typ": "at+jwt", "kid": m.key().key_id, **header}).encode())
    return f"{head}.{body}.{base64url(hmac.digest(secret, f'{head}.{body}'.encode(), 'sha256'))}"


def _attackers(m: TokenMint, **header: object) -> str:
    """Signed by a key that the header itself offers."""
    key = signing_key("RS256", m.key().key_id, number=77)
    return m.token(key=key, header={"jwk": key.jwk(), **header})


def _der(m: TokenMint) -> str:
    head, body, signature = m.token(algorithm="ES256").split(".")
    raw = _bytes(signature)
    der = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    return f"{head}.{body}.{base64url(der)}"


def _weak(m: TokenMint) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weak = SigningKey("weak", "RS256", RSAKey.generate_key(1024))
        m.keys.append(weak)
        return m.token(key=weak)


def _without_signature(m: TokenMint, algorithm: str, signature: str = "") -> str:
    head = base64url(json.dumps({"alg": algorithm, "typ": "at+jwt"}).encode())
    return f"{head}.{m.token().split('.')[1]}.{signature}"


KEYCLOAK = Issuer(
    issuer="https://sso.example.test/realms/acme",
    kind="keycloak",
    audiences=("saltgate",),
    clients=("chat-ui",),
    token_types=("at+jwt", "JWT", ""),
    groups=(("groups",), ("realm_access", "roles")),
    payload_type="Bearer",
)
ENTRA = Issuer(
    issuer="https://login.microsoftonline.com/11111111-2222-3333-4444-555555555555/v2.0",
    kind="entra",
    audiences=("aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee",),
    token_types=("JWT",),
    subject=("oid",),
)
DEX = Issuer(
    issuer="https://dex.example.test/dex",
    kind="dex",
    audiences=("saltgate",),
    clients=("chat-ui",),
    token_types=("at+jwt", "JWT", ""),
    allow_id_token_claims=True,
)
CLIENTS = replace(RULES, clients=("chat-ui", "batch"))
NESTED = replace(RULES, groups=(("realm_access", "roles"),))

WRONG = [
    # Rule 7: three parts, nothing around them
    wrong("empty", Reason.ENCODING, lambda m: ""),
    wrong("one part", Reason.ENCODING, lambda m: m.token().split(".")[0]),
    wrong("two parts", Reason.ENCODING, lambda m: ".".join(m.token().split(".")[:2])),
    wrong("four parts", Reason.ENCODING, lambda m: m.token() + ".AAAA"),
    wrong("only dots", Reason.ENCODING, lambda m: ".."),
    part("empty header", Reason.ENCODING, 0, lambda p: ""),
    part("empty payload", Reason.ENCODING, 1, lambda p: ""),
    part("empty signature", Reason.ENCODING, 2, lambda p: ""),
    wrong("leading space", Reason.ENCODING, lambda m: " " + m.token()),
    wrong("trailing newline", Reason.ENCODING, lambda m: m.token() + "\n"),
    wrong("newline within", Reason.ENCODING, lambda m: m.token().replace(".", ".\n", 1)),
    wrong("NUL at the end", Reason.ENCODING, lambda m: m.token() + "\0"),
    wrong("a dot of another script", Reason.ENCODING, lambda m: m.token().replace(".", "\uff0e")),
    wrong("a JSON serialization", Reason.ENCODING, lambda m: json.dumps({"payload": "e30", "signatures": []})),
    # Rule 8: canonical base64url
    part("padded payload", Reason.ENCODING, 1, lambda p: p + "="),
    part("padded signature", Reason.ENCODING, 2, lambda p: p + "=="),
    part("plus instead of minus", Reason.ENCODING, 1, lambda p: "+" + p[1:]),
    part("slash instead of underscore", Reason.ENCODING, 1, lambda p: "/" + p[1:]),
    part("signature with other unused bits", Reason.ENCODING, 2, _other_tail),
    wrong(
        "header with other unused bits",
        Reason.ENCODING,
        lambda m: _other_tail(base64url(b'{"alg":"RS256"}  ')) + "." + m.token().split(".", 1)[1],
    ),
    part("an impossible length", Reason.ENCODING, 1, lambda p: p + "A" * ((1 - len(p)) % 4)),
    # Rule 9: the header, and rule 9's strictness for the payload
    header_bytes("header no JSON", Reason.HEADER, b"alg=RS256"),
    header_bytes("header a list", Reason.HEADER, b'["alg","RS256"]'),
    header_bytes("header a string", Reason.HEADER, b'"alg"'),
    header_bytes("header null", Reason.HEADER, b"null"),
    header_bytes("header with NaN", Reason.HEADER, b'{"alg":"RS256","x":NaN}'),
    header_bytes("header with alg twice", Reason.HEADER, b'{"alg":"RS256","alg":"none"}'),
    header_bytes("header with alg twice, once escaped", Reason.HEADER, b'{"alg":"none","\\u0061lg":"RS256"}'),
    header_bytes("header nested too deeply", Reason.HEADER, b'{"alg":"RS256","x":' + b"[" * 1500 + b"]" * 1500 + b"}"),
    header_bytes("header of more than 4 KiB", Reason.HEADER, b'{"alg":"RS256","x":"' + b"x" * 4096 + b'"}'),
    header_bytes("header in UTF-16", Reason.HEADER, '{"alg":"RS256"}'.encode("utf-16")),
    payload("payload no JSON", Reason.PAYLOAD, lambda p: p[:-1]),
    payload("payload a list", Reason.PAYLOAD, lambda p: b"[" + p + b"]"),
    payload("payload null", Reason.PAYLOAD, lambda p: b"null"),
    payload("two payloads", Reason.PAYLOAD, lambda p: p + p),
    payload("payload with a byte order mark", Reason.PAYLOAD, lambda p: b"\xef\xbb\xbf" + p),
    payload("payload not UTF-8", Reason.PAYLOAD, lambda p: p.replace(b"eng", b"\xff")),
    payload("sub twice", Reason.PAYLOAD, lambda p: p[:-1] + b',"sub":"u-root"}'),
    payload("aud twice", Reason.PAYLOAD, lambda p: p[:-1] + b',"aud":"other"}'),
    payload("a member twice within a claim", Reason.PAYLOAD, lambda p: p[:-1] + b',"a":{"b":[{"c":1,"c":2}]}}'),
    payload("NaN", Reason.PAYLOAD, lambda p: p[:-1] + b',"x":NaN}'),
    payload("minus Infinity", Reason.PAYLOAD, lambda p: p[:-1] + b',"x":-Infinity}'),
    payload("a number too large for a float", Reason.PAYLOAD, lambda p: p[:-1] + b',"x":1e999}'),
    payload("a number of 5000 digits", Reason.PAYLOAD, lambda p: p[:-1] + b',"x":' + b"9" * 5000 + b"}"),
    payload("a lone surrogate", Reason.PAYLOAD, lambda p: p.replace(b"eng", b"\\ud800")),
    payload("nested too deeply", Reason.PAYLOAD, lambda p: p[:-1] + b',"x":' + b"[" * 5000 + b"]" * 5000 + b"}"),
    claims("more than 16 KiB", Reason.TOO_LONG, x="x" * 12_500),
    # Rule 10: algorithms
    wrong("alg none", Reason.ENCODING, lambda m: _without_signature(m, "none")),
    wrong("alg none with a signature", Reason.ALGORITHM, lambda m: _without_signature(m, "none", "AAAA")),
    wrong("alg NoNe", Reason.ALGORITHM, lambda m: _without_signature(m, "NoNe", "AAAA")),
    head("alg missing", Reason.ALGORITHM, alg=ABSENT),
    head("alg a number", Reason.ALGORITHM, alg=256),
    head("alg null", Reason.ALGORITHM, alg=None),
    head("alg a list", Reason.ALGORITHM, alg=["RS256"]),
    head("alg in lower case", Reason.ALGORITHM, alg="rs256"),
    head("alg empty", Reason.ALGORITHM, alg=""),
    head("an algorithm that the configuration lacks", Reason.ALGORITHM, alg="RS512"),
    head("the algorithm of another key", Reason.UNKNOWN_KEY, alg="ES256"),
    wrong("HS256 with the public key", Reason.ALGORITHM, lambda m: _hmac_signed(m, m.key().key.as_pem(private=False))),
    wrong("HS256 with the JWK", Reason.ALGORITHM, lambda m: _hmac_signed(m, json.dumps(m.key().jwk()).encode())),
    wrong("HS256 with nothing", Reason.ALGORITHM, lambda m: _hmac_signed(m, b"")),
    wrong(
        "HS256 even where somebody configured it",
        Reason.ALGORITHM,
        lambda m: _hmac_signed(m, m.key().key.as_pem(private=False)),
        replace(RULES, algorithms=("RS256", "HS256")),
    ),
    wrong(
        "none even where somebody configured it",
        Reason.ALGORITHM,
        lambda m: _without_signature(m, "none", "AAAA"),
        replace(RULES, algorithms=("RS256", "none")),
    ),
    # Rule 11: extensions
    head("crit", Reason.CRITICAL, crit=["exp"]),
    head("crit that names alg", Reason.CRITICAL, crit=["alg"]),
    head("crit empty", Reason.CRITICAL, crit=[]),
    head("crit a number", Reason.CRITICAL, crit=5),
    head("crit of objects", Reason.CRITICAL, crit=[{}]),
    head("b64 false", Reason.CRITICAL, b64=False, crit=["b64"]),
    head("b64 true", Reason.CRITICAL, b64=True),
    head("cty", Reason.CRITICAL, cty="JWT"),
    # Rule 12: keys that the token brings
    wrong("signed by the header's own jwk", Reason.SIGNATURE, _attackers),
    wrong("signed by the header's own jwk, another kid", Reason.UNKNOWN_KEY, lambda m: _attackers(m, kid="mine")),
    wrong("jku", Reason.UNKNOWN_KEY, lambda m: _attackers(m, jku="http://127.0.0.1:1/jwks", jwk=ABSENT, kid="mine")),
    wrong("x5u", Reason.SIGNATURE, lambda m: _attackers(m, x5u="http://127.0.0.1:1/cert", jwk=ABSENT)),
    wrong("x5c", Reason.SIGNATURE, lambda m: _attackers(m, x5c=["MIIB"], jwk=ABSENT)),
    # Rule 13: typ
    head("typ of an ID token", Reason.TYPE, typ="JWT"),
    head("no typ", Reason.TYPE, typ=ABSENT),
    head("typ empty", Reason.HEADER, typ=""),
    head("typ a number", Reason.HEADER, typ=1),
    head("typ null", Reason.HEADER, typ=None),
    head("typ of a logout token", Reason.TYPE, typ="logout+jwt"),
    head("typ of a DPoP proof", Reason.TYPE, typ="dpop+jwt"),
    head("typ only a prefix", Reason.TYPE, typ="application/"),
    head("typ with the prefix twice", Reason.TYPE, typ="application/application/at+jwt"),
    wrong(
        "a typ that is a prefix alone does not count as none",
        Reason.TYPE,
        lambda m: m.token(header={"typ": "application/"}),
        replace(RULES, token_types=("",)),
    ),
    # Rule 14: encryption
    wrong("five parts", Reason.ENCRYPTED, lambda m: "a.b.c.d.e"),
    head("enc", Reason.CRITICAL, enc="A256GCM"),
    # Rules 15, 16, 17: issuer and key
    claims("iss missing", Reason.ISSUER, iss=ABSENT),
    claims("iss a number", Reason.ISSUER, iss=1),
    claims("iss a list", Reason.ISSUER, iss=[ISSUER]),
    claims("another issuer", Reason.ISSUER, iss="https://evil.example.test"),
    claims("iss with a slash more", Reason.ISSUER, iss=ISSUER + "/"),
    claims("iss in other case", Reason.ISSUER, iss=ISSUER.replace("sso", "SSO")),
    claims("iss that begins alike", Reason.ISSUER, iss=ISSUER + ".evil.test"),
    claims("iss empty", Reason.ISSUER, iss=""),
    head("kid unknown", Reason.UNKNOWN_KEY, kid="other"),
    head("kid a number", Reason.HEADER, kid=0),
    head("kid null", Reason.HEADER, kid=None),
    head("kid empty", Reason.HEADER, kid=""),
    head("kid a path", Reason.UNKNOWN_KEY, kid="../../dev/null"),
    head("kid in other case", Reason.UNKNOWN_KEY, kid="RS256-0"),
    wrong(
        "no kid while two keys fit",
        Reason.AMBIGUOUS_KEY,
        lambda m: (m.rotate("RS256"), m.token(header={"kid": ABSENT}))[1],
    ),
    wrong("a key of 1024 bits", Reason.UNKNOWN_KEY, _weak),
    # Signatures
    part("a bit of the signature changed", Reason.SIGNATURE, 2, _flipped),
    part("a byte of the signature missing", Reason.SIGNATURE, 2, lambda p: base64url(_bytes(p)[:-1])),
    part("a byte of the signature too many", Reason.SIGNATURE, 2, lambda p: base64url(_bytes(p) + b"\0")),
    part("a signature of zeros", Reason.SIGNATURE, 2, lambda p: base64url(bytes(256))),
    wrong(
        "an ECDSA signature of zeros",
        Reason.SIGNATURE,
        lambda m: m.token(algorithm="ES256").rsplit(".", 1)[0] + "." + "A" * 86,
    ),
    wrong("an ECDSA signature in DER", Reason.SIGNATURE, _der),
    part("the payload of another", Reason.SIGNATURE, 1, lambda p: base64url(_bytes(p).replace(b"alice", b"carol"))),
    wrong(
        "signed by a stranger's key with our kid",
        Reason.SIGNATURE,
        lambda m: m.token(key=signing_key("RS256", "rs256-0", number=77)),
    ),
    # Rule 18: exp
    claims("exp missing", Reason.LIFETIME, exp=ABSENT),
    claims("exp a string", Reason.LIFETIME, exp=str(int(NOW + 60))),
    claims("exp true", Reason.LIFETIME, exp=True),
    claims("exp null", Reason.LIFETIME, exp=None),
    claims("exp a list", Reason.LIFETIME, exp=[NOW + 60]),
    claims("exp negative", Reason.LIFETIME, exp=-1),
    claims("exp after the year 9999", Reason.LIFETIME, exp=253_402_300_800),
    claims("exp in milliseconds", Reason.LIFETIME, exp=int(NOW * 1000)),
    claims("exp of 4000 digits", Reason.LIFETIME, exp=10**4000),
    claims("exp long ago", EXPIRED, iat=NOW - 7200, exp=NOW - 3600),
    claims("exp just out of the leeway", EXPIRED, iat=NOW - 300, exp=NOW - 30),
    claims("a life of more than 25 hours", Reason.LIFETIME, exp=NOW + 25 * 3600 + 1),
    claims("a life of more than 25 hours, most of it over", Reason.LIFETIME, iat=NOW - 30 * 3600, exp=NOW + 60),
    claims("no iat and an exp too far", Reason.LIFETIME, iat=ABSENT, exp=NOW + 25 * 3600 + 31),
    claims("exp not after iat", Reason.LIFETIME, iat=NOW, exp=NOW),
    # Rule 19: iat and nbf
    claims("iat out of the leeway", Reason.NOT_YET_VALID, iat=NOW + 31),
    claims("nbf out of the leeway", Reason.NOT_YET_VALID, nbf=NOW + 31),
    claims("nbf a string", Reason.NOT_YET_VALID, nbf="0"),
    claims("nbf true", Reason.NOT_YET_VALID, nbf=True),
    claims("nbf negative", Reason.NOT_YET_VALID, nbf=-1),
    claims("nbf null", Reason.NOT_YET_VALID, nbf=None),
    claims("iat a string", Reason.LIFETIME, iat="now"),
    claims("iat true", Reason.LIFETIME, iat=True),
    # Rule 20: aud
    claims("aud missing", Reason.AUDIENCE, aud=ABSENT),
    claims("aud another", Reason.AUDIENCE, aud="account"),
    claims("aud null", Reason.AUDIENCE, aud=None),
    claims("aud a number", Reason.AUDIENCE, aud=1),
    claims("aud an object", Reason.AUDIENCE, aud={"saltgate": True}),
    claims("aud empty", Reason.AUDIENCE, aud=""),
    claims("aud an empty list", Reason.AUDIENCE, aud=[]),
    claims("aud that begins alike", Reason.AUDIENCE, aud="saltgate-dev"),
    claims("aud a part of ours", Reason.AUDIENCE, aud="salt"),
    claims("aud in other case", Reason.AUDIENCE, aud="Saltgate"),
    claims("aud a list of others", Reason.AUDIENCE, aud=["account", "other"]),
    claims("aud a list that holds a number", Reason.AUDIENCE, aud=["saltgate", 1]),
    claims("aud a list of lists", Reason.AUDIENCE, aud=[["saltgate"]]),
    claims("aud with spaces", Reason.AUDIENCE, aud="saltgate account"),
    # Rule 21: subject
    claims("sub missing", Reason.SUBJECT, sub=ABSENT),
    claims("sub empty", Reason.SUBJECT, sub=""),
    claims("sub null", Reason.SUBJECT, sub=None),
    claims("sub a number", Reason.SUBJECT, sub=7),
    claims("sub a list", Reason.SUBJECT, sub=["u-alice-0001"]),
    claims("sub of 256 characters", Reason.SUBJECT, sub="x" * 256),
    claims("sub with a newline", Reason.SUBJECT, sub="u-alice-0001\n"),
    claims("sub with NUL", Reason.SUBJECT, sub="u-alice\0"),
    claims("sub with an invisible space", Reason.SUBJECT, sub="u-alice\u200b"),
    claims("sub that turns the writing", Reason.SUBJECT, sub="u-\u202eecila"),
    claims("sub with a line separator", Reason.SUBJECT, sub="u-alice\u2028x"),
    # Rule 22: other kinds of token
    claims(
        "a security event",
        Reason.NOT_AN_ACCESS_TOKEN,
        events={"http://schemas.openid.net/event/backchannel-logout": {}},
    ),
    claims("events null", Reason.NOT_AN_ACCESS_TOKEN, events=None),
    claims("nonce", Reason.NOT_AN_ACCESS_TOKEN, nonce="n"),
    claims("at_hash", Reason.NOT_AN_ACCESS_TOKEN, at_hash="h"),
    claims("c_hash", Reason.NOT_AN_ACCESS_TOKEN, c_hash="h"),
    claims(
        "events though ID token claims are allowed",
        Reason.NOT_AN_ACCESS_TOKEN,
        DEX,
        iss=DEX.issuer,
        azp="chat-ui",
        events={},
    ),
    claims("Keycloak's ID token", Reason.NOT_AN_ACCESS_TOKEN, KEYCLOAK, typ="ID"),
    claims("Keycloak's refresh token", Reason.NOT_AN_ACCESS_TOKEN, KEYCLOAK, typ="Refresh"),
    claims("Keycloak's payload typ missing", Reason.NOT_AN_ACCESS_TOKEN, KEYCLOAK),
    claims("Keycloak's payload typ in a list", Reason.NOT_AN_ACCESS_TOKEN, KEYCLOAK, typ=["Bearer"]),
    # Rule 23: bound tokens
    claims("bound by DPoP", Reason.BOUND, cnf={"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"}),
    claims(
        "bound by mutual TLS",
        Reason.NO_CERTIFICATE,
        cnf={"x5t#S256": "bwcK0esc3ACC3DB2Y5_lESsXE8o9ltc05O89jdN-dg2"},
    ),
    claims("cnf empty", Reason.SENDER_CONSTRAINED, cnf={}),
    claims("cnf null", Reason.SENDER_CONSTRAINED, cnf=None),
    # Rule 24: clients
    claims("a client that is not accepted", Reason.CLIENT, CLIENTS, client_id="evil"),
    claims("azp not accepted beside an accepted client_id", Reason.CLIENT, CLIENTS, azp="evil"),
    claims("cid not accepted", Reason.CLIENT, CLIENTS, client_id=ABSENT, cid="evil"),
    claims("no client where one is required", Reason.CLIENT, CLIENTS, client_id=ABSENT),
    claims("a client that is a list", Reason.CLIENT, CLIENTS, client_id=["chat-ui"]),
    claims("a client that is a number", Reason.CLIENT, client_id=1),
    claims("a client that is empty", Reason.CLIENT, azp=""),
    claims("a client with a newline", Reason.CLIENT, azp="chat-ui\n"),
    claims("Dex without azp: a login's own ID token", Reason.CLIENT, DEX, iss=DEX.issuer, client_id=ABSENT, nonce="n"),
    # Rule 25: groups
    claims("groups a string", Reason.GROUPS, groups="eng"),
    claims("groups an object", Reason.GROUPS, groups={"eng": True}),
    claims("groups null", Reason.GROUPS, groups=None),
    claims("groups with a number", Reason.GROUPS, groups=["eng", 1]),
    claims("groups with an empty name", Reason.GROUPS, groups=["eng", ""]),
    claims("groups within groups", Reason.GROUPS, groups=[["eng"]]),
    claims("groups with a control character", Reason.GROUPS, groups=["eng\r\nadmin"]),
    claims("a path through a string", Reason.GROUPS, NESTED, realm_access="roles"),
    claims("a path through a list", Reason.GROUPS, NESTED, realm_access=[{"roles": ["eng"]}]),
    claims("a path through null", Reason.GROUPS, NESTED, realm_access=None),
    # Entra
    claims("Entra without oid", Reason.TYPE, ENTRA, iss=ENTRA.issuer),
    wrong(
        "an Entra token whose oid is missing",
        Reason.SUBJECT,
        lambda m: m.token(header={"typ": "JWT"}, iss=ENTRA.issuer, aud=ENTRA.audiences[0]),
        ENTRA,
    ),
]


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case.name)
def test_a_wrong_token_is_refused_for_the_right_reason(case: Wrong) -> None:
    m = mint()
    token = case.make(m)
    with pytest.raises(Unauthenticated) as caught:
        judged(token, m, case.rules)
    assert caught.value.reason == case.reason
    assert isinstance(caught.value, TokenExpired if case.reason == EXPIRED else InvalidToken)


@dataclass(frozen=True)
class Right:
    name: str
    make: Callable[[TokenMint], str]
    subject: str = "u-alice-0001"
    groups: frozenset[str] = frozenset({"eng"})
    complete: bool = True
    client: str | None = "chat-ui"
    rules: Issuer = RULES
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    changes: dict[str, object] = field(default_factory=dict)


ALL_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
OKTA = Issuer(
    issuer="https://acme.okta.example/oauth2/default",
    kind="okta",
    audiences=("api://saltgate",),
    token_types=("at+jwt", "JWT", ""),
    subject=("uid",),
)
AUTH0 = Issuer(
    issuer="https://acme.auth0.example/",
    kind="auth0",
    audiences=("https://saltgate.example",),
    token_types=("at+jwt", "JWT"),
    groups=(("https://acme.example/groups",),),
)
AUTHENTIK = Issuer(
    issuer="https://id.example.test/application/o/llm/",
    kind="authentik",
    audiences=("saltgate",),
    clients=("chat-ui",),
    token_types=("at+jwt", "JWT", ""),
    allow_id_token_claims=True,
)
GOOGLE = Issuer(
    issuer="https://accounts.google.com",
    kind="google",
    audiences=("https://llm.example.test",),
    token_types=("JWT",),
    groups=(),
)
OID = "0a11ce00-0000-4000-8000-000000000001"


def _entra(m: TokenMint, **members: object) -> str:
    base = {"iss": ENTRA.issuer, "sub": "pairwise", "aud": ENTRA.audiences[0], "oid": OID, "tid": "1111", "ver": "2.0"}
    more = {"azp": "chat-ui", "client_id": ABSENT, "nbf": NOW, "scp": "llm.chat", "groups": ABSENT, "uti": "x"}
    return m.token(header={"typ": "JWT", "x5t": "abc"}, claims={**base, **more, **members})


def _keycloak(m: TokenMint, typ: object = "JWT", **members: object) -> str:
    base: dict[str, object] = {
        "typ": "Bearer",
        "azp": "chat-ui",
        "client_id": ABSENT,
        "acr": "1",
        "aud": ["saltgate", "account"],
    }
    roles = {"realm_access": {"roles": ["llm-user"]}, "resource_access": {"account": {"roles": ["view-profile"]}}}
    return m.token(header={"typ": typ}, claims={**base, **roles, "groups": ["/eng/llm"], **members})


def _okta(m: TokenMint, **members: object) -> str:
    base = {"iss": OKTA.issuer, "aud": "api://saltgate", "uid": "00u1", "cid": "chat-ui", "client_id": ABSENT, "ver": 1}
    return m.token(subject="alice@example.test", header={"typ": ABSENT}, claims={**base, "scp": ["llm"], **members})


RIGHT = [
    *(
        Right(f"{algorithm}", lambda m: m.token(), algorithms=(algorithm,), changes={"algorithms": (algorithm,)})
        for algorithm in ALL_ALGORITHMS
    ),
    Right("typ with application/", lambda m: m.token(header={"typ": "application/at+jwt"})),
    Right("typ in upper case", lambda m: m.token(header={"typ": "AT+JWT"})),
    Right("aud a list", lambda m: m.token(audience=["other", "saltgate"])),
    Right("one of several audiences", lambda m: m.token(audience="b"), changes={"audiences": ("a", "b")}),
    Right("exp a fraction", lambda m: m.token(exp=NOW + 0.5, iat=NOW - 1.25)),
    Right("no iat", lambda m: m.token(iat=ABSENT)),
    Right("exp within the leeway", lambda m: m.token(iat=NOW - 300, exp=NOW - 29)),
    Right("nbf and iat within the leeway", lambda m: m.token(iat=NOW + 30, nbf=NOW + 30)),
    Right("a life of exactly 25 hours", lambda m: m.token(lifetime=25 * 3600)),
    Right("no kid and one key that fits", lambda m: m.token(header={"kid": ABSENT}), algorithms=("RS256", "ES256")),
    Right(
        "header members that say nothing", lambda m: m.token(header={"x5t": "t", "jku": "http://127.0.0.1:1", "z": {}})
    ),
    Right("no groups claim", lambda m: m.token(groups=ABSENT), groups=frozenset()),
    Right("no groups", lambda m: m.token(groups=[]), groups=frozenset()),
    Right("no client", lambda m: m.token(client_id=ABSENT), client=None),
    Right("a subject in other letters", lambda m: m.token(subject="ü-Ålice-東"), subject="ü-Ålice-東"),
    Right("a subject of 255 characters", lambda m: m.token(subject="ß" * 255), subject="ß" * 255),
    Right(
        "a group with a joined emoji",
        lambda m: m.token(groups=["👩\u200d💻 devs"]),
        groups=frozenset({"👩\u200d💻 devs"}),
    ),
    Right(
        "scopes as groups",
        lambda m: m.token(scope="llm a"),
        groups=frozenset({"llm", "a"}),
        changes={"groups": (("scope",),)},
    ),
    Right("keycloak", _keycloak, groups=frozenset({"/eng/llm", "llm-user"}), rules=KEYCLOAK),
    Right(
        "keycloak, RFC 9068",
        lambda m: _keycloak(m, "at+jwt"),
        groups=frozenset({"/eng/llm", "llm-user"}),
        rules=KEYCLOAK,
    ),
    Right(
        "keycloak without typ",
        lambda m: _keycloak(m, ABSENT),
        groups=frozenset({"/eng/llm", "llm-user"}),
        rules=KEYCLOAK,
    ),
    Right(
        "keycloak, a service account",
        lambda m: _keycloak(m, groups=ABSENT, realm_access=ABSENT, preferred_username="service-account-chat-ui"),
        groups=frozenset(),
        rules=KEYCLOAK,
    ),
    Right("entra", lambda m: _entra(m, groups=["g1", "g2"]), subject=OID, groups=frozenset({"g1", "g2"}), rules=ENTRA),
    Right("entra without groups", _entra, subject=OID, groups=frozenset(), rules=ENTRA),
    Right(
        "entra with more groups than it can name",
        lambda m: _entra(m, _claim_names={"groups": "src1"}, _claim_sources={"src1": {"endpoint": "https://graph"}}),
        subject=OID,
        groups=frozenset(),
        complete=False,
        rules=ENTRA,
    ),
    Right(
        "entra with hasgroups",
        lambda m: _entra(m, hasgroups=True),
        subject=OID,
        groups=frozenset(),
        complete=False,
        rules=ENTRA,
    ),
    Right(
        "entra v1",
        lambda m: _entra(m, iss="https://sts.windows.net/1111/", azp=ABSENT, appid="chat-ui", ver="1.0"),
        subject=OID,
        groups=frozenset(),
        rules=replace(ENTRA, issuer="https://sts.windows.net/1111/"),
    ),
    Right("okta", _okta, subject="00u1", rules=OKTA),
    Right(
        "auth0",
        lambda m: m.token(
            subject="auth0|5f7c8ec7c33c6c004bbafe82",
            header={"typ": "JWT"},
            claims={
                "iss": AUTH0.issuer,
                "aud": ["https://saltgate.example", "https://acme.auth0.example/userinfo"],
                "azp": "chat-ui",
                "client_id": ABSENT,
                "https://acme.example/groups": ["eng"],
                "permissions": ["use:llm"],
            },
        ),
        subject="auth0|5f7c8ec7c33c6c004bbafe82",
        rules=AUTH0,
    ),
    Right(
        "authentik",
        lambda m: m.token(
            header={"typ": "JWT"}, iss=AUTHENTIK.issuer, client_id=ABSENT, azp="chat-ui", nonce="n", uid="x"
        ),
        rules=AUTHENTIK,
    ),
    Right(
        "dex",
        lambda m: m.token(
            subject="CgR1c2VyEgVsb2NhbA",
            header={"typ": ABSENT},
            claims={"iss": DEX.issuer, "aud": ["saltgate", "chat-ui"], "azp": "chat-ui", "client_id": ABSENT}
            | {"nonce": "n", "at_hash": "h", "c_hash": "c"},
        ),
        subject="CgR1c2VyEgVsb2NhbA",
        rules=DEX,
    ),
    Right(
        "google, a service account",
        lambda m: m.token(
            subject="113774264463038321964",
            header={"typ": "JWT"},
            claims={
                "iss": GOOGLE.issuer,
                "aud": GOOGLE.audiences[0],
                "azp": "113774264463038321964",
                "client_id": ABSENT,
            }
            | {"email": "batch@acme.iam.gserviceaccount.com", "email_verified": True},
        ),
        subject="113774264463038321964",
        groups=frozenset(),
        client="113774264463038321964",
        rules=GOOGLE,
    ),
]


@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
def test_a_right_token_gives_its_identity(case: Right) -> None:
    m = mint(*case.algorithms)
    identity = judged(case.make(m), m, case.rules, **case.changes)
    assert (identity.issuer, identity.subject) == (case.rules.issuer, case.subject)
    assert (identity.groups, identity.groups_complete) == (case.groups, case.complete)
    assert identity.client == case.client


async def test_the_whole_corpus_is_refused_at_the_door_too_and_nothing_of_it_is_a_fault() -> None:
    m = mint()
    async with IssuerServer(m) as server:
        m.issuer = ISSUER
        cases = [(case, case.make(m)) for case in WRONG if case.rules is RULES and case.name != "a key of 1024 bits"]
        settings = (replace(RULES, jwks_uri=server.jwks_uri),)
        # Keys are fetched a moment after the tokens were issued, so that none may be of a key not known yet.
        async with open_issuers(settings, clock=lambda: NOW + 0.001, monotonic=lambda: 0.0) as issuers:
            await issuers.identify(m.token(key=m.keys[0]))
            for case, token in cases:
                with pytest.raises(Unauthenticated) as caught:
                    await issuers.identify(token)
                assert caught.value.reason == case.reason, case.name
                assert "alice" not in caught.value.message, case.name
            assert issuers.faults == 0
