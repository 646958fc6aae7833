"""What metrics cost: each request, and a look at all of them with very many scopes: `make scrape-cost`.

A worker tells in pieces and the supervisor writes in pieces; streams and other scrapes have their turn between two of
them, so the longest piece is what they can feel. CPU time, so that a busy machine changes little.
"""

from __future__ import annotations

import argparse
import gc
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from observability.counted import Counted
from observability.exposition import exposition
from observability.metrics import Metrics
from observability.record import Record
from observability.totals import Bounds, Totals
from proxy.memory import settle
from tests.observability.telling import Time, answers, goes_up, recorder, took

T = TypeVar("T")

MODELS = ("tiny", "large")
COUNTED_AT_ONCE = 200


@dataclass(slots=True)
class Pieces:
    """How long each took, in seconds of CPU time."""

    seconds: list[float] = field(default_factory=list)

    def timed(self, made: Iterator[T]) -> Iterator[T]:
        while True:
            began = time.thread_time()
            piece = next(made, None)
            self.seconds.append(time.thread_time() - began)
            if piece is None:
                return
            yield piece

    def said(self) -> str:
        worst = max(self.seconds) * 1e3
        return f"{sum(self.seconds) * 1e3:7.0f} ms in {len(self.seconds):4} pieces, the longest {worst:5.1f} ms"


def finished_requests(scopes: int, *, stream: bool, first: int = 0) -> Iterator[Record]:
    """One good request of each scope and model."""
    clock = Time()
    opens = recorder(time=clock)
    for number in range(first, first + scopes):
        for model in MODELS:
            with opens.request(method="POST", route="/v1/chat/completions") as record:
                took(record, "auth", clock, milliseconds=0.05)
                took(record, "directory", clock, milliseconds=0.01)
                took(record, "body", clock, milliseconds=0.1)
                took(record, "stamp", clock, milliseconds=0.05)
                goes_up(record, workspace=f"workspace-{number // 10}", project=f"project-{number}", model=model)
                record.stream = stream
                answers(record, clock)
            yield record


def microseconds(work: Callable[[Record], None], records: list[Record]) -> float:
    """The best of some rounds, each."""
    best = float("inf")
    for _ in range(20):
        began = time.thread_time()
        for record in records:
            work(record)
        best = min(best, (time.thread_time() - began) / len(records))
    return best * 1e6


def each_request() -> None:
    for stream, traced in ((False, False), (True, False), (True, True)):
        metrics = Metrics(version="0", drops={}, traced=lambda _, traced=traced: traced)  # type: ignore[misc]
        records = list(finished_requests(COUNTED_AT_ONCE, stream=stream))
        kind = "a stream" if stream else "a whole answer"
        sent, ended = microseconds(metrics.sent, records), microseconds(metrics.finished, records)
        print(f"{kind + (', with exemplars' if traced else ''):34} {sent:5.2f} us sent, {ended:5.2f} us ended, hot")


def added(totals: Totals, told: list[bytes]) -> Iterator[bytes]:
    for piece in told:
        totals.add(Counted.decode(piece)[0])
        yield piece


def a_look(totals: Totals, metrics: Metrics, records: Iterator[Record], what: str) -> None:
    for record in records:
        metrics.finished(record)
    tells, adds, writes = Pieces(), Pieces(), Pieces()
    told = list(tells.timed(piece.encode() for piece in metrics.told()))
    for _ in adds.timed(added(totals, told)):
        pass
    megabytes = sum(len(text.encode()) for text in writes.timed(exposition(totals, {}, open_metrics=False))) / 1e6
    print(f"\n{what}")
    print(f"  a worker tells       {tells.said()}")
    print(f"  the supervisor adds  {adds.said()}")
    print(f"  and writes           {writes.said()}, {megabytes:.0f} MB")


def resident_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scopes", type=int, default=20_000, help="scopes that have series of their own")
    parser.add_argument("--seen", type=int, default=100_000, help="scopes that are seen in all")
    options = parser.parse_args()
    each_request()
    gc.collect()
    before = resident_megabytes()
    totals = Totals(Bounds(scopes=options.scopes), monotonic=time.monotonic, wall_clock=time.time)
    metrics = Metrics(version="0", drops={})
    settle()
    for look in ("first", "second"):
        requests = finished_requests(options.scopes, stream=True)
        a_look(totals, metrics, requests, f"{options.scopes} scopes with {len(MODELS)} models, {look} look, all asked")
    a_look(totals, metrics, iter(()), "the same, nobody asked")
    for first in range(options.scopes, options.seen, options.scopes):
        requests = finished_requests(options.scopes, stream=True, first=first)
        a_look(totals, metrics, requests, f"scopes {first} and on: over the bound")
    print(f"\n{resident_megabytes() - before:.0f} MB more than before the first look, at most")


if __name__ == "__main__":
    main()
