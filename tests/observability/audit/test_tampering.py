"""Whoever has the files and not the key changes nothing unnoticed: each way that we know, tried."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from observability.audit.chain import NOTHING, ChainKey, chain_key, sealed
from observability.audit.files import listed
from observability.audit.housekeeping import Witness
from observability.audit.verifying import NO_AUDIT
from tests.observability.audit.writing import (
    audit,
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

OTHER_KEY = chain_key("a1", b"x" * 32)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Two chains: one in several segments, and one that has seen where the first one ended."""
    place = tmp_path / "audit"
    with audit(place, segment_bytes=2000) as first:
        for _ in range(9):
            request(first)
            settled(first)
    with audit(place) as second:
        for _ in range(3):
            request(second, sent=False)
    assert verdict(place).intact, verdict(place).faults
    return place


def test_what_was_written_is_intact_and_every_request_has_one_line(directory: Path) -> None:
    found = verdict(directory)
    assert (found.chains, len(requests(directory))) == (2, 12)
    assert found.segments == len(files(directory)) >= 4
    assert found.records == len(written(directory))


def test_any_byte_that_is_changed_is_found(directory: Path) -> None:
    for path in files(directory):
        whole = path.read_bytes()
        for at in range(0, len(whole), max(len(whole) // 30, 1)):
            changed = bytearray(whole)
            changed[at] ^= 1
            path.write_bytes(changed)
            assert not verdict(directory).intact, f"{path.name}, byte {at}"
        path.write_bytes(whole)
    assert verdict(directory).intact


def test_a_changed_field_is_named_by_file_and_line(directory: Path) -> None:
    path = next(path for path in files(directory) if b'"prompt_tokens":100' in path.read_bytes())
    number = next(n for n, line in enumerate(lines_of(path), 1) if b'"request.granted"' in line)
    path.write_bytes(path.read_bytes().replace(b'"prompt_tokens":100', b'"prompt_tokens":101', 1))
    assert faults(directory) == [f"{path.name}:{number}: was changed, or is not what was written here"]


def test_any_line_that_is_removed_is_found(directory: Path) -> None:
    for path in files(directory):
        lines = lines_of(path)
        for number in range(len(lines)):
            path.write_bytes(b"".join(lines[:number] + lines[number + 1 :]))
            assert not verdict(directory).intact, f"{path.name}, line {number + 1}"
        path.write_bytes(b"".join(lines))


def test_lines_that_change_places_are_found(directory: Path) -> None:
    for path in files(directory):
        lines = lines_of(path)
        for number in range(len(lines) - 1):
            path.write_bytes(b"".join([*lines[:number], lines[number + 1], lines[number], *lines[number + 2 :]]))
            assert not verdict(directory).intact, f"{path.name}, line {number + 1}"
        path.write_bytes(b"".join(lines))


def test_a_line_that_stands_twice_is_found(directory: Path) -> None:
    path = files(directory)[1]
    lines = lines_of(path)
    path.write_bytes(b"".join([lines[0], lines[1], lines[1], *lines[2:]]))
    assert faults(directory)[0].startswith(f"{path.name}:3: has number")


def test_the_end_of_a_chain_cannot_be_cut_at_a_line(directory: Path) -> None:
    for path in files(directory):
        lines = lines_of(path)
        for kept in range(len(lines)):
            path.write_bytes(b"".join(lines[:kept]))
            assert not verdict(directory).intact, f"{path.name}, {kept} lines kept"
        path.write_bytes(b"".join(lines))


def test_what_another_chain_has_seen_is_named_where_it_is_cut(directory: Path) -> None:
    last = listed(directory).chains[next(iter(listed(directory).chains))][-1].path
    lines = lines_of(last)
    last.write_bytes(b"".join(lines[:-1]))
    seen = json.loads(lines[-1])["seq"]
    (fault,) = faults(directory)
    assert fault.startswith(f"{last.name}:{len(lines) - 1}: lines are missing at its end: it ends at {seen - 1}, ")
    assert fault.endswith(f"another chain has seen its line {seen}")


def test_any_segment_that_is_removed_is_found(directory: Path) -> None:
    for path in files(directory)[:-1]:
        kept = path.read_bytes()
        path.unlink()
        assert not verdict(directory).intact, path.name
        path.write_bytes(kept)


def test_a_chain_that_another_one_has_seen_cannot_be_removed_as_a_whole(directory: Path) -> None:
    first, segments = next(iter(listed(directory).chains.items()))
    last = verdict(directory).heads[0].seq
    for segment in segments:
        segment.path.unlink()
    assert faults(directory) == [f"None:None: chain {first} is missing: another chain has seen its line {last}"]


@pytest.mark.parametrize("removed", [0, 1, 2])
def test_a_whole_chain_of_some_that_end_together_at_once_cannot_be_removed(tmp_path: Path, removed: int) -> None:
    place = tmp_path / "audit"
    with audit(place) as one, audit(place) as two, audit(place) as three:
        chains = [each.chain for each in (one, two, three)]
        for each in (one, two, three):
            request(each)
            settled(each)
    assert verdict(place).intact, verdict(place).faults
    for path in place.glob(f"{chains[removed]}.*"):
        path.unlink()
    found = faults(place)
    assert len(found) == 1
    assert found[0].startswith(f"None:None: chain {chains[removed]} is missing: another chain has seen its line ")


def test_who_begins_and_who_ends_tells_where_others_are(tmp_path: Path) -> None:
    place = tmp_path / "audit"
    with audit(place) as one:
        request(one)
    with audit(place) as two, audit(place) as three:
        request(three)
        settled(three)
    told = {(line["chain"], line["event"]): line.get("heads", []) for line in written(place)}
    ends = {line["chain"]: {name: line[name] for name in ("chain", "seq", "mac")} for line in written(place)}
    assert told[one.chain, "chain.opened"] == told[one.chain, "chain.closed"] == []
    assert told[two.chain, "chain.opened"] == [ends[one.chain]]
    assert ends[one.chain] in told[three.chain, "chain.opened"]
    assert told[two.chain, "chain.closed"] == [ends[three.chain]]  # which ended before it
    tellings = [line for line in written(place) if ends[one.chain] in line.get("heads", [])]
    assert [(line["chain"], line["event"]) for line in tellings] == [
        (two.chain, "chain.opened"),  # and what has not moved is not told again
        (three.chain, "chain.opened"),
    ]


def test_what_could_not_be_told_of_others_is_told_the_next_time(directory: Path) -> None:
    witness = Witness(directory, "none")
    first = witness.heads()
    assert len(first) == 2
    assert witness.heads() == first  # nobody has said that it is on disk
    witness.told(first)
    assert witness.heads() == ()


def test_a_directory_without_any_chain_is_not_intact(directory: Path) -> None:
    for path in directory.iterdir():
        path.unlink()
    assert [fault.partition(":")[2] for fault in faults(directory)] == [f"None: {NO_AUDIT}"]
    (directory / "README").write_text("mine")
    assert not verdict(directory).intact


def test_another_writing_of_the_same_line_is_found(directory: Path) -> None:
    for path in files(directory):
        lines = lines_of(path)
        for number, line in enumerate(lines):
            signed, _, mac = line.rpartition(b',"mac":"')
            head = json.loads(line)
            others = {
                signed + b',"mac":"' + mac[:64].upper() + mac[64:],
                signed + b',"mac": "' + mac,
                line.replace(b'"v":1,', b'"v":1, ', 1),
                line.replace(b'"v":1,', b'"v":01,', 1),
                line.replace(b'"seq":%d,' % head["seq"], b'"seq":%d.0,' % head["seq"], 1),
                line.replace(b'"event":"c', b'"event":"\\u0063', 1),
                b" " + line,
                line[:-1] + b" \n",
                line[:-1] + b"\r\n",
            } - {line}
            for other in others:
                path.write_bytes(b"".join([*lines[:number], other, *lines[number + 1 :]]))
                assert not verdict(directory).intact, other
        path.write_bytes(b"".join(lines))
    assert verdict(directory).intact


def test_a_mac_in_capitals_is_one_changed_line(directory: Path) -> None:
    path = files(directory)[0]
    lines = lines_of(path)
    signed, _, mac = lines[1].rpartition(b',"mac":"')
    path.write_bytes(b"".join([lines[0], signed, b',"mac":"', mac[:64].upper(), mac[64:], *lines[2:]]))
    assert faults(directory) == [f"{path.name}:2: was changed, or is not what was written here"]


def test_a_directory_put_back_to_an_earlier_moment_is_found_by_a_mac_that_the_log_told(directory: Path) -> None:
    before = directory.with_name("before")
    shutil.copytree(directory, before)
    with audit(directory) as third:
        request(third)
    head = verdict(directory).heads[-1]
    assert head.chain == third.chain
    assert not faults(directory, head.mac)
    assert not faults(before)  # nothing in it tells
    assert faults(before, head.mac) == [f"None:None: no line has the MAC {head.mac}: what ended with it is missing"]


def test_an_older_copy_of_a_segment_is_found(tmp_path: Path) -> None:
    place = tmp_path / "audit"
    with audit(place, segment_bytes=2000) as one:
        request(one)
        settled(one)
        path = files(place)[0]
        older = path.read_bytes()
        for _ in range(6):
            request(one)
            settled(one)
    path.write_bytes(older)
    assert "does not end as it was sealed" in " ".join(faults(place))


def resealed(key: ChainKey, path: Path) -> Sequence[bytes]:
    """Each line of a chain's first segment, with another key."""
    before, made = NOTHING, []
    for number, line in enumerate(lines_of(path), start=1):
        content = b"{" + line[line.index(b'"ts"') : line.rindex(b',"mac"')] + b"}"
        whole, before = sealed(key, before, path.name.partition(".")[0], number, content)
        made.append(whole)
    return made


@pytest.mark.parametrize(
    ("key", "words"), [(OTHER_KEY, "was changed"), (chain_key("b2", b"x" * 32), "is sealed with key b2, which is not")]
)
def test_what_is_sealed_with_another_key_is_found(directory: Path, key: ChainKey, words: str) -> None:
    path = files(directory)[0]
    path.write_bytes(b"".join(resealed(key, path)))
    assert words in " ".join(faults(directory))


def test_two_chains_cannot_be_spliced(directory: Path) -> None:
    one, other = files(directory)[0], files(directory)[-1]
    lines = lines_of(one)
    one.write_bytes(b"".join([*lines[:2], lines_of(other)[2], *lines[3:]]))
    assert "is a line of chain" in faults(directory)[0]
    one.write_bytes(b"".join(lines))
    other.write_bytes(one.read_bytes())  # or one under the other one's name
    assert "is a line of chain" in " ".join(faults(directory))


def test_a_forged_line_of_retention_removes_nothing(directory: Path) -> None:
    segment = listed(directory).chains[next(iter(listed(directory).chains))][0]
    last, last_file = lines_of(segment.path)[-1], files(directory)[-1]
    forged = {
        "ts": "2026-01-01T00:00:00.000000Z",
        "event": "retention.removed",
        "segment": 1,
        "head": {"chain": segment.chain, "seq": json.loads(last)["seq"], "mac": json.loads(last)["mac"]},
        "last_ts": "2020-01-01T00:00:00Z",
        "retention_seconds": 1.0,
    }
    lines = lines_of(last_file)
    before = bytes.fromhex(json.loads(lines[-1])["mac"])
    chain = last_file.name.partition(".")[0]
    line, _ = sealed(OTHER_KEY, before, chain, len(lines) + 1, json.dumps(forged).encode())
    last_file.write_bytes(b"".join([*lines, line]))
    segment.path.unlink()
    assert "removed by retention" not in " ".join(note.message for note in verdict(directory).notes)
    found = " ".join(faults(directory))
    assert "stands behind the end of its segment" in found
    assert "what is before it is missing, and retention did not remove it" in found


def test_nonsense_is_a_fault_and_never_a_crash(directory: Path) -> None:
    path = files(directory)[0]
    whole = path.read_bytes()
    mac = b'","mac":"' + b"z" * 64 + b'"}\n'
    for nonsense in (b"\n", b"{}\n", b"\xff\xfe\n", b'{"v":2' + mac, b"[" * 5000 + mac, b"\0" * 4096, mac, b'{"v":1}'):
        path.write_bytes(nonsense + whole)
        assert faults(directory)
        path.write_bytes(whole + nonsense)
        assert faults(directory)


def test_who_cuts_a_file_under_a_running_saltgate_is_found(tmp_path: Path) -> None:
    place = tmp_path / "audit"
    with audit(place) as one:
        request(one)
        settled(one)
        path = files(place)[0]
        path.write_bytes(b"".join(lines_of(path)[:-1]))
        until(lambda: len(files(place)) == 2)
        until(lambda: one.state().up)
        request(one)
    assert "saltgate found the segment before it changed" in " ".join(faults(place))
    assert len(requests(place)) == 1


def test_who_removes_the_directory_under_a_running_saltgate_is_found(tmp_path: Path) -> None:
    place = tmp_path / "audit"
    with audit(place) as one:
        request(one)
        settled(one)
        shutil.rmtree(place)
        until(lambda: bool(files(place)) and one.state().up)
    assert "what is before it is missing" in " ".join(faults(place))


def test_chains_witness_each_other_while_they_run(tmp_path: Path) -> None:
    place = tmp_path / "audit"
    with audit(place) as one, audit(place) as other:
        request(one)
        settled(one)
        seen = {head.chain: head.seq for head in Witness(place, other.chain).heads()}
        assert seen == {one.chain: len(lines_of(files(place)[0]))}
        assert verdict(place).intact
        assert [note.message for note in verdict(place).notes] == ["is being written to"] * 2


def test_what_an_auditor_keeps_beside_the_files_is_only_noted(directory: Path) -> None:
    (directory / "README").write_text("mine")
    assert verdict(directory).intact
    assert [(note.file, note.message) for note in verdict(directory).notes] == [("README", "is nothing of an audit")]
