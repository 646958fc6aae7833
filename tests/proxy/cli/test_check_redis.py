"""What `saltgate check` says of a Redis user that may not do what is configured, and that the remedy is enough."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from config.secret import Secret
from config.settings import Directory, Engine, History, Isolation, IsolationKey, Issuer, Login, Settings
from proxy.account.tokens import Wish, new_token
from proxy.cli.check_redis import redis_lines
from proxy.cli.lines import Level, Line
from proxy.directory.redis_tokens import RedisTokens
from proxy.directory.store import StoreUnavailable
from proxy.identity.personal_records import Owner
from tests.parts.redis_server import RedisServer
from tests.proxy.cli.test_check import Deployment, engine, issuer_and_directory

LAYOUT: Final = (Path(__file__).parents[3] / "proxy" / "directory" / "redis-layout.md").read_text()
SERVES: Final = "~{saltgate}:1:* &{saltgate}:1:* +@read +@connection +@transaction +subscribe +unsubscribe"
PROOFS: Final = "(~{saltgate}:1:proofs:* +set)"
WRITES: Final = "+@write +publish"


def settings(redis: RedisServer, *rights: str, login: Login | None = None) -> Settings:
    redis.command("ACL", "SETUSER", "checked", "reset", "on", ">word", *rights)
    return Settings(
        engines=(Engine(name="main", urls=("http://127.0.0.1:1",)),),
        issuers=(Issuer(issuer="https://sso.example", audiences=("saltgate",), login=login),),
        directory=Directory(redis=redis.url, username="checked", password=Secret(b"word", "test")),
        isolation=Isolation(keys=(IsolationKey(id="k1", secret=Secret(bytes(32), "test")),)),
    )


async def found(settings: Settings) -> list[Line]:
    return [line async for line in redis_lines("directory", settings)]


def levels(lines: Iterable[Line]) -> list[Level]:
    return [line.level for line in lines]


BROWSER: Final = Login(client_id="web")
COMMAND_LINE: Final = Login(native_client_id="cli")


def test_the_rights_here_are_those_of_the_page() -> None:
    page = " ".join(LAYOUT.split())
    assert all(f"`{rights}`" in page for rights in (SERVES, PROOFS, WRITES))


@pytest.mark.parametrize("login", [None, BROWSER, COMMAND_LINE], ids=["none", "browser", "command line"])
async def test_of_a_user_that_may_do_what_the_page_says_nothing_is_said(
    redis: RedisServer, login: Login | None
) -> None:
    assert await found(settings(redis, *SERVES.split(), *WRITES.split(), login=login)) == []
    assert redis.command("DBSIZE") == b":0\r\n"


async def test_where_browsers_sign_in_a_user_that_cannot_write_is_a_fault_with_the_remedy(redis: RedisServer) -> None:
    lines = await found(settings(redis, *SERVES.split(), PROOFS, login=BROWSER))
    assert levels(lines) == [Level.FAULT, Level.WARNING]
    assert "nobody can sign in with a browser" in lines[0].message
    assert f"`{WRITES}`" in lines[0].message
    assert "redis-layout.md" in lines[0].message


@pytest.mark.parametrize("login", [None, COMMAND_LINE], ids=["none", "command line"])
async def test_else_it_is_a_warning_about_tokens(redis: RedisServer, login: Login | None) -> None:
    (line,) = await found(settings(redis, *SERVES.split(), PROOFS, login=login))
    assert line.level is Level.WARNING
    assert "no personal access token can be made or revoked" in line.message
    assert f"`{WRITES}`" in line.message


async def test_a_history_that_cannot_be_kept_is_warned_of(redis: RedisServer) -> None:
    kept = replace(settings(redis, *SERVES.split(), PROOFS), history=History(redis=True))
    assert "the history of the administrators' pages is not kept" in (await found(kept))[-1].message
    kept = replace(settings(redis, *SERVES.split(), *WRITES.split()), history=History(redis=True))
    assert await found(kept) == []
    assert redis.command("DBSIZE") == b":0\r\n"


async def test_without_the_selector_bound_tokens_are_warned_of(redis: RedisServer) -> None:
    lines = await found(settings(redis, *SERVES.split()))
    assert levels(lines) == [Level.WARNING, Level.WARNING]
    assert "503" in lines[1].message
    assert f"`{PROOFS}`" in lines[1].message


@pytest.mark.parametrize(
    "less", ["-publish", "-zadd", "-zremrangebyscore", "-pexpire", "-incr", "-hset", "-del", "resetchannels"]
)
async def test_a_single_command_or_channel_that_is_missing_is_a_fault(redis: RedisServer, less: str) -> None:
    lines = await found(settings(redis, *SERVES.split(), *WRITES.split(), less, login=BROWSER))
    assert Level.FAULT in levels(lines)


async def test_a_user_for_single_keys_may_do_one_without_the_other(redis: RedisServer) -> None:
    keys = "~{saltgate}:1:session* ~{saltgate}:1:once:* ~{saltgate}:1:endings ~{saltgate}:1:generation"
    lines = await found(settings(redis, "resetkeys", *keys.split(), "&{saltgate}:1:*", "+@all", PROOFS, login=BROWSER))
    assert levels(lines) == [Level.WARNING]
    assert "personal access token" in lines[0].message


async def test_a_redis_without_transactions_for_this_user_is_told(redis: RedisServer) -> None:
    rights = ("~*", "&*", "+@all", "-multi")
    assert levels(await found(settings(redis, *rights))) == [Level.WARNING]
    assert levels(await found(settings(redis, *rights, login=BROWSER))) == [Level.FAULT]


async def test_a_directory_in_a_file_has_no_redis_user(redis: RedisServer, tmp_path: Path) -> None:
    inside = Directory(file=tmp_path / "directory.toml", state=tmp_path)
    assert await found(replace(settings(redis), directory=inside)) == []


async def test_it_is_as_it_says(redis: RedisServer) -> None:
    made = new_token(Owner("https://sso.example", "alice"), Wish("ci", 60, None), now=time.time())
    writes = RedisTokens(settings(redis, *SERVES.split(), *WRITES.split()).directory)
    await writes.create(made.record, limit=1)
    await writes.close()
    only_reads = RedisTokens(settings(redis, *SERVES.split()).directory)
    with pytest.raises(StoreUnavailable):
        await only_reads.create(made.record, limit=2)
    await only_reads.close()


async def test_the_command_says_no_where_nobody_could_sign_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], redis: RedisServer
) -> None:
    deployment = Deployment(tmp_path, capsys)
    async with issuer_and_directory(redis) as issuer:
        redis.command("ACL", "SETUSER", "checked", "reset", "on", ">word", *SERVES.split())
        (deployment.file.parent / "redis.word").write_text("word")
        deployment.configure(
            engines=engine("http://127.0.0.1:1"),
            issuer=issuer,
            redis=redis.url + '"\nusername = "checked"\npassword = { file = "redis.word" }\n#"',
            introspection='[issuers.login]\nclient_id = "web"\n[public]\nurl = "https://llm.example"\n',
        )
        answer = await deployment.check("--json")
    assert answer.code == 1
    assert any("nobody can sign in with a browser" in line for line in answer.lines("fault"))
