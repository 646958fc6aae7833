"""What the commands say, in this process: every answer in one line, nothing secret in it, nothing kept that is over."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from aiohttp import web

from config.person import GATE_VARIABLE
from proxy.cli import login, logout, token, whoami
from proxy.cli.sign_in.kept import KeptSignIn, SignIns
from tests.parts.tokens import ABSENT
from tests.proxy.cli.sign_in.commands import Said
from tests.proxy.cli.sign_in.rogue import CLIENT, SECRETS, Rogue


@pytest.fixture
async def rogue() -> AsyncIterator[Rogue]:
    async with Rogue() as running:
        yield running


@pytest.fixture
def sign_ins(rogue: Rogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SignIns:
    """Somebody is signed in."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for name in (GATE_VARIABLE, "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    found = SignIns(tmp_path / "saltgate")
    found.keep(
        KeptSignIn(
            gate=rogue.url,
            issuer=rogue.url,
            client_id=CLIENT,
            resource=None,
            subject="u-alice-0001",
            access_token="access-secret",
            refresh_token=f"{SECRETS[1]}-0",
            expires_at=time.time() + 250,
            lifetime=300.0,
        ),
        as_last=True,
    )
    return found


async def run(command: ModuleType, capsys: pytest.CaptureFixture[str], *words: str) -> Said:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    status = await asyncio.to_thread(command.run, parser.parse_args(words))
    captured = capsys.readouterr()
    for secret in (*SECRETS, "eyJ") if command is not token else SECRETS:
        assert secret not in captured.out + captured.err
    return Said(status, captured.out, captured.err)


async def test_token_says_the_token_and_nothing_else(
    rogue: Rogue, sign_ins: SignIns, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(token, capsys) == Said(0, "access-secret\n", "")
    assert await run(token, capsys, "--gate", rogue.url + "/v1") == Said(0, "access-secret\n", "")
    assert not rogue.asked
    fresh = await run(token, capsys, "--min-validity", "260")
    assert (fresh.status, fresh.err) == (0, "")
    assert fresh.out.startswith("access-secret")  # half of its life is left: it is not refreshed by each
    assert not rogue.asked


async def test_token_says_in_one_line_what_to_do(
    rogue: Rogue, sign_ins: SignIns, capsys: pytest.CaptureFixture[str]
) -> None:
    sign_ins.forget(rogue.url)
    said = await run(token, capsys)
    assert said == Said(
        1, "", f"saltgate: you are not signed in at {rogue.url}; run: saltgate login --gate {rogue.url}\n"
    )
    next(iter(sign_ins.folder.glob("last"))).chmod(0o644)
    said = await run(token, capsys)
    assert (said.status, said.out, said.err.count("\n")) == (1, "", 1)
    assert "chmod go-rwx" in said.err


@pytest.mark.parametrize("word", ["-1", "1.5", "x", "٣", "9999999999"])
async def test_a_validity_that_is_no_number_is_wrong_usage(
    sign_ins: SignIns, capsys: pytest.CaptureFixture[str], word: str
) -> None:
    with pytest.raises(SystemExit) as usage:
        await run(token, capsys, f"--min-validity={word}")
    assert usage.value.code == 2


async def test_whoami_asks_the_gate(rogue: Rogue, sign_ins: SignIns, capsys: pytest.CaptureFixture[str]) -> None:
    said = await run(whoami, capsys)
    assert (said.status, said.err) == (0, "")
    assert "u-alice-0001" in said.out
    assert "acme/apollo (shares its cache within: project)" in said.out
    assert rogue.asked[-1].bearer == "Bearer access-secret"
    document = json.loads((await run(whoami, capsys, "--json")).out)
    assert document["gate"] == rogue.url
    assert document["memberships"] == [{"workspace": "acme", "project": "apollo", "unit": "project"}]


@pytest.mark.parametrize("expires_at", [1e308, pytest.param(10**400, id="huge"), -1, True, "soon"])
async def test_what_a_gate_says_cannot_draw_on_the_terminal(
    rogue: Rogue, sign_ins: SignIns, capsys: pytest.CaptureFixture[str], expires_at: object
) -> None:
    evil = "x\x1b[2J\n\u202e"
    rogue.instead["/account"] = lambda: web.json_response(
        {
            "identity": {"subject": evil, "issuer": evil, "groups": [evil, 7], "expires_at": expires_at},
            "memberships": [{"workspace": evil, "project": None, "unit": evil}, 7],
            "more": True,
        }
    )
    said = await run(whoami, capsys)
    assert said.status == 0
    assert all(line.isprintable() for line in said.out.splitlines())
    assert "the token does not list all" in said.out
    assert "and more" in said.out


@pytest.mark.parametrize("status", [401, 403, 404, 503])
async def test_whoami_tells_the_gates_own_refusal(
    rogue: Rogue, sign_ins: SignIns, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    rogue.refuse_token = status
    said = await run(whoami, capsys)
    assert (said.status, said.out) == (1, "")
    assert said.err.startswith(f"saltgate: {rogue.url} says: This token is not valid here.")
    assert said.err.rstrip("\n").isprintable()


async def test_a_token_goes_nowhere_but_to_its_gate(
    rogue: Rogue, sign_ins: SignIns, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Rogue() as other:
        rogue.instead["/account"] = lambda: web.Response(status=307, headers={"Location": f"{other.url}/account"})
        assert (await run(whoami, capsys)).status == 1
        assert (await run(whoami, capsys, "--gate", other.url)).status == 1
        assert not other.asked


# Signing out.


async def test_signing_out_gives_both_tokens_back_and_forgets_them(
    rogue: Rogue, sign_ins: SignIns, capsys: pytest.CaptureFixture[str]
) -> None:
    said = await run(logout, capsys)
    assert (said.status, said.out) == (0, "")
    assert "ends by itself in 2" in said.err
    assert rogue.forms("/revoke") == [
        {"token": f"{SECRETS[1]}-0", "token_type_hint": "refresh_token", "client_id": CLIENT},
        {"token": "access-secret", "token_type_hint": "access_token", "client_id": CLIENT},
    ]
    assert sign_ins.find(rogue.url) is None
    assert (await run(logout, capsys)).err == f"saltgate: you were not signed in at {rogue.url}\n"
    assert len(rogue.forms("/revoke")) == 2


async def test_an_issuer_that_takes_no_access_tokens_back_is_no_fault(
    rogue: Rogue, sign_ins: SignIns, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = [web.json_response({"error": "unsupported_token_type"}, status=400), web.Response()]
    rogue.instead["/revoke"] = lambda: answers.pop()
    assert (await run(logout, capsys)).status == 0
    assert not answers


@pytest.mark.parametrize("fault", ["none", "503", "away", "unsupported"])
async def test_what_could_not_be_taken_back_is_told_and_forgotten_all_the_same(
    rogue: Rogue, sign_ins: SignIns, capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    match fault:
        case "none":
            rogue.discovery["revocation_endpoint"] = ABSENT
        case "503":
            rogue.instead["/revoke"] = lambda: web.Response(status=503)
        case "away":
            rogue.discovery["revocation_endpoint"] = "http://127.0.0.1:9/"
        case _:
            rogue.instead["/revoke"] = lambda: web.json_response({"error": "unsupported_token_type"}, status=400)
    said = await run(logout, capsys)
    assert said.status == 1
    assert "not everything was taken back" in said.err
    assert said.err.count("\n") == 1
    assert sign_ins.find(rogue.url) is None


# Signing in, as far as it goes without waiting.


async def test_login_needs_a_gate(
    rogue: Rogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "empty"))
    monkeypatch.delenv(GATE_VARIABLE, raising=False)
    said = await run(login, capsys)
    assert (said.status, said.out) == (2, "")
    assert "--gate" in said.err
    monkeypatch.setenv(GATE_VARIABLE, rogue.url)
    rogue.metadata["resource"] = "https://llm.example.com"
    said = await run(login, capsys)
    assert (said.status, said.out) == (1, "")
    assert "calls itself https://llm.example.com" in said.err
    assert not (tmp_path / "empty").exists()


async def test_a_sign_in_that_fails_leaves_the_earlier_one(
    rogue: Rogue, sign_ins: SignIns, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sign_ins.find(rogue.url)
    rogue.device["verification_uri"] = "http://evil.example"
    assert (await run(login, capsys, "--device")).status == 1
    assert sign_ins.find(rogue.url) == before


@pytest.mark.slow
async def test_a_gate_that_names_another_gates_sign_in_gets_no_token(
    rogue: Rogue, sign_ins: SignIns, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = sign_ins.find(rogue.url)
    assert kept is not None
    sign_ins.forget(rogue.url)
    sign_ins.keep(replace(kept, gate="https://llm.example.com"), as_last=True)
    said = await run(login, capsys, "--gate", rogue.url, "--device")
    assert (said.status, said.out) == (1, "")
    assert "may also be good at https://llm.example.com" in said.err
    assert f"--issuer {rogue.url}" in said.err
    assert not [asked for asked in rogue.asked if "device" in asked.path or "token" in asked.path]
    assert (await run(login, capsys, "--gate", rogue.url, "--device", "--issuer", rogue.url)).status == 0
    assert sign_ins.find(rogue.url) is not None


@pytest.mark.slow
async def test_a_sign_in_at_another_client_or_provider_is_nobody_elses(
    rogue: Rogue, sign_ins: SignIns, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = sign_ins.find(rogue.url)
    assert kept is not None
    sign_ins.keep(replace(kept, gate="https://one.example.com", client_id="another"), as_last=False)
    sign_ins.keep(replace(kept, gate="https://two.example.com", issuer="https://sso.example.com"), as_last=False)
    (sign_ins.folder / "junk.json").write_text("{")
    (sign_ins.folder / "junk.json").chmod(0o600)
    assert (await run(login, capsys, "--gate", rogue.url, "--device")).status == 0
