"""The door: a token in, an identity or a refusal out."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from proxy.identity import Identity
from proxy.identity.issuer import Schedule
from proxy.identity.issuers import TrustedIssuers, open_issuers
from proxy.identity.reasons import Reason
from proxy.refusals import InvalidToken, TokenExpired
from tests.parts.tokens import IssuerServer, TokenMint
from tests.proxy.identity.judging import NOW, mint

STILL = Schedule(interval=1e6, first_pause=1e6)


class Clock:
    """Unix seconds that only the test moves."""

    def __init__(self) -> None:
        self.seconds = NOW

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def server() -> AsyncIterator[IssuerServer]:
    async with IssuerServer(mint("RS256", "ES256")) as server:
        yield server


@pytest.fixture
async def issuers(server: IssuerServer, clock: Clock) -> AsyncIterator[TrustedIssuers]:
    async with open_issuers((server.settings(),), clock=clock, schedule=STILL) as issuers:
        await issuers.identify(server.mint.token())
        yield issuers


def without_suspending(issuers: TrustedIssuers, token: str) -> Identity:
    """The identity, from a coroutine that is driven by nobody."""
    waiting = issuers.identify(token)
    try:
        waiting.send(None)
    except StopIteration as done:
        identity = done.value
        assert isinstance(identity, Identity)
        return identity
    waiting.close()
    raise AssertionError("it suspended")


async def test_a_token_verified_a_moment_ago_is_known_without_waiting(
    issuers: TrustedIssuers, server: IssuerServer
) -> None:
    token = server.mint.token()
    first = await issuers.identify(token)
    assert without_suspending(issuers, token) is first


async def test_a_remembered_token_still_expires(issuers: TrustedIssuers, server: IssuerServer, clock: Clock) -> None:
    token = server.mint.token(lifetime=20)
    await issuers.identify(token)
    clock.seconds += 51
    with pytest.raises(TokenExpired):
        await issuers.identify(token)


async def test_two_tokens_with_a_long_common_beginning_never_share_an_identity(
    issuers: TrustedIssuers, server: IssuerServer
) -> None:
    filling = "x" * 9000
    tokens = {
        subject: server.mint.token(claims={"a": filling, "sub": subject, "jti": "same"})
        for subject in ("u-alice-0001", "u-bob-0002", "u-carol-0003")
    }
    # `sub` comes before the filling in the payload; the filling first makes the beginnings equal.
    tokens = {subject: _filling_first(server.mint, subject, filling) for subject in tokens}
    beginnings = {token[:12_000] for token in tokens.values()}
    assert len(beginnings) == 1
    for _ in range(2):
        for subject, token in tokens.items():
            assert (await issuers.identify(token)).subject == subject


def _filling_first(m: TokenMint, subject: str, filling: str) -> str:
    claims = f'{{"a":"{filling}","iss":"{m.issuer}","aud":"saltgate","exp":{int(NOW) + 300},"sub":"{subject}"}}'
    header = f'{{"alg":"RS256","typ":"at+jwt","kid":"{m.key().key_id}"}}'
    return m.key().sign(header.encode(), claims.encode())


async def test_a_token_whose_end_was_changed_is_not_known(issuers: TrustedIssuers, server: IssuerServer) -> None:
    token = server.mint.token()
    await issuers.identify(token)
    for changed in (token[:-8] + "AAAAAAAA", token[:-4], token + "AAAA", token.rsplit(".", 1)[0] + ".AAAA"):
        with pytest.raises(InvalidToken):
            await issuers.identify(changed)


async def test_a_refused_token_is_judged_anew_each_time(
    issuers: TrustedIssuers, server: IssuerServer, clock: Clock
) -> None:
    token = server.mint.token(nbf=NOW + 60)
    with pytest.raises(InvalidToken):
        await issuers.identify(token)
    clock.seconds += 30
    assert (await issuers.identify(token)).subject == "u-alice-0001"


async def test_an_issuers_keys_verify_only_its_own_tokens(clock: Clock) -> None:
    ours, theirs = mint(), TokenMint(clock=clock)
    theirs.rotate("RS256")  # so that the two have different keys with the same kid
    theirs.keys = [dataclasses.replace(theirs.keys[-1], key_id=ours.key().key_id)]
    async with IssuerServer(ours) as server, IssuerServer(theirs) as other:
        settings = (server.settings(), other.settings())
        async with open_issuers(settings, clock=clock, schedule=STILL) as issuers:
            assert (await issuers.identify(ours.token())).issuer == server.url
            assert (await issuers.identify(theirs.token())).issuer == other.url
            with pytest.raises(InvalidToken) as caught:
                await issuers.identify(theirs.token(iss=server.url))
    assert caught.value.reason == Reason.SIGNATURE.value


async def test_an_issuer_configured_twice_is_a_fault(server: IssuerServer, clock: Clock) -> None:
    with pytest.raises(ValueError, match="twice"):
        async with open_issuers((server.settings(), server.settings()), clock=clock, schedule=STILL):
            pass


async def test_a_fault_of_ours_refuses_the_token_is_counted_and_tells_the_log_nothing_of_it(
    server: IssuerServer, issuers: TrustedIssuers
) -> None:
    token = server.mint.token()

    def broken_clock() -> float:
        raise RuntimeError(f"clock at {token}")

    broken = TrustedIssuers(issuers.issuers, clock=broken_clock)
    with capture_logs() as logs, pytest.raises(InvalidToken) as caught:
        await broken.identify(token)
    assert caught.value.reason == Reason.FAULT.value
    assert broken.faults == 1
    assert caught.value.__suppress_context__
    assert [entry["event"] for entry in logs] == ["token_verifier_fault"]
    assert logs[0]["fault"] == "RuntimeError"
    assert token not in repr(logs)


async def test_what_the_log_hears_of_keys_holds_no_token(server: IssuerServer, clock: Clock) -> None:
    with capture_logs() as logs:
        async with open_issuers((server.settings(),), clock=clock, schedule=STILL) as issuers:
            token = server.mint.token(header={"kid": "invented"})
            with pytest.raises(InvalidToken):
                await issuers.identify(token)
            await server.stop()
            server.mint.rotate("RS256")
    assert {entry["event"] for entry in logs} == {"issuer_keys_changed"}
    assert "invented" not in repr(logs)


async def test_closing_leaves_no_task_behind(server: IssuerServer, clock: Clock) -> None:
    before = len(asyncio.all_tasks())
    server.faults["jwks"] = "hang"
    async with open_issuers((server.settings(),), clock=clock, schedule=STILL):
        while server.hits["jwks"] == 0:
            await asyncio.sleep(0.005)
        assert len(asyncio.all_tasks()) > before
    server.release()
    names = {task.get_coro().__qualname__ for task in asyncio.all_tasks()}  # type: ignore[union-attr]  # coroutines all
    assert not any("TrustedIssuer" in name for name in names)
