"""The record of one request: what the gate says of it while it runs, closed exactly once however it ends.

The gate calls plain methods with plain values; whether anybody listens is not its concern (`recorder.py`).
"""

from __future__ import annotations

import re
from asyncio import CancelledError
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self

import msgspec

from observability.names import SERVER_TIMING_STAGES, EndReason, Outcome, Stage, TokenKind
from observability.pseudonym import pseudonym
from observability.redaction import error_stack, without_secrets
from observability.rhythm import Rhythm
from observability.shares import Shares
from observability.trace_context import RANDOM, SAMPLED, TraceContext, trace_context, trace_state

Clock = Callable[[], int]  # Nanoseconds.


class Teller(Protocol):
    """Who opened the record, and tells observers of it."""

    @property
    def shares(self) -> Shares: ...

    @property
    def user_hash_key(self) -> bytes | None: ...

    def happened(self, record: Record, *, has_ended: bool) -> None: ...


class Caller(NamedTuple):
    """What a record keeps of who is calling: see `identified` and `spoke_for`."""

    issuer: str | None
    subject: str | None
    client: str | None
    auth_method: str | None
    token_id: str | None
    actor_issuer: str | None
    actor: str | None

    def __repr__(self) -> str:
        return f"Caller(issuer={self.issuer!r}, auth_method={self.auth_method!r})"  # as a Record: no subject


class Record(msgspec.Struct, eq=False):
    """One request. Methods may come in the request's own order and be left out; what was not said is absent, not 0.

    The first ending that is told stands. Nothing that a caller only claimed becomes a scope here: `scoped` is called
    with what the directory confirmed, and the model counts as one of ours from `served` on.
    """

    _teller: Teller
    _clock: Clock
    method: str
    route: str | None
    url_scheme: str
    started_ns: int
    started_wall_ns: int
    # In hexadecimal digits, as W3C Trace Context writes them.
    trace_id: str
    server_span_id: str
    client_span_id: str
    request_id: str
    sampled: bool
    # The stages in the order in which they ended, in nanoseconds of the recorder's clock, and how many seconds each
    # took: one that there was twice counts in all.
    intervals: list[tuple[Stage, int, int]] = []
    stages: dict[Stage, float] = {}
    linked: TraceContext | None = None
    parent: TraceContext | None = None
    tracestate: str = ""
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
    stream: bool = False
    engine: str | None = None
    engine_address: str | None = None
    engine_port: int | None = None
    engine_status: int | None = None  # where it is another one than 200
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
    bytes_sent: int = 0
    finish_reasons: tuple[str, ...] = ()
    response_id: str | None = None
    status: int | None = None
    refusal_code: str | None = None
    refusal_reason: str | None = None
    end_reason: str | None = None
    outcome: Outcome | None = None
    error_type: str | None = None
    stack: tuple[str, ...] = ()
    ended_ns: int | None = None
    # What follows from these: set by `measure`.
    duration_seconds: float = 0.0
    time_to_first_token_seconds: float | None = None
    time_to_first_visible_seconds: float | None = None
    upstream_time_to_first_token_seconds: float | None = None
    time_to_first_chunk_seconds: float | None = None
    relay_seconds: float | None = None
    seconds_per_output_token: float | None = None
    largest_gap_seconds: float | None = None
    held_seconds: float | None = None
    replica: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.outcome is None:
            self._conclude(error)
        self._teller.happened(self, has_ended=True)

    def __repr__(self) -> str:
        # A record holds the caller's subject, and a repr gets into the messages of others.
        return f"<Record {self.request_id}>"

    @property
    def traceparent(self) -> str:
        """The W3C `traceparent` to send upstream: the engine's span becomes a child of our CLIENT span."""
        flags = SAMPLED if self.sampled else 0
        if self.parent is not None:
            flags |= self.parent.flags & RANDOM
        return f"00-{self.trace_id}-{self.client_span_id}-{flags:02x}"

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
        self.trace_id = f"{self.parent.trace_id:032x}"
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

    @property
    def caller(self) -> Caller:
        return Caller(
            self.issuer,
            self.subject,
            self.client,
            self.auth_method,
            self.token_id,
            self.actor_issuer,
            self.actor,
        )

    def called_by(self, caller: Caller) -> None:
        """Who is calling, verified, as an earlier request of his told it."""
        (
            self.issuer,
            self.subject,
            self.client,
            self.auth_method,
            self.token_id,
            self.actor_issuer,
            self.actor,
        ) = caller

    def scoped(self, workspace: str, project: str, collection: str | None = None) -> None:
        """The confirmed scope."""
        self.workspace = workspace
        self.project = project
        self.collection = collection
        shares = self._teller.shares
        if shares.differ and self.parent is None:
            self.sampled = shares.hold_in(self.trace_id, workspace, project)

    def decided(self, unit: str, policy: str | None = None, turned: tuple[str, ...] = ()) -> None:
        """What the request shares the engine's cache with: a user unit is kept without its subject. Which line of the
        policy drew this border, and why it is another one than that line says.
        """
        # user:WORKSPACE/PROJECT/SUBJECT; a name has no "/", a subject may.
        self.unit = "/".join(unit.split("/", 2)[:2]) if unit.startswith("user:") else unit
        self.policy = policy
        self.turned = turned

    def narrowed(self, rules: tuple[str, ...]) -> None:
        """These isolation rules found something in the request. Their names only, never what they found."""
        self.narrowed_by = rules

    def asked(self, operation: str, model: str, stream: bool) -> None:
        """What the caller wants, before any of it is checked: so also what is refused then.

        `operation` is the gate's word for the endpoint: `chat`, `completions`, `responses`, `messages`, `embeddings`,
        `count_tokens`.
        """
        self.operation = operation
        self.requested_model = _text(model, 128)
        self.stream = stream

    def served(self, *, streams: bool = True) -> None:
        """The model is one that this scope may use and an engine serves. `streams`: the endpoint can; where it cannot,
        no stream is what is answered, whatever was asked.
        """
        self.model = self.requested_model
        self.stream = self.stream and streams

    @property
    def unserved_model(self) -> str | None:
        """The model that was asked for, where it is none of ours: the caller's own word. None where it is not formed as
        names of models are, so that a prompt in its place is told nowhere, nor what looks like a credential.
        """
        asked = self.requested_model
        if self.model is not None or asked is None or _MODEL_NAME.fullmatch(asked) is None:
            return None
        written = asked.encode("ascii")
        return asked if without_secrets(written) == written else None

    def stamped(self, fingerprint: str, key_id: str, epoch: int) -> None:
        """The salt is chosen."""
        self.salt_fingerprint = fingerprint
        self.salt_key_id = key_id
        self.salt_epoch = epoch

    def sent(self, address: str, port: int | None = None) -> None:
        """The request goes up to this replica. Sent again to another one, the first time stays and the last address."""
        self.engine_address = address
        self.engine_port = port
        if self.sent_ns is not None:
            return
        self.sent_ns = self._clock()
        self._teller.happened(self, has_ended=False)

    def first_byte(self) -> None:
        """The first byte of the answer's body came from the engine, whatever it holds."""
        if self.first_byte_ns is None:
            self.first_byte_ns = self._clock()

    def first_token(self, kind: TokenKind, received_ns: int, *, visible: bool) -> None:
        """The first event that holds part of the answer came at `received_ns` of the recorder's clock and was written
        to the client now. `visible`: it holds something that a person sees.
        """
        if self.first_token_ns is not None:
            return
        self.first_token_kind = kind
        self.first_token_ns = received_ns
        self.first_token_written_ns = written_ns = self._clock()
        if visible:
            self.first_visible_written_ns = written_ns

    def first_visible_written(self) -> None:
        """The first event that holds something which a person sees was written, after others that held a token."""
        if self.first_visible_written_ns is None:
            self.first_visible_written_ns = self._clock()

    def streamed(
        self,
        rhythm: Rhythm | None,
        events: int,
        *,
        bytes_sent: int = 0,
        finish_reason: str | None = None,
        response_id: str | None = None,
    ) -> None:
        """A stream began to be answered and is over: when its tokens came, of how many events with data it was made,
        how many bytes went to the client, and the engine's own words for its id and for why the last choice ended.
        """
        self.status = 200
        self.rhythm = rhythm
        self.events = events
        self.bytes_sent = bytes_sent
        if finish_reason is not None:
            self.finish_reasons = (_text(finish_reason, 32),)
        if response_id is not None:
            self.response_id = _text(response_id, 128)

    def used(
        self,
        prompt: int | None,
        reused: int | None = None,
        output: int | None = None,
        *,
        cache_written: int | None = None,
        reasoning: int | None = None,
    ) -> None:
        """The engine's own count. None: it did not say. A count that cannot be true counts as not said.

        `reused` and `cache_written` are parts of the prompt, `reasoning` is one of the output.
        """
        self.prompt_tokens = prompt = _count(prompt)
        self.output_tokens = _count(output)
        self.reused_tokens = reused if reused is not None and 0 <= reused <= (prompt or 0) else None
        if cache_written is not None:
            self.cache_written_tokens = _count(cache_written)
        if reasoning is not None:
            self.reasoning_tokens = _count(reasoning)

    @property
    def user_hash(self) -> str | None:
        """The caller's pseudonym; None where the operator wants none, or nobody is known."""
        key = self._teller.user_hash_key
        if key is None or self.issuer is None or self.subject is None:
            return None
        return pseudonym(key, self.issuer, self.subject)

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

    def wall_ns(self, monotonic_ns: int | None) -> int:
        """The wall-clock time of one of this record's own times; the start's where it is absent."""
        return self.started_wall_ns + (self.started_ns if monotonic_ns is None else monotonic_ns) - self.started_ns

    def measure(self) -> None:
        """Set what follows from the times, once all of them are known. What has no begin or no end stays absent.

        Times to the first token that went to the client are counted from the request's head on, less the wait for the
        client's own upload.
        """
        started, sent, read, written = self.started_ns, self.sent_ns, self.first_token_ns, self.first_token_written_ns
        if self.ended_ns is not None:
            self.duration_seconds = (self.ended_ns - started) / 1e9
        address, port = self.engine_address, self.engine_port
        self.replica = address if address is None or port is None else f"{address}:{port}"
        if sent is not None and self.first_byte_ns is not None:
            self.time_to_first_chunk_seconds = (self.first_byte_ns - sent) / 1e9
        if self.rhythm is not None:
            self.largest_gap_seconds = self.rhythm.largest_gap_seconds
            self.held_seconds = self.rhythm.held_ns / 1e9
        if read is None:
            return
        if sent is not None:
            self.upstream_time_to_first_token_seconds = (read - sent) / 1e9
        if written is not None:
            self.relay_seconds = (written - read) / 1e9
            self.time_to_first_token_seconds = first = self._since_upload(written)
            visible = self.first_visible_written_ns
            if visible is not None:
                self.time_to_first_visible_seconds = first if visible == written else self._since_upload(visible)
        self.seconds_per_output_token = self._seconds_per_output_token(read)

    def _since_upload(self, moment_ns: int) -> float:
        seconds = (moment_ns - self.started_ns) / 1e9 - self.stages.get("body", 0.0)
        return seconds if seconds > 0.0 else 0.0

    def _seconds_per_output_token(self, first_token_ns: int) -> float | None:
        """From the first token read to the last, by the tokens after the first, those of all choices together.

        Absent below two tokens, without usage, where the end was not `ok`, where all came in one read, and where the
        client was so slow that the engine was not read meanwhile.
        """
        rhythm, tokens = self.rhythm, self.output_tokens
        if self.outcome != "ok" or tokens is None or tokens < 2 or rhythm is None or not rhythm.is_of_engine:
            return None
        if rhythm.last_ns is None or rhythm.last_ns == first_token_ns:
            return None
        return (rhythm.last_ns - first_token_ns) / 1e9 / (tokens - 1)

    def _conclude(self, error: BaseException | None) -> None:
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
_NO_ERROR: Final = frozenset({"ok", "refused", "client_gone"})
_OUTCOME_OF_CODE: Final[dict[str, Outcome]] = {
    "engine_failed": "engine_failed",
    "engine_timeout": "engine_timeout",
    "gate_error": "gate_error",
}
# As in the registries of models, and as vLLM's `--served-model-name` is used: no spaces.
_MODEL_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]*")
# The largest whole number that every JSON reader has exactly.
_MAX_COUNT: Final = (1 << 53) - 1


def _text(text: str, limit: int) -> str:
    # A lone surrogate is text that neither JSON nor protobuf can carry; one would cost a whole batch of spans.
    return text[:limit] if text.isascii() else text[:limit].encode("utf-8", "replace").decode("utf-8")


def _count(value: int | None) -> int | None:
    return value if value is not None and 0 <= value <= _MAX_COUNT else None
