"""The device grant: as slowly as the issuer wants, not for ever, and no page for a password without protection."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from proxy.cli.sign_in import SignInFailed
from proxy.cli.sign_in.device import GRANT_TYPE, LONGEST_WAIT, DeviceCode, sign_in_by_device
from proxy.cli.sign_in.id_tokens import signed_in_person
from proxy.cli.sign_in.issuer import Tokens, discover
from proxy.cli.sign_in.web import Web, open_web
from tests.parts.tokens import ABSENT, TokenMint
from tests.proxy.cli.sign_in.rogue import CLIENT, SECRETS, Rogue


class Hours:
    """Time that passes only where somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def seconds(self) -> float:
        return self.now

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
async def rogue() -> AsyncIterator[Rogue]:
    async with Rogue() as running:
        yield running


@pytest.fixture
async def asking() -> AsyncIterator[Web]:
    async with open_web(seconds=2) as opened:
        yield opened


async def signed_in(rogue: Rogue, asking: Web, time: Hours, shown: list[DeviceCode] | None = None) -> Tokens:
    endpoints = await discover(asking, rogue.url)
    return await sign_in_by_device(asking, endpoints, rogue.sign_in, ([] if shown is None else shown).append, time)


async def test_the_person_is_shown_code_and_page_and_the_tokens_come(rogue: Rogue, asking: Web) -> None:
    shown: list[DeviceCode] = []
    tokens = await signed_in(rogue, asking, Hours(), shown)
    assert (shown[0].user_code, shown[0].address) == ("ABCD-EFGH", f"{rogue.url}/activate")
    assert tokens.refresh_token is not None
    assert rogue.forms("/device") == [
        {"client_id": CLIENT, "scope": "openid offline_access", "resource": "urn:llm", "prompt": "consent"}
    ]
    assert rogue.forms("/token") == [
        {"grant_type": GRANT_TYPE, "client_id": CLIENT, "device_code": SECRETS[0], "resource": "urn:llm"}
    ]


async def test_the_issuer_is_asked_no_sooner_than_it_wants(rogue: Rogue, asking: Web) -> None:
    time, rogue.device["interval"] = Hours(), 7
    rogue.polls = ["authorization_pending", "slow_down", "authorization_pending", "slow_down"]
    await signed_in(rogue, asking, time)
    assert time.pauses == [7, 7, 12, 12, 17]


@pytest.mark.parametrize(("told", "kept"), [(ABSENT, 5.0), (0, 1.0), (0.01, 1.0)])
async def test_an_interval_is_five_seconds_where_none_is_told_and_never_none(
    rogue: Rogue, asking: Web, told: object, kept: float
) -> None:
    time, rogue.device["interval"] = Hours(), told
    await signed_in(rogue, asking, time)
    assert time.pauses == [kept]


async def test_an_issuer_that_is_away_for_a_moment_is_asked_more_and_more_slowly(rogue: Rogue, asking: Web) -> None:
    time, rogue.polls = Hours(), [503, 429, 500]
    await signed_in(rogue, asking, time)
    assert time.pauses == [5, 10, 20, 40]


async def test_an_issuer_that_asks_for_patience_in_its_own_words_is_asked_more_slowly(
    rogue: Rogue, asking: Web
) -> None:
    time = Hours()
    rogue.instead["/token"] = lambda: web.json_response({"error": "too_many_requests"}, status=429)
    with pytest.raises(SignInFailed, match="not used in time"):
        await signed_in(rogue, asking, time)
    assert time.pauses == [5, 10, 20, 40, 80]


async def test_a_storm_of_slow_down_ends_with_the_code(rogue: Rogue, asking: Web) -> None:
    time, rogue.polls = Hours(), ["slow_down"] * 1000
    with pytest.raises(SignInFailed, match="not used in time"):
        await signed_in(rogue, asking, time)
    assert time.now <= 300
    assert len(rogue.forms("/token")) < 12


async def test_nobody_waits_for_ever_whatever_the_issuer_says(rogue: Rogue, asking: Web) -> None:
    time, rogue.polls = Hours(), ["authorization_pending"] * 10_000
    rogue.device |= {"expires_in": 10**9, "interval": 60}
    with pytest.raises(SignInFailed, match="not used in time"):
        await signed_in(rogue, asking, time)
    assert time.now <= LONGEST_WAIT


@pytest.mark.parametrize("error", ["access_denied", "expired_token", "invalid_grant", "invalid_client"])
async def test_a_no_is_final(rogue: Rogue, asking: Web, error: str) -> None:
    rogue.polls = [error]
    with pytest.raises(SignInFailed, match=error):
        await signed_in(rogue, asking, Hours())
    assert len(rogue.forms("/token")) == 1


@pytest.mark.parametrize(
    "bent",
    [
        {"verification_uri": "http://evil.example/activate"},
        {"verification_uri": "http://127.0.0.1.evil.example/"},
        {"verification_uri": "javascript:alert(1)"},
        {"verification_uri": "https://good.example/\x1b[2J"},
        {"verification_uri": "https://me@good.example/"},
        {"verification_uri": ABSENT},
        {"verification_uri_complete": "http://evil.example/?user_code=ABCD"},
        {"verification_uri_complete": 7},
        {"user_code": "\x1b]0;pwned\x07"},
        {"user_code": "A\nopen http://evil.example"},
        {"user_code": "x" * 100},
        {"user_code": ABSENT},
        {"device_code": ABSENT},
        {"device_code": "a\r\nb"},
        {"expires_in": ABSENT},
        {"expires_in": -1},
        {"expires_in": True},
        {"interval": -5},
        {"interval": "5"},
        {"interval": None},
    ],
)
async def test_a_code_that_cannot_be_shown_or_used_is_not_shown(
    rogue: Rogue, asking: Web, bent: dict[str, object]
) -> None:
    rogue.device |= bent
    shown: list[DeviceCode] = []
    with pytest.raises(SignInFailed) as failed:
        await signed_in(rogue, asking, Hours(), shown)
    assert not shown
    assert not rogue.forms("/token")
    assert str(failed.value).isprintable()


@pytest.mark.parametrize("member", ["expires_in", "interval"])
async def test_a_number_that_no_clock_can_hold_is_no_crash(rogue: Rogue, asking: Web, member: str) -> None:
    rogue.device[member] = 10**400
    rogue.polls = ["authorization_pending"] * 10_000
    time = Hours()
    with pytest.raises(SignInFailed, match="not used in time"):
        await signed_in(rogue, asking, time)
    assert time.now <= LONGEST_WAIT


async def test_an_issuer_without_the_grant_is_told_so(rogue: Rogue, asking: Web) -> None:
    rogue.discovery["device_authorization_endpoint"] = ABSENT
    with pytest.raises(SignInFailed, match="--browser"):
        await signed_in(rogue, asking, Hours())


def test_no_code_is_in_a_representation() -> None:
    code = DeviceCode(device_code="secret", user_code="A", address="a", complete=None, expires_in=1, interval=1)
    tokens = Tokens(access_token="secret", refresh_token="secret", id_token="secret", lifetime=1)
    assert "secret" not in repr(code) + repr(tokens)


# The ID token that comes with it.


async def person(rogue: Rogue, asking: Web, *, nonce: str | None = None) -> str | None:
    tokens = await signed_in(rogue, asking, Hours())
    endpoints = await discover(asking, rogue.url)
    found = await signed_in_person(asking, endpoints, CLIENT, tokens, nonce=nonce, now=rogue.mint.clock())
    return None if found is None else found.subject


async def test_the_id_token_says_who_signed_in(rogue: Rogue, asking: Web) -> None:
    assert await person(rogue, asking) == "u-alice-0001"
    rogue.id_token = None
    assert await person(rogue, asking) is None


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        ({"aud": "another-client"}, "aud"),
        ({"iss": "https://sso.example.com"}, "iss"),
        ({"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"}, "at_hash"),
        ({"nonce": "of another sign-in"}, "nonce"),
        ({"exp": 1}, "exp"),
    ],
)
async def test_an_id_token_of_something_else_is_not_believed(
    rogue: Rogue, asking: Web, claims: dict[str, object], told: str
) -> None:
    rogue.id_token = claims
    with pytest.raises(SignInFailed, match=f"its {told} is wrong"):
        await person(rogue, asking)


async def test_an_id_token_signed_with_another_key_is_not_believed(rogue: Rogue, asking: Web) -> None:
    other = TokenMint(algorithms=("RS256", "RS256"))
    forged = other.token(audience=CLIENT, header={"typ": ABSENT, "kid": rogue.mint.keys[0].key_id}, iss=rogue.url)
    rogue.token["id_token"] = forged
    with pytest.raises(SignInFailed, match="is not believed: signature"):
        await person(rogue, asking)


@pytest.mark.parametrize("gone", [ABSENT, "503"])
async def test_without_the_issuers_keys_nothing_is_believed(rogue: Rogue, asking: Web, gone: object) -> None:
    if gone is ABSENT:
        rogue.discovery["jwks_uri"] = ABSENT
    else:
        rogue.instead["/jwks"] = _unavailable
    with pytest.raises(SignInFailed, match="no key"):
        await person(rogue, asking)


def _unavailable() -> web.StreamResponse:
    return web.Response(status=503)
