"""Places at engines: never more than the limit, never somebody who waits while there is room, and each in his turn."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proxy.capacity.places import LONGEST_RETRY_SECONDS, Capacity, Limits, Place, Places
from proxy.capacity.rota import Rota
from proxy.capacity.shares import Share
from proxy.refusals import EngineBusy, Refusal

MANY = 1 << 30


@dataclass(eq=False)
class Someone:
    """Who waits, and what he was told."""

    workspace: str
    project: str = "p"
    load: int = 1
    name: object = None
    place: Place | None = None
    refusal: Refusal | None = None
    told: int = 0
    heard: Callable[[Someone], None] = field(default=lambda _: None)

    def granted(self, place: Place) -> None:
        self.place = place
        self.told += 1
        self.heard(self)

    def refused(self, refusal: Refusal) -> None:
        self.refusal = refusal
        self.told += 1

    def judge(self) -> None:
        pass


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def limits(requests: int = 1, *, waiting: int = 1000, waiting_bytes: int = 1000) -> Limits:
    return Limits(requests=requests, waiting=waiting, waiting_bytes=waiting_bytes, wait_seconds=30.0, share=Share())


def one_engine(
    requests: int = 1, clock: Clock | None = None, *, waiting: int = 1000, waiting_bytes: int = 1000
) -> Places:
    of_one = limits(requests, waiting=waiting, waiting_bytes=waiting_bytes)
    return Capacity(MANY, {"main": of_one}, clock=clock or Clock()).at("main")


def taken(places: Places) -> Place:
    place = places.place()
    assert place is not None
    return place


def order_of(places: Places, first: Place) -> list[object]:
    """Who gets the one place, one after the other."""
    order: list[object] = []
    waiting = [waiter for waiter in places.waiters if isinstance(waiter, Someone)]
    holder = first
    while waiting:
        holder.give_back()
        (someone,) = (one for one in waiting if one.place is not None)
        waiting.remove(someone)
        order.append(someone.name)
        assert someone.place is not None
        holder = someone.place
    return order


# Limits.


def test_there_are_as_many_places_as_the_limit_says_and_a_place_given_back_is_there_again() -> None:
    places = one_engine(2)
    first, _ = taken(places), taken(places)
    assert places.place() is None
    first.give_back()
    taken(places)
    assert places.place() is None


def test_a_place_given_back_twice_is_one_place() -> None:
    places = one_engine(1)
    with taken(places) as place:
        place.give_back()
    taken(places)
    assert places.place() is None


def test_the_limit_of_all_engines_together_holds_and_who_waits_for_it_gets_a_turn_engine_by_engine() -> None:
    whole = Capacity(2, {"a": limits(2), "b": limits(2)}, clock=Clock())
    a, b = whole.at("a"), whole.at("b")
    held = [taken(a), taken(a)]
    assert b.place() is None
    told: list[object] = []
    waiters = [Someone("x", name=name, heard=lambda who: told.append(who.name)) for name in ("a1", "a2", "b1", "b2")]
    for waiter, places in zip(waiters, (a, a, b, b), strict=True):
        places.join(waiter)
    for place in held:
        place.give_back()
    for waiter in waiters[:1] + waiters[2:3]:
        assert waiter.place is not None
        waiter.place.give_back()
    assert told == ["a1", "b1", "a2", "b2"]
    assert (whole.taken, a.taken, b.taken) == (2, 1, 1)


def test_an_engine_that_is_full_does_not_keep_anothers_places_from_those_who_wait_for_them() -> None:
    whole = Capacity(2, {"a": limits(1), "b": limits(2)}, clock=Clock())
    a, b = whole.at("a"), whole.at("b")
    taken(a)
    of_b = taken(b)
    for_a, for_b = Someone("x"), Someone("y")
    a.join(for_a)
    b.join(for_b)
    of_b.give_back()
    assert for_b.place is not None
    assert for_a.place is None


def test_the_limit_follows_the_replicas_that_may_be_used() -> None:
    places = one_engine(2)
    places.usable(2)
    held = [taken(places) for _ in range(4)]
    waiter = Someone("x")
    places.join(waiter)
    places.usable(1)
    for place in held[:2]:
        place.give_back()
    assert waiter.told == 0  # two are there still, and two are the limit now
    places.usable(2)  # it comes back: nobody has to finish first
    assert waiter.place is not None
    others = [Someone("x") for _ in range(3)]
    for other in others:
        places.join(other)
    places.usable(4)
    assert all(other.place is not None for other in others)  # room for more than one is more than one's turn
    places.usable(0)
    assert places.limit == 2


@given(limit=st.integers(1, 10_000), workers=st.integers(1, 64))
def test_the_workers_shares_add_up_to_the_limit(limit: int, workers: int) -> None:
    shares = [Share(number, workers).of(limit) for number in range(workers)]
    assert sum(shares) == max(limit, workers)
    assert max(shares) - min(shares) <= 1


# Turns.


def test_workspaces_take_turns_then_their_projects_and_inside_a_project_first_come_is_first() -> None:
    places = one_engine(1)
    held = taken(places)
    for name in ("flood/a 1", "flood/a 2", "flood/a 3", "flood/b 1", "calm/c 1", "flood/b 2", "calm/c 2"):
        workspace, project = name.split()[0].split("/")
        places.join(Someone(workspace, project, name=name))
    expected = ["flood/a 1", "calm/c 1", "flood/b 1", "calm/c 2", "flood/a 2", "flood/b 2", "flood/a 3"]
    assert order_of(places, held) == expected


def test_nobody_who_comes_later_gets_a_place_before_one_who_waits() -> None:
    places = one_engine(1)
    held, waiter = taken(places), Someone("x")
    places.join(waiter)
    held.give_back()
    assert places.place() is None
    assert waiter.place is not None


def test_who_leaves_while_he_waits_takes_nobodys_turn() -> None:
    places = one_engine(1)
    held = taken(places)
    gone, stays = Someone("x"), Someone("y")
    places.join(gone)
    places.join(stays)
    places.leave(gone)
    held.give_back()
    assert (gone.told, stays.place is not None, places.waiting) == (0, True, 0)


@given(
    arrivals=st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("pq")), max_size=60),
    seed=st.integers(0, 1000),
)
def test_between_two_turns_of_a_workspace_that_waits_no_other_has_more_than_one(
    arrivals: list[tuple[str, str]], seed: int
) -> None:
    """And the same for projects inside a workspace, whoever comes or leaves meanwhile."""
    chance, rota = random.Random(seed), Rota[Someone](MANY)
    since: dict[str, Counter[str]] = defaultdict(Counter)
    coming = list(arrivals)
    while coming or len(rota):
        if coming and (not len(rota) or chance.random() < 0.5):
            assert rota.join(Someone(*coming.pop())) == []
            continue
        if len(rota) > 1 and chance.random() < 0.2:
            rota.leave(chance.choice(list(rota)))
            continue
        waiting = {guest.workspace for guest in rota} | {f"{guest.workspace}/{guest.project}" for guest in rota}
        guest = rota.next()
        for had, key, level in ((guest.workspace, guest.workspace, 0), (guest.project, _path(guest), 1)):
            for other in waiting - {key}:
                if other.count("/") != level or (level and not other.startswith(guest.workspace + "/")):
                    continue
                since[other][had] += 1
                assert since[other][had] <= 2  # the first may be of before it came
            since[key].clear()
        for key in [key for key in since if key not in waiting]:
            del since[key]


def _path(guest: Someone) -> str:
    return f"{guest.workspace}/{guest.project}"


# What may wait.


def test_too_many_are_refused_and_each_is_told_when_to_come_again() -> None:
    places = one_engine(1, waiting=2)
    taken(places)
    load = places.limits.load(1)
    for _ in range(2):
        places.join(Someone("x", load=load))
    with pytest.raises(EngineBusy) as busy:
        places.join(Someone("x", load=load))
    assert busy.value.retry_after is not None
    assert busy.value.reason == "queue_full"


def test_a_flood_keeps_nobody_else_out_of_the_queue_and_loses_its_own_newest() -> None:
    places = one_engine(1, waiting=4, waiting_bytes=4)
    taken(places)
    flood = [Someone("flood", load=4, name=number) for number in range(4)]
    for someone in flood:
        places.join(someone)
    calm = [Someone("calm", load=4) for _ in range(2)]
    for someone in calm:
        places.join(someone)
    assert [someone.refusal is not None for someone in flood] == [False, False, True, True]
    assert not any(someone.refusal for someone in calm)
    with pytest.raises(EngineBusy):  # equals now: nobody leaves for one who is no lighter
        places.join(Someone("calm", load=4))


def test_a_project_that_floods_keeps_its_own_workspaces_other_projects_out_of_nothing() -> None:
    places = one_engine(1, waiting=4, waiting_bytes=4)
    taken(places)
    flood = [Someone("acme", "flood", load=4) for _ in range(4)]
    for someone in flood:
        places.join(someone)
    calm = Someone("acme", "calm", load=4)
    places.join(calm)
    assert [someone.refusal is not None for someone in flood] == [False, False, False, True]
    assert calm.refusal is None


def test_large_bodies_are_bounded_in_all_and_nobody_leaves_in_vain() -> None:
    rota: Rota[Someone] = Rota(100)
    small, large = Someone("b", load=30), Someone("c", load=40)
    assert rota.join(small) == []
    assert rota.join(large) == []
    assert rota.join(Someone("a", load=60)) is None  # 30 are over, and it would be the heaviest itself
    assert rota.join(Someone("a", load=35)) == [large]
    assert (rota.load, len(rota)) == (65, 2)
    evenly: Rota[Someone] = Rota(100)
    for workspace in ("b", "c"):
        assert evenly.join(Someone(workspace, load=25)) == []
        assert evenly.join(Someone(workspace, load=24)) == []
    leaving = evenly.join(Someone("a", load=24))  # of each that is the heaviest by then
    assert leaving is not None
    assert sorted(guest.workspace for guest in leaving) == ["b"]
    leaving = evenly.join(Someone("d", load=23))
    assert leaving is not None
    assert [guest.workspace for guest in leaving] == ["c"]
    three: Rota[Someone] = Rota(90)
    for workspace in ("b", "c", "b", "c", "b", "c"):
        assert three.join(Someone(workspace, load=15)) == []
    leaving = three.join(Someone("a", load=29))
    assert leaving is not None
    assert sorted(guest.workspace for guest in leaving) == ["b", "c"]
    assert rota.join(Someone("z", load=101)) is None


class Counted(Someone):
    """How often somebody who waits is looked at."""

    looks = 0

    def __getattribute__(self, name: str) -> object:
        if name == "load":
            Counted.looks += 1
        return super().__getattribute__(name)


def test_whoever_is_refused_where_the_queue_is_full_costs_no_look_at_each_who_waits() -> None:
    """Else a flood of requests that are refused would cost more than one of requests that are not."""
    rota: Rota[Someone] = Rota(1000)
    waiting = [Counted(f"w{number % 50}", f"p{number % 7}") for number in range(1000)]
    for one in waiting:
        assert rota.join(one) == []
    Counted.looks = 0
    assert rota.join(Someone("w1", "p1")) is None
    assert rota.join(Someone("heavy", load=30)) is None
    assert Counted.looks < 50
    for one in waiting:
        rota.leave(one)
    assert (rota.load, rota._workspaces, rota._of_workspace, rota._of_projects) == (0, {}, {}, {})


@pytest.mark.parametrize("waiting_bytes", [1, 7, 1000, 1024, 67_108_864])
@pytest.mark.parametrize("waiting", [1, 2, 3, 10, 100, 1000, 1024, 4999])
def test_just_so_many_may_wait_as_are_configured(waiting: int, waiting_bytes: int) -> None:
    of = limits(waiting=waiting, waiting_bytes=waiting_bytes)
    assert waiting * of.load(0) <= of.bound < (waiting + 1) * of.load(0)


@pytest.mark.parametrize("waiting", [1, 3, 1000])
def test_just_so_many_bytes_may_wait_as_are_configured(waiting: int) -> None:
    of = limits(waiting=waiting, waiting_bytes=1005)
    assert of.load(1005) <= of.bound < of.load(1006)


def test_nobody_waits_where_nobody_may() -> None:
    assert limits(waiting=0).load(0) > limits(waiting=0).bound


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("pq"), st.integers(1, 60)), max_size=40))
def test_the_bound_on_what_waits_is_never_passed_and_the_lighter_stays(arrivals: list[tuple[str, str, int]]) -> None:
    rota: Rota[Someone] = Rota(100)
    for workspace, project, load in arrivals:
        before = Counter(_loads(rota))
        newcomer = Someone(workspace, project, load)
        leaving = rota.join(newcomer)
        assert rota.load == sum(guest.load for guest in rota) <= 100
        if leaving is None:
            assert _loads(rota) == before
            continue
        for guest in leaving:
            assert before[guest.workspace] > 0
            if guest.workspace != workspace:
                # It was heavier than the newcomer's workspace is now with him.
                assert before[guest.workspace] > _loads(rota)[workspace]


def _loads(rota: Rota[Someone]) -> Counter[str]:
    loads: Counter[str] = Counter()
    for guest in rota:
        loads[guest.workspace] += guest.load
    return loads


# What is told.


def test_retry_after_is_the_time_that_as_many_turns_took_and_is_clamped() -> None:
    clock = Clock()
    places = one_engine(1, clock)
    holder = taken(places)
    waiters = [Someone("x") for _ in range(8)]
    for waiter in waiters:
        places.join(waiter)
    for waiter in waiters[:5]:
        clock.now += 2.0
        holder.give_back()
        assert waiter.place is not None
        holder = waiter.place
    assert places.busy("-", reason="-").retry_after == 8  # three wait, and he would be the fourth
    clock.now += 5.0  # a turn that is late counts as such
    assert places.busy("-", reason="-").retry_after == 13
    clock.now += 3600.0
    assert places.busy("-", reason="-").retry_after == LONGEST_RETRY_SECONDS


@pytest.mark.parametrize("passed", [0.0, 0.1, 5.0, 9.9])
def test_turns_that_come_in_batches_are_as_many_as_they_are_and_no_more(passed: float) -> None:
    """A hundred every 10 s: who would be the hundredth to wait is asked to come when the next batch is over."""
    clock = Clock()
    places = one_engine(100, clock)
    running = [taken(places) for _ in range(100)]
    for _ in range(20):
        waiters = [Someone("x") for _ in range(100)]
        for waiter in waiters:
            places.join(waiter)
        clock.now += 10.0
        for place in running:
            place.give_back()
        running = [waiter.place for waiter in waiters if waiter.place is not None]
    for _ in range(99):
        places.join(Someone("x"))
    clock.now += passed
    told = places.busy("-", reason="-").retry_after
    assert told is not None
    assert 8 <= told <= 13


def test_where_nobody_may_wait_too_it_is_known_how_long_places_are_taken() -> None:
    clock = Clock()
    places = one_engine(1, clock, waiting=0)
    for _ in range(5):
        holder = taken(places)
        clock.now += 10.0
        holder.give_back()
        clock.now += 3600.0
    taken(places)
    with pytest.raises(EngineBusy) as busy:
        places.join(Someone("x", load=places.limits.load(1)))
    assert busy.value.retry_after in range(9, 11)


def test_time_in_which_nobody_waited_says_nothing_of_how_fast_turns_come() -> None:
    clock = Clock()
    places = one_engine(1, clock)
    for _ in range(3):
        holder, waiter = taken(places), Someone("x")
        places.join(waiter)
        clock.now += 3.0
        holder.give_back()
        assert waiter.place is not None
        clock.now += 3.0
        waiter.place.give_back()
        clock.now += 600.0
    taken(places)
    places.join(Someone("x"))
    assert places.busy("-", reason="-").retry_after == 6


# Any order of everything.


class AnyOrder(RuleBasedStateMachine):
    """Requests that come, leave, finish and wait too long, at two engines whose replicas come and go."""

    @initialize(first=st.integers(1, 3), second=st.integers(1, 3), whole=st.integers(1, 5))
    def begin(self, first: int, second: int, whole: int) -> None:
        self.whole = Capacity(
            whole,
            {"a": limits(first, waiting=4, waiting_bytes=40), "b": limits(second, waiting=4, waiting_bytes=40)},
            clock=Clock(),
        )
        self.running: list[Place] = []
        self.waiting: list[tuple[Places, Someone]] = []
        self.everybody: list[Someone] = []

    @rule(engine=st.sampled_from("ab"), workspace=st.sampled_from("xyz"), project=st.sampled_from("pq"))
    def arrives(self, engine: str, workspace: str, project: str) -> None:
        places = self.whole.at(engine)
        place = places.place()
        if place is not None:
            self.running.append(place)
            return
        someone = Someone(workspace, project, places.limits.load(1))
        try:
            places.join(someone)
        except EngineBusy:
            return
        self.everybody.append(someone)
        self.waiting.append((places, someone))
        self.notice()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finishes(self, data: st.DataObject) -> None:
        place = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        place.give_back()
        place.give_back()
        self.notice()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leaves(self, data: st.DataObject) -> None:
        places, someone = self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1)))
        places.leave(someone)

    @rule(engine=st.sampled_from("ab"), replicas=st.integers(0, 3))
    def replicas_change(self, engine: str, replicas: int) -> None:
        self.whole.at(engine).usable(replicas)
        self.notice()

    def notice(self) -> None:
        self.running += [someone.place for _, someone in self.waiting if someone.place is not None]
        self.waiting = [(places, one) for places, one in self.waiting if one.place is None and one.refusal is None]

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "whole"):
            return
        assert self.whole.taken == len(self.running) == sum(places.taken for places in self.whole)
        assert {id(one) for one in self.whole.waiters} == {id(one) for _, one in self.waiting}
        assert all(one.told <= 1 for one in self.everybody)
        assert self.whole.taken <= self.whole.limit
        for places in self.whole:
            held = [place for place in self.running if place.engine == places.engine]
            assert places.taken == len(held)
            assert places.waiting <= places.limits.waiting
            if places.waiting:  # then there is no room
                assert places.taken >= places.limit or self.whole.taken >= self.whole.limit


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnyOrder = AnyOrder.TestCase
