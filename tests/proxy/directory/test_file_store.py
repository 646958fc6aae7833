from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest

from proxy.directory import state_file
from proxy.directory.changes import ChangeRefused, block, grant, import_directory, make_ring
from proxy.directory.file_store import FileStore
from proxy.directory.model import directory_from_toml, user
from proxy.directory.removal import RemovalPolicy
from proxy.directory.snapshot import NOTHING_READ, Snapshot, read
from proxy.directory.store import StoreUnavailable
from proxy.isolation.ring import Ring
from proxy.isolation.unit import Level, ProjectUnit

ISSUER = "https://i"
RING = Ring("ring", "k1", 1000, {}, {})
ONE = f'# ours\n[workspaces.acme]\nissuer = "{ISSUER}"\n[workspaces.acme.projects.p]\nmembers = ["user:alice"]\n'
TWO = ONE + f'[workspaces.labs]\nissuer = "{ISSUER}"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "directory.toml"


@pytest.fixture
def store(file: Path) -> FileStore:
    return FileStore(file, file.parent / "state")


async def snapshot(store: FileStore) -> Snapshot:
    return read(await store.read(), NOTHING_READ).snapshot


async def test_the_file_is_taken_as_it_lies_there_at_the_first_look(file: Path, store: FileStore) -> None:
    file.write_text(TWO)
    assert (await snapshot(store)).directory == directory_from_toml(TWO)
    assert (await snapshot(store)).ring is None


async def test_a_changed_file_is_taken_when_it_rests(file: Path, store: FileStore) -> None:
    file.write_text(TWO)
    await store.stamp()
    file.write_text(ONE)
    first = await snapshot(store)
    assert first.directory == directory_from_toml(TWO)
    assert (await snapshot(store)).directory == directory_from_toml(ONE)


async def test_what_vanished_while_no_process_ran_is_raised(file: Path, store: FileStore) -> None:
    file.write_text(TWO)
    await store.change(make_ring(RING))
    file.write_text(TWO.replace("projects.p]", "projects.q]"))
    await snapshot(FileStore(file, file.parent / "state"))
    file.write_text(TWO)
    ring = (await snapshot(FileStore(file, file.parent / "state"))).ring
    assert ring is not None
    assert ring.epoch(ProjectUnit("acme", "p")) == 1001


@pytest.mark.parametrize("broken", [b"[", b"\xff", b'[workspaces.acme]\nissuer = ""', None])
async def test_a_broken_or_missing_file_keeps_what_was_known_and_is_told(
    file: Path, store: FileStore, broken: bytes | None
) -> None:
    file.write_text(TWO)
    before = await store.stamp()
    file.unlink() if broken is None else file.write_bytes(broken)
    for looked in (store, FileStore(file, file.parent / "state")):
        await looked.stamp()
        records = await looked.read()
        assert records.faults
        assert records.stamp != before
        assert set(read(records, NOTHING_READ).snapshot.directory.workspaces) == {"acme", "labs"}


async def test_a_broken_file_is_not_written_over_by_a_grant_but_by_an_import(file: Path, store: FileStore) -> None:
    file.write_text(ONE)
    await store.stamp()
    file.write_text("[")
    with pytest.raises(ChangeRefused, match="mend them first"):
        await store.change(grant("acme", "p", user("x")))
    await store.change(block(ISSUER, user("x")))
    assert file.read_text() == "["
    await store.change(import_directory(directory_from_toml(ONE), RING))
    assert directory_from_toml(file.read_text()) == directory_from_toml(ONE)


async def test_a_grant_is_written_into_the_file(file: Path, store: FileStore) -> None:
    file.write_text(ONE)
    await store.change(grant("acme", "p", user("x")))
    members = directory_from_toml(file.read_text()).workspaces["acme"].projects["p"].members
    assert members == (user("alice"), user("x"))


async def test_an_import_of_the_file_itself_keeps_its_comments(file: Path, store: FileStore) -> None:
    file.write_text(ONE)
    await store.change(import_directory(directory_from_toml(ONE), RING))
    assert file.read_text() == ONE
    assert (await snapshot(store)).ring == RING


async def test_the_state_is_the_owners_alone(file: Path, store: FileStore) -> None:
    file.write_text(ONE)
    await store.change(make_ring(RING))
    folder = file.parent / "state"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert {path.name for path in folder.iterdir()} == {"directory.json", "lock"}


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"generation": "x"}', '{"raises": {"9:workspace4:acme": "x"}}', '{"surprise": 1}', "[" * 99999],
)
async def test_a_damaged_state_is_unavailable_and_not_begun_anew(file: Path, store: FileStore, content: str) -> None:
    file.write_text(ONE)
    await store.change(make_ring(RING))
    state = file.parent / "state" / "directory.json"
    state.write_text(content)
    with pytest.raises(StoreUnavailable, match="damaged"):
        await store.read()
    with pytest.raises(StoreUnavailable, match="damaged"):
        await store.change(make_ring(RING))
    assert state.read_text() == content


async def test_the_state_holds_the_records_of_the_layout(file: Path, store: FileStore) -> None:
    file.write_text(ONE)
    await store.change(make_ring(RING))
    await store.change(block(ISSUER, user("x")))
    state = json.loads((file.parent / "state" / "directory.json").read_text())
    assert state["ring"] == {"id": "ring", "first_key": "k1", "base_epoch": 1000}
    assert state["blocks"] == ["https://i user:x"]
    assert state["workspaces"]["acme"]["issuer"] == ISSUER


async def test_who_cannot_get_the_lock_gives_up(file: Path, store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_file, "_LOCK_PAUSE_SECONDS", 0.001)
    file.write_text(ONE)
    await store.stamp()
    with (file.parent / "state" / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(StoreUnavailable, match="locked"):
            await store.change(make_ring(RING))
    await store.change(make_ring(RING))


async def test_a_folder_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    (tmp_path / "directory.toml").write_text(ONE)
    with pytest.raises(StoreUnavailable):
        await FileStore(tmp_path / "directory.toml", tmp_path / "state").read()


async def test_who_is_taken_out_of_the_file_by_hand_raises_what_he_leaves(file: Path) -> None:
    store = FileStore(file, file.parent / "state", removal=RemovalPolicy(Level.PROJECT))
    file.write_text(ONE)
    await store.change(make_ring(RING))
    file.write_text(ONE.replace("alice", "bob"))
    again = FileStore(file, file.parent / "state", removal=RemovalPolicy(Level.PROJECT))
    ring = (await snapshot(again)).ring
    assert ring is not None
    assert ring.epoch(ProjectUnit("acme", "p")) == 1001


async def test_a_file_whose_raises_cannot_be_counted_is_not_taken_over_until_they_can(
    file: Path, store: FileStore
) -> None:
    file.write_text(TWO)
    await store.change(make_ring(RING))
    state = file.parent / "state" / "directory.json"
    well = state.read_text()
    state.write_text(well.replace('"raises":{}', '"raises":{"4:junk":-1}'))
    file.write_text(ONE)
    looking = FileStore(file, file.parent / "state")
    records = await looking.read()
    assert "not taken over" in str(records.faults)
    assert set(records.workspaces) == {"acme", "labs"}
    state.write_text(well)
    for _ in range(2):
        records = await looking.read()
    assert set(records.workspaces) == {"acme"}
    assert not records.faults


@pytest.mark.parametrize("more", ['"algorithm":"sg2"', '"next_key":5', '"plan_start":"5"'])
async def test_a_ring_in_the_state_that_is_not_understood_is_damaged(file: Path, store: FileStore, more: str) -> None:
    file.write_text(ONE)
    await store.change(make_ring(RING))
    state = file.parent / "state" / "directory.json"
    state.write_text(state.read_text().replace('"base_epoch":1000', f'"base_epoch":1000,{more}'))
    with pytest.raises(StoreUnavailable, match="damaged"):
        await store.read()


async def test_half_a_plan_in_the_state_is_no_ring(file: Path, store: FileStore) -> None:
    file.write_text(ONE)
    await store.change(make_ring(RING))
    state = file.parent / "state" / "directory.json"
    state.write_text(state.read_text().replace('"base_epoch":1000', '"base_epoch":1000,"next_key":"k2"'))
    assert (await snapshot(store)).ring is None
