from __future__ import annotations

import time
import tomllib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.directory.model import (
    Collection,
    Directory,
    DirectoryFaults,
    Member,
    Project,
    Team,
    Workspace,
    directory_from_toml,
    directory_to_toml,
    group,
    parse_member,
    user,
    workspace_from_json,
    workspace_to_json,
)
from proxy.isolation.unit import Level

ISSUER = "https://sso.example.com/realms/acme"

CONTRACT = f"""
[workspaces.acme]
issuer = "{ISSUER}"
unit = "project"

[workspaces.acme.projects.apollo]
members = ["user:u-alice-0001", "group:eng"]
team = "red"
models = ["tiny"]
model_units = {{ tiny = "user" }}

[workspaces.acme.projects.ares]
team = "red"

[workspaces.acme.projects.hermes]
members = ["user:u-bob-0002"]
unit = "user"

[workspaces.acme.teams.red]
members = ["user:u-carol-0003"]

[workspaces.acme.collections.handbook]
projects = ["apollo", "ares"]
"""


def faults_of(text: str) -> dict[str, str]:
    with pytest.raises(DirectoryFaults) as caught:
        directory_from_toml(text)
    return {fault.key: fault.message for fault in caught.value.faults}


def test_the_directory_file_of_the_contract_is_read() -> None:
    acme = directory_from_toml(CONTRACT).workspaces["acme"]
    assert (acme.issuer, acme.unit, acme.show_reuse) == (ISSUER, Level.PROJECT, None)
    assert acme.projects["apollo"] == Project(
        name="apollo",
        members=(user("u-alice-0001"), group("eng")),
        team="red",
        models=("tiny",),
        model_units={"tiny": Level.USER},
    )
    assert acme.projects["hermes"].unit is Level.USER
    assert acme.teams["red"] == Team("red", (user("u-carol-0003"),))
    assert acme.collections["handbook"] == Collection("handbook", ("apollo", "ares"))


def test_export_gives_the_imported_file_back() -> None:
    assert tomllib.loads(directory_to_toml(directory_from_toml(CONTRACT))) == tomllib.loads(CONTRACT)


def test_a_teams_members_are_members_of_all_its_projects_and_of_no_other() -> None:
    acme = directory_from_toml(CONTRACT).workspaces["acme"]
    assert acme.projects_of(user("u-carol-0003")) == ("apollo", "ares")
    assert acme.projects_of(user("u-alice-0001")) == ("apollo",)
    assert acme.admits(user("u-carol-0003"), "ares")
    assert not acme.admits(user("u-carol-0003"), "hermes")
    assert not acme.admits(user("eng"), "apollo")


def test_every_fault_is_told_in_one_run_with_its_dotted_key() -> None:
    faults = faults_of("""
surprise = 1
[workspaces."Bad Name"]
issuer = "https://i"
[workspaces.acme]
unit = "deployment"
colour = "red"
show_reuse = "yes"
[workspaces.acme.projects.apollo]
members = ["alice", "user:", "user:a\\u0000b"]
team = "blue"
unit = "nobody"
models = "tiny"
model_units = { tiny = "deployment" }
[workspaces.acme.projects.Ares]
[workspaces.acme.teams.red]
projects = ["apollo"]
[workspaces.acme.collections.handbook]
projects = ["apollo", "zeus"]
""")
    assert set(faults) == {
        "surprise",
        'workspaces."Bad Name"',
        "workspaces.acme.issuer",
        "workspaces.acme.unit",
        "workspaces.acme.colour",
        "workspaces.acme.show_reuse",
        "workspaces.acme.projects.apollo.members",
        "workspaces.acme.projects.apollo.team",
        "workspaces.acme.projects.apollo.unit",
        "workspaces.acme.projects.apollo.models",
        "workspaces.acme.projects.apollo.model_units.tiny",
        "workspaces.acme.projects.Ares",
        "workspaces.acme.teams.red.projects",
        "workspaces.acme.collections.handbook.projects",
    }
    assert "zeus" in faults["workspaces.acme.collections.handbook.projects"]
    assert "deployment" not in faults["workspaces.acme.unit"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not toml",
        "workspaces = []",
        "[workspaces]\nacme = 1",
        '[workspaces.acme]\nissuer = ""',
        '[workspaces.acme]\nissuer = "https://i user:x"',
        "[workspaces.acme]\nissuer = 1",
        '[workspaces.acme]\nissuer = "https://i"\nprojects = []',
        '[workspaces.acme]\nissuer = "https://i"\n[workspaces.acme.projects.p]\nmembers = [1]',
        '[workspaces.acme]\nissuer = "https://i"\n[workspaces.acme.projects.p]\nteam = ["red"]',
        '[workspaces.acme]\nissuer = "https://i"\n[workspaces.acme.projects.p]\nmodels = [""]',
        "a = " + "[" * 5000,
    ],
)
def test_what_is_no_directory_is_a_fault_and_nothing_else(text: str) -> None:
    assert faults_of(text)


@pytest.mark.parametrize(
    "written",
    [
        "",
        "alice",
        "user:",
        "group:",
        "User:alice",
        "person:alice",
        "user:" + "x" * 256,
        "user:a\nb",
        "user:a\x7fb",
        "user:a\x85b",
        "user:\ud800",
        "user:ali\u200bce",
        "user:\u202ealice",
        " user:alice",
    ],
)
def test_a_member_is_user_or_group_with_a_printable_name_of_at_most_255_characters(written: str) -> None:
    with pytest.raises(ValueError, match="no member"):
        parse_member(written)


@pytest.mark.parametrize(
    "written", ["user:" + "x" * 255, "user:u-älice", "group:a\u200bb", "group:/eng/dev", "user:a:b", "group: x"]
)
def test_a_members_name_is_otherwise_free(written: str) -> None:
    assert parse_member(written) == written


@pytest.mark.parametrize(
    "document",
    [b"", b"\xff", b"[]", b"null", b'{"issuer": 1}', b'{"issuer": "https://i", "x": 1}', b"[" * 100_000, b"{" * 9],
)
def test_a_malformed_record_is_a_fault_of_its_workspace(document: bytes) -> None:
    with pytest.raises(DirectoryFaults) as caught:
        workspace_from_json("acme", document)
    assert all(fault.key.startswith("workspaces.acme") for fault in caught.value.faults)


names = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,8}", fullmatch=True)
free_text = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=12)
showing_text = st.text(st.characters(exclude_categories=["Cc", "Cf", "Cs"]), min_size=1, max_size=12)
members = st.builds("user:{}".format, showing_text).map(Member) | st.builds("group:{}".format, free_text).map(Member)
member_lists = st.lists(members, unique=True, max_size=3).map(tuple)
levels = st.sampled_from([level for level in Level if level is not Level.DEPLOYMENT])
policies = st.none() | levels


@st.composite
def workspaces(draw: st.DrawFn) -> Workspace:
    teams = {name: Team(name, draw(member_lists)) for name in draw(st.sets(names, max_size=2))}
    projects = {
        name: Project(
            name=name,
            members=draw(member_lists),
            team=draw(st.none() | st.sampled_from(sorted(teams))) if teams else None,
            unit=draw(policies),
            models=draw(st.none() | st.lists(free_text, unique=True, max_size=2).map(tuple)),
            model_units=draw(st.dictionaries(free_text, levels, max_size=2)),
        )
        for name in draw(st.sets(names, max_size=3))
    }
    listed = st.lists(st.sampled_from(sorted(projects)), unique=True).map(tuple) if projects else st.just(())
    return Workspace(
        name=draw(names),
        issuer=draw(st.sampled_from([ISSUER, "https://other.example"])),
        unit=draw(policies),
        show_reuse=draw(st.none() | st.booleans()),
        teams=teams,
        projects=projects,
        collections={name: Collection(name, draw(listed)) for name in draw(st.sets(names, max_size=2))},
    )


directories = st.lists(workspaces(), max_size=4).map(Directory.of)
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.slow
@quick
@given(directories)
def test_any_directory_reads_back_from_its_export(directory: Directory) -> None:
    text = directory_to_toml(directory)
    assert directory_from_toml(text) == directory
    assert directory_to_toml(directory_from_toml(text)) == text


@quick
@given(workspaces())
def test_any_workspace_reads_back_from_its_record(workspace: Workspace) -> None:
    assert workspace_from_json(workspace.name, workspace_to_json(workspace)) == workspace


@pytest.mark.slow
@quick
@given(st.lists(workspaces(), max_size=4), st.lists(workspaces(), max_size=4))
def test_a_changed_directory_looks_up_like_one_made_anew(before: list[Workspace], after: list[Workspace]) -> None:
    old, new = Directory.of(before), Directory.of(after)
    gone: dict[str, Workspace | None] = dict.fromkeys(old.workspaces.keys() - new.workspaces.keys())
    changed = old.changed(gone | dict(new.workspaces))
    everybody = {(w.issuer, member) for w in (*before, *after) for member in w.members}
    assert changed == new
    assert [changed.workspaces_of(*who) for who in everybody] == [new.workspaces_of(*who) for who in everybody]


@quick
@given(workspaces(), names)
def test_a_member_is_admitted_to_exactly_his_projects(workspace: Workspace, unknown: str) -> None:
    for member in (*workspace.members, user("nobody")):
        for project in (*workspace.projects, unknown):
            assert workspace.admits(member, project) == (project in workspace.projects_of(member))


def test_members_of_one_issuer_are_nobody_at_another() -> None:
    other = Workspace("globex", "https://other.example", {"p": Project("p", (user("u-bob-0002"),))})
    directory = Directory.of([*directory_from_toml(CONTRACT).workspaces.values(), other])
    assert directory.workspaces_of(ISSUER, user("u-bob-0002")) == ("acme",)
    assert directory.workspaces_of("https://other.example", user("u-bob-0002")) == ("globex",)


@pytest.mark.slow
def test_a_lookup_among_100_000_projects_costs_what_one_among_ten_costs() -> None:
    def lookups(count: int) -> float:
        projects = {f"p{i}": Project(f"p{i}", (user("all"), user(f"u{i}"))) for i in range(count)}
        directory = Directory.of([Workspace("acme", ISSUER, projects)])
        times = []
        for _ in range(5):
            began = time.perf_counter()
            for _ in range(2000):
                assert directory.workspaces["acme"].admits(user("all"), "p7")
                assert directory.workspaces_of(ISSUER, user("u7")) == ("acme",)
            times.append(time.perf_counter() - began)
        return min(times)

    assert lookups(100_000) < 50 * lookups(10)  # a scan would be thousands of times slower


@pytest.mark.parametrize("text", ["a = " + "1" * 5000, "a = " + "[" * 5000 + "]" * 5000])
def test_what_the_toml_reader_cannot_take_is_a_fault(text: str) -> None:
    with pytest.raises(DirectoryFaults):
        directory_from_toml(text)
