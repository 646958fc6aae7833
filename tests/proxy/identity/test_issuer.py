"""An issuer's keys: where they may come from, how often they are asked for, and what an outage does."""

from __future__ import annotations

import asyncio
import dataclasses
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from proxy.identity import Identity
from proxy.identity.issuer import Schedule
from proxy.identity.issuers import TrustedIssuers, open_issuers
from proxy.identity.reasons import Reason
from proxy.refusals import InvalidToken, IssuerUnavailable
from tests.parts.tokens import ABSENT, Document, Fault, IssuerServer, TokenMint, signing_key
from tests.proxy.identity.judging import NOW, fixed_clock, mint

DAY = 24 * 3600.0
# Nothing happens by itself: what a test sees, it has asked for.
STILL = Schedule(interval=1e6, first_pause=1e6, longest_pause=1e6)
QUICK = Schedule(interval=0.01, first_pause=0.01, longest_pause=0.02)


class Stopwatch:
    """A monotonic clock that only the test moves."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@asynccontextmanager
async def gate(
    server: IssuerServer, schedule: Schedule = STILL, *, watch: Stopwatch | None = None, jwks_uri: str | None = None
) -> AsyncIterator[TrustedIssuers]:
    settings = (server.settings(jwks_uri=jwks_uri),)
    async with open_issuers(settings, clock=fixed_clock, monotonic=watch or Stopwatch(), schedule=schedule) as issuers:
        yield issuers


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def unknown(m: TokenMint, number: int, iat: object = NOW - 60.0) -> str:
    """A token whose key id somebody invented, by default issued before the keys were fetched."""
    return m.token(algorithm="ES256", header={"kid": f"invented-{number}"}, iat=iat)


async def refused(issuers: TrustedIssuers, token: str) -> str:
    with pytest.raises(InvalidToken) as caught:
        await issuers.identify(token)
    return caught.value.reason


async def unavailable(issuers: TrustedIssuers, token: str) -> IssuerUnavailable:
    with pytest.raises(IssuerUnavailable) as caught:
        await issuers.identify(token)
    return caught.value


# Where keys come from


async def test_the_keys_come_from_discovery() -> None:
    m = mint()
    async with IssuerServer(m, path="/realms/acme") as server, gate(server) as issuers:
        identity = await issuers.identify(m.token())
    assert (identity.issuer, identity.subject) == (server.url, "u-alice-0001")
    assert server.hits == {"discovery": 1, "jwks": 1}


async def test_an_issuer_that_ends_with_a_slash_is_discovered_as_the_standard_says() -> None:
    m = mint()
    async with IssuerServer(m) as server:
        m.issuer = server.url + "/"
        server.faults["discovery"] = "other_issuer"  # which is the one with a slash
        async with gate(server) as issuers:
            assert (await issuers.identify(m.token())).issuer == server.url + "/"


async def test_a_configured_address_of_the_keys_needs_no_discovery() -> None:
    m = mint()
    async with IssuerServer(m) as server, gate(server, jwks_uri=server.jwks_uri) as issuers:
        await issuers.identify(m.token())
    assert server.hits == {"jwks": 1}


async def test_metadata_that_names_another_issuer_by_one_byte_is_refused() -> None:
    m = mint()
    async with IssuerServer(m) as server:
        server.faults["discovery"] = "other_issuer"
        async with gate(server) as issuers:
            await unavailable(issuers, m.token())
    assert server.hits["jwks"] == 0


@pytest.mark.parametrize("document", ["discovery", "jwks"])
@pytest.mark.parametrize("fault", ["status", "garbage", "empty", "redirect", "large"])
async def test_an_answer_that_is_not_what_it_should_be_gives_no_keys(document: Document, fault: Fault) -> None:
    m = mint()
    async with IssuerServer(m) as server:
        server.faults[document] = fault
        async with gate(server) as issuers:
            refusal = await unavailable(issuers, m.token())
            assert not issuers.ready
    assert refusal.retry_after is not None


async def test_a_redirect_is_not_followed() -> None:
    m = mint()
    async with IssuerServer(m) as server:
        server.faults["discovery"] = "redirect"
        async with gate(server) as issuers:
            await unavailable(issuers, m.token())
    assert server.hits["jwks"] == 0


@pytest.mark.parametrize(
    "address",
    [
        "http://sso.example.test/jwks",
        "http://10.0.0.1/jwks",
        "http://127.0.0.1.example.test/jwks",
        "http://localhost.example.test/jwks",
        "http://user:secret@127.0.0.1:1/jwks",
        "file:///etc/passwd",
        "ftp://127.0.0.1/jwks",
        "//127.0.0.1/jwks",
        "jwks",
        " ",
        "http://[",
    ],
)
async def test_keys_are_asked_for_over_https_or_on_loopback_only(address: str) -> None:
    m = mint()
    async with IssuerServer(m) as server:
        server.discovered_jwks_uri = address
        with capture_logs() as logs:
            async with gate(server) as issuers:
                await unavailable(issuers, m.token())
            async with gate(server, jwks_uri=address) as issuers:
                await unavailable(issuers, m.token())
    # The log's cause tells that the address was turned down, not that nobody answered there.
    assert {"address" in entry["cause"] or "Invalid" in entry["cause"] for entry in logs} == {True}
    assert "secret" not in repr(logs)
    assert server.hits["jwks"] == 0


async def test_an_address_in_a_token_is_never_asked() -> None:
    m, evil = mint(), TokenMint(clock=fixed_clock)
    async with IssuerServer(m) as server, IssuerServer(evil) as evil_server, gate(server) as issuers:
        key = signing_key("RS256", "evil", number=66)
        members = {"jku": evil_server.jwks_uri, "x5u": evil_server.url, "jwk": key.jwk()}
        assert await refused(issuers, m.token(key=key, header=members)) == Reason.UNKNOWN_KEY.value
        assert await refused(issuers, evil.token()) == Reason.ISSUER.value
    assert evil_server.hits == {}


# How often


async def test_a_flood_of_invented_keys_is_one_fetch() -> None:
    m, watch = mint(), Stopwatch()
    async with IssuerServer(m) as server, gate(server, watch=watch) as issuers:
        await issuers.identify(m.token())
        flood = [issuers.identify(unknown(m, number)) for number in range(1000)]
        outcomes = await asyncio.gather(*flood, return_exceptions=True)
        assert all(isinstance(outcome, InvalidToken) for outcome in outcomes)
        assert server.hits["jwks"] == 2
        for number in range(20):
            assert await refused(issuers, unknown(m, number)) == Reason.UNKNOWN_KEY.value
        assert server.hits["jwks"] == 2
        watch.seconds += 30
        await refused(issuers, unknown(m, 0))
        await refused(issuers, unknown(m, 1))
        assert server.hits["jwks"] == 3


async def test_a_flood_of_invented_keys_makes_no_fresh_token_invalid_after_a_rotation() -> None:
    """Within the cool-down the keys may be older than the token: that is not the caller's fault."""
    m, watch = mint(), Stopwatch()
    async with IssuerServer(m) as server, gate(server, watch=watch) as issuers:
        await issuers.identify(m.token())
        await refused(issuers, unknown(m, 0))  # spends the fetch on demand
        watch.seconds += 5
        m.keys.insert(0, signing_key("ES256", "rotated"))
        fresh = m.token(key=m.keys[0], iat=NOW)
        with pytest.raises(IssuerUnavailable) as caught:
            await issuers.identify(fresh)
        assert caught.value.retry_after == 30
        assert await refused(issuers, unknown(m, 1)) == Reason.UNKNOWN_KEY.value  # issued before the fetch
        watch.seconds += 30
        await issuers.identify(fresh)


@pytest.mark.parametrize("iat", [ABSENT, NOW + 30.0, NOW])
async def test_within_the_cool_down_a_token_that_may_be_newer_than_the_keys_is_not_called_invalid(iat: object) -> None:
    m = mint()
    async with IssuerServer(m) as server, gate(server) as issuers:
        await issuers.identify(m.token())
        await refused(issuers, unknown(m, 0))
        with pytest.raises(IssuerUnavailable):
            await issuers.identify(unknown(m, 1, iat=iat))
    assert server.hits["jwks"] == 2


async def test_tokens_that_are_wrong_without_a_key_cause_no_fetch() -> None:
    m = mint()
    async with IssuerServer(m) as server, gate(server) as issuers:
        await issuers.identify(m.token())
        for token in (
            m.token(header={"alg": "none"}),
            m.token(header={"alg": "HS256"}),
            m.token(iss="https://x"),
            "a.b.c",
        ):
            await refused(issuers, token)
    assert server.hits["jwks"] == 1


async def test_many_first_callers_wait_for_one_fetch() -> None:
    m = mint()
    async with IssuerServer(m) as server:
        server.faults["jwks"] = "hang"
        async with gate(server) as issuers:
            callers = [asyncio.ensure_future(issuers.identify(m.token())) for _ in range(50)]
            await eventually(lambda: server.hits["jwks"] == 1)
            assert not any(caller.done() for caller in callers)
            server.release()
            identities = await asyncio.gather(*callers)
    assert {identity.subject for identity in identities} == {"u-alice-0001"}
    assert server.hits["jwks"] == 1


async def test_a_caller_who_leaves_does_not_take_the_fetch_away_from_others() -> None:
    m = mint()
    async with IssuerServer(m) as server:
        server.faults["jwks"] = "hang"
        async with gate(server) as issuers:
            leaver, stayer = (asyncio.ensure_future(issuers.identify(m.token())) for _ in range(2))
            await eventually(lambda: server.hits["jwks"] == 1)
            leaver.cancel()
            await asyncio.gather(leaver, return_exceptions=True)
            server.release()
            assert (await stayer).subject == "u-alice-0001"
    assert server.hits["jwks"] == 1


async def test_an_issuer_that_hangs_does_not_hold_a_caller() -> None:
    m = mint()
    async with IssuerServer(m) as server:
        server.faults["discovery"] = "hang"
        async with gate(server, dataclasses.replace(STILL, timeout=0.05)) as issuers, asyncio.timeout(20):
            await unavailable(issuers, m.token())


async def test_keys_are_fetched_again_by_themselves() -> None:
    m = mint()
    async with IssuerServer(m) as server, gate(server, QUICK):
        await eventually(lambda: server.hits["jwks"] >= 4)


async def test_cache_control_makes_the_next_fetch_earlier() -> None:
    m = mint()
    schedule = Schedule(interval=1e6, shortest_interval=0.01)
    for cache_control in ("public, max-age=0", "no-store", "no-cache, max-age=86400"):
        async with IssuerServer(m) as server:
            server.cache_control = cache_control
            async with gate(server, schedule):
                await eventually(lambda server=server: server.hits["jwks"] >= 3)  # type: ignore[misc]  # bound early


async def test_cache_control_never_makes_the_next_fetch_later() -> None:
    m = mint()
    async with IssuerServer(m) as server:
        server.cache_control = "max-age=86400"
        async with gate(server, Schedule(interval=0.01, shortest_interval=0.01)):
            await eventually(lambda: server.hits["jwks"] >= 3)


# Rotation


async def test_a_new_key_is_taken_up_at_once() -> None:
    m = mint()
    async with IssuerServer(m) as server, gate(server) as issuers:
        await issuers.identify(m.token())
        old = m.token()
        m.rotate("RS256")
        assert (await issuers.identify(m.token())).subject == "u-alice-0001"
        assert (await issuers.identify(old)).subject == "u-alice-0001"
    assert server.hits["jwks"] == 2


async def test_a_withdrawn_key_stops_also_for_tokens_that_were_verified_before() -> None:
    m = mint()
    async with IssuerServer(m) as server, gate(server, QUICK) as issuers:
        token = m.token()
        await issuers.identify(token)
        m.retire(m.key())
        m.rotate("RS256")
        await eventually(lambda: issuers.issuers[0].generation == 2)
        assert await refused(issuers, token) == Reason.UNKNOWN_KEY.value


async def test_the_same_keys_fetched_again_are_no_new_generation() -> None:
    m = mint()
    async with IssuerServer(m) as server, gate(server, QUICK) as issuers:
        await eventually(lambda: server.hits["jwks"] >= 4)
        assert issuers.issuers[0].generation == 1


async def test_a_key_for_encryption_beside_the_others_changes_nothing() -> None:
    m = mint()
    encryption = {**signing_key("RS256", "enc", number=8).jwk(), "use": "enc", "alg": "RSA-OAEP"}
    async with IssuerServer(m) as server:
        m.jwks = lambda: {"keys": [encryption, *(key.jwk() for key in m.keys)]}  # type: ignore[method-assign]  # as Keycloak
        async with gate(server) as issuers:
            assert (await issuers.identify(m.token(header={"kid": ABSENT}))).subject == "u-alice-0001"


# Outage


@pytest.mark.parametrize("fault", ["status", "garbage", "empty", "large", "redirect"])
async def test_known_keys_are_never_replaced_by_a_bad_answer(fault: Fault) -> None:
    m = mint()
    async with IssuerServer(m) as server, gate(server, QUICK) as issuers:
        await issuers.identify(m.token())
        before = server.hits["jwks"]
        server.faults["jwks"] = fault
        await eventually(lambda: server.hits["jwks"] >= before + 3)
        assert (await issuers.identify(m.token())).subject == "u-alice-0001"
        assert issuers.ready


async def test_known_keys_serve_for_a_day_while_the_issuer_is_away_and_then_it_is_our_fault() -> None:
    m, watch = mint(), Stopwatch()
    async with IssuerServer(m) as server, gate(server, watch=watch) as issuers:
        token = m.token()
        await issuers.identify(token)
        await server.stop()
        watch.seconds += DAY
        assert (await issuers.identify(m.token())).subject == "u-alice-0001"
        ready_after_a_day = issuers.ready
        watch.seconds += 1
        assert (ready_after_a_day, issuers.ready) == (True, False)
        assert (await unavailable(issuers, m.token())).status == 503
        assert (await unavailable(issuers, token)).retry_after is not None


async def test_an_unknown_key_while_the_issuer_is_away_is_our_fault_not_the_callers() -> None:
    m = mint()
    async with IssuerServer(m) as server, gate(server) as issuers:
        await issuers.identify(m.token())
        await server.stop()
        m.rotate("RS256")
        await unavailable(issuers, m.token())
        await unavailable(issuers, m.token())


async def test_it_starts_while_the_issuer_is_away_and_heals_by_itself() -> None:
    m = mint()
    async with IssuerServer(m) as server:
        await server.stop()
        async with gate(server, QUICK) as issuers:
            await unavailable(issuers, m.token())
            assert not issuers.ready
            assert issuers.issuers[0].keys_age is None
            await server.start()
            await eventually(lambda: issuers.ready)
            assert (await issuers.identify(m.token())).subject == "u-alice-0001"


async def test_it_heals_by_itself_after_an_outage() -> None:
    m, watch = mint(), Stopwatch()
    async with IssuerServer(m) as server, gate(server, QUICK, watch=watch) as issuers:
        await issuers.identify(m.token())
        await server.stop()
        watch.seconds += DAY + 1
        assert not issuers.ready
        await server.start()
        await eventually(lambda: issuers.ready)
        assert (await issuers.identify(m.token())).subject == "u-alice-0001"


async def test_requests_do_not_ask_an_issuer_that_is_away_again_and_again() -> None:
    m = mint()
    async with IssuerServer(m) as server:
        server.faults["discovery"] = "status"
        async with gate(server) as issuers:
            for _ in range(50):
                await unavailable(issuers, m.token())
    assert server.hits["discovery"] <= 2


async def test_one_issuer_away_does_not_stop_the_other() -> None:
    m, away = mint(), mint()
    async with IssuerServer(m) as server, IssuerServer(away) as away_server:
        await away_server.stop()
        settings = (server.settings(), away_server.settings())
        async with open_issuers(settings, clock=fixed_clock, schedule=STILL) as issuers:
            await unavailable(issuers, away.token())
            assert (await issuers.identify(m.token())).subject == "u-alice-0001"
            assert issuers.ready


# TLS


async def test_a_private_authority_is_trusted_where_it_is_configured(
    authority: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    m = mint()
    server_tls, client_tls = authority
    async with IssuerServer(m, tls=server_tls) as server:
        tls = {server.url: client_tls}
        async with open_issuers((server.settings(),), clock=fixed_clock, schedule=STILL, tls=tls) as issuers:
            assert (await issuers.identify(m.token())).issuer == server.url


async def test_a_certificate_of_an_unknown_authority_gives_no_keys(
    authority: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    m = mint()
    async with IssuerServer(m, tls=authority[0]) as server, gate(server) as issuers:
        await unavailable(issuers, m.token())


async def test_an_https_issuer_cannot_send_us_to_http_for_its_keys(
    authority: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    m, plain = mint(), mint()
    async with IssuerServer(m, tls=authority[0]) as server, IssuerServer(plain) as plain_server:
        server.discovered_jwks_uri = plain_server.jwks_uri
        tls = {server.url: authority[1]}
        async with open_issuers((server.settings(),), clock=fixed_clock, schedule=STILL, tls=tls) as issuers:
            await unavailable(issuers, m.token())
    assert plain_server.hits == {}


def test_an_identity_is_a_value() -> None:
    one = Identity("https://sso.example.test", "u", frozenset({"a"}), True, 1.0)
    assert {one, dataclasses.replace(one)} == {one}
