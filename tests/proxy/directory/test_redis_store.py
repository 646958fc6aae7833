"""What the layout in Redis promises, and what hostile or broken records do: cost only what they name."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from config.secret import Secret
from config.settings import ClientCertificate
from config.settings import Directory as Settings
from proxy.directory import redis_store
from proxy.directory.changes import Change, ChangeRefused, import_directory, make_first_ring, make_ring, revoke
from proxy.directory.model import Fault, directory_from_toml, user
from proxy.directory.records import Records
from proxy.directory.redis_connection import PREFIX
from proxy.directory.redis_store import RedisStore
from proxy.directory.removal import RemovalPolicy
from proxy.directory.rotation import pin_unit, raise_unit, rotate_ring
from proxy.directory.snapshot import NOTHING_READ, Reading, read
from proxy.directory.store import StoreUnavailable
from proxy.isolation.ring import Ring, record_name
from proxy.isolation.unit import (
    CollectionUnit,
    DeploymentUnit,
    Level,
    ProjectUnit,
    TeamUnit,
    UserUnit,
    WorkspaceUnit,
)
from tests.parts.redis_server import RedisServer, free_port

ISSUER = "https://i"
RING = Ring("ring", "k1", 1000, {}, {})
TWO = f'[workspaces.acme]\nissuer = "{ISSUER}"\n[workspaces.labs]\nissuer = "{ISSUER}"\n'
LAYOUT = (Path(redis_store.__file__).parent / "redis-layout.md").read_text()


@dataclass(frozen=True, slots=True)
class Pair:
    certificate: Path
    key: Path


class Authority:
    """A private certificate authority. `file` is its certificate."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.file = folder / "authority.pem"
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._signed(folder.name, self._key, x509.BasicConstraints(ca=True, path_length=0))
        self.file.write_bytes(self._certificate.public_bytes(Encoding.PEM))

    def certify(self, name: str) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        made = Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        names = [x509.IPAddress(ip_address(name))] if name[0].isdigit() else [x509.DNSName(name)]
        certificate = self._signed(name, key, x509.SubjectAlternativeName(names))
        made.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))
        made.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return made

    def _signed(self, name: str, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType) -> x509.Certificate:
        def named(text: str) -> x509.Name:
            return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(named(name))
            .issuer_name(named(self._folder.name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(extension, critical=False)
            .sign(self._key, SHA256())
        )


async def reading(store: RedisStore) -> Reading:
    return read(await store.read(), NOTHING_READ)


def keys_of(faults: tuple[Fault, ...]) -> list[str]:
    return [fault.key for fault in faults]


def test_the_page_names_every_key_and_no_other() -> None:
    names = {redis_store.GENERATION, redis_store.WORKSPACES, redis_store.BLOCKS, redis_store.RING}
    names |= {redis_store.RAISES, redis_store.UNIT_KEYS, redis_store.ENDINGS, redis_store.CHANGES}
    assert set(re.findall(r"^\| `(\{saltgate\}:1:\w+)`", LAYOUT, re.MULTILINE)) == names


def test_the_page_gives_the_record_names_that_the_ring_uses() -> None:
    units = (
        DeploymentUnit(),
        WorkspaceUnit("acme"),
        TeamUnit("acme", "red"),
        ProjectUnit("acme", "apollo"),
        CollectionUnit("acme", "handbook"),
        UserUnit("acme", "apollo", "https://i", "u-1"),
    )
    for unit in units:
        row = next(line for line in LAYOUT.splitlines() if line.startswith(f"| `{unit}`"))
        assert f"| `{record_name(unit)}` |" in row


async def test_a_companys_own_sync_can_write_the_pages_example(store: RedisStore, redis: RedisServer) -> None:
    example = re.search(r"```json\n(.*?)```", LAYOUT, re.DOTALL)
    assert example is not None
    redis.command("HSET", redis_store.WORKSPACES, "acme", example[1])
    found = await reading(store)
    assert not found.faults
    assert set(found.snapshot.directory.workspaces["acme"].projects) == {"apollo"}


@pytest.mark.parametrize(
    "document", [b"", b"{", b"\xff\xfe", b"[]", b'{"issuer":"https://i","admin":true}', b"[" * 99999]
)
async def test_a_malformed_workspace_is_left_out_and_the_others_serve(
    store: RedisStore, redis: RedisServer, document: bytes
) -> None:
    await store.change(import_directory(directory_from_toml(TWO), RING))
    redis.command("HSET", redis_store.WORKSPACES, "acme", document)
    found = await reading(store)
    assert set(found.snapshot.directory.workspaces) == {"labs"}
    assert found.snapshot.ring == RING
    assert found.faults


@pytest.mark.parametrize("name", [b"\xff", b"", b"ACME", b"a/b", b"{saltgate}", b"a" * 64])
async def test_a_hostile_name_is_left_out(store: RedisStore, redis: RedisServer, name: bytes) -> None:
    redis.command("HSET", redis_store.WORKSPACES, name, b'{"issuer":"https://i"}')
    found = await reading(store)
    assert not found.snapshot.directory.workspaces
    assert len(found.faults) == 1


async def test_an_old_membership_does_not_outlive_its_malformed_record(store: RedisStore, redis: RedisServer) -> None:
    await store.change(import_directory(directory_from_toml(TWO), RING))
    before = await reading(store)
    redis.command("HSET", redis_store.WORKSPACES, "acme", "{")
    after = read(await store.read(), before)
    assert set(after.snapshot.directory.workspaces) == {"labs"}
    assert read(await store.read(), after).faults == after.faults


@pytest.mark.parametrize(("key", "value"), [("raises", "-1"), ("raises", "1.5"), ("raises", "x"), ("unit_keys", "a b")])
async def test_an_epoch_or_key_that_cannot_be_read_takes_its_workspace_out(
    store: RedisStore, redis: RedisServer, key: str, value: str
) -> None:
    await store.change(import_directory(directory_from_toml(TWO), RING))
    redis.command("HSET", PREFIX + key, record_name(ProjectUnit("acme", "apollo")), value)
    found = await reading(store)
    assert set(found.snapshot.directory.workspaces) == {"labs"}
    assert found.snapshot.ring is not None
    assert keys_of(found.faults) == [key]


@pytest.mark.parametrize("record", ["7:projekt4:acme6:apollo", "7:project4:acme0:", "7:project4:acme6:APOLLO"])
async def test_a_raise_of_what_is_no_unit_is_told_and_takes_its_workspace_out(
    store: RedisStore, redis: RedisServer, record: str
) -> None:
    """Who wrote it believes that an epoch rose."""
    await store.change(import_directory(directory_from_toml(TWO), RING))
    redis.command("HSET", redis_store.RAISES, record, "1")
    found = await reading(store)
    assert set(found.snapshot.directory.workspaces) == {"labs"}
    assert keys_of(found.faults) == ["raises"]


@pytest.mark.parametrize(
    ("record", "value"),
    [("010:deployment", "1"), ("10:deployment", "x"), ("junk", "1"), ("", "1"), (b"\xff", "1"), ("9:ab", "1")],
)
async def test_an_epoch_that_may_be_anybodys_takes_the_ring_out(
    store: RedisStore, redis: RedisServer, record: str | bytes, value: str
) -> None:
    await store.change(import_directory(directory_from_toml(TWO), RING))
    redis.command("HSET", redis_store.RAISES, record, value)
    assert (await reading(store)).snapshot.ring is None


@pytest.mark.parametrize(
    ("field", "value"), [("id", ""), ("first_key", ""), ("first_key", "a/b"), ("base_epoch", "-1")]
)
async def test_a_malformed_ring_is_no_ring_and_none_is_made_over_it(
    store: RedisStore, redis: RedisServer, field: str, value: str
) -> None:
    await store.change(make_ring(RING))
    redis.command("HSET", redis_store.RING, field, value)
    assert (await store.change(make_ring(Ring("other", "k2", 2000, {}, {})))).is_empty
    assert (await reading(store)).snapshot.ring is None


@pytest.mark.parametrize(
    "fields",
    [
        {"next_key": "k2"},
        {"next_key": "k2", "plan_start": "5"},
        {"plan_start": "5", "plan_seconds": "5"},
        {"next_key": "k2", "plan_start": "5", "plan_seconds": "0"},
        {"next_key": "k2", "plan_start": "-5", "plan_seconds": "5"},
        {"next_key": "k2", "plan_start": "5.5", "plan_seconds": "5"},
        {"next_key": "k2", "plan_start": "5", "plan_seconds": "1e3"},
        {"next_key": "k2", "plan_start": "5", "plan_seconds": "\u0665"},
        {"next_key": "", "plan_start": "5", "plan_seconds": "5"},
        {"next_key": "a/b", "plan_start": "5", "plan_seconds": "5"},
        {"next_key": "k1", "plan_start": "5", "plan_seconds": "5"},
        {"past_keys": "k0,k9"},
        {"past_keys": " k0"},
        {"past_keys": "k0 "},
        {"past_keys": "k" * 33},
        {"algorithm": "sg2"},
        {b"\xff": "1"},
        {"": ""},
    ],
)
async def test_a_ring_that_is_not_understood_as_a_whole_is_no_ring(
    store: RedisStore, redis: RedisServer, fields: dict[str | bytes, str]
) -> None:
    """Half a plan, or a field of a later version, may mean another salt: none is better than a guess."""
    await store.change(make_ring(RING))
    redis.command("HSET", redis_store.RING, *(word for field in fields.items() for word in field))
    found = await reading(store)
    assert found.snapshot.ring is None
    assert keys_of(found.faults) == ["ring"]
    for deed in (rotate_ring("k9", over=0), raise_unit(DeploymentUnit()), pin_unit(DeploymentUnit(), "k9")):
        with pytest.raises(ChangeRefused, match="cannot be read"):
            await store.change(deed)


async def test_a_record_of_a_ring_without_plan_and_past_reads_as_it_always_did(
    store: RedisStore, redis: RedisServer
) -> None:
    redis.command("HSET", redis_store.RING, "id", "r", "first_key", "k1", "base_epoch", "7")
    assert (await reading(store)).snapshot.ring == Ring("r", "k1", 7, {}, {})


async def test_a_ring_without_plan_is_written_as_it_always_was(store: RedisStore, redis: RedisServer) -> None:
    await store.change(make_ring(RING))
    assert redis.command("HLEN", redis_store.RING) == b":3\r\n"


async def test_the_ring_that_a_rotation_ends_leaves_no_field_of_its_plan(store: RedisStore, redis: RedisServer) -> None:
    await store.change(make_ring(RING))
    await store.change(rotate_ring("k2", over=1000))
    assert redis.command("HLEN", redis_store.RING) == b":6\r\n"
    await store.change(rotate_ring("k2", over=0))
    assert redis.command("HLEN", redis_store.RING) == b":4\r\n"


async def test_a_raise_that_redis_could_not_count_up_is_refused_and_the_member_goes_all_the_same(
    store: RedisStore, redis: RedisServer
) -> None:
    document = f'[workspaces.acme]\nissuer = "{ISSUER}"\n[workspaces.acme.projects.p]\nmembers = ["user:a"]\n'
    await store.change(import_directory(directory_from_toml(document), RING))
    project = ProjectUnit("acme", "p")
    redis.command("HSET", redis_store.RAISES, record_name(project), "many")
    for deed in (raise_unit(project), pin_unit(project, "k2")):
        with pytest.raises(ChangeRefused, match="cannot be read"):
            await store.change(deed)
    change = await store.change(revoke("acme", "p", user("a"), RemovalPolicy(Level.PROJECT)))
    assert (change.raises, change.uncounted) == ((), (project,))
    assert b"user:a" not in (await store.read()).workspaces["acme"]


@pytest.mark.slow
async def test_a_ring_made_and_lost_while_another_waits_to_make_one_has_an_earlier_epoch(
    store: RedisStore, redis: RedisServer
) -> None:
    """Both saw none in the same second; the later one must not be written with that second."""
    decided: asyncio.Queue[Change] = asyncio.Queue()

    def deed(records: Records) -> Change:
        change = make_first_ring("k1")(records)
        decided.put_nowait(change)
        return change

    making = asyncio.ensure_future(store.change(deed))
    first = (await decided.get()).ring
    assert first is not None
    epoch = first.base_epoch
    redis.command("HSET", redis_store.RING, "id", "brief", "first_key", "k1", "base_epoch", str(epoch))
    redis.command("DEL", redis_store.RING)
    ring = (await making).ring
    assert ring is not None
    assert ring.base_epoch > epoch


async def test_nothing_vanishes_where_its_raise_cannot_be_counted(store: RedisStore, redis: RedisServer) -> None:
    await store.change(import_directory(directory_from_toml(TWO), RING))
    redis.command("HSET", redis_store.RAISES, record_name(WorkspaceUnit("labs")), "many")
    with pytest.raises(ChangeRefused, match="raises"):
        await store.change(import_directory(directory_from_toml("[workspaces]"), RING))
    assert len((await store.read()).workspaces) == 2


async def test_a_malformed_workspace_that_goes_is_raised_as_a_whole(store: RedisStore, redis: RedisServer) -> None:
    await store.change(import_directory(directory_from_toml(TWO), RING))
    redis.command("HSET", redis_store.WORKSPACES, "acme", "{")
    change = await store.change(import_directory(directory_from_toml(TWO), RING))
    assert change.raises == (WorkspaceUnit("acme"),)


async def test_a_malformed_block_is_told_and_the_others_hold(store: RedisStore, redis: RedisServer) -> None:
    redis.command("SADD", redis_store.BLOCKS, b"\xff", "nonsense", "https://i alice", "https://i user:bob")
    found = await reading(store)
    assert found.snapshot.blocks == {"https://i": {"user:bob"}}
    assert keys_of(found.faults) == ["blocks"] * 3


async def test_a_change_that_another_writer_crosses_is_decided_anew(store: RedisStore, redis: RedisServer) -> None:
    decided: list[object] = []

    def deed(records: object) -> object:
        if not decided:  # a sync of the company, between the decision and its writing
            redis.command("HSET", redis_store.WORKSPACES, "labs", '{"issuer":"https://i"}')
        decided.append(records)
        return import_directory(directory_from_toml(TWO), RING)(records)  # type: ignore[arg-type]

    await store.change(deed)  # type: ignore[arg-type]
    assert len(decided) == 2


async def test_a_reading_is_one_transaction(store: RedisStore, redis: RedisServer) -> None:
    redis.command("CONFIG", "RESETSTAT")
    await store.read()
    calls = re.findall(rb"cmdstat_(\w+):calls=(\d+)", redis.command("INFO", "commandstats"))
    assert {name: int(count) for name, count in calls} | {b"multi": 1, b"exec": 1, b"hgetall": 5} == {
        name: int(count) for name, count in calls
    }


async def test_a_key_of_another_type_is_an_unavailable_store_and_not_a_crash(
    store: RedisStore, redis: RedisServer
) -> None:
    redis.command("SET", redis_store.WORKSPACES, "x")
    with pytest.raises(StoreUnavailable, match="WRONGTYPE"):
        await store.read()


@pytest.mark.slow
async def test_a_frozen_redis_is_unavailable_within_a_bound(own_redis: RedisServer) -> None:
    store = RedisStore(own_redis.settings())
    await store.stamp()
    own_redis.pause()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="in time"):
        await store.stamp()
    with pytest.raises(StoreUnavailable, match="in time"):
        async with store.hearing():
            pass
    assert time.monotonic() - began < 20
    own_redis.resume()
    await store.stamp()
    await store.close()


@pytest.mark.parametrize("url", ["rediss://h/0?ssl_cert_reqs=none", "rediss://h/0?ssl_check_hostname=no", "http://h"])
def test_an_address_that_weakens_the_connection_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"redis"):
        RedisStore(Settings(redis=url))


async def test_the_redis_users_need_no_more_than_the_page_says(own_redis: RedisServer) -> None:
    rights = re.search(r"`(~\{saltgate\}[^`]+)`", LAYOUT)
    more = re.search(r"also\s+`([^`]+)`", LAYOUT)
    assert rights is not None
    assert more is not None
    own_redis.command("ACL", "SETUSER", "gate", "reset", "on", ">word", *rights[1].split())
    store = RedisStore(Settings(redis=own_redis.url, username="gate", password=Secret(b"word", "the test")))
    async with store.hearing() as hearing:
        assert not await hearing.heard(0.01)
    await store.read()
    await store.stamp()
    with pytest.raises(StoreUnavailable, match="permissions"):
        await store.change(make_ring(RING))
    own_redis.command("ACL", "SETUSER", "gate", *more[1].split())
    assert (await store.change(make_ring(RING))).ring == RING
    await store.close()


async def test_redis_is_reached_by_tls_under_a_private_authority_with_our_certificate(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path / "authority"), Authority(tmp_path / "stranger")
    server, client = authority.certify("127.0.0.1"), authority.certify("gate")
    port = free_port()
    options = f"--tls-port {port} --tls-cert-file {server.certificate} --tls-key-file {server.key}"
    with RedisServer(tmp_path, *options.split(), "--tls-ca-cert-file", str(authority.file)):

        async def reached(ca: Path | None, *, shown: Pair | None, host: str = "127.0.0.1") -> bool:
            certificate = None
            if shown is not None:
                key = Secret(shown.key.read_bytes(), "the test")
                certificate = ClientCertificate(certificate=shown.certificate, key=key)
            store = RedisStore(Settings(redis=f"rediss://{host}:{port}/0", ca=ca, client_cert=certificate))
            try:
                await store.stamp()
            except StoreUnavailable:
                return False
            finally:
                await store.close()
            return True

        assert await reached(authority.file, shown=client)
        assert not await reached(authority.file, shown=None)
        assert not await reached(stranger.file, shown=client)
        assert not await reached(None, shown=client)
        assert not await reached(authority.file, shown=client, host="localhost")  # not the certificate's name


async def test_redis_is_reached_by_a_unix_socket(tmp_path: Path) -> None:
    with RedisServer(tmp_path, "--unixsocket", str(tmp_path / "s")) as server:
        store = RedisStore(Settings(redis=f"unix://{tmp_path}/s?db=3"))
        await store.change(make_ring(RING))
        assert b"keys=" in server.command("INFO", "keyspace")
        assert b"db3:" in server.command("INFO", "keyspace")
        await store.close()


async def test_a_wrong_password_is_unavailable_and_not_told(own_redis: RedisServer) -> None:
    own_redis.command("ACL", "SETUSER", "gate", "reset", "on", ">word", "~*", "&*", "+@all")
    store = RedisStore(Settings(redis=own_redis.url, username="gate", password=Secret(b"hush-hush", "the test")))
    with pytest.raises(StoreUnavailable) as caught:
        await store.stamp()
    assert "hush-hush" not in str(caught.value)
    await store.close()
