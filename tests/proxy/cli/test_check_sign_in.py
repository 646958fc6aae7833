"""What `saltgate check` says of an issuer where people sign in with a browser."""

from __future__ import annotations

from dataclasses import replace

import aiohttp
import pytest

from proxy.cli.check_sign_in import sign_in_lines
from proxy.cli.lines import Level, Line
from tests.parts.openid_provider import OpenIdProvider
from tests.proxy.account.scene import LOGIN

NAMES_ITSELF = "authorization_response_iss_parameter_supported"


async def lines(provider: OpenIdProvider, *, callback: str | None = None, alone: bool = False) -> list[Line]:
    rules = replace(provider.settings(), login=replace(LOGIN, callback=callback))
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        found = sign_in_lines(rules, session, None, public_url="https://gate.example", alone=alone)
        return [line async for line in found]


@pytest.mark.parametrize(
    ("callback", "alone", "names_itself", "address"),
    [
        (None, True, False, "https://gate.example/auth/callback"),
        (None, False, True, "https://gate.example/auth/callback"),
        ("acme", False, False, "https://gate.example/auth/callback/acme"),
    ],
)
async def test_the_redirect_uri_is_told(callback: str | None, alone: bool, names_itself: bool, address: str) -> None:
    async with OpenIdProvider() as provider:
        provider.metadata[NAMES_ITSELF] = names_itself
        (line,) = await lines(provider, callback=callback, alone=alone)
    assert line.level is Level.OK
    assert line.message.endswith(f" {address}")


async def test_an_issuer_that_could_be_mixed_up_with_another_is_a_fault_with_its_remedy() -> None:
    async with OpenIdProvider() as provider:
        provider.metadata[NAMES_ITSELF] = False
        (line,) = await lines(provider)
    assert line.level is Level.FAULT
    assert "Set `callback`" in line.message


@pytest.mark.parametrize("bent", [{"issuer": "https://evil.example"}, {"token_endpoint": "http://evil.example/"}])
async def test_metadata_that_nobody_can_sign_in_by_are_a_fault(bent: dict[str, object]) -> None:
    async with OpenIdProvider() as provider:
        provider.metadata |= bent
        (line,) = await lines(provider)
    assert line.level is Level.FAULT
    assert "Nobody can sign in" in line.message


async def test_an_issuer_without_a_sign_in_is_not_asked() -> None:
    async with OpenIdProvider() as provider, aiohttp.ClientSession() as session:
        found = sign_in_lines(provider.settings(), session, None, public_url="https://gate.example", alone=True)
        assert [line async for line in found] == []
        assert provider.hits["discovery"] == 0
