"""Which replica a prompt is at home at, and when it goes elsewhere."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.engines.beginning import Beginning
from proxy.relay.choice import Affinity
from proxy.relay.destination import Destination
from proxy.relay.outliers import Outliers
from proxy.relay.patience import Patience
from proxy.relay.pool import Address, Pool
from proxy.relay.rendezvous import AT_EASE, LOAD, Place, bound, order

FOUR = tuple(Place(f"10.0.0.{number}:8000", 0, 1.0) for number in range(4))


def start(shared: int, own: int = 0, *, worthwhile: bool = True) -> Beginning:
    digest_of_shared, digest_of_own = (blake2b(b"%d %d" % (shared, of), digest_size=16).digest() for of in (-1, own))
    return Beginning(digest_of_shared, digest_of_own, worthwhile)


def home(places: Sequence[Place], begins: Beginning, alike: int = 0) -> str:
    return places[order(places, begins, alike)[0]].name


starts = st.builds(start, st.integers(0, 2**32), st.integers(0, 2**32), worthwhile=st.booleans())
names = st.lists(st.integers(0, 2**16).map(lambda n: f"10.0.0.1:{n}"), min_size=2, max_size=12, unique=True)


@given(names=names, begins=starts, lost=st.integers(0, 11))
def test_a_replica_that_is_lost_moves_only_what_was_at_home_there(
    names: list[str], begins: Beginning, lost: int
) -> None:
    places = [Place(name, 0, 1.0) for name in names]
    gone = names[lost % len(names)]
    before = [places[index].name for index in order(places, begins, 0)]
    left = [place for place in places if place.name != gone]
    assert [left[index].name for index in order(left, begins, 0)] == [name for name in before if name != gone]


@given(names=names, begins=starts, out=st.integers(0, 11), weight=st.floats(0.05, 1.0))
def test_a_weight_that_changes_moves_only_to_and_from_this_replica(
    names: list[str], begins: Beginning, out: int, weight: float
) -> None:
    places = [Place(name, 0, 1.0) for name in names]
    one = out % len(names)
    changed = [place._replace(weight=weight) if index == one else place for index, place in enumerate(places)]
    before, after = home(places, begins), home(changed, begins)
    assert before == after or before == names[one]


@given(names=names, begins=starts, shuffled=st.randoms(use_true_random=False))
def test_the_order_in_the_configuration_says_nothing(names: list[str], begins: Beginning, shuffled: object) -> None:
    places = [Place(name, 0, 1.0) for name in names]
    assert home(places, begins) == home(places[::-1], begins)


def test_homes_are_spread_evenly_and_a_weight_is_a_share() -> None:
    counted = Counter(home(FOUR, start(number)) for number in range(4000))
    assert min(counted.values()) > 850
    light = [FOUR[0]._replace(weight=0.25), *FOUR[1:]]
    few = Counter(home(light, start(number)) for number in range(4000))[FOUR[0].name]
    assert pytest.approx(few, rel=0.25) == 4000 * 0.25 / 3.25


def test_another_process_with_other_hash_seeds_chooses_the_same() -> None:
    script = (
        "from tests.proxy.relay.test_choice import *\n"
        "print([home(FOUR, start(number, number, worthwhile=number % 2 == 0)) for number in range(50)])"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True).stdout
    assert told.strip() == str([home(FOUR, start(n, n, worthwhile=n % 2 == 0)) for n in range(50)])


def test_long_instructions_keep_their_conversations_together_and_short_ones_do_not() -> None:
    assert len({home(FOUR, start(1, own)) for own in range(100)}) == 1
    assert len({home(FOUR, start(1, own, worthwhile=False)) for own in range(100)}) == 4


def test_instructions_with_more_requests_than_a_replica_takes_use_as_many_as_they_need() -> None:
    busy = [place._replace(outstanding=AT_EASE - 1) for place in FOUR]
    limit = bound(sum(place.outstanding for place in busy), len(busy))
    for needed in (1, 2, 3, 4):
        homes = {home(busy, start(1, own), alike=needed * limit - 1) for own in range(200)}
        assert len(homes) == needed


@given(begins=starts, loads=st.lists(st.integers(0, 200), min_size=2, max_size=8), alike=st.integers(0, 500))
def test_no_replica_gets_more_than_its_bound(begins: Beginning, loads: list[int], alike: int) -> None:
    places = [Place(f"10.0.0.{number}:8000", load, 1.0) for number, load in enumerate(loads)]
    first, *_ = order(places, begins, alike)
    assert loads[first] + 1 <= max(AT_EASE, -(-(LOAD * (sum(loads) + 1)) // len(loads)))


def test_a_whole_crowd_on_one_beginning_leaves_no_replica_above_the_bound() -> None:
    loads = [0] * 4
    for _ in range(400):
        places = [place._replace(outstanding=load) for place, load in zip(FOUR, loads, strict=True)]
        loads[order(places, start(1, 1), sum(loads))[0]] += 1
    assert max(loads) <= bound(400, 4)


def test_up_to_a_handful_stay_together_however_idle_the_others_are() -> None:
    loads = Counter[str]()
    for number in range(AT_EASE):
        places = [place._replace(outstanding=loads[place.name]) for place in FOUR]
        loads[home(places, start(1, number), alike=number)] += 1
    assert list(loads.values()) == [AT_EASE]


def test_the_bounds_of_two_workers_bound_the_sum() -> None:
    """Each knows its own requests only."""
    for mine, other in ((1, 400), (200, 200), (13, 57)):
        both = bound(mine, 4) + bound(other, 4)
        assert both <= LOAD * (mine + other) / 4 + 2 * AT_EASE


@given(
    begins=st.none() | starts, loads=st.lists(st.integers(0, 9), min_size=4, max_size=4), out=st.sets(st.integers(0, 3))
)
def test_every_replica_is_named_once_and_the_ejected_ones_last(
    begins: Beginning | None, loads: list[int], out: set[int]
) -> None:
    places = [
        place._replace(outstanding=load, weight=0.0 if index in out else 1.0)
        for index, (place, load) in enumerate(zip(FOUR, loads, strict=True))
    ]
    tried = order(places, begins, 0)
    assert sorted(tried) == [0, 1, 2, 3]
    assert set(tried[4 - len(out) :]) == out


def test_what_computes_no_prompt_goes_to_who_has_least_to_do() -> None:
    places = [place._replace(outstanding=load) for place, load in zip(FOUR, (3, 0, 2, 1), strict=True)]
    assert order(places, None, 0) == [1, 3, 2, 0]


def test_what_is_outstanding_is_forgotten_when_it_ends_also_by_an_error() -> None:
    pools = [Pool(Address(host="10.0.0.1", port=port), connect_seconds=1.0) for port in (1, 2)]
    destination = Destination(
        engine="main",
        model="tiny",
        pools=pools,
        patience=Patience(first_byte=1, idle=1),
        outliers=Outliers(),
        beginning=start(1),
    )
    affinity = Affinity(lambda: 0.0)
    held = ExitStack()
    for _ in range(2):
        held.enter_context(affinity.replicas(destination))
    assert sum(affinity._beginning_so.values()) == 2
    with pytest.raises(ValueError, match="why"), held:
        raise ValueError("why")
    assert not affinity._beginning_so
