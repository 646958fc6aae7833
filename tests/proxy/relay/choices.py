"""Other choices than the product's: one that a test can foretell, and those that the product's is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from proxy.relay.destination import Destination
from proxy.relay.pool import Pool


class InOrder:
    """As the configuration has them."""

    @contextmanager
    def replicas(self, destination: Destination) -> Iterator[Sequence[Pool]]:
        yield destination.pools


class RoundRobin:
    """Each in its turn."""

    def __init__(self) -> None:
        self._turn = 0

    @contextmanager
    def replicas(self, destination: Destination) -> Iterator[Sequence[Pool]]:
        first, self._turn = self._turn % len(destination.pools), self._turn + 1
        yield [*destination.pools[first:], *destination.pools[:first]]


class LeastOutstanding:
    """Who has least to do, and of those in turn."""

    def __init__(self) -> None:
        self._turns = RoundRobin()

    @contextmanager
    def replicas(self, destination: Destination) -> Iterator[Sequence[Pool]]:
        with self._turns.replicas(destination) as pools:
            yield sorted(pools, key=lambda pool: pool.outstanding)
