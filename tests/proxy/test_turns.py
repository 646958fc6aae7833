"""Places that owners take in turn: nobody fills them all, nobody is forgotten, and who leaves leaves nothing behind."""

from __future__ import annotations

import asyncio

from proxy.turns import Turns


async def settled(*tasks: asyncio.Task[None]) -> list[bool]:
    for _ in range(5):
        await asyncio.sleep(0)
    return [task.done() for task in tasks]


def taking(turns: Turns, owner: str) -> asyncio.Task[None]:
    return asyncio.ensure_future(turns.take(owner))


async def test_one_owner_never_fills_all_places() -> None:
    turns = Turns(3, 2)
    greedy = [taking(turns, "greedy") for _ in range(5)]
    assert await settled(*greedy) == [True, True, False, False, False]
    other = taking(turns, "other")
    assert await settled(other) == [True]
    turns.give_back("other")
    assert await settled(*greedy) == [True, True, False, False, False]
    turns.give_back("greedy")
    assert await settled(*greedy) == [True, True, True, False, False]


async def test_who_waits_is_served_owner_by_owner_and_not_by_how_many_he_sends() -> None:
    turns = Turns(1, 1)
    await turns.take("x")
    order: list[str] = []

    async def one(owner: str) -> None:
        await turns.take(owner)
        order.append(owner)
        turns.give_back(owner)

    tasks = [asyncio.ensure_future(one(owner)) for owner in ("a", "a", "a", "b", "c", "b")]
    await settled(*tasks)
    turns.give_back("x")
    await asyncio.gather(*tasks)
    assert order == ["a", "b", "c", "a", "b", "a"]


async def test_who_leaves_while_he_waits_takes_nobodys_turn() -> None:
    turns = Turns(1, 1)
    await turns.take("x")
    gone, stays = taking(turns, "a"), taking(turns, "b")
    await settled(gone, stays)
    gone.cancel()
    await settled(gone)
    turns.give_back("x")
    assert await settled(gone, stays) == [True, True]
    assert gone.cancelled()
    turns.give_back("b")
    assert await settled(taking(turns, "a")) == [True]


async def test_who_leaves_in_the_moment_of_his_turn_gives_it_on() -> None:
    turns = Turns(1, 1)
    await turns.take("x")
    gone, stays = taking(turns, "a"), taking(turns, "b")
    await settled(gone, stays)
    turns.give_back("x")  # grants it to a, who has not yet gone on
    gone.cancel()
    assert await settled(gone, stays) == [True, True]
    assert gone.cancelled()
