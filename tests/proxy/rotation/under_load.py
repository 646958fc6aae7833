"""A rotation by a plan, and one at once, under load: `python -m tests.proxy.rotation.under_load --picture FILE`.

Prints both by half seconds and everything that went wrong; exits 1 where anything did. The salt document shows the
picture.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from proxy.demo.simulator import Pace
from tests.parts.redis_server import RedisServer
from tests.proxy.rotation.load import Load, rotation
from tests.proxy.rotation.picture import Curve, picture
from tests.proxy.rotation.run import Run, breaches
from tests.proxy.rotation.table import Line, latest, lines

LOAD: Final = Load(projects=24, prefix_tokens=1200, pause=1.0, before=5.0, after=5.0, pace=Pace())
LATE_SECONDS: Final = 1.0  # contract section 4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--over", type=float, default=20.0, help="seconds of the plan")
    parser.add_argument("--picture", type=Path, help="write an SVG picture here")
    arguments = parser.parse_args()
    over: float = arguments.over
    planned, at_once = _run(LOAD, over), _run(replace(LOAD, after=LOAD.after + over), 0.0)
    wrong = [*_told(f"--over {over:g}s", planned), *_told("--over 0s", at_once)]
    if arguments.picture is not None:
        curves = [
            Curve("planned", f"keys rotate --over {over:g}s", _lines(planned)),
            Curve("at-once", "keys rotate --over 0s", _lines(at_once)[: len(_lines(planned))]),
        ]
        arguments.picture.write_text(picture(curves, over=over, title=_title(planned, at_once)))
    return 1 if wrong else 0


def _run(load: Load, over: float) -> Run:
    with tempfile.TemporaryDirectory() as folder, RedisServer(Path(folder)) as redis:
        return asyncio.run(rotation(load, Path(folder), redis, over=over))


def _lines(run: Run) -> Sequence[Line]:
    last = max(call.sent for call in run.calls)
    return lines(run, before=LOAD.before, after=last - run.began - run.over)


def _title(*runs: Run) -> str:
    callers, units = len({call.caller for call in runs[0].calls}), len(runs[0].right)
    requests = sum(len(run.calls) for run in runs)
    return f"{callers} callers of {units} units ask a simulated engine through a gate, {requests:,} times"


def _told(name: str, run: Run) -> list[str]:
    print(f"\n{name}: {_title(run)}\n")
    print("| second | requests | reused | p50 | p95 | units due | units gone | failures |")
    print("|---|---|---|---|---|---|---|---|")
    for line in _lines(run):
        print(
            f"| {line.at:.1f} | {line.requests} | {_percent(line.reuse)} | {_milliseconds(line.median)} "
            f"| {_milliseconds(line.p95)} | {line.due:.0%} | {line.gone:.0%} | {line.failures} |"
        )
    wrong = breaches(run, late=LATE_SECONDS)
    print(f"\nold salt used at most {latest(run):.2f} s after a unit's moment; breaches: {len(wrong)}")
    for breach in wrong:
        print(breach, file=sys.stderr)
    return wrong


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.0f} ms"


if __name__ == "__main__":
    sys.exit(main())
