"""A token that a certified provider has bound to a key of its client, through the door and no other way."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp
import pytest

from config.settings import Issuer
from proxy.identity.callers import Callers
from proxy.identity.issuers import open_issuers
from proxy.identity.possession import Possession
from proxy.identity.shown import Shown
from proxy.refusals import InvalidProof, InvalidToken
from tests.parts.certified_provider import RESOURCE, CertifiedProvider
from tests.parts.dpop import DpopClient
from tests.parts.tokens import ABSENT
from tests.proxy.identity.test_possession import Memory

pytestmark = pytest.mark.process

URL = "https://llm.example.com"
PATH = "/v1/chat/completions"
REDIRECT = "http://127.0.0.1:9/callback"


@pytest.fixture(scope="module")
def provider() -> Iterator[CertifiedProvider]:
    with CertifiedProvider() as running:
        yield running


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as opened:
        yield opened


async def signed_in(provider: CertifiedProvider, session: aiohttp.ClientSession, client: DpopClient) -> str:
    """The access token of alice at the public client `dpop-cli`, bound to the key of `client`."""
    verifier = secrets.token_urlsafe(48)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    query = {
        "client_id": "dpop-cli",
        "response_type": "code",
        "redirect_uri": REDIRECT,
        "scope": "openid llm.chat",
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        "resource": RESOURCE,
    }
    landed = await provider.walk(session, f"{provider.issuer}/auth?{urlencode(query)}", "alice", until=REDIRECT)
    form = {
        "grant_type": "authorization_code",
        "code": parse_qs(urlsplit(landed).query)["code"][0],
        "redirect_uri": REDIRECT,
        "code_verifier": verifier,
        "client_id": "dpop-cli",
    }
    endpoint = provider.issuer + "/token"
    headers = {"DPoP": client.proof("", endpoint, ath=ABSENT)}
    async with session.post(endpoint, data=form, headers=headers) as answer:
        found = json.loads(await answer.read())
    assert found["token_type"] == "DPoP"
    return str(found["access_token"])


@pytest.mark.parametrize("algorithm", ["ES256", "Ed25519"])
async def test_a_bound_token_of_a_certified_provider_needs_the_proof_of_its_key(
    provider: CertifiedProvider, session: aiohttp.ClientSession, algorithm: str
) -> None:
    client, thief = DpopClient(algorithm), DpopClient(number=73)
    token = await signed_in(provider, session, client)
    rules = Issuer(issuer=provider.issuer, audiences=("llm-gateway",))
    async with open_issuers((rules,), clock=time.time) as issuers:
        callers = Callers(issuers, possession=Possession(public_url=URL, clock=time.time, used=Memory()))

        def request(*headers: tuple[str, str]) -> Shown:
            return Shown(headers=headers, method="POST", path=PATH, workspace=None)

        proof = client.proof(token, URL + PATH)
        bound = request(("Authorization", f"DPoP {token}"), ("DPoP", proof))
        identity = await callers.identify(bound)
        assert (identity.subject, identity.client) == ("u-alice-0001", "dpop-cli")
        with pytest.raises(InvalidProof):
            await callers.identify(bound)  # a second time
        stolen = request(("Authorization", f"DPoP {token}"), ("DPoP", thief.proof(token, URL + PATH)))
        with pytest.raises(InvalidProof):
            await callers.identify(stolen)
        with pytest.raises(InvalidToken):
            await callers.identify(request(("Authorization", f"Bearer {token}")))
