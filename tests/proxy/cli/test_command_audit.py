"""Each act of a command is on disk before it is done; where it cannot be, nothing is done."""

from __future__ import annotations

import argparse
import getpass
import os
from pathlib import Path
from typing import Any

import pytest

from config.load import load
from observability.audit.chain import ChainKey, chain_key
from observability.audit.entries import Act
from observability.audit.subjects import pseudonym
from observability.audit.verifying import verify
from proxy.cli import audit
from proxy.cli.command_audit import command_audit
from tests.observability.audit.writing import audit as running
from tests.observability.audit.writing import until, written
from tests.proxy.cli.place import ISSUER, Place

SECRET = b"fedcba9876543210fedcba9876543210"
KEY: ChainKey = chain_key("a1", SECRET)


@pytest.fixture
def audited(place: Place) -> Place:
    """A folder whose configuration has an audit."""
    (place.folder / "audit-key").write_bytes(SECRET)
    with_audit(place)
    assert place.directory("import", str(place.folder / "people.toml")).code == 0
    return place


def with_audit(place: Place, more: str = "") -> None:
    text = place.configuration.read_text()
    key = '[[audit.keys]]\nid = "a1"\nsecret = { file = "audit-key" }\n'
    place.configuration.write_text(f'{text}\n[audit]\ndirectory = "audit"\n{more}{key}')


def acts(place: Place) -> list[dict[str, Any]]:
    """The lines of acts, of all commands so far."""
    return [line for line in written(place.folder / "audit") if "act" in line]


def last(place: Place) -> list[dict[str, Any]]:
    """Those of the last act: chains of one second sort as it happens."""
    found = sorted(acts(place), key=lambda line: str(line["ts"]))
    return [line for line in found if line["act"] == found[-1]["act"]]


def test_an_import_tells_what_it_changed_and_who_ran_it(audited: Place) -> None:
    begun, done = last(audited)
    assert (begun["event"], begun["state"]) == ("directory.imported", "begun")
    assert (done["state"], done["workspaces"]) == ("done", ["acme"])
    opened = written(audited.folder / "audit")[0]
    assert (opened["event"], opened["role"], opened["command"]) == ("chain.opened", "command", "directory import")
    assert opened["account"] == getpass.getuser() or os.getuid() == 0


def test_a_person_reads_which_command_it_was_whose_and_on_whom(
    audited: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audited.directory("grant", "acme/apollo", "group:ops").code == 0
    parser = argparse.ArgumentParser()
    audit.add_arguments(parser)
    capsys.readouterr()
    assert audit.run(parser.parse_args(["show", "-c", str(audited.configuration)])) == 0
    shown = capsys.readouterr().out
    opened = next(line for line in written(audited.folder / "audit") if line.get("command") == "directory grant")
    assert f"  chain.opened  directory grant  {opened['account']}@{opened['host']}\n" in shown
    assert "  directory.granted  done  acme/apollo  group:ops\n" in shown


def test_each_act_is_told_twice_and_looking_is_none(audited: Place) -> None:
    before = len(acts(audited))
    for look in ("show", "export"):
        assert audited.directory(look).code == 0
    assert len(acts(audited)) == before
    for words, event in (
        (("grant", "acme/apollo", "user:bob"), "directory.granted"),
        (("revoke", "acme/apollo", "user:bob"), "directory.revoked"),
        (("block", "user:bob"), "directory.blocked"),
        (("unblock", "user:bob"), "directory.unblocked"),
    ):
        assert audited.directory(*words).code == 0
        begun, done = last(audited)
        assert (begun["event"], done["event"], begun["state"], done["state"]) == (event, event, "begun", "done")
        assert begun["subject"] == done["subject"] == pseudonym(KEY, ISSUER, "bob")
    assert audited.directory("block", "group:eng").code == 0
    assert last(audited)[0]["group"] == "eng"
    verdict = verify(audited.folder / "audit", {"a1": KEY})
    assert verdict.faults == ()


def test_rotations_are_told_without_the_person(audited: Place) -> None:
    audited.configure(keys=("2026-11", "2027-01"))
    with_audit(audited)
    assert audited.rotate("--over", "0s", "--key", "2027-01").code == 0
    assert [line["event"] for line in last(audited)] == ["keys.rotated"] * 2
    assert last(audited)[0]["key_id"] == "2027-01"
    assert audited.rotate("--unit", "user:acme/ares/alice").code == 0
    begun, done = last(audited)
    assert (begun["unit"], begun["subject"]) == ("user:acme/ares", pseudonym(KEY, ISSUER, "alice"))
    assert done["raised"] == ["user:acme/ares"]


def test_an_act_that_fails_is_told_as_such(audited: Place) -> None:
    assert audited.directory("grant", "acme/nothing", "user:bob").code == 1
    begun, failed = last(audited)
    assert (begun["state"], failed["state"], failed["error_type"]) == ("begun", "failed", "ChangeRefused")


def test_where_the_audit_cannot_be_written_nothing_is_changed(audited: Place) -> None:
    away = audited.folder / "audit"
    away.rename(audited.folder / "kept")
    away.write_text("in the way")
    answer = audited.directory("grant", "acme/apollo", "user:bob")
    assert (answer.code, answer.out) == (1, "")
    assert "so nothing was changed" in answer.err
    assert "user:bob" not in audited.directory("export").out
    assert audited.rotate("--over", "0s").code == 1


def test_a_policy_to_go_on_does_it_and_says_so(audited: Place) -> None:
    audited.configure()
    with_audit(audited, 'on_failure = "continue"\n')
    away = audited.folder / "audit"
    away.rename(audited.folder / "kept")
    away.write_text("in the way")
    answer = audited.directory("grant", "acme/apollo", "user:bob")
    assert answer.code == 0
    first, last_words, gone = (line for line in answer.err.splitlines() if "warning" in line)
    assert first.endswith(": this is done, and the audit does not say that it was begun")
    assert last_words.endswith(": this ended as done, and the audit says nothing of it")
    assert gone.endswith("nothing that is written later will tell of this gap: keep these messages")
    assert "user:bob" in audited.directory("export").out


async def test_what_a_command_could_not_write_it_tells_as_soon_as_it_can(
    audited: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    audited.configure()
    with_audit(audited, 'on_failure = "continue"\n')
    away, kept = audited.folder / "audit", audited.folder / "kept"
    away.rename(kept)
    away.write_text("in the way")
    settings = load(audited.configuration, {}).settings
    with command_audit(settings, ("directory", "grant")) as told:
        async with told.acting(Act(event="directory.granted", group="ops")):
            away.unlink()
            kept.rename(away)
    lines = [line for line in written(away) if line.get("event") in ("audit.gap", "directory.granted")]
    gap, done = lines[-2:]
    assert (gap["event"], gap["lost"], done["state"]) == ("audit.gap", 1, "done")
    assert "Not a directory" in gap["why"] or "File exists" in gap["why"]
    assert verify(away, {"a1": KEY}).faults == ()
    assert "does not say that it was begun" in capsys.readouterr().err


def lost_lines(place: Place) -> list[dict[str, Any]]:
    return [line for line in written(place.folder / "audit") if line["event"] == "audit.gap"]


def with_a_gap(place: Place) -> Path:
    """A command has gone on without its audit; its directory is back. What it left, in the journals' directory."""
    place.configure()
    (place.folder / "journals").mkdir()
    with_audit(place, 'on_failure = "continue"\njournal = "journals"\n')
    away, kept = place.folder / "audit", place.folder / "kept"
    away.rename(kept)
    away.write_text("in the way")
    answer = place.directory("grant", "acme/apollo", "user:bob")
    assert (answer.code, "nothing that is written later" in answer.err) == (0, False)
    away.unlink()
    kept.rename(away)
    (left,) = (place.folder / "journals").iterdir()
    return left


@pytest.mark.parametrize("beside", [False, True])
def test_what_a_command_lost_is_told_by_the_next_one(audited: Place, beside: bool) -> None:
    left = with_a_gap(audited)
    if beside:
        left = left.rename(audited.folder / "audit" / left.name)
        assert verify(left.parent, {"a1": KEY}).notes == ()
    assert audited.directory("block", "user:bob").code == 0
    (gap,) = lost_lines(audited)
    assert gap["lost"] == 2
    assert left.name.partition(".")[0] in gap["why"]
    assert not left.exists()
    assert audited.directory("unblock", "user:bob").code == 0
    assert len(lost_lines(audited)) == 1
    assert verify(audited.folder / "audit", {"a1": KEY}).faults == ()


def test_what_a_command_lost_is_told_by_a_worker(audited: Place) -> None:
    left = with_a_gap(audited)
    left.rename(audited.folder / "audit" / left.name)
    with running(audited.folder / "audit", key=KEY):
        until(lambda: bool(lost_lines(audited)))
    assert [line["lost"] for line in lost_lines(audited)] == [2]
    assert list((audited.folder / "audit").glob("*.lost")) == []
    assert verify(audited.folder / "audit", {"a1": KEY}).faults == ()


@pytest.mark.parametrize(
    ("old", "new"), [(".2.", ".9."), (".lost", "0.lost"), (".2.", ".02."), ("-command-", "-worker-")]
)
def test_a_gap_that_nobody_with_the_key_has_left_is_not_told(audited: Place, old: str, new: str) -> None:
    left = with_a_gap(audited)
    left.rename(left.with_name(left.name.replace(old, new)))
    assert audited.directory("block", "user:bob").code == 0
    assert lost_lines(audited) == []
