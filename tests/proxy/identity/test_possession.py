"""From a `Bound` to an `Identity`: only with all that the token is bound to, and never by another way of showing it."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import pytest

from config.settings import Issuer
from proxy.identity import Identity
from proxy.identity.cache import VerifiedTokens, digest_of
from proxy.identity.callers import Callers
from proxy.identity.claims import identify
from proxy.identity.confirmation import Bound, Confirmation
from proxy.identity.dpop import Proof
from proxy.identity.issuers import TrustedIssuers, open_issuers
from proxy.identity.possession import Possession
from proxy.identity.reasons import Reason
from proxy.identity.shown import Shown
from proxy.identity.token import VerifiedToken
from proxy.refusals import CredentialRequired, DirectoryUnavailable, InvalidProof, InvalidRequest, InvalidToken, Refusal
from tests.parts.dpop import DpopClient
from tests.parts.tokens import ABSENT, IssuerServer, TokenMint, base64url

URL = "https://llm.example.com"
PATH = "/v1/chat/completions"
CERTIFICATE = b"the client's certificate in DER"
X5T = base64url(sha256(CERTIFICATE).digest())


class Memory:
    """The used proofs of one process; `away` as a Redis that is."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.asked = 0
        self.away = False

    async def first_use(self, proof: Proof) -> bool:
        self.asked += 1
        if self.away:
            raise DirectoryUnavailable("away")
        known = proof.name in self.names
        self.names.add(proof.name)
        return not known


class Door:
    """A door of one issuer, and who comes to it."""

    def __init__(self, mint: TokenMint, issuers: TrustedIssuers) -> None:
        self.mint = mint
        self.used = Memory()
        self.client = DpopClient()
        self.bearers = Callers(issuers)
        self.callers = Callers(issuers, possession=Possession(public_url=URL, clock=mint.clock, used=self.used))

    def token(self, **cnf: str) -> str:
        return self.mint.token(**({"cnf": cnf} if cnf else {}))  # type: ignore[arg-type]

    async def shown(self, *headers: tuple[str, str], certificate: bytes | None = None) -> Identity:
        return await self.callers.identify(self.request(*headers, certificate=certificate))

    async def with_proof(self, token: str, certificate: bytes | None = None, **claims: object) -> Identity:
        proof = self.client.proof(token, URL + PATH, claims=claims)
        return await self.shown(("Authorization", f"DPoP {token}"), ("DPoP", proof), certificate=certificate)

    @staticmethod
    def request(*headers: tuple[str, str], certificate: bytes | None = None) -> Shown:
        return Shown(headers=headers, method="POST", path=PATH, workspace=None, certificate=certificate)


@pytest.fixture
async def door() -> object:
    mint = TokenMint()
    async with IssuerServer(mint) as server, open_issuers((server.settings(),), clock=mint.clock) as issuers:
        yield Door(mint, issuers)


async def refused(waiting: object) -> Refusal:
    with pytest.raises(Refusal) as caught:
        await waiting  # type: ignore[misc]
    return caught.value


async def test_a_bound_token_with_its_proof_is_its_caller(door: Door) -> None:
    identity = await door.with_proof(door.token(jkt=door.client.thumbprint))
    assert identity.subject == "u-alice-0001"
    assert type(identity) is Identity


async def test_a_token_that_was_verified_a_moment_ago_still_needs_a_proof(door: Door) -> None:
    """What is remembered of it is no identity."""
    token = door.token(jkt=door.client.thumbprint)
    await door.with_proof(token)
    for headers in (
        [("Authorization", f"Bearer {token}")],
        [("x-api-key", token)],
        [("api-key", token)],
    ):
        refusal = await refused(door.shown(*headers))
        assert (type(refusal), refusal.reason) == (InvalidToken, Reason.BOUND.value)
    refusal = await refused(door.shown(("Authorization", f"DPoP {token}")))
    assert (type(refusal), refusal.reason) == (InvalidProof, "proof_missing")


async def test_a_bearer_token_beside_a_proof_is_no_bound_one(door: Door) -> None:
    """Under the DPoP scheme a token must be bound, else the proof would prove nothing of it."""
    token = door.token()
    assert (await refused(door.with_proof(token))).reason == Reason.NOT_BOUND.value
    assert (await door.shown(("Authorization", f"Bearer {token}"))).subject == "u-alice-0001"


async def test_a_proof_comes_once(door: Door) -> None:
    token = door.token(jkt=door.client.thumbprint)
    await door.with_proof(token, jti="once")
    assert (await refused(door.with_proof(token, jti="once"))).reason == "proof_replayed"
    await door.with_proof(token, jti="twice")


async def test_who_cannot_know_whether_a_proof_came_lets_nobody_in(door: Door) -> None:
    door.used.away = True
    refusal = await refused(door.with_proof(door.token(jkt=door.client.thumbprint)))
    assert refusal.status == 503


async def test_a_wrong_proof_is_not_even_remembered(door: Door) -> None:
    """Nobody without the key can fill the memory, or use up another's proof."""
    token = door.token(jkt=door.client.thumbprint)
    thief = DpopClient(number=72)
    proof = thief.proof(token, URL + PATH, jti="once")
    refusal = await refused(door.shown(("Authorization", f"DPoP {token}"), ("DPoP", proof)))
    assert (refusal.reason, door.used.asked) == ("proof_other_key", 0)
    await door.with_proof(token, jti="once")


@pytest.mark.parametrize("certificate", [None, b"another", CERTIFICATE + b"\0", b""])
async def test_a_token_bound_to_a_certificate_needs_that_one(door: Door, certificate: bytes | None) -> None:
    headers = ("Authorization", f"Bearer {door.token(**{'x5t#S256': X5T})}")
    assert (await door.shown(headers, certificate=CERTIFICATE)).subject == "u-alice-0001"
    reason = Reason.NO_CERTIFICATE if certificate is None else Reason.OTHER_CERTIFICATE
    assert (await refused(door.shown(headers, certificate=certificate))).reason == reason.value


async def test_a_token_bound_to_a_certificate_is_not_for_the_dpop_scheme(door: Door) -> None:
    token = door.token(**{"x5t#S256": X5T})
    assert (await refused(door.with_proof(token, CERTIFICATE))).reason == Reason.NOT_BOUND.value


async def test_of_a_token_bound_to_both_both_must_be_shown(door: Door) -> None:
    token = door.token(jkt=door.client.thumbprint, **{"x5t#S256": X5T})
    assert (await door.with_proof(token, CERTIFICATE)).subject == "u-alice-0001"
    assert (await refused(door.with_proof(token))).reason == Reason.NO_CERTIFICATE.value
    assert (await refused(door.with_proof(token, b"other"))).reason == Reason.OTHER_CERTIFICATE.value
    bearer = door.shown(("Authorization", f"Bearer {token}"), certificate=CERTIFICATE)
    assert (await refused(bearer)).reason == Reason.BOUND.value
    only = door.shown(("Authorization", f"DPoP {token}"), certificate=CERTIFICATE)
    assert (await refused(only)).reason == "proof_missing"


async def test_a_certificate_that_nobody_asked_for_changes_nothing(door: Door) -> None:
    assert (await door.shown(("Authorization", f"Bearer {door.token()}"), certificate=b"any")).subject == "u-alice-0001"


@pytest.mark.parametrize("second", ["x-api-key", "api-key"])
async def test_the_two_ways_to_show_a_token_are_not_mixed(door: Door, second: str) -> None:
    token = door.token(jkt=door.client.thumbprint)
    proof = door.client.proof(token, URL + PATH)
    headers = [("Authorization", f"DPoP {token}"), ("DPoP", proof), (second, token)]
    assert isinstance(await refused(door.shown(*headers)), InvalidRequest)


async def test_two_authorization_headers_are_refused_whatever_their_schemes(door: Door) -> None:
    token = door.token(jkt=door.client.thumbprint)
    proof = door.client.proof(token, URL + PATH)
    for schemes in (("DPoP", "Bearer"), ("Bearer", "DPoP"), ("DPoP", "DPoP")):
        headers = [("Authorization", f"{scheme} {token}") for scheme in schemes]
        assert isinstance(await refused(door.shown(*headers, ("DPoP", proof))), InvalidRequest)


@pytest.mark.parametrize("scheme", ["DPoP  ", "DPoP\t", "DPoP \t", "DPoP\n"])
async def test_the_dpop_scheme_too_takes_exactly_one_space(door: Door, scheme: str) -> None:
    token = door.token(jkt=door.client.thumbprint)
    proof = door.client.proof(token, URL + PATH)
    assert (await refused(door.shown(("Authorization", scheme + token), ("DPoP", proof)))).status == 401


async def test_the_scheme_may_have_any_case(door: Door) -> None:
    token = door.token(jkt=door.client.thumbprint)
    for scheme in ("dpop", "DPOP", "dPoP"):
        proof = door.client.proof(token, URL + PATH)
        assert (await door.shown(("authorization", f"{scheme} {token}"), ("dpop", proof))).subject == "u-alice-0001"


@pytest.mark.parametrize("token", ["sgp_abcdefgh_secret_crc123", "opaque"])
async def test_no_other_form_of_credential_gets_in_by_the_dpop_scheme(door: Door, token: str) -> None:
    assert isinstance(await refused(door.with_proof(token)), InvalidToken)


async def test_a_door_that_checks_no_proofs_lets_in_bearer_tokens_only(door: Door) -> None:
    token = door.token(jkt=door.client.thumbprint)
    proof = door.client.proof(token, URL + PATH)
    bearer, bound = door.token(), door.request(("Authorization", f"DPoP {token}"), ("DPoP", proof))
    assert isinstance(await refused(door.bearers.identify(bound)), InvalidToken)
    for scheme, shown in (("DPoP", bearer), ("DPoP", token), ("Bearer", token)):
        request = door.request(("Authorization", f"{scheme} {shown}"))
        assert isinstance(await refused(door.bearers.identify(request)), InvalidToken)
    assert (await door.bearers.identify(door.request(("Authorization", f"Bearer {bearer}")))).subject == "u-alice-0001"


@pytest.mark.parametrize(
    "cnf",
    [
        None,
        {},
        [],
        "jkt",
        {"jkt": X5T, "kid": "1"},
        {"jkt": X5T, "kc-jkt-type": "Client-Attestation"},
        {"jkt": X5T, "kc-jkt-type": "dpop"},
        {"jkt": X5T, "kc-jkt-type": None},
        {"jkt": X5T, "kc-jkt-type": ["DPoP"]},
        {"jkt": X5T, "kc-jkt-type": "DPoP", "kid": "1"},
        {"kc-jkt-type": "DPoP"},
        {"x5t#S256": X5T, "kc-jkt-type": "DPoP"},
        {"jwk": {"kty": "EC"}},
        {"x5t": "AAAA"},
        {"jku": "https://evil.example"},
        {"jkt": ""},
        {"jkt": None},
        {"jkt": [X5T]},
        {"jkt": X5T[:-1]},
        {"jkt": X5T + "="},
        {"jkt": X5T, "x5t#S256": None},
        {"x5t#S256": "not base64url of 32 bytes"},
    ],
    ids=str,
)
def test_a_binding_that_is_not_understood_as_a_whole_is_refused(cnf: object) -> None:
    now = 1_900_000_000.0
    rules = Issuer(issuer="https://i", audiences=("a",))
    claims = {"iss": "https://i", "sub": "s", "aud": "a", "exp": now + 60, "cnf": cnf}
    with pytest.raises(InvalidToken) as caught:
        identify(VerifiedToken("https://i", "at+jwt", claims), rules=rules, now=now)  # type: ignore[arg-type]
    assert caught.value.reason == Reason.SENDER_CONSTRAINED.value


KEYCLOAK = Issuer(issuer="https://i", audiences=("a",), token_types=("JWT",), payload_type="Bearer")


def keycloaks(**claims: object) -> Identity | Bound:
    now = 1_900_000_000.0
    body = {"iss": "https://i", "sub": "s", "aud": "a", "exp": now + 60} | claims
    return identify(VerifiedToken("https://i", "JWT", body), rules=KEYCLOAK, now=now)  # type: ignore[arg-type]


@pytest.mark.parametrize("cnf", [{"jkt": X5T}, {"jkt": X5T, "kc-jkt-type": "DPoP"}], ids=str)
def test_keycloaks_bound_token_is_bound_to_its_key(cnf: dict[str, str]) -> None:
    """Its payload `typ` is "DPoP" in place of "Bearer" (`DPoPUtil.transformAccessToken`), and 26.7 also says of the
    thumbprint what it is of."""
    found = keycloaks(typ="DPoP", cnf=cnf)
    assert isinstance(found, Bound)
    assert found.confirmation == Confirmation(key=X5T)


@pytest.mark.parametrize("cnf", [ABSENT, {"x5t#S256": X5T}, None, ["jkt"], "jkt"], ids=str)
@pytest.mark.parametrize("kind", ["DPoP", "dpop", "ID"])
def test_keycloaks_word_that_a_token_is_bound_counts_with_the_key_alone(kind: str, cnf: object) -> None:
    with pytest.raises(InvalidToken) as caught:
        keycloaks(typ=kind, **({} if cnf is ABSENT else {"cnf": cnf}))
    assert caught.value.reason == Reason.NOT_AN_ACCESS_TOKEN.value


def test_where_another_payload_type_is_required_dpop_is_none() -> None:
    rules = replace(KEYCLOAK, payload_type="access")
    claims = {"iss": "https://i", "sub": "s", "aud": "a", "exp": 1e9 + 60, "typ": "DPoP", "cnf": {"jkt": X5T}}
    with pytest.raises(InvalidToken):
        identify(VerifiedToken("https://i", "JWT", claims), rules=rules, now=1e9)  # type: ignore[arg-type]


def test_what_is_remembered_of_a_bound_token_is_no_identity() -> None:
    alice = Identity("https://i", "s", frozenset(), groups_complete=True, expires_at=100.0)
    tokens = VerifiedTokens(capacity=4, lifetime=60.0)
    tokens.keep(digest_of("t"), Bound(alice, Confirmation(key=X5T)), generation=1, now=0.0)
    found = tokens.find(digest_of("t"), now=1.0)
    assert found is not None
    assert not isinstance(found.found, Identity)


async def test_another_scheme_is_told_which_to_send(door: Door) -> None:
    refusal = await refused(door.shown(("Authorization", "Basic dTpw")))
    assert isinstance(refusal, CredentialRequired)
