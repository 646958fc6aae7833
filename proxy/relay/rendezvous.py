"""Which replica gets a request: the one that has computed its beginning before, unless that has too much to do.

Rendezvous hashing (highest random weight, Thaler and Ravishankar 1998): each replica has a score for each beginning,
and the best one is its home. Nothing is remembered, so the choice is the same on every worker and after every restart,
and a replica that is lost moves only what was at home there. With bounded load (consistent hashing with bounded loads,
Mirrokni, Thorup and Zadimoghaddam 2018): a replica that has more than its bound is passed over for the next in order.

There are two beginnings (`engines/beginning.py`), because there are two things to be found again. A conversation finds
its own past where its last turn was. Instructions are worth finding too, if they are long: as long as one replica can
take all that begins with them, it gets all of it, so that they are computed and kept once. When there is more, the
next in their order take their part of it, conversation by conversation, as many replicas as the load needs. Where the
instructions are short, each conversation has a home of its own.

Each worker knows its own outstanding requests only. So the bound is over what this worker has sent: ceil(1.5 × the mean
of its own). The bounds of all workers together are 1.5 times the mean of everything, and at most AT_EASE requests a
worker more. Homes are the same on all of them; what is passed over is so where their loads are alike, as the kernel's
spread of connections makes them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from proxy.engines.beginning import Beginning

# How much more than the mean a replica may have. Less moves more requests away from what they would find again.
LOAD: Final = 1.5
# So many at a time are computed together about as fast as one: nobody is moved for them.
AT_EASE: Final = 4


class Place(NamedTuple):
    """One replica: its address, how much it has to do, and its weight, from 0 (ejected) to 1."""

    name: str
    outstanding: int
    weight: float


def order(places: Sequence[Place], start: Beginning | None, alike: int) -> list[int]:
    """The indices of `places` in the order in which to try them.

    `alike`: how many outstanding requests begin with the same instructions. What has no beginning, because it computes
    no prompt, goes to who has least to do. Ejected replicas are last: worse than any other, and better than none.
    """
    usable = [index for index, place in enumerate(places) if place.weight > 0.0]
    limit = bound(sum(place.outstanding for place in places), len(usable))
    preferred = usable if start is None else _preferred(places, usable, start, math.ceil((alike + 1) / limit))
    free = [index for index in preferred if places[index].outstanding < max(1.0, limit * places[index].weight)]
    if start is None:
        free.sort(key=lambda index: places[index].outstanding)
    rest = [index for index in range(len(places)) if index not in free]
    rest.sort(key=lambda index: (places[index].weight == 0.0, places[index].outstanding))
    return free + rest


def bound(outstanding: int, replicas: int) -> int:
    """How many requests one replica may have, the new one among them: at least one replica is always below."""
    return max(AT_EASE, math.ceil(LOAD * (outstanding + 1) / max(1, replicas)))


def _preferred(places: Sequence[Place], usable: Sequence[int], start: Beginning, spread: int) -> list[int]:
    """By the instructions, and by the conversation among the first `spread`; by it alone where those are short."""
    if not start.worthwhile:
        return _by(start.own, places, usable)
    by_shared = _by(start.shared, places, usable)
    return _by(start.own, places, by_shared[:spread]) + by_shared[spread:]


def _by(key: bytes, places: Sequence[Place], chosen: Sequence[int]) -> list[int]:
    return sorted(chosen, key=lambda index: _score(key, places[index])) if len(chosen) > 1 else list(chosen)


def _score(key: bytes, place: Place) -> float:
    """The smaller the better. Weighted as in Schindelhauer and Schomaker 2005: the share of a replica is its weight's,
    and a weight that changes moves keys to or from this replica only. All keys are of one length.
    """
    drawn = int.from_bytes(blake2b(key + place.name.encode(), digest_size=8).digest(), "big")
    return -math.log((drawn + 1) / 2**64) / place.weight
