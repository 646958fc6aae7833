"""What the `local` issuer keeps on disk: its signing keys and its one owner, for their owner's eyes only."""

from __future__ import annotations

import json
import os
import secrets
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from proxy.demo.provider.keys import SigningKeys, dump_keys, load_keys, new_keys
from proxy.demo.provider.people import Person, hash_password, parse_password_hash

_KEYS_FILE: Final = "provider-keys.json"
_OWNER_FILE: Final = "provider-owner.json"


class UnsafeState(Exception):  # noqa: N818 - said of a folder
    """The folder, or a file in it, is open to others or damaged. The message has the remedy."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The one person of a local issuer. `new_password` is there only when it was just made: show it, then forget it."""

    person: Person
    new_password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class LocalState:
    """A folder that only its owner can enter. `open_state` makes one."""

    folder: Path

    def keys(self) -> SigningKeys:
        """The keys of earlier, else new ones, kept from now on. Slow: call it off the event loop."""
        document = _read(self.folder / _KEYS_FILE)
        if document is None:
            document = _create(self.folder / _KEYS_FILE, dump_keys(new_keys()))
        try:
            return load_keys(document)
        except ValueError as error:
            raise UnsafeState(f"{self.folder / _KEYS_FILE}: {error}; remove it, and everybody signs in anew") from error

    def keep_keys(self, keys: SigningKeys) -> None:
        """Keep these in place of the earlier ones."""
        _replace(self.folder / _KEYS_FILE, dump_keys(keys))

    def owner(self, username: str) -> Owner:
        """The owner of earlier, else a new one called `username` with a password made here. Slow, as `keys`."""
        document = _read(self.folder / _OWNER_FILE)
        if document is not None:
            return Owner(self._load_owner(document))
        password = secrets.token_urlsafe(15)
        person = Person(f"u-{secrets.token_hex(8)}", username, hash_password(password), username, frozenset())
        kept = self._load_owner(_create(self.folder / _OWNER_FILE, _dump_owner(person)))
        return Owner(kept, password if kept == person else None)

    def _load_owner(self, document: bytes) -> Person:
        try:
            members = json.loads(document)
            subject, username, name = (str(members[key]) for key in ("subject", "username", "name"))
            password, groups = parse_password_hash(members["password"]), frozenset(map(str, members["groups"]))
        except (ValueError, KeyError, TypeError) as error:
            path = self.folder / _OWNER_FILE
            raise UnsafeState(f"{path} is damaged; remove it, and a new owner is made") from error
        return Person(subject, username, password, name, groups)


def open_state(folder: Path) -> LocalState:
    """The folder, made if need be with mode 0700. Raises UnsafeState where others could enter it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _refuse_others(folder)
    return LocalState(folder)


def _dump_owner(person: Person) -> bytes:
    members = {
        "subject": person.subject,
        "username": person.username,
        "name": person.name,
        "groups": sorted(person.groups),
        "password": str(person.password),
    }
    return json.dumps(members).encode("ascii")


def _refuse_others(path: Path) -> None:
    status = path.stat()
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise UnsafeState(f"{path} is open to others; make it yours alone with: chmod go-rwx {path}")


def _read(path: Path) -> bytes | None:
    try:
        document = path.read_bytes()
    except FileNotFoundError:
        return None
    _refuse_others(path)
    return document


def _create(path: Path, document: bytes) -> bytes:
    """Write the file unless another process was first; either way what it holds now."""
    written = _write_beside(path, document)
    try:
        path.hardlink_to(written)
    except FileExistsError:
        return path.read_bytes()
    finally:
        written.unlink()
    return document


def _replace(path: Path, document: bytes) -> None:
    _write_beside(path, document).replace(path)


def _write_beside(path: Path, document: bytes) -> Path:
    """A whole file with mode 0600 in the same folder, on disk before anything points to it."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(document)
        file.flush()
        os.fsync(file.fileno())
    return beside
