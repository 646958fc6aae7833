"""A client that leaves frees the real engine, however it leaves and whenever (contract section 5, leaving)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from tests.engine.endpoints import CHAT, SALTED, Endpoint, Json
from tests.engine.gate import ALICE, GateClient, fresh_prompt
from tests.parts.gone_client import GoneClient, post

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Minutes of work, so an engine that is quiet within the bounds of these tests has stopped, not finished.
ENDLESS_TOKENS: Final = 12_000
SLOW_LINES: Final = 1_000
# More than the gate's own proofs, which may run meanwhile, could generate.
MANY_TOKENS: Final = 500

Leave = Callable[[GoneClient], None]
_WAYS: Final[dict[str, Leave]] = {"fin": GoneClient.leave_by_fin, "rst": GoneClient.leave_by_rst}

each_way = pytest.mark.parametrize("leave", _WAYS.values(), ids=_WAYS)
each_endpoint = pytest.mark.parametrize("endpoint", SALTED, ids=lambda endpoint: endpoint.name)


def endless(endpoint: Endpoint, prompt: str = "hello", *, stream: bool) -> Json:
    """A question whose answer would go on for minutes."""
    body = endpoint.body(prompt, max_tokens=ENDLESS_TOKENS, stream=stream)
    # /v1/messages has no such field; without temperature this model repeats itself and does not end either.
    return body | ({"ignore_eos": True} if endpoint.path != "/v1/messages" else {})


class Departure:
    """What is seen before a client leaves and must be seen afterwards."""

    def __init__(self, gate: GateClient, generated: float, lines: int) -> None:
        self._gate = gate
        self._generated = generated
        self._lines = lines

    @classmethod
    async def of(cls, gate: GateClient) -> Departure:
        await gate.until_running(0)
        return cls(gate, await gate.generated_tokens(), len(gate.bed.lines()))

    async def is_noticed(self, *, asked_tokens: int = ENDLESS_TOKENS) -> None:
        """The engine has stopped before it had generated what was asked, and the gate says that the client went."""
        await self._gate.until_running(0)
        assert await self._gate.generated_tokens() - self._generated < asked_tokens
        line = await self._gate.until_recorded("outcome", "client_gone", after=self._lines)
        assert (line["workspace"], line["project"]) == (ALICE.workspace, ALICE.project)
        assert self._gate.bed.gate.gateway.relay.open_exchanges == 0


@each_endpoint
@each_way
async def test_a_client_that_leaves_in_the_middle_of_a_stream_frees_the_engine(
    gate: GateClient, endpoint: Endpoint, leave: Leave
) -> None:
    departure = await Departure.of(gate)
    async with GoneClient(gate.bed.port) as client:
        await client.send(post(endpoint.path, endless(endpoint, stream=True), gate.headers(ALICE)))
        for _ in range(5):
            await client.read_until(b"\n\n", seconds=30)
        await gate.until_running(1)
        leave(client)
        await departure.is_noticed()


@each_endpoint
@each_way
async def test_a_client_that_leaves_while_a_whole_answer_is_made_frees_the_engine(
    gate: GateClient, endpoint: Endpoint, leave: Leave
) -> None:
    departure = await Departure.of(gate)
    async with GoneClient(gate.bed.port) as client:
        await client.send(post(endpoint.path, endless(endpoint, stream=False), gate.headers(ALICE)))
        await gate.until_running(1)
        leave(client)
        await departure.is_noticed()


@each_way
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_client_that_leaves_while_its_long_prompt_is_read_frees_the_engine(
    gate: GateClient, leave: Leave, stream: bool
) -> None:
    departure = await Departure.of(gate)
    async with GoneClient(gate.bed.port) as client:
        body = CHAT.body(fresh_prompt(SLOW_LINES), stream=stream, max_tokens=MANY_TOKENS) | {"ignore_eos": True}
        await client.send(post(CHAT.path, body, gate.headers(ALICE)))
        await gate.until_running(1)
        leave(client)
        await departure.is_noticed(asked_tokens=MANY_TOKENS)


async def test_others_are_served_on_while_one_leaves(gate: GateClient) -> None:
    lines = len(gate.bed.lines())
    async with GoneClient(gate.bed.port) as stays, GoneClient(gate.bed.port) as leaves:
        for client in (stays, leaves):
            await client.send(post(CHAT.path, endless(CHAT, stream=True), gate.headers(ALICE)))
            await client.read_until(b"\n\n", seconds=30)
        await gate.until_running(2)
        leaves.leave_by_rst()
        await gate.until_running(1)
        await gate.until_recorded("outcome", "client_gone", after=lines)
        for _ in range(20):
            await stays.read_until(b"\n\n", seconds=30)
        stays.leave_by_fin()
    await gate.until_running(0)
