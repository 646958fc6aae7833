"""What an engine may be sent for alice's requests of acme/apollo, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Container
from typing import Final

from proxy.demo.simulator import Received
from proxy.engines.kinds import VLLM
from proxy.isolation.salt import SaltKey, salt_for
from proxy.isolation.unit import CollectionUnit, ProjectUnit, Unit, UserUnit
from tests.parts.gate_bed import BASE_EPOCH, KEY

SALT: Final = salt_for(ProjectUnit("acme", "apollo"), epoch=BASE_EPOCH, key=SaltKey("k1", KEY.value)).value
HEADERS: Final = frozenset(
    {b"host", b"accept", b"accept-encoding", b"content-type", b"content-length", b"x-request-id", b"traceparent"}
)
OURS: Final = frozenset({"model", "stream", "stream_options", "request_id", "cache_salt"})
FIELDS: Final = {endpoint.path: endpoint.fields for endpoint in VLLM.salted}


def alices_salts(issuer: str) -> frozenset[str]:
    """The salts of every border that alice's requests may have: she is in two projects of acme, and may narrow."""
    key = SaltKey("k1", KEY.value)
    units: list[Unit] = [CollectionUnit("acme", "handbook")]
    for project in ("apollo", "ares"):
        units += [ProjectUnit("acme", project), UserUnit("acme", project, issuer, "u-alice-0001")]
    return frozenset(salt_for(unit, epoch=BASE_EPOCH, key=key).value for unit in units)


def assert_stamped(received: Received, name: str, salts: Container[str] = (SALT,)) -> None:
    """One salt, of these; a path, headers and members of the list."""
    members = json.loads(received.body, object_pairs_hook=_pairs)
    assert received.target in FIELDS, name
    assert [value for key, value in members if key == "cache_salt"] == [received.salt], name
    assert received.salt in salts, name
    assert {key for key, _ in members} <= {*FIELDS[received.target], *OURS}, name
    assert {key.lower() for key, _ in received.headers} <= HEADERS, name


def _pairs(pairs: list[tuple[str, object]]) -> list[tuple[str, object]]:
    return pairs
