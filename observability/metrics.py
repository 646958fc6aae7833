"""What one worker counts, in its own memory, until it is asked: rows of numbers, bounded, microseconds a request.

Every label value is ours or was confirmed: workspace and project by the directory, model by the engines, the rest from
closed sets in `names.py`. The worker keeps no sums: what it has told is over for it, and the process that asks adds it
up (`totals.py`). So a worker holds only what came since, and no sum falls when it ends. What it had not told when it
crashed is lost: metrics are no bill.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from observability import families
from observability.counted import Counted, Exemplar, Row, Rows, State
from observability.families import Family
from observability.layouts import MODEL, OWN, SCOPE, Labels, Layout, Number
from observability.names import (
    ISOLATION_CHECKS,
    OPERATIONS_WITHOUT_USAGE,
    OTHER,
    OUTCOMES,
    PROOF_STATES,
    REFUSAL_CODES,
    STAGES,
    TOKEN_KINDS,
    USAGE_UNKNOWN_REASON,
    WITHOUT_TOKEN_REASON,
    IsolationCheck,
    Outcome,
    ProofState,
)
from observability.record import Record

# What a worker holds until it is asked, at most; what is over it is counted under `__other__`. A scope's row takes half
# a kilobyte, a model's six.
MOST_SCOPE_ROWS: Final = 65_536
MOST_MODEL_ROWS: Final = 1_024
MOST_EXEMPLAR_ROWS: Final = 2_048
# A piece takes about a millisecond, and streams wait as long.
PIECE_ROWS: Final = 256


def _no_trace(_: Record) -> bool:
    return False


class Metrics:
    """The metrics of one worker: an observer of its records, and the state that the gate's parts tell.

    `drops` gives for each signal (`spans`, `logs`) how many were lost so far. `rules` are the isolation rules that may
    match: no other name is counted. `traced` says whether the request's trace is kept: only such a one is an exemplar.
    Between two looks at most so many scopes' and models' rows are held; whatever is over that counts under `__other__`.
    """

    def __init__(
        self,
        *,
        version: str,
        drops: Mapping[str, Callable[[], int]],
        rules: Sequence[str] = (),
        traced: Callable[[Record], bool] = _no_trace,
        most_scopes: int = MOST_SCOPE_ROWS,
        most_models: int = MOST_MODEL_ROWS,
    ) -> None:
        self._most_scopes = most_scopes
        self._most_models = most_models
        self._drops = dict(drops)
        self._rules = frozenset(rules)
        self._traced = traced
        self._scopes: dict[Labels, list[Number]] = {}
        self._models: dict[Labels, list[Number]] = {}
        self._own: dict[str, dict[Labels, list[Number]]] = {name: {} for name in OWN}
        self._exemplars: dict[Labels, dict[int, Exemplar]] = {}
        self._streams: dict[str, int] = {}
        self._states: dict[tuple[str, Labels], float] = {}
        self._so_far: dict[tuple[str, Labels], float] = {}
        self._set(families.BUILD_INFO, (version,), 1.0)
        for family, values in (
            (families.REFUSALS, (*REFUSAL_CODES, OTHER)),
            (families.OVERHEAD, STAGES),
            (families.ISOLATION_VIOLATIONS, ISOLATION_CHECKS),
            (families.RULE_MATCHES, rules),
        ):
            for value in values:
                self._row(family, value)

    def sent(self, record: Record) -> None:
        """Gives birth to the request's series, with 0.

        A scrape before its end must see them: Prometheus takes the first value of a series for no increase.
        """
        model = self._model_key(record.model or "")
        self._scope_key(record.workspace, record.project, model[0])
        if record.stream:
            self._opened(record.model or "", 1)

    def finished(self, record: Record) -> None:
        """The request counts, once, under what was confirmed of it."""
        outcome: Outcome = record.outcome or "gate_error"
        model_key = self._model_key(record.model or "")
        scope_key = self._scope_key(record.workspace, record.project, model_key[0])
        scope, model = self._scopes[scope_key], self._models[model_key]
        scope[_REQUESTS[outcome]] += 1
        if record.refusal_code is not None:
            self._count(families.REFUSALS, _one_of(REFUSAL_CODES, record.refusal_code))
        for rule in record.narrowed_by:
            self._count(families.RULE_MATCHES, _one_of(self._rules, rule))
        times: _Times = [(_STAGE[stage], seconds) for stage, seconds in record.stages.items()]
        if "queue" in record.stages:
            times.append((_QUEUE_WAIT, record.stages["queue"]))
        if record.stream and record.first_token_written_ns is None:
            model[_WITHOUT_TOKEN[outcome]] += 1
        if record.sent_ns is None or record.operation in OPERATIONS_WITHOUT_USAGE:
            _observe(model, times)
            return
        examples: _Times = [(_DURATION[outcome], record.duration_seconds)]
        if record.stream:
            self._opened(record.model or "", -1)
            times.append((_RELAY, record.relay_seconds))
            examples += _stream_times(record)
            _count_stream(record, scope, model)
        _observe(model, times)
        _observe(model, examples)
        _count_tokens(record, outcome, scope, model)
        if self._traced(record):
            self._exemplify(record, scope_key, model_key, examples)

    def engine_up(self, engine: str, replica: str, up: bool) -> None:
        """Whether this worker may use the replica now."""
        self._set(families.ENGINE_UP, (engine, replica), float(up))
        self._row(families.ENGINE_PROBES, engine, replica)
        self._row(families.ENGINE_PROBE_TOKENS, engine, replica)

    def engine_ejected(self, engine: str, replica: str, ejected: bool) -> None:
        """Whether this worker leaves the replica alone now."""
        self._set(families.ENGINE_EJECTED, (engine, replica), float(ejected))
        self._row(families.ENGINE_EJECTIONS, engine, replica)

    def engine_ejection(self, engine: str, replica: str) -> None:
        """This worker begins to leave the replica alone."""
        self._count(families.ENGINE_EJECTIONS, engine, replica)

    def engine_proof(self, engine: str, replica: str, endpoint: str, state: ProofState) -> None:
        """Where this worker's proof of the endpoint stands (contract section 5)."""
        for other in PROOF_STATES:
            self._set(families.ENGINE_PROOF, (engine, replica, endpoint, other), float(other == state))

    def engine_version(self, engine: str, replica: str, version: str) -> None:
        """The version that the replica tells now. The one before is gone: it is a state, no history."""
        for family, labels in list(self._states):
            if family == families.ENGINE_INFO.name and labels[:2] == (engine, replica):
                del self._states[family, labels]
        self._set(families.ENGINE_INFO, (engine, replica, version), 1.0)

    def engine_load(self, engine: str, *, taken: int, limit: int, waiting: int) -> None:
        """How many requests have a place at the engine, may have one, and wait for one."""
        self._set(families.ENGINE_REQUESTS, (engine,), taken)
        self._set(families.ENGINE_REQUESTS_LIMIT, (engine,), limit)
        self._set(families.ENGINE_WAITING, (engine,), waiting)

    def connections(self, number: int, *, limit: int, closed: Mapping[str, int]) -> None:
        """How many clients are connected, how many may be, and how many connections were closed by reason so far."""
        self._set(families.CONNECTIONS, (), number)
        self._set(families.CONNECTIONS_LIMIT, (), limit)
        for reason, times in closed.items():
            self._count_so_far(families.CONNECTIONS_CLOSED, (reason,), times)

    def audit(self, *, up: bool, written: int, waiting: int, failures: int, lost: int) -> None:
        """Whether the audit is written, how many records were, wait, and are lost, and how often writing failed."""
        self._set(families.AUDIT_UP, (), float(up))
        self._set(families.AUDIT_WAITING, (), waiting)
        self._count_so_far(families.AUDIT_RECORDS, (), written)
        self._count_so_far(families.AUDIT_FAILURES, (), failures)
        self._count_so_far(families.AUDIT_LOST, (), lost)

    def engine_probed(self, engine: str, replica: str, prompt_tokens: int) -> None:
        """One request of the proof's own was answered."""
        self._count(families.ENGINE_PROBES, engine, replica)
        self._count(families.ENGINE_PROBE_TOKENS, engine, replica, times=prompt_tokens)

    def isolation_violation(self, check: IsolationCheck) -> None:
        """An isolation check failed on a running request."""
        self._count(families.ISOLATION_VIOLATIONS, check)

    def directory_up(self, up: bool) -> None:
        """Whether the directory's generation is confirmed (contract section 4)."""
        self._set(families.DIRECTORY_UP, (), float(up))

    def directory_confirmed(self, unix_seconds: float) -> None:
        """When the directory's generation was last confirmed."""
        self._set(families.DIRECTORY_CONFIRMED, (), unix_seconds)

    def issuer_up(self, issuer: str, up: bool) -> None:
        """Whether the issuer's signature keys are at hand."""
        self._set(families.ISSUER_UP, (issuer,), float(up))

    def introspection_up(self, issuer: str, up: bool) -> None:
        """Whether the issuer answers about opaque tokens."""
        self._set(families.INTROSPECTION_UP, (issuer,), float(up))

    def certificate(self, not_after: float, usable: bool) -> None:
        """What the public listener shows ends at `not_after`, Unix seconds; whether its files are what it shows."""
        self._set(families.CERTIFICATE_EXPIRY, (), not_after)
        self._set(families.CERTIFICATE_USABLE, (), float(usable))

    def lookups(self, family: Family, *, hits: int, misses: int) -> None:
        """So many look-ups of that family there were so far."""
        self._count_so_far(family, ("hit",), hits)
        self._count_so_far(family, ("miss",), misses)

    def jwks_refreshed(self, issuer: str, *, fetched: int, failed: int) -> None:
        """So often the issuer's keys were fetched so far, and could not be."""
        self._count_so_far(families.JWKS_REFRESH, (issuer, "ok"), fetched)
        self._count_so_far(families.JWKS_REFRESH, (issuer, "failed"), failed)

    def directory_read(self, *, read: int, failed: int) -> None:
        """So often the directory was read so far, and could not be asked."""
        self._count_so_far(families.DIRECTORY_READS, ("ok",), read)
        self._count_so_far(families.DIRECTORY_READS, ("failed",), failed)

    def loop_lag(self, seconds: float, latest: float) -> None:
        """So late came the event loop just now; `latest` is the latest of about a minute."""
        _observe(self._row(families.EVENT_LOOP_LAG), [(_LAG, seconds)])
        self._set(families.EVENT_LOOP_LAG_MAX, (), latest)

    def told(self) -> Iterator[Counted]:
        """What was counted since this was asked last, in pieces of about a millisecond, and all states in the last one.

        Each increase is told once, so whoever asks must take every piece.
        """
        for signal, dropped in self._drops.items():
            self._count_so_far(families.TELEMETRY_DROPPED, (signal,), dropped())
        scopes, self._scopes = self._scopes, {}
        models, self._models = self._models, {}
        own, self._own = self._own, {name: {} for name in OWN}
        exemplars, self._exemplars = self._exemplars, {}
        for layout, rows in ((SCOPE, scopes), (MODEL, models), *((OWN[name], rows) for name, rows in own.items())):
            waiting = list(reversed(rows))
            while waiting:
                # The first first: they have the best claim to series of their own.
                some = [waiting.pop() for _ in range(min(PIECE_ROWS, len(waiting)))]
                yield Counted([_taken(layout, rows, some, exemplars)])
        yield Counted([], [*self._told_states()])

    def _told_states(self) -> Iterator[State]:
        for (family, labels), value in self._states.items():
            yield State(family, labels, value)
        for model, streams in self._streams.items():
            yield State(families.ACTIVE_STREAMS.name, (model,), streams)

    def _exemplify(self, record: Record, scope: Labels, model: Labels, times: _Times) -> None:
        """The request as an example of the buckets that it was counted in."""
        first = record.time_to_first_token_seconds if record.stream else None
        for labels, examples in ((scope, [(_FIRST, first)]), (model, times)):
            for (begin, buckets, _), seconds in examples:
                if seconds is None:
                    continue
                at = begin + bisect_left(buckets, seconds)
                known = self._exemplars_of(labels)
                if at not in known:  # the first of each look is as good as any
                    known[at] = Exemplar(at, record.trace_id, seconds, record.wall_ns(record.ended_ns) / 1e9)

    def _exemplars_of(self, labels: Labels) -> dict[int, Exemplar]:
        found = self._exemplars.get(labels)
        if found is None:
            found = {}
            if len(self._exemplars) < MOST_EXEMPLAR_ROWS:
                self._exemplars[labels] = found
        return found

    def _scope_key(self, workspace: str | None, project: str | None, model: str) -> Labels:
        """The labels under which the request counts; its row is there."""
        key = ("", "", model) if workspace is None or project is None else (workspace, project, model)
        if key not in self._scopes:
            if len(self._scopes) >= self._most_scopes:
                key = (OTHER, OTHER, model)
            self._scopes.setdefault(key, SCOPE.zeros())
        return key

    def _model_key(self, model: str) -> Labels:
        """The label under which the model counts; its row is there."""
        key = (model,)
        if key not in self._models:
            if len(self._models) >= self._most_models:
                key = (OTHER,)
            self._models.setdefault(key, MODEL.zeros())
        return key

    def _opened(self, model: str, change: int) -> None:
        """So many more streams of the model are open. It is called the same at the stream's end."""
        if model not in self._streams and len(self._streams) >= self._most_models:
            model = OTHER
        self._streams[model] = self._streams.get(model, 0) + change

    def _row(self, family: Family, *labels: str) -> list[Number]:
        rows = self._own[family.name]
        row = rows.get(labels)
        if row is None:
            row = rows[labels] = [0] * family.width
        return row

    def _count(self, family: Family, *labels: str, times: float = 1) -> None:
        self._row(family, *labels)[0] += times

    def _count_so_far(self, family: Family, labels: Labels, total: float) -> None:
        """It was counted elsewhere, `total` times so far."""
        key = (family.name, labels)
        self._count(family, *labels, times=total - self._so_far.get(key, 0))
        self._so_far[key] = total

    def _set(self, family: Family, labels: Labels, value: float) -> None:
        self._states[family.name, labels] = value


_Histogram = tuple[int, tuple[float, ...], int]
"""Where a histogram's counts begin in its row, its buckets, and where its sum is."""
_Times = list[tuple[_Histogram, float | None]]


def _histogram(layout: Layout, family: Family, *own: str) -> _Histogram:
    at = layout.at(family, *own)
    return at, family.buckets, at + len(family.buckets) + 1


_REQUESTS: Final = {outcome: SCOPE.at(families.REQUESTS, outcome) for outcome in OUTCOMES}
_PROMPT: Final = SCOPE.at(families.PROMPT_TOKENS)
_REUSED: Final = SCOPE.at(families.REUSED_PROMPT_TOKENS)
_REUSE_KNOWN: Final = SCOPE.at(families.REUSE_KNOWN_PROMPT_TOKENS)
_OUTPUT: Final = SCOPE.at(families.OUTPUT_TOKENS)
_FIRST: Final = _histogram(SCOPE, families.TIME_TO_FIRST_TOKEN)
_STAGE: Final[dict[str, _Histogram]] = {one: _histogram(MODEL, families.MODEL_OVERHEAD, one) for one in STAGES}
_RELAY: Final = _STAGE["relay"]
_DURATION: Final = {outcome: _histogram(MODEL, families.MODEL_DURATION, outcome) for outcome in OUTCOMES}
_MODEL_FIRST: Final = {kind: _histogram(MODEL, families.MODEL_TIME_TO_FIRST_TOKEN, kind) for kind in TOKEN_KINDS}
_UPSTREAM: Final = _histogram(MODEL, families.MODEL_UPSTREAM_TIME_TO_FIRST_TOKEN)
_EACH: Final = _histogram(MODEL, families.MODEL_TIME_PER_OUTPUT_TOKEN)
_CONTENT: Final = _histogram(MODEL, families.MODEL_TIME_TO_FIRST_CONTENT)
_GAPS: Final = _histogram(MODEL, families.MODEL_INTER_CHUNK)
_LARGEST_GAP: Final = _histogram(MODEL, families.MODEL_LARGEST_GAP)
_QUEUE_WAIT: Final = _histogram(MODEL, families.MODEL_QUEUE_WAIT)
_LAG: Final = _histogram(OWN[families.EVENT_LOOP_LAG.name], families.EVENT_LOOP_LAG)
_REUSE_UNKNOWN: Final = MODEL.at(families.REUSE_UNKNOWN)
_WITHOUT_TOKEN: Final = {
    outcome: MODEL.at(families.STREAMS_WITHOUT_TOKEN, reason) for outcome, reason in WITHOUT_TOKEN_REASON.items()
}
_USAGE_UNKNOWN: Final = {
    outcome: MODEL.at(families.USAGE_UNKNOWN, reason) for outcome, reason in USAGE_UNKNOWN_REASON.items()
}


def _observe(row: list[Number], times: _Times) -> None:
    """Count each time that there was."""
    for (at, buckets, total), seconds in times:
        if seconds is not None:
            row[at + bisect_left(buckets, seconds)] += 1
            row[total] += seconds


def _stream_times(record: Record) -> _Times:
    """The times of a stream by which models are judged."""
    times: _Times = [
        (_UPSTREAM, record.upstream_time_to_first_token_seconds),
        (_LARGEST_GAP, record.largest_gap_seconds),
    ]
    if record.first_token_kind is not None:
        times += (
            (_MODEL_FIRST[record.first_token_kind], record.time_to_first_token_seconds),
            (_CONTENT, record.time_to_first_visible_seconds),
            (_EACH, record.seconds_per_output_token),
        )
    return times


def _count_stream(record: Record, scope: list[Number], model: list[Number]) -> None:
    if record.largest_gap_seconds is not None and record.rhythm is not None:
        at, _, total = _GAPS
        for bucket, gaps in enumerate(record.rhythm.gaps, at):
            if gaps:
                model[bucket] += gaps
        model[total] += record.rhythm.gaps_ns / 1e9
    _observe(scope, [(_FIRST, record.time_to_first_token_seconds)])


def _count_tokens(record: Record, outcome: Outcome, scope: list[Number], model: list[Number]) -> None:
    if record.prompt_tokens is None:
        model[_USAGE_UNKNOWN[outcome]] += 1
        return
    scope[_PROMPT] += record.prompt_tokens
    scope[_OUTPUT] += record.output_tokens or 0
    if record.reused_tokens is None:
        model[_REUSE_UNKNOWN] += 1
    else:
        scope[_REUSED] += record.reused_tokens
        scope[_REUSE_KNOWN] += record.prompt_tokens


def _taken(
    layout: Layout,
    rows: dict[Labels, list[Number]],
    some: Sequence[Labels],
    exemplars: dict[Labels, dict[int, Exemplar]],
) -> Rows:
    """Some of the rows, which are no more among `rows` then: to free many at once would take its time, too."""
    found = exemplars if layout in (SCOPE, MODEL) else _NO_EXEMPLARS
    return Rows(layout.key, [Row(one, rows.pop(one), tuple(found.pop(one, _NONE).values())) for one in some])


_NONE: Final[dict[int, Exemplar]] = {}
_NO_EXEMPLARS: Final[dict[Labels, dict[int, Exemplar]]] = {}


def _one_of(known: frozenset[str], value: str) -> str:
    return value if value in known else OTHER
