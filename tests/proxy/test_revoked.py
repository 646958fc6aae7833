"""A running answer ends when its caller may have it no more, and for no other reason (contract section 5)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from proxy.directory.changes import Deed, block, end, fresh_ring, grant, import_directory, revoke
from proxy.directory.endings import Ending as Ended
from proxy.directory.model import directory_from_toml, group, user
from proxy.directory.rotation import raise_unit
from proxy.engines.profile import Operation
from proxy.isolation.unit import ProjectUnit
from proxy.refusals import Blocked
from proxy.relay.alarm import Alarm
from proxy.relay.exchange import End, Exchange
from proxy.relay.leg import Ending
from proxy.relay.patience import Patience
from proxy.relay.relay import Relay
from tests.parts.gate_bed import BASE_EPOCH, DIRECTORY, GateBed, chat, gate_bed
from tests.parts.gone_client import GoneClient, post
from tests.parts.raw_engine import LAST_CHUNK, STREAM_HEAD, RawEngine, Send, Wait, WaitForPeer, chunk, json_answer
from tests.parts.redis_server import RedisServer
from tests.proxy.account.token_parts import Desk, id_of
from tests.proxy.engines.asking import body_of, stamped
from tests.proxy.relay.relay_parts import ANSWER, DONE, TOKEN, nothing_held

if TYPE_CHECKING:
    from observability.record import Record
    from proxy.relay.answer import Answer
    from proxy.relay.leg import Leg

pytestmark = pytest.mark.slow

ALICE = "u-alice-0001"
FAR = 86_400


def removed(bed: GateBed) -> Deed:
    return revoke("acme", "apollo", user(ALICE))


def blocked(bed: GateBed) -> Deed:
    return block(bed.mint.issuer, user(ALICE))


def group_blocked(bed: GateBed) -> Deed:
    return block(bed.mint.issuer, group("staff"))


def workspace_gone(bed: GateBed) -> Deed:
    document = DIRECTORY.format(issuer=bed.mint.issuer).replace("workspaces.acme", "workspaces.apex")
    return import_directory(directory_from_toml(document), fresh_ring("k1", now=BASE_EPOCH))


def session_ended(bed: GateBed) -> Deed:
    now = int(bed.gate.gateway.wall_clock())
    return end(Ended("session", bed.mint.issuer, "s-1", now, now + FAR))


def subject_ended(bed: GateBed) -> Deed:
    now = int(bed.gate.gateway.wall_clock())
    return end(Ended("subject", bed.mint.issuer, ALICE, now + 1, now + FAR))


def other_removed(bed: GateBed) -> Deed:
    return revoke("acme", "hermes", user("u-bob-0002"))


def other_blocked(bed: GateBed) -> Deed:
    return block(bed.mint.issuer, user("u-bob-0002"))


def other_session_ended(bed: GateBed) -> Deed:
    now = int(bed.gate.gateway.wall_clock())
    return end(Ended("session", bed.mint.issuer, "s-2", now, now + FAR))


def another_membership(bed: GateBed) -> Deed:
    return grant("acme", "hermes", user(ALICE))


def another_epoch(bed: GateBed) -> Deed:
    return raise_unit(ProjectUnit("acme", "apollo"))


ENDS = [removed, blocked, group_blocked, workspace_gone, session_ended, subject_ended]
ENDS_NOT = [other_removed, other_blocked, other_session_ended, another_membership, another_epoch]


@asynccontextmanager
async def running(
    redis: RedisServer, folder: Path, engine: RawEngine, path: str, *, streaming: bool, ends: bool = True
) -> AsyncIterator[tuple[GateBed, GoneClient]]:
    """Alice, with a session and a group, has asked."""
    async with (
        engine,
        gate_bed(
            redis.settings(), [engine.url], folder, proof="off", models=("tiny",), streams_end_on_revoke=ends
        ) as bed,
        GoneClient.to(bed.url) as client,
    ):
        token = bed.mint.token(subject=ALICE, groups=["staff"], claims={"sid": "s-1"})
        headers = bed.headers() | {"Authorization": f"Bearer {token}"}
        document = chat(stream=streaming) | ({"max_tokens": 9} if path == "/v1/messages" else {})
        await client.send(post(path, document, headers))
        yield bed, client
        await nothing_held(bed)


@pytest.mark.parametrize("deed", ENDS)
async def test_a_stream_ends_when_its_caller_may_have_it_no_more(
    deed: Callable[[GateBed], Deed], redis: RedisServer, tmp_path: Path
) -> None:
    engine = RawEngine((Send(STREAM_HEAD), Send(chunk(TOKEN)), WaitForPeer()))
    async with running(redis, tmp_path, engine, "/v1/chat/completions", streaming=True) as (bed, client):
        await client.read_until(TOKEN)
        await bed.change(deed(bed))
        got = await client.read_to_end()
        await engine.peer_closed(seconds=5)
        error = json.loads(got[got.index(b"{") : got.rindex(b"}") + 1])["error"]
        assert error["code"] in {"not_a_member", "blocked", "invalid_token"}
        assert error["type"] in {"permission_error", "authentication_error"}
        assert b"[DONE]" not in got
        (line,) = await bed.completed(1)
        assert (line["outcome"], line["code"]) == ("refused", error["code"])


@pytest.mark.parametrize("deed", ENDS_NOT)
async def test_a_stream_goes_on_when_the_change_is_not_about_it(
    deed: Callable[[GateBed], Deed], redis: RedisServer, tmp_path: Path
) -> None:
    told = asyncio.Event()
    script = (Send(STREAM_HEAD), Send(chunk(TOKEN)), Wait(told), Send(chunk(DONE)), Send(LAST_CHUNK))
    async with running(redis, tmp_path, RawEngine(script), "/v1/chat/completions", streaming=True) as (bed, client):
        await client.read_until(TOKEN)
        before = bed.gate.view.current()
        await bed.change(deed(bed))
        await bed.gate.view.next_after(before)
        await bed.gate.gateway.relay.end_revoked()
        told.set()
        await client.read_until(DONE)
        (line,) = await bed.completed(1)
        assert line["outcome"] == "ok"


async def test_a_stream_of_an_unnamed_scope_ends_with_that_scope(redis: RedisServer, tmp_path: Path) -> None:
    """Bob names none and was in one project; he is in another by now, but the stream is the old one's."""
    engine = RawEngine((Send(STREAM_HEAD), Send(chunk(TOKEN)), WaitForPeer()))
    async with (
        engine,
        gate_bed(redis.settings(), [engine.url], tmp_path, proof="off", models=("tiny",)) as bed,
        GoneClient.to(bed.url) as client,
    ):
        bob = user("u-bob-0002")
        headers = {"Authorization": f"Bearer {bed.token('u-bob-0002')}"}
        await client.send(post("/v1/chat/completions", chat(stream=True), headers))
        await client.read_until(TOKEN)
        await bed.change(grant("acme", "apollo", bob))
        await bed.change(revoke("acme", "hermes", bob))
        assert b"not_a_member" in await client.read_to_end()


async def test_a_stream_ends_with_the_personal_access_token_that_asked_for_it(
    redis: RedisServer, tmp_path: Path
) -> None:
    engine = RawEngine((Send(STREAM_HEAD), Send(chunk(TOKEN)), WaitForPeer()))
    async with (
        engine,
        gate_bed(redis.settings(), [engine.url], tmp_path, proof="off", models=("tiny",)) as bed,
        GoneClient.to(bed.url) as client,
    ):
        desk = Desk(bed)
        token = await desk.made()
        await client.send(
            post("/v1/chat/completions", chat(stream=True), bed.headers() | {"Authorization": f"Bearer {token}"})
        )
        await client.read_until(TOKEN)
        await desk.revoke(id_of(token))
        assert b"invalid_token" in await client.read_to_end()
        await engine.peer_closed(seconds=5)


async def test_a_request_that_waits_for_its_answer_is_refused(redis: RedisServer, tmp_path: Path) -> None:
    engine = RawEngine((WaitForPeer(),))
    async with running(redis, tmp_path, engine, "/v1/chat/completions", streaming=False) as (bed, client):
        await engine.request()
        await bed.change(blocked(bed))
        answer = await client.read_answer()
        assert (answer.status, json.loads(answer.body)["error"]["code"]) == (403, "blocked")
        await engine.peer_closed(seconds=5)


async def test_a_stream_of_messages_ends_in_its_own_form(redis: RedisServer, tmp_path: Path) -> None:
    begun = b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":1}}}\n\n'
    engine = RawEngine((Send(STREAM_HEAD), Send(chunk(begun)), WaitForPeer()))
    async with running(redis, tmp_path, engine, "/v1/messages", streaming=True) as (bed, client):
        await client.read_until(b"message_start")
        await bed.change(blocked(bed))
        got = await client.read_to_end()
        assert b'event: error\ndata: {"type": "error", "error": {"type": "permission_error"' in got
        assert b'"code": "blocked"' in got


async def test_a_policy_that_lets_streams_run_lets_them_run(redis: RedisServer, tmp_path: Path) -> None:
    told = asyncio.Event()
    script = (Send(STREAM_HEAD), Send(chunk(TOKEN)), Wait(told), Send(chunk(DONE)), Send(LAST_CHUNK))
    async with running(redis, tmp_path, RawEngine(script), "/v1/chat/completions", streaming=True, ends=False) as (
        bed,
        client,
    ):
        await client.read_until(TOKEN)
        before = bed.gate.view.current()
        await bed.change(blocked(bed))
        await bed.gate.view.next_after(before)
        await asyncio.sleep(0.05)
        told.set()
        await client.read_until(DONE)
        status, _, body = await bed.post()
        assert (status, json.loads(body)["error"]["code"]) == (403, "blocked")


async def test_a_directory_that_cannot_be_read_ends_nothing(own_redis: RedisServer, tmp_path: Path) -> None:
    told = asyncio.Event()
    script = (Send(STREAM_HEAD), Send(chunk(TOKEN)), Wait(told), Send(chunk(DONE)), Send(LAST_CHUNK))
    settings = replace(own_redis.settings(), max_stale=0.5)
    async with (
        RawEngine(script) as engine,
        gate_bed(settings, [engine.url], tmp_path, proof="off", models=("tiny",)) as bed,
        GoneClient.to(bed.url) as client,
    ):
        await client.send(post("/v1/chat/completions", chat(stream=True), bed.headers()))
        await client.read_until(TOKEN)
        own_redis.stop()
        while bed.gate.view.ready:
            await asyncio.sleep(0.01)
        await bed.gate.gateway.relay.end_revoked()
        told.set()
        await client.read_until(DONE)


async def test_many_streams_end_together(redis: RedisServer, tmp_path: Path) -> None:
    engine = RawEngine((Send(json_answer(ANSWER)),), *[(Send(STREAM_HEAD), Send(chunk(TOKEN)), WaitForPeer())] * 300)
    async with engine, gate_bed(redis.settings(), [engine.url], tmp_path, proof="off", models=("tiny",)) as bed:
        await bed.post()
        answers = await asyncio.gather(
            *(
                bed.session.post(f"{bed.url}/v1/chat/completions", json=chat(stream=True), headers=bed.headers())
                for _ in range(60)
            )
        )
        await bed.change(blocked(bed))
        bodies = await asyncio.gather(*(answer.read() for answer in answers), return_exceptions=True)
        assert len(bodies) == 60
        lines = await bed.completed(61)
        assert [line["outcome"] for line in lines[1:]] == ["refused"] * 60
        await nothing_held(bed)


class SilentLeg:
    """A connection on which nothing comes back."""

    def send(self, *_: object, **__: object) -> None:
        pass

    def abort(self) -> None:
        pass


@pytest.mark.parametrize("is_revoked", [False, True])
async def test_what_is_revoked_in_the_very_moment_of_a_reuse_race_is_not_sent_once_more(is_revoked: bool) -> None:
    patience = Patience(first_byte=60, idle=60)
    relay = Relay(violated=lambda _: None)
    request = stamped(Operation.CHAT, body_of(Operation.CHAT))
    alarm = Alarm(asyncio.get_running_loop())
    exchange = Exchange(request, cast("Answer", None), cast("Record", None), patience, alarm)
    exchange.send(cast("Leg", SilentLeg()), b"")
    exchange.end(Ending.SILENT)  # the engine closed the connection; nobody has looked yet
    if is_revoked:
        exchange.cut(End.REVOKED, Blocked("Your administrator has blocked you here."))
    assert await exchange.done is End.SILENT
    assert relay._is_over(exchange) is is_revoked
