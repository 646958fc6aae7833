"""What a Redis user may do is found out without doing it."""

from __future__ import annotations

import re

import pytest

from config.secret import Secret
from config.settings import Directory
from proxy.directory.redis_rights import forbidden
from proxy.directory.store import StoreUnavailable
from tests.parts.redis_server import RedisServer

ASKED = (
    ("SET", "{saltgate}:1:a", "1"),
    ("INCR", "{saltgate}:1:generation"),
    ("SET", "elsewhere", "1"),
    ("PUBLISH", "{saltgate}:1:changes", "changed"),
)


def user(redis: RedisServer, *rights: str) -> Directory:
    redis.command("ACL", "SETUSER", "asker", "reset", "on", ">word", *rights)
    return Directory(redis=redis.url, username="asker", password=Secret(b"word", "the test"))


@pytest.mark.parametrize(
    ("rights", "missing"),
    [
        ("~* &* +@all", ()),
        ("~* &* +@all -publish", ("PUBLISH",)),
        ("~* +@all", ("PUBLISH",)),
        ("~{saltgate}:1:* &{saltgate}:1:* +@all -incr", ("INCR", "SET")),
        ("~{saltgate}:1:* +@read +@connection +@transaction", ("SET", "INCR", "PUBLISH")),
    ],
)
async def test_what_is_forbidden_is_named_and_nothing_is_done(
    redis: RedisServer, rights: str, missing: tuple[str, ...]
) -> None:
    settings = user(redis, *rights.split())
    redis.command("CONFIG", "RESETSTAT")
    assert set(await forbidden(settings, ASKED)) == set(missing)
    assert redis.command("DBSIZE") == b":0\r\n"
    assert not re.search(rb"cmdstat_(set|incr|publish):calls=[1-9]", redis.command("INFO", "commandstats"))


@pytest.mark.parametrize("away", ["-multi", "-discard"])
async def test_without_transactions_nothing_is_asked_that_would_then_be_done(redis: RedisServer, away: str) -> None:
    with pytest.raises(StoreUnavailable):
        await forbidden(user(redis, "~*", "&*", "+@all", away), ASKED)
    assert redis.command("DBSIZE") == b":0\r\n"


async def test_a_redis_that_takes_no_writes_is_said_to(own_redis: RedisServer) -> None:
    own_redis.command("REPLICAOF", "127.0.0.1", "1")
    with pytest.raises(StoreUnavailable, match="read only replica"):
        await forbidden(own_redis.settings(), ASKED)
