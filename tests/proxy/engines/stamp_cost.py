"""What a stamped request costs, measured here: `python -m tests.proxy.engines.stamp_cost`.

Three tables: the processor's time for a body, by its size and form; for finding its salt, by how many units are known;
and how long a raise takes to be in force in gates that run. `stamp-cost.md` holds one run of it.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from proxy.directory.changes import fresh_ring, import_directory
from proxy.directory.membership import Named, select_scope
from proxy.directory.model import Directory, Project, Workspace, user
from proxy.directory.redis_store import RedisStore
from proxy.directory.rotation import raise_unit
from proxy.directory.snapshot import Snapshot
from proxy.directory.view import DirectoryView, open_view
from proxy.engines.body import read_body
from proxy.engines.profile import Operation
from proxy.engines.stamp import stamp
from proxy.identity import Identity
from proxy.isolation.ring import KeyRing, record_name
from proxy.isolation.salt import SaltKey
from proxy.isolation.unit import Level, ProjectUnit
from proxy.refusals import Refusal
from tests.parts.redis_server import RedisServer
from tests.proxy.engines.asking import ENDPOINT, SALT

CHAT: Final = ENDPOINT[Operation.CHAT]
SIZES: Final = {"1 KB": 1_000, "100 KB": 100_000, "1 MB": 1_000_000, "20 MB": 20_000_000}
MOST_MESSAGES: Final = 16_000  # the gate takes 16,384
UNITS: Final = (10, 10_000, 100_000)
PROJECTS_EACH: Final = 100  # of a workspace
ISSUER: Final = "https://sso.example.test/realms/acme"
KEYS: Final = KeyRing({"k1": SaltKey("k1", b"0123456789abcdef0123456789abcdef")})
LOOKUPS: Final = 2_000
ROUNDS: Final = 9
RAISES: Final = 50
# Without a colon: a text of more than 2**18 of them is refused, see `proxy.engines.body`.
TEXT: Final = "The patient of 2024-01-02 is well, and thanks „you“, x = f(1)\n"
_LONG_AGO: Final = 1_700_000_000


def long_text(size: int) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": _text(size - 80)}]}


def short_messages(size: int) -> dict[str, object]:
    """Of some 150 bytes each; longer where there would be more of them than the gate takes."""
    each = max(150, size // MOST_MESSAGES)
    turns = [{"role": ("user", "assistant")[at % 2], "content": _text(each - 40)} for at in range(max(1, size // each))]
    return {"messages": turns}


def tool_schemas(size: int) -> dict[str, object]:
    """Tools of six parameters, some 850 bytes each."""
    parameter = {"type": "string", "description": "What is looked for, in the words of the one who asks for it."}
    function = {
        "description": "Look something up in the archive, and tell where it was found and when.",
        "parameters": {"type": "object", "properties": dict.fromkeys("abcdef", parameter), "required": ["a"]},
    }
    tools = [{"type": "function", "function": {"name": f"tool_{at}", **function}} for at in range(max(1, size // 860))]
    return {"messages": [{"role": "user", "content": "Hi"}], "tools": tools}


def _text(size: int) -> str:
    return (TEXT * (size // len(TEXT.encode()) + 1))[: max(size * len(TEXT) // len(TEXT.encode()), 1)]


def stamped(body: bytes) -> int:
    """The gate's own way of a body, from its bytes to those that an engine gets. Raises Refusal."""
    return len(stamp(read_body(CHAT, body), SALT, request_id="r-1", show_reuse=True).body)


def refused(body: bytes) -> str | None:
    try:
        stamped(body)
    except Refusal as refusal:
        return refusal.message
    return None


def bodies() -> Iterator[tuple[str, str, bytes]]:
    for form in (long_text, short_messages, tool_schemas):
        for told, size in SIZES.items():
            document = {"model": "tiny", "stream": True, **form(size)}
            yield form.__name__.replace("_", " "), told, json.dumps(document, ensure_ascii=False).encode()


def processor_seconds(work: Callable[[], object]) -> float:
    """The median of some rounds; short work is repeated within a round."""
    work()
    repeats = max(1, int(0.02 / max(thread_seconds(work), 1e-6)))

    def one_round() -> None:
        for _ in range(repeats):
            work()

    return statistics.median(thread_seconds(one_round) for _ in range(ROUNDS)) / repeats


def thread_seconds(work: Callable[[], object]) -> float:
    """Of the processor: the machine may have other work."""
    began = time.thread_time()
    work()
    return time.thread_time() - began


def directory_of(units: int) -> Directory:
    """So many projects, a hundred in each workspace, each with one member of its own."""

    def workspace(number: int, projects: range) -> Workspace:
        names = {f"p{at}": Project(f"p{at}", members=(user(f"u-{at}"),)) for at in projects}
        return Workspace(f"w{number}", ISSUER, projects=names)

    starts = range(0, units, PROJECTS_EACH)
    return Directory.of(
        workspace(number, range(start, min(start + PROJECTS_EACH, units))) for number, start in enumerate(starts)
    )


def snapshot_of(units: int) -> Snapshot:
    """All known units have been raised once, so that their records are looked up too."""
    raised = dict.fromkeys((record_name(unit) for unit in map(unit_at, range(units))), 1)
    return Snapshot(directory_of(units), {}, replace(fresh_ring("k1", now=_LONG_AGO), raises=raised), 1)


def unit_at(number: int) -> ProjectUnit:
    return ProjectUnit(f"w{number // PROJECTS_EACH}", f"p{number}")


def salted(snapshot: Snapshot, number: int, *, is_named: bool) -> str:
    """Scope, unit and salt of one caller, who names his project or leaves it to the gate to find it."""
    unit = unit_at(number)
    caller = Identity(ISSUER, f"u-{number}", frozenset({"eng"}), groups_complete=True, expires_at=0.0)
    named = Named(unit.workspace, unit.project) if is_named else Named()
    scope = select_scope(snapshot, caller, named, default_unit=Level.PROJECT, default_show_reuse=True)
    return KEYS.salt(scope.unit("tiny"), snapshot.ring, _LONG_AGO).value


def lookup_seconds(*, is_named: bool) -> list[float]:
    """For each count of units the processor's time of one lookup. The rounds take turns: the machine has other work."""
    works = [partial(look_up, snapshot_of(units), units, is_named=is_named) for units in UNITS]
    rounds = [[thread_seconds(work) / LOOKUPS for work in works] for _ in range(2 * ROUNDS)]
    return [statistics.median(column) for column in zip(*rounds, strict=True)]


def look_up(snapshot: Snapshot, units: int, *, is_named: bool) -> None:
    for number in random.Random(7).choices(range(units), k=LOOKUPS):
        salted(snapshot, number, is_named=is_named)


async def raise_seconds(units: int) -> tuple[list[float], list[float]]:
    """Of each raise, the seconds from its commit, and from its order, until the later of two views shows it."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        redis = stack.enter_context(RedisServer(folder))
        stores = [RedisStore(redis.settings()) for _ in range(3)]
        for store in stores:
            stack.push_async_callback(store.close)
        await stores[0].change(import_directory(directory_of(units), fresh_ring("k1", now=_LONG_AGO)))
        views = [await stack.enter_async_context(open_view(store, max_stale=300.0)) for store in stores[1:]]
        for view in views:
            await until_epoch(view, 0)
        both = [await one_raise(stores[0], views, number) for number in range(1, RAISES + 1)]
    return [committed for committed, _ in both], [ordered for _, ordered in both]


async def one_raise(store: RedisStore, views: list[DirectoryView], times: int) -> tuple[float, float]:
    await asyncio.sleep(random.uniform(0.0, 0.05))  # anywhere between two confirmations
    async with asyncio.TaskGroup() as group:
        shown = [group.create_task(until_epoch(view, times)) for view in views]
        ordered = time.perf_counter()
        await store.change(raise_unit(unit_at(3)))
        committed = time.perf_counter()
    later = max(task.result() for task in shown)
    # A view may show it before the answer is back.
    return max(later - committed, 0.0), later - ordered


async def until_epoch(view: DirectoryView, raises: int) -> float:
    """When the view shows so many raises of the unit, on the performance counter."""
    while not view.ready or (ring := view.current().ring) is None or ring.epoch(unit_at(3)) < _LONG_AGO + raises:
        await view.changed()
    return time.perf_counter()


def print_bodies() -> None:
    print("| form | size | bytes | processor | per KiB | |")
    print("|---|---|---|---|---|---|")
    for form, told, body in bodies():
        why = refused(body)
        micros = processor_seconds(partial(stamped if why is None else refused, body)) * 1e6
        note = "" if why is None else f"refused: {why}"
        print(f"| {form} | {told} | {len(body):,} | {micros:,.0f} µs | {micros / (len(body) / 1024):.2f} µs | {note} |")


def print_lookups() -> None:
    print("\n| units known | project named | to the first line | only membership | to the first line |")
    print("|---|---|---|---|---|")
    named, only = lookup_seconds(is_named=True), lookup_seconds(is_named=False)
    for units, one, other in zip(UNITS, named, only, strict=True):
        cells = (f"{mine * 1e6:.1f} µs | {mine / first:.2f}" for mine, first in ((one, named[0]), (other, only[0])))
        print(f"| {units:,} | {' | '.join(cells)} |")


def print_raises() -> None:
    print("\n| units known | from commit: p50 | max | from the order: p50 | max |")
    print("|---|---|---|---|---|")
    for units in UNITS:
        columns = asyncio.run(raise_seconds(units))
        cells = (f"{statistics.median(all_) * 1e3:.1f} ms | {max(all_) * 1e3:.1f} ms" for all_ in columns)
        print(f"| {units:,} | {' | '.join(cells)} |")


def main() -> None:
    print_bodies()
    print_lookups()
    print_raises()


if __name__ == "__main__":
    main()
