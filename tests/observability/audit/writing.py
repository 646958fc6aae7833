"""Audits as the gate writes them: records of requests, chains in a directory, and what verify says of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from observability.audit.audit import Audit, OnFailure
from observability.audit.chain import ChainKey, chain_key
from observability.audit.recovery import Journals
from observability.audit.segments import Export, Origin
from observability.audit.subjects import Subjects
from observability.audit.verifying import Verdict, verify
from observability.audit.writer import Writing
from observability.record import Record
from observability.recorder import Recorder

KEY = chain_key("a1", b"0123456789abcdef0123456789abcdef")
KEYS = {"a1": KEY}
ORIGIN = Origin(role="worker", host="here", instance="here-1", version="0")


def noise(size: int) -> bytes:
    """Names that rise, so that chains sort as they were begun, and that no two processes have in common."""
    return time.time_ns().to_bytes(8, "big")[-size:]


def new_audit(
    directory: Path,
    *,
    key: ChainKey = KEY,
    earlier: tuple[ChainKey, ...] = (),
    subjects: Subjects = "pseudonym",
    on_failure: OnFailure = "refuse",
    wall_ns: Callable[[], int] = time.time_ns,
    export: Export | None = None,
    **writing: Any,
) -> Audit:
    """Not started yet. It writes at once, and into large files unless `writing` says otherwise."""
    usual = Writing(
        journals=Journals(directory, tuple(one.journals for one in (key, *earlier))),
        slots=64,
        gather_seconds=0.001,
        segment_bytes=1 << 26,
        segment_seconds=3600.0,
        retention_seconds=86400.0,
        retry_seconds=0.02,
        idle_seconds=0.02,
    )
    return Audit(
        directory,
        key,
        ORIGIN,
        replace(usual, **writing),
        subjects=subjects,
        on_failure=on_failure,
        wall_ns=wall_ns,
        noise=noise,
        export=export,
    )


@contextmanager
def audit(directory: Path, **how: Any) -> Iterator[Audit]:
    """Running, and ready."""
    made = new_audit(directory, **how)
    made.start()
    try:
        until(lambda: made.state().up)
        yield made
    finally:
        made.close(10.0)


def request(
    audit: Audit, *, sent: bool = True, subject: str = "u-alice-0001", tokens: int = 100, tells_reuse: bool = True
) -> Record:
    """One request as the gate tells it, with its line on the way."""
    recorder = Recorder((audit,), monotonic_ns=time.monotonic_ns, wall_ns=time.time_ns)
    with recorder.request(method="POST", route="/v1/chat/completions") as record:
        begin(record, subject)
        if not sent:
            record.refused("blocked", 403, "blocked")
            return record
        go_up(audit, record)
        record.used(tokens, tokens // 2 if tells_reuse else None, 7)
        record.answered(200)
    return record


def begin(record: Record, subject: str = "u-alice-0001") -> None:
    record.identified("https://sso.test", subject, "chat-ui", "jwt")
    record.scoped("acme", "apollo")
    record.decided("project:acme/apollo", "deployment")
    record.asked("chat", "tiny", False)


def go_up(audit: Audit, record: Record) -> None:
    record.served()
    record.stamped("baa6d2677094", "k1", 0)
    audit.enter(record)
    record.sent("127.0.0.1", 8000)


def settled(audit: Audit) -> None:
    """Returns when nothing waits to be written."""
    until(lambda: audit.state().waiting == 0)


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.jsonl"))


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def written(directory: Path) -> list[dict[str, Any]]:
    """Every whole line of every file, in the order of names."""
    return [msgspec.json.decode(line) for path in files(directory) for line in lines_of(path) if line.endswith(b"\n")]


def requests(directory: Path) -> list[dict[str, Any]]:
    return [line for line in written(directory) if str(line["event"]).startswith("request.")]


def verdict(directory: Path, *wanted: str) -> Verdict:
    return verify(directory, KEYS, wanted)


def faults(directory: Path, *wanted: str) -> list[str]:
    """Each as FILE:LINE: MESSAGE."""
    return [f"{one.file}:{one.line}: {one.message}" for one in verdict(directory, *wanted).faults]


def until(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    """Raises AssertionError where it does not come to hold."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it does not come to hold"
        time.sleep(0.002)


@contextmanager
def unwritable(directory: Path) -> Iterator[None]:
    """What has the directory's name is none; the directory, behind a link, is as it was before and after."""
    real = directory.readlink()
    _point(directory, Path("/dev/null"))
    try:
        yield
    finally:
        _point(directory, real)


def _point(link: Path, target: Path) -> None:
    """At once: nobody finds it missing."""
    new = link.with_name("new")
    new.symlink_to(target)
    new.replace(link)
