"""Opaque tokens of a certified provider, asked about as the gate does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from joserfc.jwk import ECKey

from config.secret import Secret
from config.settings import Introspection, Issuer
from proxy.cli.check_introspection import introspection_lines
from proxy.cli.lines import Level
from proxy.identity.confirmation import bearer
from proxy.identity.introspection import Bounds
from proxy.identity.introspection_endpoint import IntrospectionEndpoint
from proxy.identity.opaque import OpaqueTokens, introspection_session, open_introspection
from proxy.identity.reasons import Reason
from proxy.refusals import InvalidToken, IssuerUnavailable
from tests.parts.certified_provider import CHAT_UI, CertifiedProvider

pytestmark = pytest.mark.process

OPAQUE = "urn:llm-gateway:opaque"
KEY = ECKey.generate_key("P-256")
RIGHT: dict[str, object] = {"client_id": "gateway-rs", "client_secret": Secret(b"gateway-rs-secret", "test")}


@pytest.fixture(scope="module")
def provider() -> Iterator[CertifiedProvider]:
    with CertifiedProvider(introspection_key=KEY.as_dict(private=False) | {"use": "sig"}) as running:
        yield running


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as opened:
        yield opened


def rules(provider: CertifiedProvider, **introspection: object) -> Issuer:
    settings = Introspection(**(RIGHT | introspection))  # type: ignore[arg-type]
    return Issuer(issuer=provider.issuer, audiences=("llm-gateway",), introspection=settings)


@asynccontextmanager
async def asking(
    provider: CertifiedProvider, bounds: Bounds | None = None, **introspection: object
) -> AsyncIterator[OpaqueTokens]:
    async with open_introspection(
        (rules(provider, **introspection),), issuer_of_workspace=lambda _: None, key=b"", clock=time.time, bounds=bounds
    ) as opaque:
        yield opaque


@pytest.mark.parametrize(
    "client",
    [
        {},
        {"client_auth": "client_secret_post"},
        {
            "client_id": "gateway-rs-key",
            "client_auth": "private_key_jwt",
            "client_secret": None,
            "client_key": Secret(KEY.as_pem(private=True), "test"),
        },
    ],
    ids=["client_secret_basic", "client_secret_post", "private_key_jwt"],
)
async def test_a_persons_opaque_token_is_the_person(
    provider: CertifiedProvider, session: aiohttp.ClientSession, client: dict[str, object]
) -> None:
    token = (await provider.sign_in(session, "alice", resource=OPAQUE)).access_token
    async with asking(provider, None, **client) as opaque:
        identity = bearer(await opaque.judged(token, None))
    assert (identity.issuer, identity.subject, identity.client) == (provider.issuer, "u-alice-0001", CHAT_UI)
    assert (identity.method, identity.groups_complete) == ("introspection", True)
    assert "eng" in identity.groups


async def test_a_service_account_is_an_identity_where_it_is_listed(
    provider: CertifiedProvider, session: aiohttp.ClientSession
) -> None:
    token = await provider.service_token(session, OPAQUE)
    async with asking(provider, service_accounts=("svc-batch",)) as opaque:
        identity = bearer(await opaque.judged(token, None))
    assert (identity.subject, identity.client, identity.groups) == ("svc-batch", "svc-batch", frozenset({"svc-batch"}))
    async with asking(provider) as opaque:
        with pytest.raises(InvalidToken) as caught:
            bearer(await opaque.judged(token, None))
    assert caught.value.reason == Reason.NO_SUBJECT.value


async def test_a_refresh_token_is_no_access_token(provider: CertifiedProvider, session: aiohttp.ClientSession) -> None:
    signed_in = await provider.sign_in(session, "alice", resource=OPAQUE, scope="openid offline_access llm.chat")
    assert signed_in.refresh_token is not None
    async with asking(provider) as opaque:
        with pytest.raises(InvalidToken):
            bearer(await opaque.judged(signed_in.refresh_token, None))
        assert (bearer(await opaque.judged(signed_in.access_token, None))).subject == "u-alice-0001"


async def test_a_revoked_token_is_refused_within_the_cache_time(
    provider: CertifiedProvider, session: aiohttp.ClientSession
) -> None:
    token = (await provider.sign_in(session, "alice", resource=OPAQUE)).access_token
    async with asking(provider, cache=0.3) as opaque:
        bearer(await opaque.judged(token, None))
        form = {"token": token, "client_id": CHAT_UI}
        async with session.post(f"{provider.issuer}/token/revocation", data=form) as answer:
            assert answer.status == 200
        await asyncio.sleep(0.35)
        with pytest.raises(InvalidToken) as caught:
            bearer(await opaque.judged(token, None))
    assert caught.value.reason == Reason.INACTIVE.value


async def test_an_invented_token_costs_one_question_however_often_it_is_shown(
    provider: CertifiedProvider, session: aiohttp.ClientSession
) -> None:
    async with asking(provider) as opaque:
        before = (await provider.admin(session, "GET", "/admin/hits")).get("introspection", 0)
        for _ in range(20):
            with pytest.raises(InvalidToken):
                bearer(await opaque.judged("invented-token", None))
        after = (await provider.admin(session, "GET", "/admin/hits"))["introspection"]
    assert isinstance(before, int)
    assert isinstance(after, int)
    assert after - before in {1, 2}  # with the probe at the start


async def test_what_the_provider_says_of_a_signed_token_is_that_it_is_none_for_there(
    provider: CertifiedProvider, session: aiohttp.ClientSession
) -> None:
    token = (await provider.sign_in(session, "alice")).access_token
    settings = rules(provider)
    assert settings.introspection is not None
    async with introspection_session() as own:
        endpoint = IntrospectionEndpoint(settings, settings.introspection, session=own, clock=time.time)
        await endpoint.probe()
        assert await endpoint.claims_of(token) is None


@pytest.mark.parametrize("mode", ["503", "garbage", "empty", "hang"])
async def test_a_faulty_provider_is_503_and_is_asked_again_when_it_is_well(
    provider: CertifiedProvider, session: aiohttp.ClientSession, mode: str
) -> None:
    token = (await provider.sign_in(session, "alice", resource=OPAQUE)).access_token
    bounds = Bounds(timeout=1.0, threshold=2, first_pause=0.05, longest_pause=0.1)
    async with asking(provider, bounds) as opaque:
        with pytest.raises(InvalidToken):
            bearer(await opaque.judged("invented", None))
        await provider.admin(session, "POST", f"/admin/fault?path=introspection&mode={mode}&ms=2000")
        for number in range(3):
            with pytest.raises(IssuerUnavailable):
                bearer(await opaque.judged(f"{token}-{number}", None))
        await provider.admin(session, "POST", "/admin/fault?path=introspection&mode=off")
        async with asyncio.timeout(20):
            while not opaque.introspectors[0].ready:
                await asyncio.sleep(0.02)
        assert (bearer(await opaque.judged(token, None))).subject == "u-alice-0001"


async def test_check_tells_right_credentials_from_wrong_ones(provider: CertifiedProvider) -> None:
    async with introspection_session() as own:
        (right,) = [line async for line in introspection_lines(rules(provider), own, None)]
        wrong_secret = rules(provider, client_secret=Secret(b"wrong", "test"))
        (wrong,) = [line async for line in introspection_lines(wrong_secret, own, None)]
    assert (right.level, wrong.level) == (Level.OK, Level.FAULT)
    assert "`client_secret`" in wrong.message
