"""Two real gates in a row: the second stamps anew, always, and what the first keeps apart stays apart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from config.secret import Secret
from config.settings import Isolation, IsolationKey
from proxy.demo.simulator import AT_ONCE, EngineShape, Simulator
from proxy.isolation.salt import SaltKey, salt_for
from proxy.isolation.unit import ProjectUnit
from tests.parts.gate_bed import BASE_EPOCH, GateBed, chat, gate_bed
from tests.parts.redis_server import RedisServer
from tests.parts.wire_tap import WireTap

pytestmark = pytest.mark.slow

SHAPE = EngineShape(pace=AT_ONCE, answer_tokens=2)
SECOND_KEY = Secret(b"second-0123456789abcdef0123456789abcdef", "test")
FRONT = "service-account-front"
DIRECTORY = """
[workspaces.hosted]
issuer = "{issuer}"

[workspaces.hosted.projects.front]
members = ["user:service-account-front"]

[workspaces.hosted.projects.other]
members = ["user:u-olga-0007"]

[workspaces.hosted.projects.both]
members = ["user:u-olga-0007"]
"""
LONG = "word " * 200


@dataclass(slots=True)
class Row:
    """`first` is what callers reach, `second` what it takes for its engine; `between` and `last` are the wires."""

    first: GateBed
    second: GateBed
    between: WireTap
    last: WireTap

    def salt_at_the_engine(self, text: str) -> set[str]:
        return {up.salt for up in self.last.posts if text.encode() in up.body}

    def salt_between(self, text: str) -> set[str]:
        return {up.salt for up in self.between.posts if text.encode() in up.body}


@asynccontextmanager
async def second_gate(
    redis: RedisServer, folder: Path, engine: str, *, gates: Sequence[str] = (FRONT,)
) -> AsyncIterator[GateBed]:
    directory = replace(redis.settings(), redis=redis.url.removesuffix("/0") + "/1")
    isolation = Isolation(keys=(IsolationKey(id="k2", secret=SECOND_KEY),))
    async with gate_bed(directory, [engine], folder, document=DIRECTORY, isolation=isolation, gates=gates) as second:
        yield second


@asynccontextmanager
async def row(
    redis: RedisServer, folder: Path, *, gates: Sequence[str] = (FRONT,), ready: bool = True
) -> AsyncIterator[Row]:
    async with (
        Simulator(SHAPE) as engine,
        WireTap(engine.url) as last,
        second_gate(redis, folder, last.url, gates=gates) as second,
        WireTap(second.url) as between,
        gate_bed(
            redis.settings(),
            [between.url],
            folder,
            api_key=Secret(second.token(FRONT).encode(), "test"),
            ready=ready,
        ) as first,
    ):
        yield Row(first, second, between, last)
        between.check(least_posts=0)
        last.check()


async def reused(bed: GateBed, text: str, *, subject: str = "u-alice-0001", **scope: str) -> int:
    status, _, body = await bed.post(document=chat(text), headers=bed.headers(subject, **scope))
    assert status == 200, body
    tokens: int = json.loads(body)["usage"]["prompt_tokens_details"]["cached_tokens"]
    return tokens


async def test_the_first_gates_borders_are_exactly_those_at_the_engine(redis: RedisServer, tmp_path: Path) -> None:
    async with row(redis, tmp_path) as gates:
        text = f"apart {LONG}"
        assert await reused(gates.first, text) == 0
        assert await reused(gates.first, text, project="ares") == 0
        assert await reused(gates.first, text, subject="u-mallory-0009", workspace="globex", project="vault") == 0
        assert await reused(gates.first, text) > 0
        assert await reused(gates.first, text, subject="u-carol-0003") > 0
        assert await reused(gates.first, text, project="ares") > 0
        # Three borders of the first are three at the engine, and no salt of the first's got there.
        between, last = gates.salt_between("apart"), gates.salt_at_the_engine("apart")
        assert (len(between), len(last)) == (3, 3)
        assert all(salt.startswith("sg1-k1-") for salt in between)
        assert all(salt.startswith("sg1-k2-") for salt in last)


async def test_the_first_gate_proves_the_second_as_any_engine(redis: RedisServer, tmp_path: Path) -> None:
    async with row(redis, tmp_path) as gates:
        (replica,) = gates.first.gate.engines.engines[0].replicas
        verdicts = {operation.value: finding.verdict.value for operation, finding in replica.findings.items()}
        assert {verdicts[name] for name in ("chat", "completions", "responses", "messages")} == {"proven"}


async def test_a_second_gate_that_was_not_told_of_the_first_would_lose_its_borders_and_so_gets_no_request(
    redis: RedisServer, tmp_path: Path
) -> None:
    """It drops the first's salts, so all of the first's customers would be one: the proof finds that."""
    async with row(redis, tmp_path, gates=(), ready=False) as gates:
        (replica,) = gates.first.gate.engines.engines[0].replicas
        async with asyncio.timeout(30):
            while len(replica.findings) < 5:
                await asyncio.sleep(0.01)
        assert gates.first.gate.waits_for() == ("engines",)
        status, _, body = await gates.first.post(document=chat("a customer's own words"))
        assert status == 503
        assert b"does not separate by cache_salt" in body
        assert not gates.salt_between("a customer's own words")


async def test_nobody_but_a_gate_can_narrow_by_a_salt(redis: RedisServer, tmp_path: Path) -> None:
    """A salt from anybody else is dropped, in whatever form: it is the salt of his unit that counts."""
    async with Simulator(SHAPE) as engine, second_gate(redis, tmp_path, engine.url) as second:
        own = salt_for(ProjectUnit("hosted", "other"), epoch=BASE_EPOCH, key=SaltKey("k2", SECOND_KEY.value)).value
        for salt in (own, "sg1-k1-" + "A" * 43, None, 7):
            headers = second.headers("u-olga-0007", "other", "hosted")
            assert (await second.post(document=chat(cache_salt=salt), headers=headers))[0] == 200
            assert engine.last.salt == own


async def test_what_a_gate_presents_never_reaches_another_unit_and_never_its_own_bare_one(
    redis: RedisServer, tmp_path: Path
) -> None:
    """The attacker has the front gate's token and knows every salt of the second's: none of them opens a cache."""
    key = SaltKey("k2", SECOND_KEY.value)
    units = [ProjectUnit("hosted", name) for name in ("front", "other", "both")]
    known = [salt_for(unit, epoch=BASE_EPOCH, key=key).value for unit in units]
    async with Simulator(SHAPE) as engine, second_gate(redis, tmp_path, engine.url) as second:
        got: list[str | None] = []
        for salt in (*known, "sg1-k1-" + "A" * 43):
            assert (await second.post(document=chat(cache_salt=salt), headers=_front(second)))[0] == 200
            got.append(engine.last.salt)
        for again in list(got):
            assert (await second.post(document=chat(cache_salt=again), headers=_front(second)))[0] == 200
            got.append(engine.last.salt)
        assert len(set(got)) == 8
        assert not set(got) & set(known)


@pytest.mark.parametrize(
    "member",
    [
        "",
        ',"cache_salt":null',
        ',"cache_salt":""',
        ',"cache_salt":7',
        ',"cache_salt":"tenant-a"',
        ',"cache_salt":["sg1-k1-' + "A" * 43 + '"]',
        ',"cache_salt":"sg1-k1-' + "A" * 43 + ' "',
        ',"cache_salt":"sg1-k1-' + "A" * 42 + '="',
        ',"nvext":{"cache_salt":"sg1-k1-' + "A" * 43 + '"}',
        ',"cache_salt":"sg1-k1-' + "A" * 43 + '","cache\\u005fsalt":"sg1-k1-' + "B" * 43 + '"',
    ],
)
async def test_a_gate_that_does_not_stamp_exactly_one_salt_is_refused(
    member: str, redis: RedisServer, tmp_path: Path
) -> None:
    async with Simulator(SHAPE) as engine, second_gate(redis, tmp_path, engine.url) as second:
        engine.requests.clear()
        body = json.dumps(chat())[:-1] + member + "}"
        headers = {"Content-Type": "application/json"} | _front(second)
        async with second.session.post(second.url + "/v1/chat/completions", data=body, headers=headers) as answer:
            assert answer.status == 400
            error = (await answer.json())["error"]
        assert error["param"] in ("cache_salt", None)
        assert not engine.requests


async def test_an_escaped_name_of_the_salt_is_read_as_the_engine_would(redis: RedisServer, tmp_path: Path) -> None:
    async with Simulator(SHAPE) as engine, second_gate(redis, tmp_path, engine.url) as second:
        salts: set[str | None] = set()
        for name in ("cache_salt", "cache\\u005fsalt"):
            body = json.dumps(chat())[:-1] + f',"{name}":"sg1-k1-{"A" * 43}"}}'
            headers = {"Content-Type": "application/json"} | _front(second)
            async with second.session.post(second.url + "/v1/chat/completions", data=body, headers=headers) as answer:
                assert answer.status == 200
            salts.add(engine.last.salt)
        assert len(salts) == 1


def _front(second: GateBed) -> dict[str, str]:
    """As a gate's upstream leg sends: a token, and no header that names a scope."""
    return {"Authorization": f"Bearer {second.token(FRONT)}"}
