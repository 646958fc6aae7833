"""`saltgate keys list` and `rotate`, the commands themselves on a real Redis and on the state folder."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from proxy.directory import redis_store
from proxy.isolation.ring import Plan, Ring, record_name
from proxy.isolation.unit import ProjectUnit, UserUnit
from tests.parts.redis_server import RedisServer
from tests.proxy.cli.place import FILE, ISSUER, Place

pytestmark = pytest.mark.slow

OLD, NEW = "2026-11", "2027-02"
SECRET = "x" * 43


@pytest.fixture
def filled(place: Place) -> Place:
    """With a directory, and a configuration whose first key is a new one."""
    assert place.directory("import", str(place.folder / "people.toml")).code == 0
    place.configure(keys=(NEW, OLD))
    return place


def keys_of(place: Place) -> dict[str, object]:
    return {name: unit["key"] for name, unit in place.shown().items()}


def epochs(place: Place) -> dict[str, int]:
    return {name: unit["epoch"] for name, unit in place.shown().items()}  # type: ignore[misc]


def use_of(place: Place) -> dict[str, tuple[bool, bool, bool]]:
    return {row["id"]: (row["configured"], row["current"], row["coming"]) for row in place.listed()["keys"]}


# Rotation of the ring.


def test_a_new_first_key_waits_for_a_rotation(filled: Place) -> None:
    assert set(keys_of(filled).values()) == {OLD}
    assert use_of(filled) == {NEW: (True, False, False), OLD: (True, True, False)}
    assert "first; `saltgate keys rotate` moves to it" in filled.keys("list", "-c", str(filled.configuration)).out


def test_rotate_plans_a_move_to_the_configurations_first_key_over_a_day(filled: Place) -> None:
    answer = filled.rotate()
    assert answer.code == 0
    assert f"from key {OLD} to key {NEW}" in answer.out
    assert "lacks key 2027-02 refuses with 503" in answer.err
    plan = filled.listed()["ring"]["plan"]
    assert (plan["next_key"], plan["seconds"], plan["end"]) == (NEW, 86_400, plan["start"] + 86_400)
    assert 0 <= plan["progress"] < 0.01
    assert use_of(filled) == {NEW: (True, False, True), OLD: (True, True, False)}
    told = filled.keys("list", "-c", str(filled.configuration)).out
    assert re.search(rf"moving to key {NEW} from \S+Z until \S+Z: 0%", told)


def test_rotate_over_nothing_is_at_once_and_the_old_key_may_go(filled: Place) -> None:
    answer = filled.rotate("--over", "0s")
    assert (answer.code, "within a second" in answer.out) == (0, True)
    assert set(keys_of(filled).values()) == {NEW}
    assert filled.listed()["ring"]["past_keys"] == [OLD]
    assert f"{OLD}  nobody    yes; may be removed" in filled.keys("list", "-c", str(filled.configuration)).out
    filled.configure(keys=(NEW,))
    assert filled.listed()["faults"] == []


def test_a_plan_that_is_over_reads_as_the_new_key_with_the_old_one_left(bare_place: Place) -> None:
    bare_place.make_ring(Ring("ring", OLD, 1_700_000_000, {}, {}, Plan(NEW, 1_700_000_000, 3600)))
    bare_place.configure(keys=(NEW,))
    ring = bare_place.listed()["ring"]
    assert (ring["first_key"], ring["plan"], ring["past_keys"]) == (NEW, None, [OLD])
    assert set(keys_of(bare_place).values()) == {NEW}
    assert json.loads(bare_place.directory("show", "--json").out)["ring"]["first_key"] == NEW
    assert "already" in bare_place.rotate().err


def test_a_second_rotation_is_refused_while_one_runs_unless_it_is_at_once(filled: Place) -> None:
    filled.rotate("--over", "24h")
    again = filled.rotate("--over", "1h")
    assert (again.code, again.out, len(again.err.splitlines())) == (1, "", 1)
    assert "--over 0s" in again.err
    assert filled.rotate("--over", "0s").code == 0
    assert set(keys_of(filled).values()) == {NEW}


@pytest.mark.parametrize(
    ("words", "code", "remedy"),
    [
        (("--key", "2030-01"), 2, "[[isolation.keys]]"),
        (("--key", OLD), 1, "already"),
        (("--over", "soon"), 2, "--over"),
        (("--over", "5"), 2, "--over"),
        (("--unpin",), 2, "--unit"),
        (("--issuer", ISSUER), 2, "--unit"),
        (("--unit", "workspace:acme", "--over", "1h"), 2, "--over"),
        (("--unit", "workspace:acme", "--unpin", "--key", NEW), 2, "opposites"),
        (("--unit", "workspace:acme", "--unpin"), 1, "keys list"),
        (("--unit", "workspace:acme", "--issuer", ISSUER), 2, "user"),
        (("--unit", "workspace:nope"), 1, "directory show"),
        (("--unit", "workspace:acme", "--key", "2030-01"), 2, "[[isolation.keys]]"),
        (("--unit", "nonsense"), 2, "no unit"),
        (("--unit", ""), 2, "no unit"),
        (("--unit", "project:acme/APOLLO"), 2, "no name"),
        (("--unit", "user:acme/apollo/a\nb"), 2, "no member"),
        (("--unit", "user:acme/apollo/x", "--issuer", "https://nope"), 2, "--issuer"),
    ],
)
def test_what_cannot_be_done_is_one_line_with_the_remedy_and_changes_nothing(
    filled: Place, words: tuple[str, ...], code: int, remedy: str
) -> None:
    before = filled.listed()
    answer = filled.rotate(*words)
    assert (answer.code, answer.out, len(answer.err.splitlines())) == (code, "", 1)
    assert remedy in answer.err
    assert filled.listed() == before


def test_a_key_that_was_left_does_not_come_back(filled: Place) -> None:
    filled.rotate("--over", "0s")
    answer = filled.rotate("--key", OLD)
    assert answer.code == 1
    assert "keys new" in answer.err


def test_without_a_ring_rotate_and_list_say_how_one_is_made(bare_place: Place) -> None:
    answer = bare_place.rotate()
    assert answer.code == 1
    assert "directory import" in answer.err
    listed = bare_place.listed()
    assert listed["ring"] is None
    told = bare_place.keys("list", "-c", str(bare_place.configuration))
    assert (told.code, "keys new -c" in told.err) == (1, True)
    assert any("directory import" in fault["message"] for fault in listed["faults"])


# One unit.


def test_rotate_of_a_unit_raises_it_and_what_is_under_it(filled: Place) -> None:
    before = epochs(filled)
    answer = filled.rotate("--unit", "project:acme/apollo")
    assert (answer.code, answer.err) == (0, "")
    after = epochs(filled)
    assert {name for name in after if after[name] != before[name]} == {"project:acme/apollo"}
    filled.rotate("--unit", "workspace:acme")
    assert epochs(filled) == {
        name: before[name] + (0 if name == "deployment" else 2 if "apollo" in name else 1) for name in before
    }
    rows = {row["unit"]: row for row in filled.listed()["units"]}
    assert {name: row["raises"] for name, row in rows.items()} == {"project:acme/apollo": 1, "workspace:acme": 1}


def test_the_deployment_is_raised_alone_and_that_is_said(filled: Place) -> None:
    before = epochs(filled)
    answer = filled.rotate("--unit", "deployment")
    assert "not under it" in answer.out
    assert epochs(filled) == before | {"deployment": before["deployment"] + 1}


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        ("deployment", "deployment has a new salt. That is the unit"),
        ("workspace:acme", "has a new salt, and so has every unit in it."),
        ("project:acme/apollo", "has a new salt, and so has each person's own unit in it."),
        ("team:acme/red", "team:acme/red has a new salt. In force"),
        ("collection:acme/handbook", "collection:acme/handbook has a new salt. In force"),
        ("user:acme/apollo/alice", f"user:acme/apollo/alice of {ISSUER} has a new salt. In force"),
    ],
)
def test_what_else_has_a_new_salt_is_said_and_no_more(filled: Place, unit: str, words: str) -> None:
    before = epochs(filled)
    assert words in filled.rotate("--unit", unit).out
    under = {name for name, epoch in epochs(filled).items() if epoch != before[name]} - {unit}
    assert bool(under) == (unit == "workspace:acme")  # people's own units are in no list


def test_a_users_unit_is_raised_for_any_subject_and_listed_with_its_issuer(filled: Place) -> None:
    assert filled.rotate("--unit", "user:acme/apollo/any/one").code == 0
    (row,) = filled.listed()["units"]
    assert (row["unit"], row["issuer"], row["raises"]) == ("user:acme/apollo/any/one", ISSUER, 1)
    filled.configure(keys=(NEW, OLD), issuers=(ISSUER, "https://other.example"))
    unnamed = filled.rotate("--unit", "user:acme/apollo/any/one")
    assert (unnamed.code, "--issuer" in unnamed.err) == (2, True)
    other = filled.rotate("--unit", "user:acme/apollo/any/one", "--issuer", "https://other.example")
    assert (other.code, ISSUER in other.err) == (1, True)
    assert filled.rotate("--unit", "user:acme/apollo/any/one", "--issuer", ISSUER).code == 0
    assert filled.listed()["units"][0]["raises"] == 2


def test_a_unit_that_is_gone_may_be_raised(filled: Place) -> None:
    (filled.folder / "less.toml").write_text(FILE.replace('[workspaces.acme.projects.ares]\nunit = "user"', ""))
    filled.directory("import", str(filled.folder / "less.toml"))
    assert filled.rotate("--unit", "project:acme/ares").code == 0
    (row,) = filled.listed()["units"]
    assert (row["unit"], row["raises"]) == ("project:acme/ares", 2)


def test_a_pinned_unit_stays_and_list_and_rotate_say_so(filled: Place) -> None:
    pinned = filled.rotate("--unit", "workspace:acme", "--key", OLD)
    assert (pinned.code, "No salt changes" in pinned.out) == (0, True)
    rotated = filled.rotate("--over", "0s")
    assert f"workspace:acme stays on its own key {OLD}" in rotated.err
    assert keys_of(filled) == dict.fromkeys(keys_of(filled), OLD) | {"deployment": NEW}
    (row,) = filled.listed()["units"]
    assert (row["unit"], row["key"], row["own_key"]) == ("workspace:acme", OLD, True)
    assert "1 with it as own key" in filled.keys("list", "-c", str(filled.configuration)).out
    before = epochs(filled)
    moved = filled.rotate("--unit", "workspace:acme", "--key", NEW)
    assert "new salt" in moved.out
    assert set(keys_of(filled).values()) == {NEW}
    assert epochs(filled)["project:acme/apollo"] == before["project:acme/apollo"] + 1
    assert filled.rotate("--unit", "workspace:acme", "--key", NEW).out.endswith("already.\n")
    assert filled.rotate("--unit", "workspace:acme", "--unpin").code == 0
    assert not any(row["own_key"] for row in filled.listed()["units"])


def test_a_key_that_is_in_use_and_not_configured_is_a_fault(filled: Place) -> None:
    filled.rotate("--unit", "workspace:acme", "--key", OLD)
    filled.rotate("--over", "0s")
    filled.configure(keys=(NEW,))
    (fault,) = filled.listed()["faults"]
    assert OLD in fault["message"]
    told = filled.keys("list", "-c", str(filled.configuration))
    assert f"{OLD}  1 with it as own key  MISSING" in told.out
    assert fault["message"] in told.err


def test_no_secret_is_ever_told(filled: Place) -> None:
    answers = [filled.rotate("--over", "24h"), filled.rotate("--unit", "workspace:acme", "--key", OLD)]
    answers += [filled.keys("list", *words, "-c", str(filled.configuration)) for words in ((), ("--json",))]
    for answer in answers:
        assert SECRET not in answer.out + answer.err
        assert "sg1-" not in answer.out + answer.err


# Hostile records.


def test_records_that_anybody_may_have_written_are_told_on_one_line_and_harm_nothing(
    server: RedisServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.command("FLUSHALL")
    place = Place(tmp_path, f'redis = "{server.url}"', capsys)
    server.command("HSET", redis_store.RING, "id", "r", "first_key", OLD, "base_epoch", "1700000000")
    evil = UserUnit("acme", "apollo", ISSUER, "\x1b[2J\nfake line \x9b")
    server.command("HSET", redis_store.RAISES, record_name(evil), "1", "5:bogus4:acme", "7", "9:workspace3:A/B", "1")
    told = place.keys("list", "-c", str(place.configuration))
    assert told.code == 0
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", told.out + told.err)
    assert len([line for line in told.out.splitlines() if "fake line" in line]) == 1
    assert len(told.err.splitlines()) == 2
    assert place.listed()["units"][0]["unit"] == str(evil)
    server.command("HSET", redis_store.RAISES, record_name(ProjectUnit("acme", "apollo")), "many")
    assert len(place.listed()["faults"]) == 3
    server.command("HSET", redis_store.RAISES, record_name(ProjectUnit("labs", "p")), "99999999999")
    assert any("ahead of this machine's clock" in fault["message"] for fault in place.listed()["faults"])
    server.command("HSET", redis_store.RING, "surprise", "1")
    assert place.listed()["ring"] is None
    assert place.rotate("--over", "0s").code == 1


# Removal, where the policy says so.


def test_a_removal_raises_only_where_the_policy_says_so(filled: Place) -> None:
    before = epochs(filled)
    filled.directory("revoke", "acme/apollo", "group:eng")
    filled.directory("block", "user:alice")
    assert epochs(filled) == before
    filled.configure(keys=(NEW, OLD), isolation='raise_on_removal = true\nunit = "project"')
    filled.directory("grant", "acme/apollo", "group:eng")
    answer = filled.directory("revoke", "acme/apollo", "group:eng")
    assert "workspace:acme" in answer.out  # the border of its projects: `unit = "workspace"`
    filled.directory("unblock", "user:alice")
    assert "workspace:acme" in filled.directory("block", "user:alice").out
    assert epochs(filled)["project:acme/apollo"] == before["project:acme/apollo"] + 2
    (filled.folder / "less.toml").write_text(FILE.replace('"user:alice", "user:carol"', '"user:alice"'))
    assert "workspace:acme" in filled.directory("import", str(filled.folder / "less.toml")).out
