"""What the supervisor asks a worker that only the parts of a gate know, over `proxy.channel`, and what it is answered.

As there: fields are added with a default, and never change their meaning. A worker that does not know a question
answers nothing.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class MayLook(msgspec.Struct, frozen=True, tag=True):
    """May this person still see the administrators' pages? `identity` is as `proxy.identity.kept` writes it, `session`
    the key of the session on the public listener that he came from. Answered with `Judged`.
    """

    identity: bytes
    session: str

    def __repr__(self) -> str:
        return "MayLook()"


class WhoLooks(msgspec.Struct, frozen=True, tag=True):
    """Is this the credential of an administrator? `headers` are a request's. Answered with `Judged`."""

    headers: tuple[tuple[str, str], ...]
    path: str

    def __repr__(self) -> str:
        return "WhoLooks()"  # a header is a secret


class HowIsIt(msgspec.Struct, frozen=True, tag=True):
    """How does the worker see itself and the engines now? Answered with `Status`."""


class Keep(msgspec.Struct, frozen=True, tag=True):
    """Write these into the Redis of the directory, if it is there: slots of `gate`, each as (seconds, slot, data), and
    `requests`, of which at most `most_requests` of all gates are kept. Answered with `Done`.
    """

    gate: str
    slots: tuple[tuple[int, int, bytes], ...]
    requests: tuple[bytes, ...]
    most_requests: int


class Recall(msgspec.Struct, frozen=True, tag=True):
    """Read what other gates than `gate` have kept: these slots, each (seconds, slot), and requests that came `after`
    that id. Answered with `Recalled`.
    """

    gate: str
    slots: tuple[tuple[int, int], ...]
    after: str


Question = MayLook | WhoLooks | HowIsIt | Keep | Recall


class Done(msgspec.Struct, frozen=True):
    """`why` is empty where it is done."""

    why: str = ""


class Recalled(msgspec.Struct, frozen=True):
    """`slots` are (gate, seconds, slot, data); `last` is the id of the last request that was read."""

    slots: tuple[tuple[str, int, int, bytes], ...] = ()
    requests: tuple[bytes, ...] = ()
    last: str = ""
    why: str = ""


class ReplicaStatus(msgspec.Struct, frozen=True):
    """`proofs` are verdicts by endpoint."""

    engine: str
    replica: str
    up: bool
    proofs: dict[str, str]


class Status(msgspec.Struct, frozen=True):
    """`waiting` requests wait for a place at an engine."""

    waits_for: tuple[str, ...]
    waiting: int
    replicas: tuple[ReplicaStatus, ...]


class Judged(msgspec.Struct, frozen=True):
    """`verdict` is "nobody" where the session or the credential is over or none, "no" where it is that of somebody who
    is no administrator or is blocked, "unknown" where that cannot be told now. `name` is for the person himself.
    """

    verdict: Literal["yes", "no", "nobody", "unknown"]
    name: str = ""
