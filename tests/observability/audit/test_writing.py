"""What is written, when it is durable, and what happens while it cannot be."""

from __future__ import annotations

import asyncio
import os
import re
import time
from pathlib import Path

import msgspec
import pytest

from observability.audit.acts import Unaccountable
from observability.audit.chain import chain_key
from observability.audit.entries import Act
from observability.audit.files import is_written, listed
from observability.audit.segments import Chain
from observability.audit.subjects import pseudonym
from observability.audit.verifying import verify
from observability.recorder import Recorder
from tests.observability.audit.writing import (
    KEY,
    KEYS,
    ORIGIN,
    audit,
    begin,
    faults,
    files,
    go_up,
    lines_of,
    new_audit,
    request,
    requests,
    settled,
    until,
    unwritable,
    verdict,
    written,
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory behind a link."""
    (tmp_path / "real").mkdir()
    (tmp_path / "audit").symlink_to(tmp_path / "real")
    return tmp_path / "audit"


def recorder(*observers: object) -> Recorder:
    return Recorder(observers, monotonic_ns=time.monotonic_ns, wall_ns=time.time_ns)  # type: ignore[arg-type]


def test_a_granted_request_tells_who_for_what_why_and_how_it_ended(tmp_path: Path) -> None:
    with audit(tmp_path) as one:
        record = request(one)
    (line,) = requests(tmp_path)
    assert {name: line[name] for name in line if name not in {"ts", "mac", "chain", "seq", "duration_ms"}} == {
        "v": 1,
        "key": "a1",
        "event": "request.granted",
        "request_id": record.request_id,
        "trace_id": record.trace_id,
        "outcome": "ok",
        "status": 200,
        "issuer": "https://sso.test",
        "subject": pseudonym(KEY, "https://sso.test", "u-alice-0001"),
        "client": "chat-ui",
        "auth_method": "jwt",
        "workspace": "acme",
        "project": "apollo",
        "unit": "project:acme/apollo",
        "policy": "deployment",
        "salt_key_id": "k1",
        "salt_epoch": 0,
        "salt_fingerprint": "baa6d2677094",
        "model": "tiny",
        "method": "POST",
        "route": "/v1/chat/completions",
        "operation": "chat",
        "stream": False,
        "tokens_known": True,
        "prompt_tokens": 100,
        "reused_tokens": 50,
        "output_tokens": 7,
        "replica": "127.0.0.1:8000",
    }


def test_a_refused_request_tells_the_code_and_the_finer_reason(tmp_path: Path) -> None:
    with audit(tmp_path) as one, recorder(one).request(method="POST", route="/v1/chat/completions") as record:
        record.identified("https://sso.test", "u-bob", None, "pat")
        record.token_id = "abcdefgh"
        record.spoke_for("https://sso.test", "the-front")
        record.refused("not_a_member", 403, "removed")
    (line,) = requests(tmp_path)
    assert (line["event"], line["outcome"], line["code"], line["reason"]) == (
        "request.refused",
        "refused",
        "not_a_member",
        "removed",
    )
    assert (line["token_id"], line["actor"]) == ("abcdefgh", pseudonym(KEY, "https://sso.test", "the-front"))
    assert "workspace" not in line
    assert "tokens_known" not in line


def test_a_person_is_a_pseudonym_of_the_key_or_his_subject_as_configured(tmp_path: Path) -> None:
    with audit(tmp_path / "one") as one:
        request(one, subject="u-älice")
    with audit(tmp_path / "two", subjects="plain") as two:
        request(two, subject="u-älice")
    hidden, plain = requests(tmp_path / "one")[0]["subject"], requests(tmp_path / "two")[0]["subject"]
    assert re.fullmatch("hmac:[0-9a-f]{32}", hidden)
    assert hidden != pseudonym(chain_key("a1", b"y" * 32), "https://sso.test", "u-älice")
    assert plain == "u-älice"
    # A border between issuer and subject cannot be forged by moving it.
    assert pseudonym(KEY, "https://a", "bc") != pseudonym(KEY, "https://ab", "c")


def test_what_cannot_be_said_in_utf_8_stops_nothing(tmp_path: Path) -> None:
    with audit(tmp_path, subjects="plain") as one:
        request(one, subject="u-\ud800")
        request(one)
    assert [line["subject"] for line in requests(tmp_path)] == ["u-?", "u-alice-0001"]


def test_a_chain_says_who_writes_it_and_is_closed(tmp_path: Path) -> None:
    with audit(tmp_path) as one:
        assert is_written(files(tmp_path)[0])
    first, last = written(tmp_path)[0], written(tmp_path)[-1]
    assert (first["event"], first["role"], first["host"], first["instance"]) == (
        "chain.opened",
        "worker",
        "here",
        "here-1",
    )
    assert (last["event"], last["lines"]) == ("chain.closed", len(written(tmp_path)))
    assert not is_written(files(tmp_path)[0])
    assert listed(tmp_path).ended == {one.chain}
    assert not list(tmp_path.glob("*.journal"))


def test_segments_are_sealed_by_size_and_by_age(tmp_path: Path) -> None:
    with audit(tmp_path / "size", segment_bytes=2000) as one:
        for _ in range(6):
            request(one)
            settled(one)
    assert len(files(tmp_path / "size")) >= 3
    with audit(tmp_path / "age", segment_seconds=0.05):
        until(lambda: len(files(tmp_path / "age")) >= 2)
    for place in ("size", "age"):
        assert verdict(tmp_path / place).intact
        endings = [msgspec.json.decode(lines_of(path)[-1])["event"] for path in files(tmp_path / place)]
        assert endings == ["segment.sealed"] * (len(endings) - 1) + ["chain.closed"]


def test_files_are_for_their_owner_and_group_alone(tmp_path: Path) -> None:
    with audit(tmp_path / "new") as one:
        request(one)
        modes = {path.suffix: path.stat().st_mode & 0o777 for path in (tmp_path / "new").iterdir()}
        assert modes == {".jsonl": 0o640, ".journal": 0o600} | ({"": 0o640} if "" in modes else {})
        assert (tmp_path / "new").stat().st_mode & 0o777 == 0o750


def test_several_keys_verify_what_each_has_sealed(tmp_path: Path) -> None:
    new = chain_key("a2", b"z" * 32)
    with audit(tmp_path) as one:
        request(one)
    with audit(tmp_path, key=new) as two:
        request(two)
    assert verify(tmp_path, {**KEYS, "a2": new}).intact
    assert ["is sealed with key a2" in fault for fault in faults(tmp_path)] == [True]


def test_while_nothing_can_be_written_nothing_is_let_in_and_what_runs_is_told_later(place: Path) -> None:
    with audit(place) as one:
        with recorder(one).request(method="POST", route="/v1/chat/completions") as running:
            begin(running)
            go_up(one, running)
            with unwritable(place):
                until(lambda: not one.state().up)
                assert not one.ready
                with pytest.raises(Unaccountable):
                    one.check()
                with recorder(one).request(method="POST", route="/x") as another:
                    begin(another)
                    with pytest.raises(Unaccountable):
                        one.enter(another)
                assert another.journal_slot is None
                running.answered(200)
        until(lambda: one.state().up)
        request(one)
    assert verdict(place).intact, faults(place)
    assert [line["request_id"] for line in requests(place)].count(running.request_id) == 1
    assert len(requests(place)) == 3
    assert [line["why"] for line in written(place) if line["event"] == "audit.resumed"] == ["Not a directory"]
    assert one.state().lost == 0


def test_lines_that_are_lost_are_counted_and_told_with_their_time(place: Path) -> None:
    with audit(place, on_failure="continue", most_waiting=10) as one:
        with unwritable(place):
            until(lambda: not one.state().up)
            assert one.ready
            one.check()
            for _ in range(30):
                request(one)  # without a slot of the journal, as the policy says
            assert one.state().lost >= 15
        until(lambda: one.state().up)
        request(one)
    gaps = [line for line in written(place) if line["event"] == "audit.gap"]
    assert sum(gap["lost"] for gap in gaps) == one.state().lost
    assert len(requests(place)) == 31 - one.state().lost
    assert gaps[0]["why"] == "Not a directory"
    assert gaps[0]["first_ts"] <= gaps[0]["last_ts"]
    assert [f"{one.state().lost} records were lost" in note.message for note in verdict(place).notes] == [True]
    assert verdict(place).intact


def test_no_more_requests_are_let_in_than_there_are_slots(tmp_path: Path) -> None:
    with audit(tmp_path, slots=3) as one:
        records = [recorder(one).request(method="POST", route="/x") for _ in range(4)]
        for record in records[:3]:
            go_up(one, record)
        with pytest.raises(Unaccountable, match="too many"):
            one.enter(records[3])
        with records[0]:
            pass
        settled(one)
        one.enter(records[3])
        for record in records[1:]:
            with record:
                pass
    assert len(requests(tmp_path)) == 4


def test_nothing_is_let_in_before_the_chain_is_on_disk(tmp_path: Path) -> None:
    one = new_audit(tmp_path)
    assert not one.ready
    with pytest.raises(Unaccountable):
        one.check()
    one.start()
    until(lambda: one.ready)
    one.close()


async def test_an_act_has_a_line_on_disk_before_it_is_done_and_one_after(tmp_path: Path) -> None:
    with audit(tmp_path) as one:
        act = Act(event="token.revoked", by_issuer="https://sso.test", by="u-alice-0001", token_id="abcdefgh")
        async with one.acting(act) as told:
            (before,) = [line for line in written(tmp_path) if line["event"] == "token.revoked"]
            assert before["state"] == "begun"
            told.tell(count=1)
        with pytest.raises(ZeroDivisionError):
            async with one.acting(act):
                _ = 1 / 0
    lines = [line for line in written(tmp_path) if line["event"] == "token.revoked"]
    assert [(line["state"], line.get("count"), line.get("error_type")) for line in lines] == [
        ("begun", None, None),
        ("done", 1, None),
        ("begun", None, None),
        ("failed", None, "ZeroDivisionError"),
    ]
    assert lines[0]["act"] == lines[1]["act"] != lines[2]["act"] == lines[3]["act"]
    assert {line["by"] for line in lines} == {pseudonym(KEY, "https://sso.test", "u-alice-0001")}


@pytest.mark.parametrize("on_failure", ["refuse", "continue"])
async def test_an_act_that_cannot_be_told_is_done_only_where_the_policy_says_so(place: Path, on_failure: str) -> None:
    done = False
    with audit(place, on_failure=on_failure) as one:
        with unwritable(place):
            try:
                async with asyncio.timeout(20):
                    async with one.acting(Act(event="token.created")):
                        done = True
            except Unaccountable:
                pass
        assert done is (on_failure == "continue")
        until(lambda: one.state().up)
    assert verdict(place).intact


def test_a_group_that_could_not_be_written_whole_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a disk that becomes full within a write: part of the bytes are there, and must not stay."""
    chain = Chain(tmp_path, "20260101T000000Z-worker-000000000001", KEY, ORIGIN, wall_ns=time.time_ns)
    chain.append([b'{"ts":"2026-01-01T00:00:00Z","event":"one"}'])
    whole = files(tmp_path)[0].read_bytes()
    real = os.pwrite

    def full(descriptor: int, data: memoryview, offset: int) -> int:
        real(descriptor, bytes(data)[:50], offset)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            chain.append([b'{"ts":"2026-01-01T00:00:00Z","event":"two"}'])
    assert files(tmp_path)[0].read_bytes() == whole
    chain.append([b'{"ts":"2026-01-01T00:00:00Z","event":"three"}'])
    chain.close()
    assert verdict(tmp_path).intact
    assert [line["event"] for line in written(tmp_path)] == ["chain.opened", "one", "three", "chain.closed"]


def test_where_a_failed_write_cannot_even_be_cut_back_the_chain_goes_on_in_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = Chain(tmp_path, "20260101T000000Z-worker-000000000001", KEY, ORIGIN, wall_ns=time.time_ns)
    chain.append([b'{"ts":"2026-01-01T00:00:00Z","event":"one"}'])

    def broken(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", broken)
        patch.setattr(os, "ftruncate", broken)
        with pytest.raises(OSError, match="Input/output"):
            chain.append([b'{"ts":"2026-01-01T00:00:00Z","event":"two"}'])
    chain.append([b'{"ts":"2026-01-01T00:00:00Z","event":"two"}'])
    chain.close()
    assert len(files(tmp_path)) == 2
    assert verdict(tmp_path).intact, faults(tmp_path)
    assert "a write that failed" in verdict(tmp_path).notes[0].message
