"""More ways to change what is there, or to stop who looks: each was one that worked."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from observability.audit.chain import ChainKey, chain_key
from observability.audit.entries import content
from observability.audit.files import listed, segment_path
from observability.audit.housekeeping import outlived
from observability.audit.journal import SLOT_BYTES, Journal
from observability.audit.reading import Doubtful, lines
from observability.audit.segments import Chain
from observability.audit.subjects import Names
from observability.audit.verifying import Verdict
from observability.audit.writer import Said
from observability.recorder import Recorder
from proxy.cli.audit_verify import told
from tests.observability.audit.writing import (
    KEY,
    KEYS,
    ORIGIN,
    audit,
    begin,
    faults,
    files,
    lines_of,
    request,
    requests,
    settled,
    until,
    verdict,
    written,
)

DAY = 86400.0


class Torn(Chain):
    """A chain whose write fails, and that cannot be cut back either."""

    def fail(self) -> None:
        assert self._descriptor is not None
        self._before = "torn"
        self._leave()


def test_the_lines_before_a_write_that_failed_cannot_be_cut(tmp_path: Path) -> None:
    chain = Torn(tmp_path, "20261130T170000Z-worker-0123456789ab", KEY, ORIGIN, wall_ns=time.time_ns)
    for _ in range(4):
        chain.append([b'{"ts":"2026-11-30T17:00:00Z","event":"request.granted"}'])
    chain.fail()
    chain.append([b'{"ts":"2026-11-30T17:00:01Z","event":"request.granted"}'])
    chain.close()
    assert verdict(tmp_path).intact, faults(tmp_path)
    path = files(tmp_path)[0]
    whole = lines_of(path)
    path.write_bytes(b"".join(whole) + whole[-1][:50])  # what the failed write left
    assert verdict(tmp_path).intact, faults(tmp_path)
    for kept in range(len(whole)):
        path.write_bytes(b"".join(whole[:kept]))
        assert not verdict(tmp_path).intact, f"{kept} lines kept"


def test_a_file_under_another_name_of_the_same_number_is_none_of_the_chain(tmp_path: Path) -> None:
    with audit(tmp_path) as one:
        request(one)
    (path,) = files(tmp_path)
    was = list(lines(tmp_path, KEYS, Doubtful()))
    for zeros in ("0000001", "000000001"):
        shutil.copy(path, path.with_name(f"{one.chain}.{zeros}.jsonl"))
    assert list(lines(tmp_path, KEYS, Doubtful())) == was
    assert [note.message for note in verdict(tmp_path).notes] == ["is nothing of an audit"] * 2


@pytest.mark.parametrize("kind", ["fifo", "directory", "dangling", "loop"])
def test_what_is_no_file_stops_neither_who_verifies_nor_who_writes(tmp_path: Path, kind: str) -> None:
    trap = tmp_path / "20261130T170000Z-worker-0123456789ab.000001.jsonl"
    with audit(tmp_path) as one:
        match kind:
            case "fifo":
                os.mkfifo(trap)
            case "directory":
                trap.mkdir()
            case "dangling":
                trap.symlink_to(tmp_path / "nowhere")
            case _:
                trap.symlink_to(trap)
        assert list(listed(tmp_path).chains) == [one.chain]
        assert trap.name in [note.file for note in verdict(tmp_path).notes]
    with audit(tmp_path) as next_one:
        request(next_one)
    assert verdict(tmp_path).intact, faults(tmp_path)
    assert len(list(lines(tmp_path, KEYS, Doubtful()))) > 3


def test_a_chain_of_a_day_that_never_was_is_shown_and_stops_nobody(tmp_path: Path) -> None:
    with audit(tmp_path) as one:
        request(one)
    was = list(lines(tmp_path, KEYS, Doubtful()))
    (tmp_path / "99999999T999999Z-worker-0123456789ab.000001.jsonl").write_bytes(b"{}\n")
    doubtful = Doubtful()
    assert list(lines(tmp_path, KEYS, doubtful)) == was
    assert doubtful.lines == 1
    assert not verdict(tmp_path).intact


def test_what_two_chains_tell_of_retention_is_one_story_in_whatever_order_it_is_read(tmp_path: Path) -> None:
    """The chain that is read first, because it began first, removed the newer files."""
    with audit(tmp_path, segment_bytes=1500) as written:
        for _ in range(20):
            request(written)
            settled(written)
        with audit(tmp_path) as one, audit(tmp_path) as other:
            for path in files(tmp_path):
                os.utime(path, (time.time() - 2 * DAY,) * 2)
            found = [
                (removed, remove)
                for removed, remove in outlived(tmp_path, one.chain, DAY, time.time() + 2 * DAY)
                if removed.head.chain == written.chain
            ]
            assert len(found) >= 8
            for number, (removed, remove) in enumerate(found):
                teller = other if number < len(found) - 1 else one
                teller._writer.put(Said(content(removed, time.time_ns())))
                settled(teller)
                remove()
            assert verdict(tmp_path).intact, faults(tmp_path)


def test_a_foreign_name_that_is_no_text_is_told(tmp_path: Path) -> None:
    with audit(tmp_path) as one:
        request(one)
    (tmp_path / os.fsdecode(b"\xff\x1b[31m")).write_bytes(b"")
    found = verdict(tmp_path)
    assert "\x1b" not in "".join(told(found))
    assert [note.file for note in msgspec.json.decode(msgspec.json.encode(found), type=Verdict).notes] == [
        "\\xff\x1b[31m"
    ]


def test_lines_of_a_stranger_cost_no_memory(tmp_path: Path) -> None:
    with audit(tmp_path) as one:
        request(one)
    (path,) = files(tmp_path)
    mac = b'","mac":"' + b"0" * 64 + b'"}\n'
    start = b'{"v":1,"chain":"%b","seq":%d,"ts":"","event":"","key":"%d'
    path.write_bytes(b"".join(start % (one.chain.encode(), n, n) + b"k" * 900_000 + mac for n in range(20)))
    assert sum(len(found) for found in faults(tmp_path)) < 20_000


DEAD = "20261130T170000Z-worker-0123456789ab"
OTHER = chain_key("a2", b"another key of thirty-two bytes.")


def journal_of(directory: Path, key: ChainKey, chain: str = DEAD) -> Path:
    """What a process leaves that was killed at once, with one request that runs and one that has ended."""
    segment_path(directory, chain, 1).touch()
    made = Journal(directory / f"{chain}.journal", 4, key=key.journals, chain=chain)
    recorder = Recorder((), monotonic_ns=time.monotonic_ns, wall_ns=time.time_ns)
    for is_over in (False, True):
        record = recorder.request(method="POST", route="/v1/chat/completions")
        begin(record)
        record.stamped("baa6d2677094", "k1", 0)
        slot = made.take(record, Names(key, "pseudonym"))
        if is_over:
            record.used(100, 50, 7)
            record.answered(200)
            record.ended("ok")
            made.ended(slot, record)
    return made.path


def recovered(directory: Path, **how: Any) -> tuple[str, list[int | None]]:
    """What became of the journal, and the tokens of each line that came of it."""
    with audit(directory, **how) as one:
        until(lambda: DEAD in listed(directory).ended)
        (told,) = [line for line in written(directory) if line["event"] == "chain.recovered"]
        assert told["requests"] == len(requests(directory))
        assert {line["chain"] for line in requests(directory)} <= {one.chain}
    return told["journal"], [line.get("prompt_tokens") for line in requests(directory)]


def test_a_journal_of_ones_own_becomes_lines(tmp_path: Path) -> None:
    journal_of(tmp_path, KEY)
    assert recovered(tmp_path) == ("found", [None, 100])


def test_a_journal_under_an_earlier_key_becomes_lines(tmp_path: Path) -> None:
    journal_of(tmp_path, OTHER)
    assert recovered(tmp_path, earlier=(OTHER,)) == ("found", [None, 100])


def test_a_journal_that_somebody_without_the_key_made_becomes_no_line(tmp_path: Path) -> None:
    journal_of(tmp_path, chain_key("a1", b"whoever can write the directory."))
    assert recovered(tmp_path) == ("unreadable", [])
    assert verdict(tmp_path).intact, faults(tmp_path)


def test_the_journal_of_another_chain_becomes_no_line(tmp_path: Path) -> None:
    other = "20261130T170000Z-worker-ba9876543210"
    journal_of(tmp_path, KEY, other).rename(tmp_path / f"{DEAD}.journal")
    segment_path(tmp_path, other, 1).unlink()
    segment_path(tmp_path, DEAD, 1).touch()
    assert recovered(tmp_path) == ("unreadable", [])


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (SLOT_BYTES + 1, [None, None]),  # how it ended
        (SLOT_BYTES + 5, [None, None]),  # its tokens
        (SLOT_BYTES, [None, 100]),  # that it is over: a state that there is not
        (36, [100]),  # the length of what is known
        (100, [100]),  # what is known
        (SLOT_BYTES + 100, [None]),
    ],
)
def test_what_is_changed_in_a_journal_becomes_no_line(tmp_path: Path, at: int, expected: list[int | None]) -> None:
    path = journal_of(tmp_path, KEY)
    changed = bytearray(path.read_bytes())
    changed[at] ^= 0x40
    path.write_bytes(changed)
    state, tokens = recovered(tmp_path)
    assert tokens == expected
    assert state == ("found" if at == SLOT_BYTES else "unreadable")


@pytest.mark.parametrize("kind", ["fifo", "directory", "loop", "empty", "torn"])
def test_what_is_no_journal_stops_nobody_who_recovers(tmp_path: Path, kind: str) -> None:
    path = journal_of(tmp_path, KEY)
    whole = path.read_bytes()
    path.unlink()
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "loop":
            path.symlink_to(path)
        case _:
            path.write_bytes(b"" if kind == "empty" else whole[: SLOT_BYTES + 5])
    with audit(tmp_path) as one:
        until(lambda: DEAD in listed(tmp_path).ended)
        request(one)
        settled(one)
        assert one.state().failures == 0


def test_a_request_that_stands_twice_in_a_journal_has_one_line(tmp_path: Path) -> None:
    path = journal_of(tmp_path, KEY)
    path.write_bytes(path.read_bytes()[: 2 * SLOT_BYTES] * 3)
    assert recovered(tmp_path) == ("found", [None, 100])


def test_a_clock_that_goes_back_loses_nothing(tmp_path: Path) -> None:
    back = iter(range(10**9))
    with audit(tmp_path, wall_ns=lambda: time.time_ns() - next(back) * 3_600_000_000_000, segment_bytes=1500) as one:
        for _ in range(9):
            request(one)
            settled(one)
    assert verdict(tmp_path).intact, faults(tmp_path)
    assert len(list(lines(tmp_path, KEYS, Doubtful()))) == len(written(tmp_path))
