"""How a worker keeps its memory."""

from __future__ import annotations

import platform
import subprocess
import sys

TOLD = """
import gc, resource
from proxy.memory import KEPT_BYTES, keep_large_blocks, settle

def faults(times):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        [b"x" * (KEPT_BYTES // 8) for _ in range(6)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

given_back = faults(10)
kept = keep_large_blocks()
faults(2)
print(int(kept), int(faults(10) < given_back / 10))
settle()
print(int(gc.get_freeze_count() > 0), gc.get_threshold()[0])
"""


def test_large_blocks_stay_and_what_lasts_is_no_longer_collected() -> None:
    """In a process of its own: both hold for all of it."""
    told = subprocess.run([sys.executable, "-c", TOLD], capture_output=True, text=True, check=True).stdout.split()
    kept, fewer_faults, frozen, young = map(int, told)
    assert kept == (platform.libc_ver()[0] == "glibc")
    assert not kept or fewer_faults
    assert frozen
    assert young > 700
