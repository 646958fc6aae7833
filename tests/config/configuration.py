"""A configuration file in a folder of its own, with its secrets, that a test changes in one place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import tomli_w

from config.faults import ConfigurationFaults
from config.load import Loaded, load

SALT_SECRET = b"0123456789abcdef0123456789abcdef"


def good_table() -> dict[str, object]:
    """The least that loads: one engine, one issuer, Redis, one key."""
    return {
        "engines": [{"name": "main", "urls": ["http://127.0.0.1:8000"]}],
        "issuers": [{"issuer": "https://sso.example.com", "audiences": ["saltgate"]}],
        "directory": {"redis": "redis://127.0.0.1:6379/0"},
        "isolation": {"keys": [{"id": "k1", "secret": {"file": "salt"}}]},
    }


def changed(key: str, value: object) -> dict[str, object]:
    """The good table with one dotted key set, for example `engines.0.proof`; `None` takes the key out."""
    table = good_table()
    *path, last = key.split(".")
    place: object = table
    for part in path:
        if isinstance(place, list):
            place = place[int(part)]
        else:
            assert isinstance(place, dict)
            place = place.setdefault(part, {})
    if isinstance(place, list):
        place[int(last) : int(last) + 1] = [value]
    else:
        assert isinstance(place, dict)
        place.pop(last, None)
        if value is not None:
            place[last] = value
    return table


def loaded(folder: Path, table: Mapping[str, object], environment: Mapping[str, str] | None = None) -> Loaded:
    """What `load` makes of the table, in a file beside its salt secret. Only the given environment is seen."""
    (folder / "salt").write_bytes(SALT_SECRET + b"\n")
    path = folder / "saltgate.toml"
    path.write_text(tomli_w.dumps(table), encoding="utf-8")
    return load(path, environment or {})


def faults(folder: Path, table: Mapping[str, object], environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The faults of the table, by dotted key; empty where it loads."""
    try:
        loaded(folder, table, environment)
    except ConfigurationFaults as raised:
        found = raised.faults
    else:
        found = ()
    by_key = {fault.key: fault.message for fault in found}
    assert len(by_key) == len(found), "two faults at one key"
    return by_key
