"""What processes use: this one, and one that has ended meanwhile."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from observability import families
from observability.exposition import merged
from observability.processes import Processes, usage_of
from observability.totals import Bounds, Totals


def totals() -> Totals:
    return Totals(Bounds(), monotonic=time.monotonic, wall_clock=time.time)


def test_this_process_is_as_the_system_says() -> None:
    usage = usage_of(os.getpid())
    assert usage is not None
    used = resource.getrusage(resource.RUSAGE_SELF)
    assert abs(usage.cpu_seconds - (used.ru_utime + used.ru_stime)) < 5
    assert 1_000_000 < usage.resident_bytes <= used.ru_maxrss * 1024 * 2
    assert usage.most_descriptors == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    with Path(os.devnull).open("rb"), Path(os.devnull).open("rb"):
        more = usage_of(os.getpid())
    assert more is not None
    assert more.open_descriptors == usage.open_descriptors + 2
    assert time.time() - 24 * 3600 < usage.started <= time.time()


def test_cpu_time_is_counted_once_and_stays_when_its_process_has_ended() -> None:
    sums = totals()
    processes = Processes(sums)
    child = subprocess.Popen([sys.executable, "-c", "sum(range(10**7)); print(); input()"], stdin=-1, stdout=-1)
    assert child.stdout is not None
    child.stdout.readline()
    usage = usage_of(child.pid)
    assert usage is not None
    for _ in range(3):
        processes.look([("worker-0", child.pid)])
    cpu = sums.counted(families.PROCESS_CPU)["worker-0",]
    after = usage_of(child.pid)
    assert after is not None
    assert usage.cpu_seconds <= cpu <= after.cpu_seconds + 0.001
    child.kill()
    child.wait()
    child.stdout.close()
    assert child.stdin is not None
    child.stdin.close()
    assert processes.look([("worker-0", child.pid)]) == []
    assert sums.counted(families.PROCESS_CPU)["worker-0",] == cpu


def test_two_processes_of_one_name_are_added_up() -> None:
    sums = totals()
    states = Processes(sums).look([("worker-0", os.getpid()), ("worker-0", os.getpid())])
    one = usage_of(os.getpid())
    assert one is not None
    resident = merged(states, sums)[families.PROCESS_RESIDENT.name]["worker-0",]
    assert resident > 1.5 * one.resident_bytes
    most = merged(states, sums)[families.PROCESS_MAX_FDS.name]["worker-0",]
    assert most == one.most_descriptors
