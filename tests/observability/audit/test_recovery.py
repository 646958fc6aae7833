"""What a killed process leaves: each of its requests has exactly one line, and a cut by a kill is told from others."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from observability.audit.files import listed
from observability.audit.recovery import Journals, remains
from tests.observability.audit.writing import (
    KEY,
    audit,
    faults,
    files,
    lines_of,
    requests,
    settled,
    until,
    verdict,
    written,
)

pytestmark = pytest.mark.slow

KILLED = """
import os, signal, sys, time
from pathlib import Path
from tests.observability.audit.writing import *
from observability.recorder import Recorder

place = Path(sys.argv[1])
one = new_audit(place, slots=64, gather_seconds=float(sys.argv[2]))
one.start()
until(lambda: one.state().up)
recorder = Recorder((one,), monotonic_ns=time.monotonic_ns, wall_ns=time.time_ns)

def opened():
    record = recorder.request(method="POST", route="/v1/chat/completions")
    begin(record)
    go_up(one, record)
    print(record.request_id, file=sys.stderr, flush=True)
    return record

def ended(record, tokens):
    record.used(tokens, 0, 1)
    record.answered(200)
    record.ended("ok")
    with record:
        pass

exec(sys.argv[3])
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(place: Path, does: str, gather_seconds: float = 0.001) -> list[str]:
    """The requests that went up in a process that did that, and then was killed."""
    command = [sys.executable, "-c", KILLED, str(place), str(gather_seconds), does]
    done = subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False, text=True, cwd=Path.cwd()
    )
    assert done.returncode == -9
    return done.stderr.split()


def lines_by_request(place: Path) -> dict[str, dict[str, object]]:
    lines = requests(place)
    assert Counter(line["request_id"] for line in lines).most_common(1)[0][1] == 1
    return {line["request_id"]: line for line in lines}


def test_each_request_of_a_killed_process_has_one_line(tmp_path: Path) -> None:
    went_up = killed(tmp_path, "ended(opened(), 5); ended(opened(), 6); opened(); opened()", 30.0)
    assert "ends without having been closed, and no chain tells of a kill" in faults(tmp_path)[0]
    with audit(tmp_path) as next_one:
        until(lambda: len(listed(tmp_path).ended) == 1)
    assert verdict(tmp_path).intact, faults(tmp_path)
    lines = lines_by_request(tmp_path)
    assert set(lines) == set(went_up)
    told = [(lines[one]["outcome"], lines[one].get("prompt_tokens"), "recovered_from" in lines[one]) for one in went_up]
    assert told == [
        ("ok", 5, True),
        ("ok", 6, True),
        ("worker_killed", None, True),
        ("worker_killed", None, True),
    ]
    recovered = lines[went_up[-1]]
    assert (recovered["chain"], recovered["recovered_from"]) == (next_one.chain, min(listed(tmp_path).chains))
    assert (recovered["workspace"], recovered["unit"], recovered["model"]) == ("acme", "project:acme/apollo", "tiny")
    assert not list(tmp_path.glob("*.journal"))


def test_what_was_written_already_is_not_written_again(tmp_path: Path) -> None:
    """The journal as it was before the lines were written, as a kill between the two leaves it."""
    kept = "import shutil; shutil.copy(next(place.glob('*.journal')), place / 'kept')"
    does = f"r = opened(); {kept}; ended(r, 1); settled(one)"
    went_up = killed(tmp_path, does)
    (journal,) = tmp_path.glob("*.journal")
    (tmp_path / "kept").replace(journal)
    with audit(tmp_path):
        until(lambda: len(listed(tmp_path).ended) == 1)
    assert [line.get("recovered_from") for line in lines_by_request(tmp_path).values()] == [None]
    assert set(lines_by_request(tmp_path)) == set(went_up)
    assert verdict(tmp_path).intact


def test_a_line_that_the_kill_tore_is_told_from_one_that_somebody_cut(tmp_path: Path) -> None:
    killed(tmp_path / "a", "ended(opened(), 1); settled(one)")
    path = files(tmp_path / "a")[0]
    path.write_bytes(path.read_bytes() + b'{"v":1,"chain":"2026')  # as within a write
    with audit(tmp_path / "a"):
        until(lambda: len(listed(tmp_path / "a").ended) == 1)
    assert verdict(tmp_path / "a").intact
    assert "within a line of 20 bytes" in " ".join(note.message for note in verdict(tmp_path / "a").notes)
    for cut in (5, 20, 400):  # the rest of that line, all of it, and more than it
        path.write_bytes(path.read_bytes()[:-cut])
        assert not verdict(tmp_path / "a").intact


def test_the_lines_before_a_kill_cannot_be_cut_afterwards(tmp_path: Path) -> None:
    killed(tmp_path, "ended(opened(), 1); ended(opened(), 1); settled(one)")
    with audit(tmp_path):
        until(lambda: len(listed(tmp_path).ended) == 1)
    path = files(tmp_path)[0]
    lines = lines_of(path)
    for kept in range(len(lines)):
        path.write_bytes(b"".join(lines[:kept]))
        assert not verdict(tmp_path).intact
    path.write_bytes(b"".join([*lines, lines[-1]]))
    assert not verdict(tmp_path).intact


def test_a_journal_that_is_missing_or_nonsense_is_told(tmp_path: Path) -> None:
    for name, nonsense in (
        ("missing", None),
        ("found", b""),
        ("unreadable", b"\xff" * 4096),
        ("unreadable", b"\x01" * 4096),
    ):
        place = tmp_path / f"{name}{nonsense!r:.10}"
        killed(place, "opened()")
        (journal,) = place.glob("*.journal")
        journal.unlink() if nonsense is None else journal.write_bytes(nonsense)
        with audit(place):
            until(lambda: len(listed(place).ended) == 1)  # noqa: B023
        (told,) = [line for line in written(place) if line["event"] == "chain.recovered"]
        assert told["journal"] == name
        assert verdict(place).intact


def test_who_recovers_may_be_killed_too(tmp_path: Path) -> None:
    """Its lines of the first one's requests are in its own chain; nobody writes them once more."""
    went_up = killed(tmp_path / "one", "opened(); opened()")
    kept = tmp_path / "kept"
    shutil.copytree(tmp_path / "one", kept)
    with audit(tmp_path / "one") as second:
        until(lambda: len(listed(tmp_path / "one").ended) == 1)
        settled(second)
        # As it was just before it took the first one's journal away.
        for path in files(tmp_path / "one"):
            shutil.copy(path, kept / path.name)
    with audit(kept):
        until(lambda: len(listed(kept).ended) == 2)
    assert set(lines_by_request(kept)) == set(went_up)
    assert verdict(kept).intact, faults(kept)


def test_several_that_find_it_at_once_write_it_once(tmp_path: Path) -> None:
    went_up = killed(tmp_path, "[opened() for _ in range(20)]")
    with audit(tmp_path), audit(tmp_path), audit(tmp_path):
        until(lambda: len(listed(tmp_path).ended) == 1)
    assert set(lines_by_request(tmp_path)) == set(went_up)
    assert verdict(tmp_path).intact


def test_nobody_takes_what_somebody_writes_for_dead(tmp_path: Path) -> None:
    with audit(tmp_path) as one, audit(tmp_path) as two:
        for each in (one, two):
            each._writer._house._recover()
    assert not [line for line in written(tmp_path) if line["event"] == "chain.recovered"]


def test_what_another_one_has_found_meanwhile_is_left_to_him(tmp_path: Path) -> None:
    for place in ("here", "there"):  # apart, since the second one might find what the first one left
        killed(tmp_path / place, "opened()")
        shutil.copytree(tmp_path / place, tmp_path, dirs_exist_ok=True)
        shutil.rmtree(tmp_path / place)
    journals = Journals(tmp_path, (KEY.journals,))
    slow = remains(tmp_path, journals, "slow", time.time_ns)
    first = next(slow)
    quick = []
    for found in remains(tmp_path, journals, "quick", time.time_ns):
        found.settle()
        quick.append(found.chain)
    assert quick == [chain for chain in listed(tmp_path).chains if chain != first.chain]
    first.settle()
    assert list(slow) == []
