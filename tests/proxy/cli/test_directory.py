from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from proxy.directory.model import directory_from_toml
from tests.parts.redis_server import RedisServer
from tests.proxy.cli.place import FILE, ISSUER, Answer, Place

pytestmark = pytest.mark.slow


def people(place: Place) -> str:
    return str(place.folder / "people.toml")


def test_import_then_export_gives_the_file_back(bare_place: Place) -> None:
    place = bare_place
    imported = place.directory("import", people(place))
    assert imported.code == 0
    assert "Made the salt ring" in imported.out
    exported = place.directory("export")
    assert exported.code == 0
    assert directory_from_toml(exported.out) == directory_from_toml(FILE)
    (place.folder / "again.toml").write_text(exported.out)
    again = place.directory("import", str(place.folder / "again.toml"))
    assert again == Answer(0, "The directory was already what the file says.\n", "")
    assert place.directory("export").out == exported.out


def test_an_import_tells_what_it_raised(place: Place) -> None:
    place.directory("import", people(place))
    (place.folder / "less.toml").write_text(FILE.replace('[workspaces.acme.projects.ares]\nunit = "user"', ""))
    assert "project:acme/ares" in place.directory("import", str(place.folder / "less.toml")).out


def test_every_fault_of_a_file_is_one_line_on_stderr_and_nothing_is_written(place: Place) -> None:
    place.directory("import", people(place))
    before = place.directory("export").out
    (place.folder / "bad.toml").write_text('[workspaces.acme]\nunit = "deployment"\n[workspaces.acme.projects.A]\n')
    answer = place.directory("import", str(place.folder / "bad.toml"))
    assert answer.code == 2
    assert [line.split(": ")[1:3] for line in answer.err.splitlines()] == [
        [str(place.folder / "bad.toml"), "workspaces.acme.projects.A"],
        [str(place.folder / "bad.toml"), "workspaces.acme.issuer"],
        [str(place.folder / "bad.toml"), "workspaces.acme.unit"],
    ]
    assert place.directory("export").out == before


def test_a_file_that_is_not_there_is_wrong_usage(place: Place) -> None:
    answer = place.directory("import", str(place.folder / "nope.toml"))
    assert answer.code == 2
    assert len(answer.err.splitlines()) == 1


def test_a_workspace_of_an_issuer_that_is_not_configured_is_warned_of(place: Place) -> None:
    (place.folder / "other.toml").write_text(FILE.replace(ISSUER, "https://typo.example"))
    answer = place.directory("import", str(place.folder / "other.toml"))
    assert answer.code == 0
    assert "warning" in answer.err
    assert "https://typo.example" in answer.err


def test_show_gives_epoch_and_key_of_every_unit_and_its_members(place: Place) -> None:
    place.directory("import", people(place))
    units = place.shown()
    assert list(units) == [
        "deployment",
        "workspace:acme",
        "project:acme/apollo",
        "project:acme/ares",
        "team:acme/red",
        "collection:acme/handbook",
    ]
    assert {unit["key"] for unit in units.values()} == {"2026-11"}
    assert len({unit["epoch"] for unit in units.values()}) == 1
    assert units["project:acme/apollo"]["members"] == ["user:alice", "group:eng"]
    assert units["project:acme/apollo"]["policy"] == "workspace"
    assert units["project:acme/ares"]["policy"] == "user"
    assert units["deployment"]["policy"] == "project"
    assert units["workspace:acme"]["issuer"] == ISSUER


def test_show_without_a_ring_says_so(bare_place: Place) -> None:
    place = bare_place
    assert "no salt ring" in place.directory("show").out
    assert place.shown()["deployment"]["epoch"] is None
    assert place.shown()["deployment"]["fingerprint"] is None


def test_show_for_people_names_units_members_and_who_is_blocked(place: Place) -> None:
    place.directory("import", people(place))
    place.directory("block", "user:mallory")
    lines = place.directory("show").out.splitlines()
    assert any(
        re.match(r"project:acme/apollo +workspace +\d+ +2026-11 +[0-9a-f]{12} +user:alice, group:eng, team red$", s)
        for s in lines
    )
    assert any(re.match(rf"user:mallory +{re.escape(ISSUER)}$", line) for line in lines)


def test_show_tells_for_each_project_where_its_border_runs_why_and_who_shares_it(place: Place) -> None:
    place.directory("import", people(place))
    (apollo,) = place.borders("project:acme/apollo")
    assert (apollo["unit"], apollo["level"], apollo["line"]) == ("workspace:acme", "workspace", "workspace")
    assert apollo["because"] == 'workspace acme has unit = "workspace"'
    assert apollo["shared_by"] == "everybody in workspace acme, also people of projects that they may not enter"
    assert apollo["shared_with"] == ["acme/apollo"]  # ares keeps a narrower border
    (ares,) = place.borders("project:acme/ares")
    assert (ares["unit"], ares["line"]) == (None, "project")
    assert ares["shared_by"] == "nobody: each person in project acme/ares has a cache of their own"


def test_show_tells_who_shares_the_caches_of_teams_and_collections(place: Place) -> None:
    text = FILE.replace('unit = "user"', 'team = "red"\nmodel_units = { tiny = "team" }')
    text = text.replace('"group:eng"]\n', '"group:eng"]\nmodel_units = { tiny = "user" }\n')
    (place.folder / "people.toml").write_text(text.replace('["apollo"]', '["apollo", "ares"]'))
    place.directory("import", people(place))
    units = place.shown()
    assert units["team:acme/red"]["shared_with"] == ["acme/apollo", "acme/ares"]
    assert "also people of projects that they may not enter" in str(units["team:acme/red"]["shared_by"])
    assert units["collection:acme/handbook"]["shared_with"] == ["acme/apollo", "acme/ares"]
    assert units["deployment"]["shared_by"] == "nobody: no request has this border"
    plain, of_model = place.borders("project:acme/ares")
    assert (plain["model"], plain["unit"]) == (None, "workspace:acme")
    assert (of_model["model"], of_model["unit"], of_model["line"]) == ("tiny", "team:acme/red", "model")
    # With tiny, apollo keeps each person apart.
    assert of_model["shared_with"] == ["acme/ares"]
    told = place.directory("show").out
    assert "acme/ares with model tiny\n  border     team:acme/red\n" in told
    assert "shared by  everybody in workspace acme, also people of projects that they may not enter (acme/" in told


def test_show_gives_the_fingerprint_of_each_units_salt_and_never_the_salt(place: Place) -> None:
    place.directory("import", people(place))
    units = place.shown()
    prints = {str(unit["fingerprint"]) for unit in units.values()}
    assert len(prints) == len(units)
    assert all(re.fullmatch("[0-9a-f]{12}", fingerprint) for fingerprint in prints)
    for words in (("show",), ("show", "--json")):
        assert "sg1-" not in place.directory(*words).out


def test_a_unit_whose_key_is_not_configured_has_no_fingerprint(place: Place) -> None:
    place.directory("import", people(place))
    text = place.configuration.read_text().replace('id = "2026-11"', 'id = "other"')
    place.configuration.write_text(text)
    assert {unit["fingerprint"] for unit in place.shown().values()} == {None}
    assert {unit["key"] for unit in place.shown().values()} == {"2026-11"}


def test_grant_and_revoke(place: Place) -> None:
    place.directory("import", people(place))
    granted = place.directory("grant", "acme/ares", "group:ops")
    assert (granted.code, granted.err) == (0, "")
    assert place.shown()["project:acme/ares"]["members"] == ["group:ops"]
    assert place.directory("grant", "acme/ares", "group:ops").code == 0
    assert place.directory("revoke", "acme/ares", "group:ops").code == 0
    assert place.directory("revoke", "acme/ares", "group:ops").code == 1


def test_who_is_revoked_but_stays_a_member_by_his_team_is_told(place: Place) -> None:
    place.directory("import", people(place))
    answer = place.directory("revoke", "acme/apollo", "user:alice")
    assert answer.code == 0
    assert "still a member of acme/apollo through team red" in answer.err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("grant", "acme/nope", "user:x"), 1),
        (("grant", "nope/apollo", "user:x"), 1),
        (("grant", "acme", "user:x"), 2),
        (("grant", "acme/apollo/x", "user:x"), 2),
        (("grant", "acme/apollo", "alice"), 2),
        (("grant", "acme/apollo", "user:a\nb"), 2),
        (("revoke", "acme/apollo", "user:nobody"), 1),
        (("unblock", "user:nobody"), 1),
        (("block", "nobody"), 2),
        (("block", "user:x", "--issuer", "https://nope"), 2),
    ],
)
def test_what_cannot_be_done_is_one_line_and_the_right_status(place: Place, words: tuple[str, ...], code: int) -> None:
    place.directory("import", people(place))
    answer = place.directory(*words)
    assert answer.code == code
    assert answer.out == ""
    assert len(answer.err.splitlines()) == 1


@pytest.mark.parametrize("words", [(), ("nope",), ("import",), ("grant", "acme/apollo")])
def test_wrong_usage_is_2(place: Place, words: tuple[str, ...]) -> None:
    assert place.directory(*words).code == 2


def test_block_and_unblock_outlive_an_import(place: Place) -> None:
    place.directory("import", people(place))
    assert place.directory("block", "group:contractors").code == 0
    place.directory("import", people(place))
    assert json.loads(place.directory("show", "--json").out)["blocks"] == [
        {"issuer": ISSUER, "member": "group:contractors"}
    ]
    assert place.directory("unblock", "group:contractors").code == 0
    assert json.loads(place.directory("show", "--json").out)["blocks"] == []


def test_with_several_issuers_the_blocks_issuer_is_named(place: Place) -> None:
    place.configure(issuers=(ISSUER, "https://other.example"))
    unnamed = place.directory("block", "user:x")
    assert unnamed.code == 2
    assert "--issuer" in unnamed.err
    assert place.directory("block", "user:x", "--issuer", "https://other.example").code == 0


def test_a_wrong_configuration_is_2_with_every_fault(place: Place) -> None:
    place.configuration.write_text("[directory]\nnope = 1\n")
    answer = place.directory("show")
    assert answer.code == 2
    assert "nope" in answer.err


def test_keys_new_writes_43_characters_of_base64url(place: Place) -> None:
    one, two = place.keys("new"), place.keys("new")
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}\n", one.out)
    assert one.out != two.out
    assert one.err == ""


def test_keys_new_writes_a_file_for_its_owner_alone_and_never_over_another(place: Place) -> None:
    file = place.folder / "fresh"
    assert place.keys("new", "--out", str(file)) == Answer(0, "", "")
    assert file.stat().st_mode & 0o777 == 0o600
    written = file.read_text()
    again = place.keys("new", "--out", str(file))
    assert again.code == 1
    assert "never overwritten" in again.err
    assert file.read_text() == written


def test_the_first_keys_new_makes_the_ring_and_the_key_that_the_configuration_waits_for(bare_place: Place) -> None:
    place = bare_place
    (place.folder / "salt").unlink()
    answer = place.keys("new", "--out", str(place.folder / "salt"), "-c", str(place.configuration))
    assert answer.code == 0
    assert "made the salt ring" in answer.err
    epoch = place.shown()["deployment"]["epoch"]
    assert isinstance(epoch, int)
    assert epoch > 1_700_000_000
    again = place.keys("new", "-c", str(place.configuration))
    assert "salt ring" not in again.err
    assert (again.code, again.out) == (0, "")  # no secret that nobody would use
    assert "no secret was made" in again.err
    assert "Made the salt ring" not in place.directory("import", people(place)).out
    assert place.shown()["deployment"]["epoch"] == epoch


def test_the_first_keys_new_with_a_configuration_makes_the_ring_and_no_secret(bare_place: Place) -> None:
    answer = bare_place.keys("new", "-c", str(bare_place.configuration))
    assert (answer.code, answer.out) == (0, "")
    assert "made the salt ring" in answer.err


COMMENTED = f"# ours\n{FILE}# theirs\n"


def test_a_change_of_a_directory_file_tells_that_its_comments_are_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Place(tmp_path, 'file = "directory.toml"\nstate = "state"', capsys)
    file = tmp_path / "directory.toml"
    place.directory("import", people(place))
    for words in (("grant", "acme/apollo", "user:dora"), ("revoke", "acme/apollo", "user:alice")):
        file.write_text(COMMENTED)
        answer = place.directory(*words)
        assert (answer.code, "#" in file.read_text()) == (0, False)
        assert f"{file} was written anew, and its comments are gone" in answer.err
        again = place.directory("grant", "acme/apollo", "user:eve")
        assert "comments" not in again.err  # there were none any more
        place.directory("revoke", "acme/apollo", "user:eve")
    file.write_text(COMMENTED)
    for harmless in (("block", "user:alice"), ("unblock", "user:alice"), ("show",), ("import", str(file))):
        answer = place.directory(*harmless)
        assert (answer.code, "comments" in answer.err, file.read_text()) == (0, False, COMMENTED)


def test_what_a_change_does_to_a_directory_file_is_said_by_its_help(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    for action in ("import", "grant", "revoke"):
        assert "written anew, without its comments" in " ".join(place.directory(action, "--help").out.split())


def test_faults_of_a_directory_file_name_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = Place(tmp_path, 'file = "directory.toml"\nstate = "state"', capsys)
    file = tmp_path / "directory.toml"
    file.write_text("[workspaces.acme]\n")
    (line,) = place.directory("show").err.splitlines()
    assert line.startswith(f"saltgate: {file}: workspaces.acme.issuer: ")


def test_keys_new_into_a_folder_that_is_not_there_is_wrong_usage(place: Place) -> None:
    assert place.keys("new", "--out", str(place.folder / "no" / "salt")).code == 2


def test_a_redis_that_is_not_there_is_one_line_and_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = Place(tmp_path, 'redis = "redis://127.0.0.1:1/0"', capsys)
    for answer in (place.directory("show"), place.keys("new", "-c", str(place.configuration))):
        assert answer.code == 1
        assert len(answer.err.splitlines()) == 1


def test_an_incomplete_directory_is_not_exported(
    server: RedisServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.command("FLUSHALL")
    place = Place(tmp_path, f'redis = "{server.url}"', capsys)
    place.directory("import", people(place))
    server.command("HSET", "{saltgate}:1:workspaces", "labs", "{")
    answer = place.directory("export")
    assert (answer.code, answer.out) == (1, "")
    assert "workspaces.labs" in answer.err
    assert "workspaces.labs" in place.directory("show").err


@pytest.mark.slow
def test_everything_lost_and_made_anew_within_a_second_begins_later(bare_place: Place, server: RedisServer) -> None:
    place = bare_place
    epochs: list[object] = []
    for _ in range(2):
        assert place.directory("import", people(place)).code == 0
        epochs.append(place.shown()["project:acme/apollo"]["epoch"])
        server.command("FLUSHALL")
        shutil.rmtree(place.folder / "state", ignore_errors=True)
    before, after = epochs
    assert isinstance(before, int)
    assert isinstance(after, int)
    assert before < after
