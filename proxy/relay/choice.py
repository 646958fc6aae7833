"""Which replicas of a destination a request is tried at, in which order: by `rendezvous.py` and what is known here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from proxy.relay.destination import Destination
from proxy.relay.pool import Pool
from proxy.relay.rendezvous import Place, order


class Choice(Protocol):
    """The replicas of a destination in the order in which to try them; the request counts as theirs meanwhile."""

    def replicas(self, destination: Destination) -> AbstractContextManager[Sequence[Pool]]: ...


class Affinity:
    """The product's one choice: where the prompt's beginning is at home."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives the seconds that outliers go by."""
        self._clock = clock
        self._beginning_so: Counter[bytes] = Counter()

    @contextmanager
    def replicas(self, destination: Destination) -> Iterator[Sequence[Pool]]:
        start, now = destination.beginning, self._clock()
        places = [
            Place(pool.name, pool.outstanding, destination.outliers.weight(pool.name, destination.caller, now))
            for pool in destination.pools
        ]
        shared = None if start is None else start.shared
        alike = 0 if shared is None else self._beginning_so[shared]
        pools = [destination.pools[index] for index in order(places, start, alike)]
        if shared is None:
            yield pools
            return
        self._beginning_so[shared] = alike + 1
        try:
            yield pools
        finally:
            self._beginning_so[shared] -= 1
            if not self._beginning_so[shared]:
                del self._beginning_so[shared]
