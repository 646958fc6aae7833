"""`saltgate pat`: at a gate where one is signed in, and with the configuration in hand."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import tomli_w

from config.load import load
from config.person import GATE_VARIABLE
from proxy.cli import pat
from proxy.cli.sign_in.kept import KeptSignIn, SignIns
from proxy.directory.connect import open_tokens
from proxy.identity.personal import new_personal_token, personal_token
from proxy.identity.personal_records import Kept
from tests.parts.redis_server import RedisServer
from tests.proxy.account.token_parts import ADMIN, ALICE, APOLLO, BOB, Desk, desk, id_of
from tests.proxy.cli.sign_in.commands import Said

TOKEN = re.compile(r"sgp_[0-9A-Za-z]{8}_[A-Za-z0-9_-]{43}_[0-9A-Za-z]{6}")


@dataclass(frozen=True, slots=True)
class Terminal:
    """`saltgate pat` in this process. What it says on standard error never holds a token."""

    capsys: pytest.CaptureFixture[str]

    async def pat(self, *words: str) -> Said:
        parser = argparse.ArgumentParser()
        pat.add_arguments(parser)
        try:
            status = await asyncio.to_thread(pat.run, parser.parse_args(words))
        except SystemExit as usage:
            status = int(str(usage.code))
        captured = self.capsys.readouterr()
        assert not TOKEN.search(captured.err)
        return Said(status, captured.out, captured.err)


@pytest.fixture
def terminal(capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(capsys)


@pytest.fixture
async def people(redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv(GATE_VARIABLE, raising=False)
    async with desk(redis, tmp_path, administrators=(f"user:{ADMIN}",)) as open_desk:
        yield open_desk


def sign_in(people: Desk, folder: Path, subject: str = ALICE) -> None:
    SignIns(folder / "home" / "saltgate").keep(
        KeptSignIn(
            gate=people.bed.url,
            issuer=people.bed.mint.issuer,
            client_id="cli",
            resource=None,
            subject=subject,
            access_token=people.sign_in(subject),
            refresh_token=None,
            expires_at=time.time() + 250,
            lifetime=300.0,
        ),
        as_last=True,
    )


# At a gate


async def test_a_token_alone_is_on_standard_output_and_works(people: Desk, terminal: Terminal, tmp_path: Path) -> None:
    sign_in(people, tmp_path)
    said = await terminal.pat("create", "--name", "laptop", "--expires", "30d", "--project", "acme/apollo")
    assert said.status == 0
    token = said.out.removesuffix("\n")
    assert TOKEN.fullmatch(token)
    assert f"{people.bed.url}/v1" in said.err
    assert "acme/apollo" in said.err
    assert (await people.models(token)).status == 200
    (shown,) = await people.listed()
    assert (shown["name"], shown["projects"]) == ("laptop", ["acme/apollo"])
    assert shown["expires_at"] - shown["created_at"] == 30 * 24 * 3600


async def test_a_list_and_a_revocation(people: Desk, terminal: Terminal, tmp_path: Path) -> None:
    sign_in(people, tmp_path)
    token, other = await people.made(), await people.made(name="other")
    listed = await terminal.pat("list")
    assert (listed.status, listed.err) == (0, "")
    lines = listed.out.splitlines()
    assert [line.split()[0] for line in lines] == ["id", *sorted((id_of(token), id_of(other)), key=listed.out.index)]
    assert token[13:] not in listed.out
    document = json.loads((await terminal.pat("list", "--json")).out)
    assert {each["id"] for each in document["tokens"]} == {id_of(token), id_of(other)}
    assert (await terminal.pat("revoke", id_of(token))).status == 0
    assert (await people.until_refused(token, **APOLLO)).status == 401
    said = await terminal.pat("revoke", "--all", "--json")
    assert (said.status, json.loads(said.out)) == (0, {"revoked": 1})
    empty = await terminal.pat("list")
    assert (empty.status, empty.out) == (0, "")
    assert "saltgate pat create" in empty.err


async def test_a_refusal_of_the_gate_is_told_with_its_remedy(people: Desk, terminal: Terminal, tmp_path: Path) -> None:
    sign_in(people, tmp_path)
    for words in (("create", "--project", "globex/vault"), ("create", "--expires", "1m", "--name", "a\nb")):
        said = await terminal.pat(*words)
        assert (said.status, said.out, said.err.count("\n")) == (1, "", 1)
    said = await terminal.pat("revoke", "zzzzzzzz")
    assert said.status == 1
    assert "no token of this id" in said.err


async def test_a_lifetime_that_is_too_long_is_told_in_days(people: Desk, terminal: Terminal, tmp_path: Path) -> None:
    sign_in(people, tmp_path)
    said = await terminal.pat("create", "--expires", "400d")
    assert (said.status, said.out) == (1, "")
    assert "365 days at most" in said.err


async def test_a_list_says_that_the_last_use_is_noted_later(terminal: Terminal) -> None:
    said = await terminal.pat("list", "--help")
    assert said.status == 0
    assert "a minute later at most" in " ".join(said.out.split())


async def test_an_administrator_names_whose_tokens_he_means(people: Desk, terminal: Terminal, tmp_path: Path) -> None:
    token = await people.made(people.sign_in(BOB))
    sign_in(people, tmp_path, ADMIN)
    assert id_of(token) in (await terminal.pat("list", "--subject", BOB)).out
    said = await terminal.pat("revoke", "--all", "--subject", BOB, "--issuer", people.bed.mint.issuer, "--json")
    assert json.loads(said.out) == {"revoked": 1}
    said = await terminal.pat("list", "--subject", BOB)
    assert (said.status, said.out) == (0, "")
    assert f"{BOB} has none" in said.err
    assert "pat create" not in said.err
    sign_in(people, tmp_path, ALICE)
    said = await terminal.pat("list", "--subject", BOB)
    assert (said.status, said.out) == (1, "")
    assert "administrator" in said.err


async def test_who_is_not_signed_in_is_told_to(people: Desk, terminal: Terminal) -> None:
    for words in (("create",), ("list",), ("revoke", "--all")):
        said = await terminal.pat(*words)
        assert (said.status, said.out) == (1, "")
        assert "saltgate login" in said.err


@pytest.mark.parametrize(
    "words",
    [
        ("revoke",),
        ("revoke", "abcd1234", "--all"),
        ("create", "--expires", "30"),
        ("create", "--expires", "0d"),
        ("create", "--expires", "-1d"),
        ("create", "--expires", "٣d"),
        ("create", "--expires", "99999999999d"),
        ("list", "--issuer", "https://x"),
        ("list", "--gate", "http://127.0.0.1:1", "-c", "x.toml"),
        (),
        ("make",),
    ],
)
async def test_wrong_usage_ends_with_2(
    people: Desk, terminal: Terminal, tmp_path: Path, words: tuple[str, ...]
) -> None:
    sign_in(people, tmp_path)
    said = await terminal.pat(*words)
    assert (said.status, said.out) == (2, "")
    assert said.err
    assert await people.listed() == []


async def test_a_whole_token_as_an_argument_is_not_repeated(people: Desk, terminal: Terminal, tmp_path: Path) -> None:
    sign_in(people, tmp_path)
    token = await people.made()
    said = await terminal.pat("revoke", token)
    assert (said.status, said.out) == (2, "")
    assert token[13:30] not in said.err
    assert "never the token" in said.err


# With the configuration in hand

LOCAL = "http://127.0.0.1:9477"


@pytest.fixture(params=["redis", "file"])
def configuration(request: pytest.FixtureRequest, redis: RedisServer, tmp_path: Path) -> Path:
    (tmp_path / "salt").write_text("0" * 43)
    (tmp_path / "directory.toml").write_text("[workspaces]\n")
    place: dict[str, object] = {"redis": redis.url}
    if request.param == "file":
        place = {"file": "directory.toml", "state": "state"}
    return configure(tmp_path, place)


def configure(folder: Path, directory: dict[str, object], **more: object) -> Path:
    table = {
        "engines": [{"name": "main", "urls": ["http://127.0.0.1:9"]}],
        "issuers": [
            {"issuer": LOCAL, "kind": "local", "audiences": ["saltgate"]},
            {"issuer": "https://sso.example.com", "audiences": ["saltgate"]},
        ],
        "directory": directory,
        "isolation": {"keys": [{"id": "k1", "secret": {"file": "salt"}}]},
    }
    (folder / "saltgate.toml").write_text(tomli_w.dumps(table | more))
    return folder / "saltgate.toml"


async def kept(configuration: Path, token_id: str) -> Kept | None:
    tokens = open_tokens(load(configuration).settings.directory)
    try:
        return await tokens.find(token_id)
    finally:
        await tokens.close()


async def test_the_one_owner_of_a_local_issuer_makes_one_before_the_gate_ever_ran(
    configuration: Path, terminal: Terminal
) -> None:
    here = ("-c", str(configuration))
    first = await terminal.pat("create", "--name", "one", *here)
    second = await terminal.pat("create", "--name", "two", "--json", *here)
    assert (first.status, second.status) == (0, 0)
    member = re.search(r"member +user:(\S+)", first.err)
    assert member is not None
    assert "password" not in second.err
    found = await kept(configuration, id_of(first.out))
    assert found is not None
    assert (found.record.owner.issuer, found.record.owner.subject) == (LOCAL, member[1])
    assert found.record.digest == personal_token(first.out.strip()).digest
    assert personal_token(json.loads(second.out)["token"]).id == json.loads(second.out)["id"]
    listed = await terminal.pat("list", *here)
    assert sorted(line.split()[-1] for line in listed.out.splitlines()) == ["name", "one", "two"]
    assert (await terminal.pat("revoke", id_of(first.out), *here)).status == 0
    assert await kept(configuration, id_of(first.out)) is None
    assert json.loads((await terminal.pat("revoke", "--all", "--json", *here)).out) == {"revoked": 1}


async def test_for_other_issuers_an_operator_ends_tokens_and_makes_none(
    configuration: Path, terminal: Terminal
) -> None:
    here = ("-c", str(configuration))
    said = await terminal.pat("create", "--issuer", "https://sso.example.com", *here)
    assert (said.status, said.out) == (2, "")
    said = await terminal.pat("list", "--subject", BOB, "--issuer", "https://sso.example.com", *here)
    assert (said.status, said.out) == (0, "")
    assert (await terminal.pat("list", "--subject", BOB, *here)).status == 2  # whose Bob?
    assert (await terminal.pat("revoke", "zzzzzzzz", *here)).status == 1


async def test_the_limits_hold_with_the_configuration_too(
    redis: RedisServer, tmp_path: Path, terminal: Terminal
) -> None:
    (tmp_path / "salt").write_text("0" * 43)
    limits = {"per_owner": 1, "max_lifetime": "24h", "default_lifetime": "1h"}
    here = ("-c", str(configure(tmp_path, {"redis": redis.url}, tokens=limits)))
    for words, problem in (
        (("--expires", "2d"), "max_lifetime lets a token live 1 day at most"),
        (("--project", "acme/apollo"), "not a member"),
        (("--project", "acme"), "WORKSPACE/PROJECT"),
        (("--name", "\x1b[2J"), "name"),
    ):
        said = await terminal.pat("create", *words, *here)
        assert (said.status, said.out) == (1, "")
        assert problem in said.err
    assert (await terminal.pat("create", *here)).status == 0
    said = await terminal.pat("create", *here)
    assert (said.status, said.out) == (1, "")
    assert "per_owner" in said.err


async def test_without_a_local_issuer_none_is_made_with_a_configuration(
    redis: RedisServer, tmp_path: Path, terminal: Terminal
) -> None:
    (tmp_path / "salt").write_text("0" * 43)
    issuers = [{"issuer": "https://sso.example.com", "audiences": ["saltgate"]}]
    here = ("-c", str(configure(tmp_path, {"redis": redis.url}, issuers=issuers)))
    said = await terminal.pat("create", *here)
    assert (said.status, said.out) == (2, "")
    assert "saltgate login" in said.err


async def test_a_store_that_is_away_and_a_faulty_configuration_are_told(tmp_path: Path, terminal: Terminal) -> None:
    (tmp_path / "salt").write_text("0" * 43)
    here = ("-c", str(configure(tmp_path, {"redis": "redis://127.0.0.1:9/0"})))
    for words in (("create",), ("list",), ("revoke", new_personal_token().id), ("revoke", "--all")):
        said = await terminal.pat(*words, *here)
        assert (said.status, said.out) == (1, "")
        assert "Redis" in said.err
    configure(tmp_path, {})
    assert (await terminal.pat("list", *here)).status == 2
