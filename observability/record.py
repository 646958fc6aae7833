"""The record of one request: what the gate says of it while it runs, closed exactly once however it ends.

The gate calls plain methods with plain values; whether anybody listens is not its concern. Everything is kept in this
process and handed to the observers twice: when the request goes up to the engine, and when it has ended.
"""

from __future__ import annotations

import secrets
from asyncio import CancelledError
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Protocol, Self

from observability.names import (
    HTTP_METHOD_OTHER,
    HTTP_METHODS,
    SERVER_TIMING_STAGES,
    EndReason,
    Outcome,
    Stage,
    TokenKind,
)
from observability.pseudonym import pseudonym
from observability.redaction import error_stack
from observability.rhythm import Rhythm
from observability.shares import Shares
from observability.trace_context import RANDOM, SAMPLED, TraceContext, trace_context, trace_state

Clock = Callable[[], int]  # Nanoseconds.


class Observer(Protocol):
    """Who is told of each request, `sent` before `finished`, and soon after it happened: whatever the time matters for
    stands in the record. Neither method waits for anything or raises.
    """

    def sent(self, record: Record) -> None:
        """The request goes up: its scope and model are known. By now something may have come back, or all."""

    def finished(self, record: Record) -> None:
        """The request has ended and `record.outcome` is set. Called once a request, in whatever way it ends."""


class Recorder:
    """Opens records. One a worker, made after the fork.

    `monotonic_ns` and `wall_ns` are the clocks; every time that the gate hands in is of the same monotonic clock.
    `shares` says of which traces the flag says "sampled" upstream: their spans are kept even if nothing failed.
    With a `user_hash_key` they tell the caller's pseudonym. `url_scheme` is what clients use to reach the gate.
    """

    GATHERED: Final = 16
    """So many are told together at most: a millisecond's work, which no stream has to feel."""

    def __init__(
        self,
        observers: Sequence[Observer],
        *,
        monotonic_ns: Clock,
        wall_ns: Clock,
        shares: Shares | None = None,
        user_hash_key: bytes | None = None,
        url_scheme: str = "http",
        later: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        """`later` calls what it is given some milliseconds from now. Then observers are told of several requests
        together, which costs half as much for each: between two requests, what telling needs would leave the
        processor's caches. Nothing may be told any more after the last `tell`. Without it they are told at once.
        """
        self.observers = tuple(observers)
        self._later = later
        self._untold: list[tuple[Record, bool]] = []
        self._is_due = False
        self.monotonic_ns = monotonic_ns
        self.wall_ns = wall_ns
        self.url_scheme = url_scheme
        self.shares = shares or Shares()
        self.user_hash_key = user_hash_key
        self._noise, self._at = b"", 0

    def request(self, *, method: str, route: str | None) -> Record:
        """The record of one request, to be used in a `with`.

        `route` is a template of our own (`/w/{workspace}/p/{project}/v1/models`), None where no route matched: a path
        that a client made up is recorded nowhere.
        """
        return Record(self, method if method in HTTP_METHODS else HTTP_METHOD_OTHER, route)

    def happened(self, record: Record, *, has_ended: bool) -> None:
        """The request went up or has ended just now, which observers are to be told."""
        self._untold.append((record, has_ended))
        if self._later is None or len(self._untold) >= self.GATHERED:
            self.tell()
        elif not self._is_due:
            self._is_due = True
            self._later(self._tell_due)

    def tell(self) -> None:
        """Tell the observers what has happened and was not told yet, all of it, in its order.

        Each is told of each, also where one raises: that is raised when all were told.
        """
        untold, self._untold = self._untold, []
        _tell(untold, self.observers)

    def _tell_due(self) -> None:
        self._is_due = False
        self.tell()

    def noise(self, size: int) -> bytes:
        """So many random bytes. Drawn for many requests at once: each draw is a call into the kernel."""
        if self._at + size > len(self._noise):
            self._noise, self._at = secrets.token_bytes(_NOISE_BYTES), 0
        self._at += size
        return self._noise[self._at - size : self._at]


def _tell(untold: Sequence[tuple[Record, bool]], observers: Sequence[Observer]) -> None:
    """Observer by observer, which is quicker than request by request."""
    errors = []
    for observer in observers:
        sent, finished = observer.sent, observer.finished
        for record, has_ended in untold:
            try:
                finished(record) if has_ended else sent(record)
            except BaseException as error:  # noqa: BLE001 - raised below
                errors.append(error)
    if errors:
        raise errors[0]


_IDS_BYTES: Final = 16 + 8 + 8 + 12
_NOISE_BYTES: Final = 128 * _IDS_BYTES


class Record:
    """One request. Methods may come in the request's own order and be left out; what was not said is absent, not 0.

    The first ending that is told stands. Nothing that a caller only claimed becomes a scope here: `scoped` is called
    with what the directory confirmed, and the model counts as one of ours from `stamped` or `sent` on.
    """

    # On the class, so that a new record sets only what it has.
    linked: TraceContext | None = None
    parent: TraceContext | None = None
    tracestate = ""
    client_address: str | None = None
    issuer: str | None = None
    subject: str | None = None
    client: str | None = None
    auth_method: str | None = None
    token_id: str | None = None
    actor_issuer: str | None = None
    actor: str | None = None
    workspace: str | None = None
    project: str | None = None
    collection: str | None = None
    unit: str | None = None
    policy: str | None = None
    turned: tuple[str, ...] = ()
    narrowed_by: tuple[str, ...] = ()
    journal_slot: int | None = None
    salt_fingerprint: str | None = None
    salt_key_id: str | None = None
    salt_epoch: int | None = None
    operation: str | None = None
    requested_model: str | None = None
    model: str | None = None
    stream = False
    engine: str | None = None
    engine_address: str | None = None
    engine_port: int | None = None
    sent_ns: int | None = None
    first_byte_ns: int | None = None
    first_token_ns: int | None = None
    first_token_kind: TokenKind | None = None
    first_token_written_ns: int | None = None
    first_visible_written_ns: int | None = None
    rhythm: Rhythm | None = None
    events: int | None = None
    prompt_tokens: int | None = None
    reused_tokens: int | None = None
    output_tokens: int | None = None
    cache_written_tokens: int | None = None
    reasoning_tokens: int | None = None
    bytes_received: int | None = None
    bytes_sent = 0
    finish_reasons: tuple[str, ...] = ()
    _response_id: str | None = None
    status: int | None = None
    refusal_code: str | None = None
    refusal_reason: str | None = None
    end_reason: str | None = None
    outcome: Outcome | None = None
    error_type: str | None = None
    stack: tuple[str, ...] = ()
    ended_ns: int | None = None

    def __init__(self, recorder: Recorder, method: str, route: str | None) -> None:
        self._recorder = recorder
        self._clock = recorder.monotonic_ns
        self.url_scheme = recorder.url_scheme
        self.method = method
        self.route = route
        self.started_ns = recorder.monotonic_ns()
        self.started_wall_ns = recorder.wall_ns()
        noise = recorder.noise(_IDS_BYTES)
        self.trace_id = int.from_bytes(noise[:16], "big") or 1
        self.server_span_id = int.from_bytes(noise[16:24], "big") or 1
        self.client_span_id = int.from_bytes(noise[24:32], "big") or 1
        self.request_id = "req_" + noise[32:].hex()
        self.sampled = recorder.shares.hold(self.trace_id)
        # The stages in the order in which they ended, in nanoseconds of the recorder's clock, and how many seconds each
        # took: one that there was twice counts in all.
        self.intervals: list[tuple[Stage, int, int]] = []
        self.stages: dict[Stage, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._conclude(error)
        self._recorder.happened(self, has_ended=True)

    @property
    def traceparent(self) -> str:
        """The W3C `traceparent` to send upstream: the engine's span becomes a child of our CLIENT span."""
        flags = SAMPLED if self.sampled else 0
        if self.parent is not None:
            flags |= self.parent.flags & RANDOM
        return f"00-{self.trace_id:032x}-{self.client_span_id:016x}-{flags:02x}"

    def came_from(self, address: str | None) -> None:
        """The client's address, where it is known and the operator wants it told."""
        self.client_address = address

    def link(self, traceparents: Sequence[str]) -> None:
        """The lines of a client's own `traceparent` become a link. What W3C Trace Context calls invalid is ignored."""
        if traceparents:
            self.linked = trace_context(traceparents)

    def continue_trace(self, tracestates: Sequence[str]) -> None:
        """He is trusted with it: his span becomes the parent of ours, his decision to record it is ours, and the lines
        of his `tracestate` go up. To be said before `sent`; without a link it says nothing.
        """
        if self.linked is None:
            return
        self.parent, self.linked = self.linked, None
        self.trace_id = self.parent.trace_id
        self.sampled = self.parent.sampled
        self.tracestate = trace_state(tracestates)

    def stage(self, name: Stage, began_ns: int) -> int:
        """A stage of the gate has ended, which began at `began_ns` of the recorder's clock; returns when it ended."""
        ended_ns = self._clock()
        self.intervals.append((name, began_ns, ended_ns))
        seconds = (ended_ns - began_ns) / 1e9
        self.stages[name] = self.stages[name] + seconds if name in self.stages else seconds
        return ended_ns

    def server_timing(self) -> str:
        """The value of `Server-Timing`: the gate's own stages so far, in milliseconds. Empty where there is none."""
        stages = self.stages
        return ", ".join([f"{n};dur={stages[n] * 1e3:.2f}" for n in SERVER_TIMING_STAGES if n in stages])

    def identified(self, issuer: str, subject: str, client: str | None, method: str) -> None:
        """Who is calling, verified. `subject` stays in this object: no span, metric or log line has it."""
        self.issuer = issuer
        self.subject = subject
        self.client = None if client is None else _text(client, 256)
        self.auth_method = method

    def spoke_for(self, actor_issuer: str, actor: str) -> None:
        """A front end speaks for the caller: its own issuer and subject, kept as his are."""
        self.actor_issuer, self.actor = actor_issuer, actor

    def scoped(self, workspace: str, project: str, collection: str | None = None, unit: str | None = None) -> None:
        """The confirmed scope, and its unit as soon as that is known. A user unit is kept without its subject."""
        self.workspace = workspace
        self.project = project
        self.collection = collection
        if self._recorder.shares.differ and self.parent is None:
            self.sampled = self._recorder.shares.hold_in(self.trace_id, workspace, project)
        self.unit = _without_subject(unit) if unit is not None else self.unit

    def decided(self, policy: str, turned: tuple[str, ...]) -> None:
        """Which line of the policy drew the border, and why it is another one than that line says."""
        self.policy, self.turned = policy, turned

    def narrowed(self, rules: tuple[str, ...]) -> None:
        """These isolation rules found something in the request. Their names only, never what they found."""
        self.narrowed_by = rules

    def asked(self, operation: str, model: str, stream: bool) -> None:
        """What the caller wants, before any of it is checked. To be said before `stamped` and `sent`.

        `operation` is the gate's word for the endpoint: `chat`, `completions`, `responses`, `messages`, `embeddings`,
        `count_tokens`.
        """
        self.operation = operation
        self.requested_model = _text(model, 128)
        self.stream = stream

    def stamped(self, fingerprint: str, key_id: str, epoch: int) -> None:
        """The salt is chosen, so the model is one that this scope may use and an engine serves."""
        self.salt_fingerprint = fingerprint
        self.salt_key_id = key_id
        self.salt_epoch = epoch
        self.model = self.requested_model

    def sent(self, address: str, port: int | None = None) -> None:
        """The request goes up to this replica. Sent again to another one, the first time stays and the last address."""
        self.engine_address = address
        self.engine_port = port
        self.model = self.requested_model
        if self.sent_ns is not None:
            return
        self.sent_ns = self._clock()
        self._recorder.happened(self, has_ended=False)

    def first_byte(self) -> None:
        """The first byte of the answer's body came from the engine, whatever it holds."""
        if self.first_byte_ns is None:
            self.first_byte_ns = self._clock()

    def first_token(self, kind: TokenKind, received_ns: int) -> None:
        """The first event that holds part of the answer came, at `received_ns` of the recorder's monotonic clock."""
        if self.first_token_ns is None:
            self.first_token_kind = kind
            self.first_token_ns = received_ns

    def first_token_written(self, *, visible: bool) -> None:
        """That event was written to the client. `visible`: it holds something that a person sees."""
        if self.first_token_written_ns is None:
            self.first_token_written_ns = self._clock()
        if visible and self.first_visible_written_ns is None:
            self.first_visible_written_ns = self.first_token_written_ns

    def first_visible_written(self) -> None:
        """The first event that holds something which a person sees was written, after others that held a token."""
        if self.first_visible_written_ns is None:
            self.first_visible_written_ns = self._clock()

    def streamed(self, rhythm: Rhythm | None, events: int) -> None:
        """When the tokens of a stream came, and of how many events with data it was made."""
        self.rhythm = rhythm
        self.events = events

    def bytes_in(self, count: int) -> None:
        """The whole body of the request came, which has so many bytes."""
        self.bytes_received = count

    def used(
        self,
        prompt: int,
        reused: int | None = None,
        output: int | None = None,
        *,
        cache_written: int | None = None,
        reasoning: int | None = None,
    ) -> None:
        """The engine's own count. None: it did not say. A count that cannot be true counts as not said.

        `reused` and `cache_written` are parts of the prompt, `reasoning` is one of the output.
        """
        self.prompt_tokens = _count(prompt)
        self.output_tokens = _count(output)
        self.reused_tokens = _count(reused)
        if self.reused_tokens is not None and self.reused_tokens > (self.prompt_tokens or 0):
            self.reused_tokens = None
        if cache_written is not None:
            self.cache_written_tokens = _count(cache_written)
        if reasoning is not None:
            self.reasoning_tokens = _count(reasoning)

    def finish_reason(self, reason: str) -> None:
        """Why a choice ended, in the engine's word. One each choice; more than 8 are not kept."""
        if len(self.finish_reasons) < _MAX_CHOICES:
            self.finish_reasons = (*self.finish_reasons, _text(reason, 32))

    @property
    def user_hash(self) -> str | None:
        """The caller's pseudonym; None where the operator wants none, or nobody is known."""
        key = self._recorder.user_hash_key
        if key is None or self.issuer is None or self.subject is None:
            return None
        return pseudonym(key, self.issuer, self.subject)

    @property
    def response_id(self) -> str | None:
        """The id that the engine gave its answer."""
        return self._response_id

    @response_id.setter
    def response_id(self, value: str) -> None:
        self._response_id = _text(value, 128)

    def bytes_out(self, count: int) -> None:
        """So many more bytes of the body went to the client."""
        self.bytes_sent += count

    def answered(self, status: int) -> None:
        """The status line that went to the client."""
        self.status = status

    def refused(self, code: str, status: int, reason: str | None = None) -> None:
        """The gate said no, with this code and status (contract section 6); `reason` is the operator's finer word.

        The codes of the engine's and our own faults have outcomes of their own; the others are `refused`.
        """
        self.refusal_code = code
        self.refusal_reason = reason if reason is not None else code
        self.status = status
        self.ended(_OUTCOME_OF_CODE.get(code, "refused"), code if status >= _SERVER_FAULT else None)

    def because(self, reason: EndReason) -> None:
        """The operator's finer word for how it ends, where the outcome alone does not tell."""
        self.end_reason = reason

    def ended(self, outcome: Outcome, error_type: str | None = None) -> None:
        """How it ended; only the first call counts. `error_type` is from a small set, never a message."""
        if self.outcome is not None:
            return
        self.outcome = outcome
        self.error_type = error_type or (None if outcome in _NO_ERROR else outcome)
        self.ended_ns = self._clock()

    @property
    def duration_seconds(self) -> float:
        return _seconds(self.started_ns, self.ended_ns) or 0.0

    @property
    def time_to_first_token_seconds(self) -> float | None:
        """From the request's head to the first token written, less the wait for the client's own upload."""
        return self._since_read(self.first_token_written_ns)

    @property
    def time_to_first_visible_seconds(self) -> float | None:
        """The same to the first event that holds something which a person sees: no reasoning."""
        return self._since_read(self.first_visible_written_ns)

    @property
    def upstream_time_to_first_token_seconds(self) -> float | None:
        """From the request sent upstream to the first token read."""
        return _seconds(self.sent_ns, self.first_token_ns)

    @property
    def time_to_first_chunk_seconds(self) -> float | None:
        """From the request sent upstream to the first byte of the answer's body."""
        return _seconds(self.sent_ns, self.first_byte_ns)

    @property
    def relay_seconds(self) -> float | None:
        """From the first token read to the first token written."""
        return _seconds(self.first_token_ns, self.first_token_written_ns)

    @property
    def seconds_per_output_token(self) -> float | None:
        """From the first token read to the last, by the tokens after the first, those of all choices together.

        Absent below two tokens, without usage, where the end was not `ok`, where all came in one read, and where the
        client was so slow that the engine was not read meanwhile.
        """
        rhythm = self.rhythm
        if self.outcome != "ok" or self.output_tokens is None or self.output_tokens < 2:
            return None
        if rhythm is None or not rhythm.is_of_engine or self.first_token_ns == rhythm.last_ns:
            return None
        seconds = _seconds(self.first_token_ns, rhythm.last_ns)
        return None if seconds is None else seconds / (self.output_tokens - 1)

    @property
    def largest_gap_seconds(self) -> float | None:
        """The largest time between two events that bear a token. Absent where there were no two of them."""
        return None if self.rhythm is None else self.rhythm.largest_gap_seconds

    @property
    def held_seconds(self) -> float | None:
        """How long the engine was not read because the client took nothing. Absent where there was no stream."""
        return None if self.rhythm is None else self.rhythm.held_ns / 1e9

    def wall_ns(self, monotonic_ns: int | None) -> int:
        """The wall-clock time of one of this record's own times; the start's where it is absent."""
        return self.started_wall_ns + (self.started_ns if monotonic_ns is None else monotonic_ns) - self.started_ns

    def _since_read(self, moment_ns: int | None) -> float | None:
        """From the request's head, less the wait for the client's own upload."""
        if moment_ns is None:
            return None
        return max((moment_ns - self.started_ns) / 1e9 - self.stages.get("body", 0.0), 0.0)

    def _conclude(self, error: BaseException | None) -> None:
        if self.outcome is not None:
            return
        if isinstance(error, CancelledError):
            self.ended("client_gone")
        elif error is not None:
            self.stack = error_stack(error)
            self.ended("gate_error", type(error).__name__)
        elif self.status is None:
            self.ended("gate_error", "no_answer")
        elif self.status >= _SERVER_FAULT:
            self.ended("engine_failed", str(self.status))
        else:
            self.ended("ok")


_SERVER_FAULT: Final = 500
_MAX_CHOICES: Final = 8
_NO_ERROR: Final = frozenset({"ok", "refused", "client_gone"})
_OUTCOME_OF_CODE: Final[dict[str, Outcome]] = {
    "engine_failed": "engine_failed",
    "engine_timeout": "engine_timeout",
    "gate_error": "gate_error",
}
# The largest whole number that every JSON reader has exactly.
_MAX_COUNT: Final = (1 << 53) - 1


def _without_subject(unit: str) -> str:
    # user:WORKSPACE/PROJECT/SUBJECT; a name has no "/", a subject may.
    return "/".join(unit.split("/", 2)[:2]) if unit.startswith("user:") else unit


def _text(text: str, limit: int) -> str:
    # A lone surrogate is text that neither JSON nor protobuf can carry; one would cost a whole batch of spans.
    return text[:limit] if text.isascii() else text[:limit].encode("utf-8", "replace").decode("utf-8")


def _count(value: int | None) -> int | None:
    return value if value is not None and 0 <= value <= _MAX_COUNT else None


def _seconds(start_ns: int | None, end_ns: int | None) -> float | None:
    return None if start_ns is None or end_ns is None else (end_ns - start_ns) / 1e9
