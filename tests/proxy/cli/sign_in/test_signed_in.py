"""A fresh access token: refreshed once for all, never lost, and never a stale one in its place."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from config.person import GATE_VARIABLE
from proxy.cli.sign_in.kept import KeptSignIn, SignIns
from proxy.cli.signed_in import NotSignedIn, alone_with, chosen_gate, fresh_sign_in
from tests.parts.tokens import ABSENT
from tests.proxy.cli.sign_in.rogue import CLIENT, SECRETS, Rogue


@pytest.fixture
async def rogue() -> AsyncIterator[Rogue]:
    async with Rogue() as running:
        yield running


@pytest.fixture
def sign_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SignIns:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv(GATE_VARIABLE, raising=False)
    return SignIns(tmp_path / "saltgate")


def kept(rogue: Rogue, *, seconds_left: float = -1.0) -> KeptSignIn:
    return KeptSignIn(
        gate=rogue.url,
        issuer=rogue.url,
        client_id=CLIENT,
        resource="urn:llm",
        subject="u-alice-0001",
        access_token="old-access-token",
        refresh_token=f"{SECRETS[1]}-0",
        expires_at=time.time() + seconds_left,
        lifetime=300.0,
    )


async def test_a_token_that_is_good_is_given_without_asking_anybody(rogue: Rogue, sign_ins: SignIns) -> None:
    sign_ins.keep(kept(rogue, seconds_left=100), as_last=True)
    found = await fresh_sign_in(None)
    assert (found.gate, found.issuer, found.subject) == (rogue.url, rogue.url, "u-alice-0001")
    assert found.access_token == "old-access-token"
    assert "old-access-token" not in repr(found)
    assert not rogue.asked


async def test_one_that_ends_soon_is_refreshed_and_the_rotated_token_kept(rogue: Rogue, sign_ins: SignIns) -> None:
    sign_ins.keep(kept(rogue, seconds_left=59), as_last=True)
    found = await fresh_sign_in(rogue.url)
    assert found.access_token != "old-access-token"
    assert rogue.forms("/token") == [
        {
            "grant_type": "refresh_token",
            "client_id": CLIENT,
            "refresh_token": f"{SECRETS[1]}-0",
            "resource": "urn:llm",
        }
    ]
    after = sign_ins.find(rogue.url)
    assert after is not None
    assert (after.access_token, after.refresh_token) == (found.access_token, f"{SECRETS[1]}-1")
    assert (await fresh_sign_in(rogue.url)).access_token == found.access_token
    assert len(rogue.forms("/token")) == 1


async def test_many_at_once_make_one_refresh(rogue: Rogue, sign_ins: SignIns) -> None:
    sign_ins.keep(kept(rogue), as_last=True)
    found = await asyncio.gather(*(fresh_sign_in(None) for _ in range(20)))
    assert len({each.access_token for each in found}) == 1
    assert len(rogue.forms("/token")) == 1


async def test_an_issuer_that_does_not_rotate_keeps_its_refresh_token(rogue: Rogue, sign_ins: SignIns) -> None:
    rogue.token["refresh_token"] = ABSENT
    sign_ins.keep(kept(rogue), as_last=True)
    await fresh_sign_in(None)
    after = sign_ins.find(rogue.url)
    assert after is not None
    assert after.refresh_token == f"{SECRETS[1]}-0"


async def test_a_token_that_lives_shorter_than_is_asked_is_not_refreshed_by_each(
    rogue: Rogue, sign_ins: SignIns
) -> None:
    rogue.token["expires_in"] = 40
    sign_ins.keep(kept(rogue), as_last=True)
    for _ in range(3):
        await fresh_sign_in(None)
    assert len(rogue.forms("/token")) == 1


async def test_a_sign_in_that_is_over_is_forgotten_and_its_token_not_sent_again(
    rogue: Rogue, sign_ins: SignIns
) -> None:
    sign_ins.keep(replace(kept(rogue), refresh_token="used-before"), as_last=True)
    for _ in range(2):
        with pytest.raises(NotSignedIn, match=f"saltgate login --gate {rogue.url}") as refused:
            await fresh_sign_in(None)
        assert "used-before" not in str(refused.value)
    assert len(rogue.forms("/token")) == 1


async def test_without_a_refresh_token_it_ends_with_the_access_token(rogue: Rogue, sign_ins: SignIns) -> None:
    sign_ins.keep(replace(kept(rogue), refresh_token=None), as_last=True)
    with pytest.raises(NotSignedIn, match="has expired; run: saltgate login"):
        await fresh_sign_in(None)
    assert not rogue.asked


async def test_an_issuer_that_is_away_ends_nothing(rogue: Rogue, sign_ins: SignIns) -> None:
    sign_ins.keep(kept(rogue), as_last=True)
    rogue.polls = [503]
    with pytest.raises(NotSignedIn, match="try again"):
        await fresh_sign_in(None)
    rogue.instead["/.well-known/openid-configuration"] = lambda: web.Response(status=502)
    with pytest.raises(NotSignedIn, match="answered 502"):
        await fresh_sign_in(None)
    del rogue.instead["/.well-known/openid-configuration"]
    assert (await fresh_sign_in(None)).access_token


async def test_an_issuer_that_has_become_another_gets_no_refresh_token(rogue: Rogue, sign_ins: SignIns) -> None:
    sign_ins.keep(kept(rogue), as_last=True)
    rogue.discovery["issuer"] = "https://sso.example.com"
    with pytest.raises(NotSignedIn, match="another issuer"):
        await fresh_sign_in(None)
    rogue.discovery |= {"issuer": rogue.url, "token_endpoint": "http://evil.example/token"}
    with pytest.raises(NotSignedIn, match="must be https"):
        await fresh_sign_in(None)
    assert not rogue.forms("/token")


async def test_a_refresh_that_has_begun_is_ended_and_kept_also_where_its_caller_leaves(
    rogue: Rogue, sign_ins: SignIns
) -> None:
    sign_ins.keep(kept(rogue), as_last=True)
    caller = asyncio.get_running_loop().create_task(fresh_sign_in(None))
    while not rogue.forms("/token"):
        await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    after = sign_ins.find(rogue.url)
    assert after is not None
    assert after.refresh_token == f"{SECRETS[1]}-1"
    assert (await fresh_sign_in(None)).access_token == after.access_token


async def test_who_waits_for_another_gets_his_turn(rogue: Rogue, sign_ins: SignIns) -> None:
    sign_ins.keep(kept(rogue), as_last=True)
    async with alone_with(rogue.url):
        waiting = asyncio.get_running_loop().create_task(fresh_sign_in(None))
        await asyncio.sleep(0.12)
        assert not waiting.done()
    assert (await waiting).access_token


async def test_nobody_is_signed_in_where_nobody_signed_in(sign_ins: SignIns) -> None:
    with pytest.raises(NotSignedIn, match=r"saltgate login --gate https://YOUR.GATE"):
        await fresh_sign_in(None)
    with pytest.raises(NotSignedIn, match=r"saltgate login --gate https://llm.example.com"):
        await fresh_sign_in("https://llm.example.com/v1")
    with pytest.raises(NotSignedIn, match="the gate's address is wrong"):
        await fresh_sign_in("http://llm.example.com")
    assert not sign_ins.folder.parent.exists()


def test_the_option_goes_before_the_variable_and_that_before_the_last(
    sign_ins: SignIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert chosen_gate(None) is None
    sign_ins.keep(EMPTY, as_last=True)
    assert chosen_gate(None) == EMPTY.gate
    monkeypatch.setenv(GATE_VARIABLE, "https://of-the-variable.example/v1")
    assert chosen_gate(None) == "https://of-the-variable.example"
    assert chosen_gate("https://of-the-option.example") == "https://of-the-option.example"


EMPTY = KeptSignIn(
    gate="https://llm.example.com",
    issuer="",
    client_id="",
    resource=None,
    subject=None,
    access_token="",
    refresh_token=None,
    expires_at=0,
    lifetime=0,
)
