"""Where the provider listens, what it keeps on disk, and that it forgets."""

from __future__ import annotations

import stat
import tomllib
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from threading import Barrier

import pytest
from aiohttp import ClientSession, DummyCookieJar

from proxy.demo import cast
from proxy.demo.provider import (
    LocalProvider,
    LoopbackAddress,
    NotLoopback,
    UnsafeState,
    address_of_issuer,
    loopback_address,
    open_local_provider,
    open_provider,
    rotate_keys,
    sign_in,
)
from proxy.demo.provider.expiring import ExpiringMap
from proxy.demo.provider.keys import SigningKeys
from proxy.demo.provider.people import hash_password, parse_password_hash
from proxy.demo.provider.state import open_state
from tests.proxy.demo.provider_parts import Clock, keys

ANY_PORT = LoopbackAddress("127.0.0.1", 0)


@pytest.mark.parametrize(
    "listen",
    [
        "0.0.0.0:9400",
        "[::]:9400",
        "192.168.1.2:9400",
        "10.0.0.1:9400",
        "128.0.0.1:9400",
        "[::ffff:127.0.0.1]:9400",
        "[::1%lo]:9400",
        "[0:0:0:0:0:0:0:1]:9400",
        "127.1:9400",
        "0177.0.0.1:9400",
        "2130706433:9400",
        "localhost.example.com:9400",
        "example.com:9400",
        "127.0.0.1:65536",
        "127.0.0.1",
        ":9400",
        "127.0.0.1:9400\n",
        "",
    ],
)
def test_there_is_no_address_that_another_machine_could_reach(listen: str) -> None:
    with pytest.raises(NotLoopback):
        loopback_address(listen)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "8.8.8.8", "example.com", ""])
def test_the_proof_cannot_be_made_by_hand_either(host: str) -> None:
    with pytest.raises(NotLoopback):
        LoopbackAddress(host, 9400)
    with pytest.raises(NotLoopback):
        LoopbackAddress("127.0.0.1", -1)


@pytest.mark.parametrize(
    ("listen", "origin"),
    [
        ("127.0.0.1:9400", "http://127.0.0.1:9400"),
        ("127.9.8.7:9400", "http://127.9.8.7:9400"),
        ("localhost:9400", "http://localhost:9400"),
        ("[::1]:9400", "http://[::1]:9400"),
        ("127.0.0.1:80", "http://127.0.0.1"),
    ],
)
def test_a_loopback_address_is_its_issuer(listen: str, origin: str) -> None:
    assert loopback_address(listen).origin == origin
    assert address_of_issuer(origin) == loopback_address(listen)


@pytest.mark.parametrize(
    "issuer",
    [
        "https://127.0.0.1:9400",
        "http://127.0.0.1:9400/",
        "http://127.0.0.1:9400/x",
        "http://me@127.0.0.1:9400",
        "http://sso.example.com",
        "http://127.0.0.1:x",
        "127.0.0.1:9400",
    ],
)
def test_an_issuer_that_is_not_exactly_a_loopback_origin_is_refused(issuer: str) -> None:
    with pytest.raises(NotLoopback):
        address_of_issuer(issuer)


def test_localhost_is_bound_without_being_looked_up() -> None:
    assert loopback_address("localhost:9400").bind_host == "127.0.0.1"


async def test_the_local_issuer_keeps_keys_and_owner_over_a_restart(tmp_path: Path) -> None:
    async with local(tmp_path) as first:
        kids, owner, password = kids_of(first), first.owner, first.new_password
        assert password is not None
    async with local(tmp_path) as second, ClientSession(cookie_jar=DummyCookieJar()) as session:
        assert kids_of(second) == kids
        assert second.owner == owner
        assert second.new_password is None
        tokens = await sign_in(session, second.provider.issuer, "me", password)
        assert tokens.refresh_token is not None


async def test_a_rotation_is_kept_over_a_restart(tmp_path: Path) -> None:
    async with local(tmp_path) as first:
        await rotate_keys(first.provider, first.state)
        kids = kids_of(first)
    async with local(tmp_path) as second:
        assert kids_of(second) == kids
        assert len(kids) == 4


async def test_what_is_kept_is_for_the_owners_eyes_only_and_holds_no_password(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    async with local(folder) as opened:
        password = opened.new_password or ""
    assert password
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = list(folder.iterdir())
    assert {file.name for file in files} == {"provider-keys.json", "provider-owner.json"}
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert password not in file.read_text()
    assert password not in repr(opened)


def test_a_state_that_others_may_read_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    with pytest.raises(UnsafeState, match="chmod go-rwx"):
        open_state(tmp_path)
    tmp_path.chmod(0o700)
    state = open_state(tmp_path)
    state.keep_keys(keys())
    (tmp_path / "provider-keys.json").chmod(0o644)
    with pytest.raises(UnsafeState, match="chmod go-rwx"):
        state.keys()


@pytest.mark.parametrize("document", [b"", b"{}", b"[]", b'{"keys": []}', b'{"keys": [{"jwk": {}}]}', b"\xff"])
def test_damaged_keys_stop_the_start_and_are_not_replaced(tmp_path: Path, document: bytes) -> None:
    file = tmp_path / "provider-keys.json"
    file.write_bytes(document)
    file.chmod(0o600)
    with pytest.raises(UnsafeState, match="remove it"):
        open_state(tmp_path).keys()
    assert file.read_bytes() == document


@pytest.mark.parametrize("document", [b"", b"{}", b"[]", b'{"subject": "s", "username": "u", "name": "n"}'])
def test_a_damaged_owner_stops_the_start(tmp_path: Path, document: bytes) -> None:
    file = tmp_path / "provider-owner.json"
    file.write_bytes(document)
    file.chmod(0o600)
    with pytest.raises(UnsafeState, match="remove it"):
        open_state(tmp_path).owner("me")


def test_two_processes_that_start_at_once_agree_on_the_keys(tmp_path: Path) -> None:
    state, together = open_state(tmp_path), Barrier(2)

    def start(_: int) -> SigningKeys:
        together.wait()
        return state.keys()

    with ThreadPoolExecutor(2) as processes:
        one, other = processes.map(start, range(2))
    assert one == other == state.keys()
    assert [file.name for file in tmp_path.iterdir()] == ["provider-keys.json"]


def test_a_password_is_kept_as_scrypt_with_its_own_salt() -> None:
    kept, again = hash_password("secret"), hash_password("secret")
    assert str(kept) != str(again)
    assert str(kept).startswith("scrypt$16384$8$1$")
    assert parse_password_hash(str(kept)) == kept
    assert (kept.matches("secret"), kept.matches("Secret"), kept.matches("")) == (True, False, False)
    with pytest.raises(ValueError, match="not a password hash"):
        parse_password_hash("secret")


def test_a_full_memory_forgets_what_came_first() -> None:
    remembered: ExpiringMap[int, int] = ExpiringMap(limit=3)
    for number in range(10):
        remembered.put(number, number, expires_at=100, now=0)
    assert len(remembered) == 3
    assert remembered.get(6, now=0) is None
    assert [remembered.get(number, now=0) for number in (7, 8, 9)] == [7, 8, 9]


def test_what_expired_is_gone_though_nobody_swept() -> None:
    remembered: ExpiringMap[str, int] = ExpiringMap(limit=3)
    remembered.put("a", 1, expires_at=100, now=0)
    assert remembered.get("a", now=99) == 1
    assert remembered.get("a", now=100) is None
    assert remembered.pop("a", now=100) is None


async def test_the_demos_people_can_sign_in_and_are_in_the_demos_directory() -> None:
    members = tomllib.loads(cast.directory_toml("http://127.0.0.1:9400"))
    people, clients = (
        cast.people(),
        cast.clients(service_secret="made for this run", web_secret="so is this", public_url="http://127.0.0.1:8080"),
    )
    async with (
        open_provider(ANY_PORT, people=people, clients=clients, keys=keys(), clock=Clock()) as provider,
        ClientSession(cookie_jar=DummyCookieJar()) as session,
    ):
        for role in cast.CAST:
            assert (await sign_in(session, provider.issuer, role.username, role.password)).expires_in == 3600
            listed = members["workspaces"][role.workspace]["projects"][role.project]["members"]
            assert {f"user:{role.subject}", *(f"group:{group}" for group in role.groups)} & set(listed)


def test_the_demos_customers_have_nobody_in_common() -> None:
    workspaces = tomllib.loads(cast.directory_toml("http://127.0.0.1:9400"))["workspaces"]
    members = {name: set(next(iter(w["projects"].values()))["members"]) for name, w in workspaces.items()}
    assert members.keys() == {"acme", "globex"}
    assert not members["acme"] & members["globex"]
    assert {w["issuer"] for w in workspaces.values()} == {"http://127.0.0.1:9400"}
    for role in cast.CAST:
        others = set.union(*(m for name, m in members.items() if name != role.workspace))
        assert not {f"user:{role.subject}", *(f"group:{group}" for group in role.groups)} & others


def local(folder: Path) -> AbstractAsyncContextManager[LocalProvider]:
    return open_local_provider(ANY_PORT, folder, audience="saltgate", username="me", clock=Clock())


def kids_of(opened: LocalProvider) -> list[str]:
    return [key.kid for key in opened.provider.keys.keys]
