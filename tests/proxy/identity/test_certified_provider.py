"""Access tokens of a certified provider, in the shapes of real ones, through `TrustedIssuers`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from config.presets import PRESETS
from config.settings import Issuer
from proxy.identity.issuers import open_issuers
from proxy.refusals import InvalidToken
from tests.parts.certified_provider import CertifiedProvider

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def provider() -> Iterator[CertifiedProvider]:
    with CertifiedProvider() as running:
        yield running


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as opened:
        yield opened


def rules(provider: CertifiedProvider, kind: str, audience: str = "llm-gateway") -> Issuer:
    preset = PRESETS[kind]
    groups = preset.get("groups", [["groups"]])
    assert isinstance(groups, list)
    return Issuer(
        issuer=provider.issuer,
        audiences=(audience,),
        algorithms=("RS256", "ES256", "EdDSA"),
        token_types=tuple(preset.get("token_types", ["at+jwt"])),  # type: ignore[arg-type]
        subject=tuple(preset.get("subject", ["sub"])),  # type: ignore[arg-type]
        groups=tuple(map(tuple, groups)),
        payload_type=preset.get("payload_type"),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("resource", "kind", "subject", "group"),
    [
        ("urn:llm-gateway", "generic", "u-alice-0001", "eng"),
        ("urn:llm-gateway:es256", "rfc9068", "u-alice-0001", "eng"),
        ("urn:llm-gateway:eddsa", "generic", "u-alice-0001", "llm-premium"),
        ("urn:llm-gateway:keycloak", "keycloak", "u-alice-0001", "llm-admin"),
        (
            "urn:llm-gateway:entra",
            "entra",
            "0a11ce00-0000-4000-8000-000000000001",
            "90000000-0000-4000-8000-000000000002",
        ),
    ],
)
async def test_the_shapes_of_real_providers_are_understood(
    provider: CertifiedProvider, session: aiohttp.ClientSession, resource: str, kind: str, subject: str, group: str
) -> None:
    token = (await provider.sign_in(session, "alice", resource=resource)).access_token
    audience = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee" if kind == "entra" else "llm-gateway"
    async with open_issuers((rules(provider, kind, audience),), clock=time.time) as issuers:
        identity = await issuers.identify(token)
    assert (identity.subject, identity.groups_complete) == (subject, True)
    assert group in identity.groups


async def test_a_service_account_is_an_identity(provider: CertifiedProvider, session: aiohttp.ClientSession) -> None:
    async with open_issuers((rules(provider, "generic"),), clock=time.time) as issuers:
        identity = await issuers.identify(await provider.service_token(session))
    assert (identity.subject, identity.client, identity.groups) == (
        "svc-batch",
        "svc-batch",
        frozenset({"svc-batch"}),
    )


async def test_a_group_overage_is_unknown_groups(provider: CertifiedProvider, session: aiohttp.ClientSession) -> None:
    token = (await provider.sign_in(session, "bob", resource="urn:llm-gateway:entra")).access_token
    async with open_issuers(
        (rules(provider, "entra", "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"),), clock=time.time
    ) as issuers:
        assert not (await issuers.identify(token)).groups_complete


async def test_what_is_for_another_audience_or_no_access_token_is_refused(
    provider: CertifiedProvider, session: aiohttp.ClientSession
) -> None:
    signed_in = await provider.sign_in(session, "alice")
    other = (await provider.sign_in(session, "alice", resource="urn:other-api")).access_token
    async with open_issuers((rules(provider, "keycloak"),), clock=time.time) as issuers:
        for token in (signed_in.id_token, other):
            with pytest.raises(InvalidToken):
                await issuers.identify(token)
