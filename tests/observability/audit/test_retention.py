"""What retention takes away is told before, and nothing else may be missing; and verify while all of it goes on."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from observability.audit.entries import content
from observability.audit.files import listed, undisturbed
from observability.audit.housekeeping import outlived
from observability.audit.writer import Said
from tests.observability.audit.writing import (
    audit,
    faults,
    files,
    request,
    requests,
    settled,
    until,
    verdict,
    written,
)

DAY = 86400.0


def removed(directory: Path, chain: str, now: float, retention: float = DAY) -> list[str]:
    """The files that would be removed."""
    return [f"{one.head.chain}:{one.segment}" for one, _ in outlived(directory, chain, retention, now)]


def filled(directory: Path) -> str:
    """A chain of several segments that is over; its name."""
    with audit(directory, segment_bytes=2000) as one:
        for _ in range(9):
            request(one)
            settled(one)
    return one.chain


def clock(days: float) -> Callable[[], int]:
    return lambda: time.time_ns() + int(days * DAY * 1e9)


def aged(directory: Path, seconds: float) -> None:
    """The files' own times, which are looked at first."""
    for path in files(directory):
        os.utime(path, (time.time() - seconds, time.time() - seconds))


def test_what_is_too_old_is_removed_whole_with_a_line_that_tells_it(tmp_path: Path) -> None:
    filled(tmp_path)
    aged(tmp_path, 2 * DAY)
    with audit(tmp_path, wall_ns=clock(2)) as later:
        until(lambda: len(listed(tmp_path).chains) == 1)
        request(later)
    assert verdict(tmp_path).intact, faults(tmp_path)
    told = [line for line in written(tmp_path) if line["event"] == "retention.removed"]
    assert len(told) >= 3
    assert [line["segment"] for line in told] == list(range(1, len(told) + 1))
    assert len(requests(tmp_path)) == 1
    assert listed(tmp_path).ended == {later.chain}


def test_the_removed_files_macs_are_still_known(tmp_path: Path) -> None:
    filled(tmp_path)
    head = verdict(tmp_path).heads[0].mac
    aged(tmp_path, 2 * DAY)
    with audit(tmp_path, wall_ns=clock(2)):
        until(lambda: len(listed(tmp_path).chains) == 1)
    assert not faults(tmp_path, head)


def test_of_a_chain_that_is_written_the_newest_segment_stays(tmp_path: Path) -> None:
    with audit(tmp_path, segment_bytes=2000) as one:
        for _ in range(9):
            request(one)
            settled(one)
        until(lambda: one._writer.chain.size < 2000)  # a new one is begun
        aged(tmp_path, 2 * DAY)
        (chain,) = listed(tmp_path).chains
        before = len(files(tmp_path))
        assert removed(tmp_path, chain, time.time() + 2 * DAY) == [f"{chain}:{n}" for n in range(1, before)]
        for each, remove in list(outlived(tmp_path, chain, DAY, time.time() + 2 * DAY))[:2]:
            one._writer.put(Said(content(each, time.time_ns())))
            settled(one)
            remove()
    assert verdict(tmp_path).intact, faults(tmp_path)
    assert "what is before it was removed by retention" in " ".join(note.message for note in verdict(tmp_path).notes)
    # One more than retention took.
    files(tmp_path)[0].unlink()
    assert "retention did not remove it" in faults(tmp_path)[0]


def test_neither_a_young_line_nor_a_young_file_is_removed(tmp_path: Path) -> None:
    filled(tmp_path)
    now = time.time()
    aged(tmp_path, 2 * DAY)
    assert removed(tmp_path, "another", now) == []  # who sets back a file's time removes nothing
    aged(tmp_path, -2 * DAY)
    assert removed(tmp_path, "another", now + 2 * DAY) == []
    aged(tmp_path, 0)
    assert len(removed(tmp_path, "another", now + 2 * DAY)) == len(files(tmp_path))


def test_what_cannot_be_read_is_kept_with_all_that_is_behind_it(tmp_path: Path) -> None:
    chain = filled(tmp_path)
    path = files(tmp_path)[1]
    path.write_bytes(path.read_bytes()[:-30] + b"\n")
    aged(tmp_path, 2 * DAY)
    assert removed(tmp_path, "another", time.time() + 2 * DAY) == [f"{chain}:1"]


def test_nobody_removes_what_is_being_verified(tmp_path: Path) -> None:
    filled(tmp_path)
    aged(tmp_path, 2 * DAY)
    with undisturbed(tmp_path):
        before = len(files(tmp_path))
        with audit(tmp_path, wall_ns=clock(2)) as later:
            request(later)
            settled(later)
            assert len(files(tmp_path)) == before + 1


@pytest.mark.slow
def test_a_directory_that_several_write_to_is_intact_at_any_moment(tmp_path: Path) -> None:
    over = threading.Event()
    failed: list[str] = []

    def write() -> None:
        while not over.is_set():
            with audit(tmp_path, segment_bytes=4000) as one:
                for _ in range(30):
                    request(one)
                    time.sleep(0.002)

    writers = [threading.Thread(target=write) for _ in range(3)]
    for writer in writers:
        writer.start()
    end = time.monotonic() + 4.0
    try:
        until(lambda: bool(listed(tmp_path).chains))
        while time.monotonic() < end and not failed:
            failed = faults(tmp_path)
    finally:
        over.set()
        for writer in writers:
            writer.join()
    assert failed == []
    assert verdict(tmp_path).intact
