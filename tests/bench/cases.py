"""What is measured: the kinds of load, and how much of nginx's and Envoy's cost each may have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Limit:
    """At most that much: `must` is kept, `stretch` is wanted."""

    must: float
    stretch: float


@dataclass(frozen=True, slots=True)
class Load:
    """Words for the load generator, and how many units the cost of a run is divided by."""

    words: tuple[str, ...]
    units: int

    def half(self) -> Load:
        """Half of the connections, and half of what is asked over them."""
        words = list(self.words)
        for option in ("-c", "-n"):
            at = words.index(option) + 1
            words[at] = str(int(words[at]) // 2)
        return Load(tuple(words), self.units // 2)


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of load. `engine` are the mock's defaults while it runs; `light` is for proxies that cannot keep up.

    Where `paced`, the engine sends no faster than the proxy can pass on, so a late event tells of a disturbed round.
    """

    name: str
    unit: str
    load: Load
    light: Load
    engine: str
    to_nginx: Limit | None = None
    to_envoy: Limit | None = None
    to_litellm: Limit | None = None
    paced: bool = False


def _requests(connections: int, requests: int, *words: str) -> Load:
    return Load(("-c", str(connections), "-n", str(requests), *words), requests)


def _streams(streams: int, events: int, *words: str) -> Load:
    """All at once, each stream once; the cost is that of an event."""
    return Load(("-c", str(streams), "-n", str(streams), "-s", "-r", "20", *words), streams * events)


CASES: Final = (
    Case(
        "small request",
        "request",
        _requests(32, 5000),
        _requests(8, 300),
        "n=200&t=0&d=0&j=0&y=0",
        to_nginx=Limit(5.5, 4.4),
        to_envoy=Limit(1.1, 0.85),
        to_litellm=Limit(1 / 50, 1 / 90),
    ),
    Case(
        "paced event (400 streams, 20 ms)",
        "event",
        _streams(400, 250),
        _streams(10, 250),
        "n=250&t=50&d=20&j=1&y=0",
        to_nginx=Limit(1.4, 1.2),
        to_envoy=Limit(1.0, 0.8),
        to_litellm=Limit(1 / 20, 1 / 28),
        paced=True,
    ),
    Case(
        "events in step (400 streams tick together)",
        "event",
        _streams(400, 250),
        _streams(10, 250),
        "n=250&t=50&d=20&j=0&y=1",
        to_nginx=Limit(1.8, 1.45),
        to_envoy=Limit(1.0, 0.8),
    ),
    Case(
        "event back to back",
        "event",
        Load(("-c", "32", "-n", "300", "-s"), 300 * 200),
        Load(("-c", "8", "-n", "16", "-s"), 16 * 200),
        "n=200&t=0&d=0&j=0&y=0",
    ),
    Case(
        "8-event stream, whole",
        "stream",
        _requests(32, 3000, "-s"),
        _requests(8, 200, "-s"),
        "n=8&t=0&d=0&j=0&y=0",
        to_nginx=Limit(2.0, 1.6),
        to_envoy=Limit(1.3, 1.0),
    ),
    Case(
        "1 MB prompt",
        "request",
        _requests(4, 300, "-S", "1000000"),
        _requests(4, 30, "-S", "1000000"),
        "n=2&t=0&d=0&j=0&y=0",
        to_nginx=Limit(3.5, 2.2),
        to_envoy=Limit(0.8, 0.5),
    ),
)
