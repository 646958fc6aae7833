"""What saltgate is for, on a real engine: who may share reuses the whole prompt, everybody else none of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from proxy.assurance.verdict import Verdict
from proxy.directory.changes import Change
from proxy.engines.profile import Operation
from proxy.isolation.unit import CollectionUnit, ProjectUnit, Unit, WorkspaceUnit
from tests.engine.client import Vllm
from tests.engine.endpoints import CHAT, SALTED, Endpoint, Json
from tests.engine.gate import (
    ALICE,
    BOB,
    CAROL,
    DAVE,
    ERIN,
    FRANK,
    LONG_LINES,
    MALLORY,
    MEDIUM_LINES,
    MILTON,
    PETER,
    Caller,
    GateClient,
    fresh_prompt,
    gate_before,
    salt_of,
)
from tests.parts.redis_server import RedisServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

each_endpoint = pytest.mark.parametrize("endpoint", SALTED, ids=lambda endpoint: endpoint.name)
stream_or_not = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


class TestProof:
    async def test_every_endpoint_that_carries_a_salt_is_proven_and_embeddings_stay_unknown(
        self, gate: GateClient
    ) -> None:
        (engine,) = gate.bed.gate.engines.engines
        (replica,) = engine.replicas
        assert {operation: finding.verdict for operation, finding in replica.findings.items()} == {
            Operation.CHAT: Verdict.PROVEN,
            Operation.COMPLETIONS: Verdict.PROVEN,
            Operation.RESPONSES: Verdict.PROVEN,
            Operation.MESSAGES: Verdict.PROVEN,
            Operation.EMBEDDINGS: Verdict.UNKNOWN,
        }

    async def test_what_is_not_proven_is_not_served_and_the_refusal_names_the_check(self, gate: GateClient) -> None:
        answer = await gate.post(ALICE, "/v1/embeddings", {"model": "tiny", "input": "hello"})
        error = json.loads(answer.body)["error"]
        assert (answer.status, error["code"]) == (503, "engine_unavailable")
        assert "the engine's schema lists no such endpoint" in error["message"]


class TestTheTable:
    """The four rows of the published measurement, in tokens."""

    @pytest.mark.parametrize("lines", [MEDIUM_LINES, LONG_LINES], ids=["medium", "long"])
    async def test_a_colleague_reuses_all_and_a_stranger_nothing_but_his_own(
        self, gate: GateClient, lines: int
    ) -> None:
        await self._plays(gate, CHAT, fresh_prompt(lines), stream=True)

    @each_endpoint
    @stream_or_not
    async def test_it_is_the_same_on_every_endpoint(self, gate: GateClient, endpoint: Endpoint, stream: bool) -> None:
        await self._plays(gate, endpoint, fresh_prompt(), stream=stream)

    async def _plays(self, gate: GateClient, endpoint: Endpoint, prompt: str, *, stream: bool) -> None:
        senders = (ALICE, CAROL, MALLORY, MALLORY)
        shared = [await gate.shares(sender, endpoint, prompt, stream=stream) for sender in senders]
        assert shared == [False, True, False, True]

    async def test_two_strangers_who_send_one_prompt_at_the_same_moment_share_nothing(self, gate: GateClient) -> None:
        prompt = fresh_prompt(MEDIUM_LINES)
        callers = (ALICE, MALLORY, BOB, DAVE)
        shared = await asyncio.gather(*(gate.shares(caller, CHAT, prompt, stream=True) for caller in callers))
        assert not any(shared)


async def shared(gate: GateClient, first: Caller, second: Caller) -> bool:
    """Whether `second` finds what `first` has sent, and could find again himself."""
    prompt = fresh_prompt()
    assert not await gate.shares(first, CHAT, prompt)
    assert await gate.shares(first, CHAT, prompt)
    return await gate.shares(second, CHAT, prompt)


class TestUnits:
    async def test_two_projects_of_one_workspace_and_one_team_are_apart(self, gate: GateClient) -> None:
        assert not await shared(gate, ALICE, ALICE.on("ares"))
        assert not await shared(gate, CAROL, CAROL.on("ares"))

    async def test_two_members_of_a_project_whose_unit_is_the_user_are_apart(self, gate: GateClient) -> None:
        assert not await shared(gate, BOB, DAVE)

    async def test_the_projects_of_a_team_share_where_the_unit_is_the_team(self, gate: GateClient) -> None:
        assert await shared(gate, ERIN, FRANK)
        assert await shared(gate, FRANK, ERIN.on("hera"))

    async def test_another_team_of_the_workspace_shares_nothing_with_it(self, gate: GateClient) -> None:
        assert not await shared(gate, ERIN, CAROL.on("zeus"))

    async def test_a_project_of_the_team_with_a_narrower_unit_shares_nothing_with_it(self, gate: GateClient) -> None:
        assert not await shared(gate, CAROL.on("zeus"), CAROL)

    async def test_two_projects_that_list_a_collection_share_what_they_ask_about_it(self, gate: GateClient) -> None:
        asks = ALICE.under(collection="handbook")
        assert await shared(gate, asks, CAROL.on("ares").under(collection="handbook"))

    async def test_what_was_asked_about_a_collection_is_not_in_the_projects_own_cache(self, gate: GateClient) -> None:
        asks = ALICE.under(collection="handbook")
        assert not await shared(gate, asks, ALICE)
        assert not await shared(gate, ALICE, asks)

    async def test_a_caller_who_narrows_to_himself_is_apart_from_his_project(self, gate: GateClient) -> None:
        alone = ALICE.under(unit="user")
        assert not await shared(gate, ALICE, alone)
        assert not await shared(gate, alone, ALICE)
        assert not await shared(gate, alone, CAROL.under(unit="user"))

    async def test_a_caller_who_narrows_a_team_to_its_project_is_apart_from_the_other_projects(
        self, gate: GateClient
    ) -> None:
        narrowed = ERIN.under(unit="project")
        assert not await shared(gate, narrowed, FRANK)
        assert await shared(gate, narrowed, FRANK.on("athena").under(unit="project"))

    async def test_a_workspace_shares_across_projects_that_the_other_may_not_enter(self, gate: GateClient) -> None:
        assert await shared(gate, PETER, MILTON)
        assert not await shared(gate, PETER, MALLORY)

    async def test_a_project_of_the_workspace_with_a_narrower_unit_shares_nothing_with_it(
        self, gate: GateClient
    ) -> None:
        assert not await shared(gate, MILTON, MILTON.on("basement"))

    async def test_a_model_with_a_unit_of_its_own_keeps_it_within_the_project(self, gate: GateClient) -> None:
        assert not await shared(gate, ALICE.on("janus"), BOB.on("janus"))
        assert not await shared(gate, ALICE.on("janus"), ALICE)

    async def test_under_the_deployment_even_strangers_share_but_for_those_with_a_narrower_line(
        self, vllm: Vllm, tmp_path: Path
    ) -> None:
        with RedisServer(tmp_path) as redis:
            async with gate_before(vllm, redis.settings(), tmp_path, unit="deployment") as gate:
                assert await shared(gate, ALICE, MALLORY)
                assert not await shared(gate, ALICE, PETER)
                assert not await shared(gate, MALLORY, BOB)
                assert not await shared(gate, ALICE, MALLORY.under(unit="workspace"))


class TestEpoch:
    @pytest.mark.parametrize(
        "raised", [ProjectUnit("acme", "apollo"), WorkspaceUnit("acme")], ids=["its own", "the one above"]
    )
    async def test_a_raise_makes_the_unit_forget_at_once_and_leaves_others_alone(
        self, gate: GateClient, raised: Unit
    ) -> None:
        prompt = fresh_prompt()
        assert [await gate.shares(caller, CHAT, prompt) for caller in (ALICE, MALLORY)] == [False, False]
        await gate.bed.change(lambda _: Change(raises=(raised,)))
        async with asyncio.timeout(10):
            while await gate.shares(ALICE, CHAT, prompt):
                pass
        # The new salt is the unit's, not the caller's, and it stays.
        assert await gate.shares(CAROL, CHAT, prompt)
        assert await gate.shares(MALLORY, CHAT, prompt)


_DISGUISES: Final[dict[str, Callable[[str, str], bytes]]] = {
    "plain": lambda body, salt: _with(body, f'"cache_salt": "{salt}"'),
    "last of two, escaped": lambda body, salt: _with(body, f'"cache\\u005fsalt": "{salt}"'),
    "before everything": lambda body, salt: f'{{"cache_salt": "{salt}", {body[1:]}'.encode(),
    "other case": lambda body, salt: _with(body, f'"Cache_Salt": "{salt}", "CACHE_SALT": "{salt}"'),
    "in extra_body": lambda body, salt: _with(body, f'"extra_body": {{"cache_salt": "{salt}"}}'),
    "in vllm_xargs": lambda body, salt: _with(body, f'"vllm_xargs": {{"cache_salt": "{salt}"}}'),
    "in nvext": lambda body, salt: _with(body, f'"nvext": {{"cache_salt": "{salt}"}}, "extra_key": "{salt}"'),
    "in metadata": lambda body, salt: _with(body, f'"metadata": {{"cache_salt": "{salt}"}}, "user": "{salt}"'),
    "beside a null": lambda body, salt: _with(body, f'"cache_salt": null, "prompt_cache_key": "{salt}"'),
    "in transfer hints": lambda body, salt: _with(body, f'"kv_transfer_params": {{"cache_salt": "{salt}"}}'),
}


def _with(body: str, member: str) -> bytes:
    return f"{body[:-1]}, {member}}}".encode()


class TestStolenSalt:
    """The attacker knows the victim's real salt. It opens the cache at the engine, and nothing at the gate."""

    @pytest.fixture
    def salt(self) -> str:
        # Not apollo's: that one's epoch is raised by the tests above.
        return salt_of(ProjectUnit("globex", "vault"))

    async def test_the_salt_is_the_real_one(self, gate: GateClient, salt: str) -> None:
        prompt = fresh_prompt()
        assert not await gate.shares(MALLORY, CHAT, prompt)
        assert await gate.engine.reused(CHAT, prompt, salt) > 0

    @pytest.mark.parametrize("disguise", _DISGUISES)
    async def test_it_does_not_help_whoever_sends_it(self, gate: GateClient, salt: str, disguise: str) -> None:
        prompt = fresh_prompt()
        await gate.usage(MALLORY, CHAT, prompt)
        answer = await gate.post(ALICE, CHAT.path, _DISGUISES[disguise](json.dumps(CHAT.body(prompt)), salt))
        assert answer.status == 200, answer.body
        assert CHAT.usage(answer.body).reused == 0

    @each_endpoint
    @stream_or_not
    async def test_it_does_not_help_on_any_endpoint(
        self, gate: GateClient, salt: str, endpoint: Endpoint, stream: bool
    ) -> None:
        prompt = fresh_prompt()
        await gate.usage(MALLORY, endpoint, prompt)
        stolen: Json = {"cache_salt": salt}
        assert (await gate.usage(ALICE, endpoint, prompt, stream=stream, more=stolen)).reused == 0
        assert (await gate.usage(ALICE, endpoint, prompt, stream=stream, more=stolen)).reused > 0

    async def test_it_does_not_help_as_a_header_or_in_the_query(self, gate: GateClient, salt: str) -> None:
        prompt = fresh_prompt()
        await gate.usage(MALLORY, CHAT, prompt)
        caller = Caller(ALICE.subject, ALICE.project, headers={"cache_salt": salt, "X-Cache-Salt": salt})
        answer = await gate.post(caller, f"{CHAT.path}?cache_salt={salt}", CHAT.body(prompt))
        assert CHAT.usage(answer.body).reused == 0

    async def test_nothing_lands_under_a_salt_that_a_client_chose(self, gate: GateClient) -> None:
        prompt, chosen = fresh_prompt(), salt_of(CollectionUnit("acme", "handbook"))
        await gate.usage(MALLORY, CHAT, prompt, more={"cache_salt": chosen})
        assert await gate.engine.reused(CHAT, prompt, chosen) == 0
        assert await gate.engine.reused(CHAT, prompt, None) == 0
