"""What a line tells: of one request, however it ended, or of one act of an administrator. Pure.

Names of people go through `Names`; texts are those that the record has cut already. Salts, tokens, keys, cookies and
prompts are in no field here.
"""

from __future__ import annotations

from functools import lru_cache
from time import gmtime, strftime
from typing import Final, Literal

import msgspec

from observability.audit.subjects import Names
from observability.record import Record

GRANTED: Final = "request.granted"
REFUSED: Final = "request.refused"
KILLED: Final = "worker_killed"
"""The outcome of a request whose worker was killed while it ran: how it ended is not known."""


class RequestEntry(msgspec.Struct, omit_defaults=True, frozen=True, kw_only=True, gc=False):
    """One request. What is unknown is absent: no field is 0 or empty for want of knowing.

    `event` says whether the caller was let in, `outcome` how it ended. `ts` is when it ended, `duration_ms` how long it
    took. `policy` is the line of the policy that drew the border, `turned` why the border is another one than it says,
    `narrowed_by` the rules that found something. `subject` is who is acted for, `actor` the front end that spoke for
    him. `recovered_from` names the chain of a worker that was killed before it could write this.
    """

    ts: str
    event: str
    request_id: str
    trace_id: str
    outcome: str
    status: int | None = None
    code: str | None = None
    reason: str | None = None
    error_type: str | None = None
    issuer: str | None = None
    subject: str | None = None
    client: str | None = None
    auth_method: str | None = None
    token_id: str | None = None
    actor_issuer: str | None = None
    actor: str | None = None
    client_address: str | None = None
    workspace: str | None = None
    project: str | None = None
    collection: str | None = None
    unit: str | None = None
    policy: str | None = None
    turned: tuple[str, ...] | None = None
    narrowed_by: tuple[str, ...] | None = None
    salt_key_id: str | None = None
    salt_epoch: int | None = None
    salt_fingerprint: str | None = None
    model: str | None = None
    requested_model: str | None = None
    method: str | None = None
    route: str | None = None
    operation: str | None = None
    stream: bool | None = None
    tokens_known: bool | None = None
    prompt_tokens: int | None = None
    reused_tokens: int | None = None
    output_tokens: int | None = None
    replica: str | None = None
    duration_ms: float | None = None
    recovered_from: str | None = None


class Act(msgspec.Struct, omit_defaults=True, frozen=True, kw_only=True):
    """One act of an administrator, or of a person with what is his own. It has two lines of one `act` id.

    The first, `state` begun, is on disk before anything changes; the second says whether it was done or failed, and
    what it changed. `by` and `by_issuer` are who did it, where he was signed in; who ran a command is named by the
    first line of the command's own chain. `subject` and `group` are of whom it was done.
    """

    event: str
    act: str = ""
    state: Literal["begun", "done", "failed"] | None = None
    by_issuer: str | None = None
    by: str | None = None
    issuer: str | None = None
    subject: str | None = None
    group: str | None = None
    workspace: str | None = None
    project: str | None = None
    unit: str | None = None
    key_id: str | None = None
    token_id: str | None = None
    token_ids: tuple[str, ...] | None = None
    projects: tuple[str, ...] | None = None
    expires: str | None = None
    all: bool | None = None
    over_seconds: float | None = None
    workspaces: tuple[str, ...] | None = None
    deleted: tuple[str, ...] | None = None
    raised: tuple[str, ...] | None = None
    count: int | None = None
    error_type: str | None = None


class Opening(msgspec.Struct, array_like=True, frozen=True):
    """What is known of a request when it goes up to its engine, as the journal keeps it: `opening` without names."""

    request_id: str
    trace_id: bytes
    started_wall_ns: int
    issuer: str | None
    subject: str | None
    client: str | None
    auth_method: str | None
    token_id: str | None
    actor_issuer: str | None
    actor: str | None
    client_address: str | None
    workspace: str | None
    project: str | None
    collection: str | None
    unit: str | None
    policy: str | None
    turned: tuple[str, ...]
    narrowed_by: tuple[str, ...]
    salt_key_id: str | None
    salt_epoch: int | None
    salt_fingerprint: str | None
    model: str | None
    method: str | None
    route: str | None
    operation: str | None
    stream: bool


def opening(record: Record, names: Names) -> bytes:
    """MessagePack of an `Opening`. A tuple, because each request waits for this: half the time of the struct."""
    return _OPENING.encode(
        (
            record.request_id,
            bytes.fromhex(record.trace_id),
            record.started_wall_ns,
            record.issuer,
            names.name(record.issuer, record.subject),
            record.client,
            record.auth_method,
            record.token_id,
            record.actor_issuer,
            names.name(record.actor_issuer, record.actor),
            record.client_address,
            record.workspace,
            record.project,
            record.collection,
            record.unit,
            record.policy,
            record.turned,
            record.narrowed_by,
            record.salt_key_id,
            record.salt_epoch,
            record.salt_fingerprint,
            record.requested_model,
            record.method,
            record.route,
            record.operation,
            record.stream,
        )
    )


def request_entry(record: Record, names: Names) -> RequestEntry:
    """Of a record that has ended."""
    sent, operation = record.sent_ns is not None, record.operation
    return RequestEntry(
        ts=timestamp(record.wall_ns(record.ended_ns)),
        event=GRANTED if sent or (record.refusal_code is None and (record.status or 500) < _REFUSED) else REFUSED,
        request_id=record.request_id,
        trace_id=record.trace_id,
        outcome=str(record.outcome),
        status=record.status,
        code=record.refusal_code,
        reason=record.refusal_reason,
        error_type=record.error_type,
        issuer=record.issuer,
        subject=names.name(record.issuer, record.subject),
        client=record.client,
        auth_method=record.auth_method,
        token_id=record.token_id,
        actor_issuer=record.actor_issuer,
        actor=names.name(record.actor_issuer, record.actor),
        client_address=record.client_address,
        workspace=record.workspace,
        project=record.project,
        collection=record.collection,
        unit=record.unit,
        policy=record.policy,
        turned=record.turned or None,
        narrowed_by=record.narrowed_by or None,
        salt_key_id=record.salt_key_id,
        salt_epoch=record.salt_epoch,
        salt_fingerprint=record.salt_fingerprint,
        model=record.model,
        requested_model=record.unserved_model,
        method=record.method,
        route=record.route,
        operation=operation,
        stream=None if operation is None else record.stream,
        tokens_known=record.prompt_tokens is not None if sent else None,
        prompt_tokens=record.prompt_tokens,
        reused_tokens=record.reused_tokens,
        output_tokens=record.output_tokens,
        replica=_replica(record),
        duration_ms=int(record.duration_seconds * 1e6 + 0.5) / 1e3,
    )


class Ending(msgspec.Struct, frozen=True):
    """How a request of the journal ended, as far as its worker came to note it."""

    outcome: str
    ended_wall_ns: int
    status: int | None
    prompt_tokens: int | None
    reused_tokens: int | None
    output_tokens: int | None


def recovered_entry(packed: bytes, ending: Ending | None, chain: str, now_ns: int) -> RequestEntry:
    """Of a request that a killed worker had in its journal; `now_ns` is when that was found. Raises ValueError."""
    known = msgspec.msgpack.decode(packed, type=Opening)
    ended_ns = now_ns if ending is None else ending.ended_wall_ns
    return RequestEntry(
        ts=timestamp(ended_ns),
        event=GRANTED,
        request_id=known.request_id,
        trace_id=known.trace_id.hex(),
        outcome=KILLED if ending is None else ending.outcome,
        status=None if ending is None else ending.status,
        issuer=known.issuer,
        subject=known.subject,
        client=known.client,
        auth_method=known.auth_method,
        token_id=known.token_id,
        actor_issuer=known.actor_issuer,
        actor=known.actor,
        client_address=known.client_address,
        workspace=known.workspace,
        project=known.project,
        collection=known.collection,
        unit=known.unit,
        policy=known.policy,
        turned=known.turned or None,
        narrowed_by=known.narrowed_by or None,
        salt_key_id=known.salt_key_id,
        salt_epoch=known.salt_epoch,
        salt_fingerprint=known.salt_fingerprint,
        model=known.model,
        method=known.method,
        route=known.route,
        operation=known.operation,
        stream=known.stream,
        tokens_known=ending is not None and ending.prompt_tokens is not None,
        prompt_tokens=None if ending is None else ending.prompt_tokens,
        reused_tokens=None if ending is None else ending.reused_tokens,
        output_tokens=None if ending is None else ending.output_tokens,
        duration_ms=None if ending is None else int((ended_ns - known.started_wall_ns) / 1e3) / 1e3,
        recovered_from=chain,
    )


def content(entry: msgspec.Struct, now_ns: int | None = None) -> bytes:
    """The entry as a JSON object, with `ts` where it has none of its own. What cannot be said in UTF-8 is `?`."""
    try:
        encoded = _ENCODER.encode(entry)
    except UnicodeEncodeError:
        encoded = _ENCODER.encode(_sayable(msgspec.to_builtins(entry)))
    return encoded if now_ns is None else b'{"ts":"%b",%b' % (timestamp(now_ns).encode("ascii"), encoded[1:])


def timestamp(wall_ns: int) -> str:
    """UTC, as RFC 3339 has it, to the microsecond."""
    seconds, rest = divmod(wall_ns, 1_000_000_000)
    return f"{_second(seconds)}.{rest // 1000:06d}Z"


_ENCODER: Final = msgspec.json.Encoder()
_OPENING: Final = msgspec.msgpack.Encoder()
_REFUSED: Final = 400


@lru_cache(maxsize=16)
def _second(seconds: int) -> str:
    return strftime("%Y-%m-%dT%H:%M:%S", gmtime(seconds))


def _replica(record: Record) -> str | None:
    if record.engine_address is None or record.engine_port is None:
        return record.engine_address
    return f"{record.engine_address}:{record.engine_port}"


def _sayable(value: object) -> object:
    if isinstance(value, dict):
        return {key: _sayable(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_sayable(one) for one in value]
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value
