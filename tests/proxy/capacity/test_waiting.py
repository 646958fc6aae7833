"""One request that waits: whatever ends it, and in whichever moment, no place is lost and nobody waits for ever."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import cast

import pytest

from proxy.capacity.places import Capacity, Limits, Place, Places
from proxy.capacity.shares import Share
from proxy.capacity.waiting import STANDINGS_A_TURN, Waiting, end_revoked
from proxy.refusals import EngineBusy, NotAMember, Refusal
from proxy.relay.downstream import ClientGone, Downstream, Listener


@dataclass
class Client:
    """Of a downstream, what a waiting request needs."""

    gone: bool = False
    listener: Listener | None = None

    def leaves(self) -> None:
        self.gone = True
        if self.listener is not None:
            self.listener.client_gone()


def full(*, wait_seconds: float = 30.0) -> tuple[Places, Place]:
    limits = Limits(requests=1, waiting=1000, waiting_bytes=1000, wait_seconds=wait_seconds, share=Share())
    places = Capacity(9, {"main": limits}, clock=time.monotonic).at("main")
    place = places.place()
    assert place is not None
    return places, place


def waits(
    places: Places, client: Client, standing: Refusal | None = None, workspace: str = "acme"
) -> asyncio.Task[Place]:
    waiting = Waiting(places, workspace=workspace, project="apollo", size=1, standing=lambda: standing)
    return asyncio.ensure_future(waiting.place(cast("Downstream", client)))


async def a_moment() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_turn_is_granted_and_nobody_listens_to_the_client_any_more() -> None:
    places, held = full()
    client = Client()
    task = waits(places, client)
    await a_moment()
    held.give_back()
    place = await task
    assert client.listener is None
    place.give_back()
    assert places.taken == 0


async def test_a_client_that_is_gone_already_does_not_wait() -> None:
    places, _ = full()
    with pytest.raises(ClientGone):
        await waits(places, Client(gone=True))
    assert places.waiting == 0


async def test_a_client_that_leaves_waits_no_more() -> None:
    places, _ = full()
    client = Client()
    task = waits(places, client)
    await a_moment()
    client.leaves()
    assert places.waiting == 0
    with pytest.raises(ClientGone):
        await task


async def test_leaving_after_the_turn_came_changes_nothing_for_the_place() -> None:
    places, held = full()
    client = Client()
    task = waits(places, client)
    await a_moment()
    held.give_back()
    client.leaves()
    assert (await task).engine == "main"  # its owner finds out, and gives it back
    assert places.taken == 1


@pytest.mark.parametrize("granted", ["before", "after", "never"])
async def test_a_cancelled_request_loses_no_place(granted: str) -> None:
    places, held = full()
    gone, stays = waits(places, Client()), waits(places, Client(), workspace="globex")
    await a_moment()
    if granted == "before":
        held.give_back()
    gone.cancel()
    if granted == "after":  # its task has not seen yet that it is cancelled
        held.give_back()
    await a_moment()
    assert gone.cancelled()
    if granted == "never":
        assert places.waiting == 1
        held.give_back()
    with await stays:
        assert places.taken == 1
    assert (places.taken, places.waiting) == (0, 0)


async def test_however_many_are_cancelled_in_one_moment_no_place_is_lost() -> None:
    places, held = full()
    gone = [waits(places, Client()) for _ in range(900)]
    stays = waits(places, Client())
    await a_moment()
    for task in gone:
        task.cancel()
    held.give_back()
    held.give_back()
    with await stays:
        assert (places.taken, places.waiting) == (1, 0)
    assert all(task.cancelled() for task in gone)
    assert (places.taken, places.waiting) == (0, 0)


async def test_whoever_has_waited_long_enough_is_told_when_to_come_again() -> None:
    places, _ = full(wait_seconds=0.01)
    async with asyncio.timeout(10):
        with pytest.raises(EngineBusy, match=r"within 0\.01 s") as busy:
            await waits(places, Client())
    assert busy.value.retry_after is not None
    assert places.waiting == 0


async def test_who_may_have_it_no_more_is_taken_out_and_the_others_stay() -> None:
    places, held = full()
    number = STANDINGS_A_TURN + 5
    revoked = [waits(places, Client(), NotAMember("no")) for _ in range(number)]
    stays = waits(places, Client())
    await a_moment()
    await end_revoked(places._whole)
    for task in revoked:
        with pytest.raises(NotAMember):
            await task
    held.give_back()
    assert (await stays).engine == "main"
