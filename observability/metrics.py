"""The numbers of one worker, in its own memory: a dictionary a family, bounded, a tenth of a microsecond a count.

Every label value is ours or was confirmed: workspace and project by the directory, model by the engines, the rest from
closed sets in `names.py`. What is over a bound is counted under `__other__`, so that totals stay right. Metrics are no
bill: a scope under `__other__` and a worker that crashed are lost here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from observability import families
from observability.exposition import Series, Snapshot
from observability.families import FAMILIES, Family
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


class Metrics:
    """The metrics of one worker: an observer of its records, and the state that the gate's parts tell.

    `drops` gives for each signal (`spans`, `logs`) how many were lost so far. `rules` are the isolation rules that may
    match: no other name is counted. The first `max_scopes` scopes and
    `max_models` models have series of their own for as long as the worker runs.
    """

    def __init__(
        self,
        *,
        version: str,
        drops: Mapping[str, Callable[[], int]],
        rules: Sequence[str] = (),
        max_scopes: int = 1000,
        max_models: int = 100,
    ) -> None:
        self._drops = dict(drops)
        self._values: dict[str, dict[tuple[str, ...], list[float]]] = {name: {} for name in FAMILIES}
        self._scopes = _Bounded(max_scopes)
        self._models = _Bounded(max_models)
        self._rules = frozenset(rules)
        self._set(families.BUILD_INFO, (version,), 1.0)
        for code in (*REFUSAL_CODES, OTHER):
            self._add(families.REFUSALS, (code,), 0.0)
        for stage in STAGES:
            self._series(families.OVERHEAD, (stage,))
        for check in ISOLATION_CHECKS:
            self._add(families.ISOLATION_VIOLATIONS, (check,), 0.0)
        for rule in rules:
            self._add(families.RULE_MATCHES, (rule,), 0.0)
        for label in ("scope", "model"):
            self._add(families.METRICS_OVERFLOW, (label,), 0.0)

    def sent(self, record: Record) -> None:
        """Gives birth to the request's series, with 0.

        A scrape before its end must see them: Prometheus takes the first value of a series for no increase.
        """
        workspace, project = self._scope(record)
        model = self._model(record)
        self._add(families.REQUESTS, (workspace, project, model, "ok"), 0.0)
        for family in (families.PROMPT_TOKENS, families.REUSED_PROMPT_TOKENS, families.OUTPUT_TOKENS):
            self._add(family, (workspace, project, model), 0.0)
        self._series(families.TIME_TO_FIRST_TOKEN, (workspace, project, model))
        if (model,) not in self._values[families.REUSE_UNKNOWN.name]:
            self._give_birth(model)
        if record.stream:
            self._add(families.ACTIVE_STREAMS, (model,), 1.0)

    def finished(self, record: Record) -> None:
        """Counts the request, once, under what was confirmed of it."""
        workspace, project = self._scope(record)
        model = self._model(record)
        self._count_overflow(workspace, model)
        self._add(families.REQUESTS, (workspace, project, model, str(record.outcome)), 1.0)
        if record.refusal_code is not None:
            self._add(families.REFUSALS, (_one_of(REFUSAL_CODES, record.refusal_code),), 1.0)
        for rule in record.narrowed_by:
            self._add(families.RULE_MATCHES, (_one_of(self._rules, rule),), 1.0)
        for stage, seconds in record.stages.items():
            self._observe(families.OVERHEAD, (stage,), seconds)
        if record.sent_ns is not None:
            self._finish_sent(record, workspace, project, model)

    def engine_up(self, engine: str, replica: str, up: bool) -> None:
        """Whether this worker may use the replica now."""
        self._set(families.ENGINE_UP, (engine, replica), float(up))

    def engine_ejected(self, engine: str, replica: str, ejected: bool) -> None:
        """Whether this worker leaves the replica alone now."""
        self._set(families.ENGINE_EJECTED, (engine, replica), float(ejected))
        self._add(families.ENGINE_EJECTIONS, (engine, replica), 0.0)

    def engine_ejection(self, engine: str, replica: str) -> None:
        """This worker begins to leave the replica alone."""
        self._add(families.ENGINE_EJECTIONS, (engine, replica), 1.0)

    def engine_proof(self, engine: str, replica: str, endpoint: str, state: ProofState) -> None:
        """Where this worker's proof of the endpoint stands (contract section 5)."""
        for other in PROOF_STATES:
            self._set(families.ENGINE_PROOF, (engine, replica, endpoint, other), float(other == state))

    def engine_version(self, engine: str, replica: str, version: str) -> None:
        """The version that the replica tells now. The one before is gone: it is a state, no history."""
        rows = self._values[families.ENGINE_INFO.name]
        for labels in [row for row in rows if row[:2] == (engine, replica) and row[2] != version]:
            del rows[labels]
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
            self._set(families.CONNECTIONS_CLOSED, (reason,), times)

    def engine_probed(self, engine: str, replica: str, prompt_tokens: int) -> None:
        """One request of the proof's own was answered."""
        self._add(families.ENGINE_PROBES, (engine, replica), 1.0)
        self._add(families.ENGINE_PROBE_TOKENS, (engine, replica), prompt_tokens)

    def isolation_violation(self, check: IsolationCheck) -> None:
        """An isolation check failed on a running request."""
        self._add(families.ISOLATION_VIOLATIONS, (check,), 1.0)

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

    def snapshot(self) -> Snapshot:
        """Everything as it is now, to be merged with the other workers' and shown."""
        for signal, dropped in self._drops.items():
            self._set(families.TELEMETRY_DROPPED, (signal,), float(dropped()))
        return Snapshot(
            series=[
                Series(family=name, labels=labels, values=tuple(values))
                for name, rows in self._values.items()
                for labels, values in rows.items()
            ]
        )

    def _finish_sent(self, record: Record, workspace: str, project: str, model: str) -> None:
        if record.operation in OPERATIONS_WITHOUT_USAGE:
            return
        self._observe(families.MODEL_DURATION, (model, str(record.outcome)), record.duration_seconds)
        if record.stream:
            self._add(families.ACTIVE_STREAMS, (model,), -1.0)
            self._finish_stream(record, workspace, project, model)
        if record.prompt_tokens is None:
            self._add(families.USAGE_UNKNOWN, (model, USAGE_UNKNOWN_REASON[_outcome(record)]), 1.0)
            return
        self._add(families.PROMPT_TOKENS, (workspace, project, model), record.prompt_tokens)
        self._add(families.OUTPUT_TOKENS, (workspace, project, model), record.output_tokens or 0)
        if record.reused_tokens is None:
            self._add(families.REUSE_UNKNOWN, (model,), 1.0)
        else:
            self._add(families.REUSED_PROMPT_TOKENS, (workspace, project, model), record.reused_tokens)

    def _finish_stream(self, record: Record, workspace: str, project: str, model: str) -> None:
        upstream = record.upstream_time_to_first_token_seconds
        if upstream is not None:
            self._observe(families.MODEL_UPSTREAM_TIME_TO_FIRST_TOKEN, (model,), upstream)
        relayed = record.relay_seconds
        if relayed is not None:
            self._observe(families.OVERHEAD, ("relay",), relayed)
        first = record.time_to_first_token_seconds
        if first is None or record.first_token_kind is None:
            self._add(families.STREAMS_WITHOUT_TOKEN, (model, WITHOUT_TOKEN_REASON[_outcome(record)]), 1.0)
            return
        self._observe(families.TIME_TO_FIRST_TOKEN, (workspace, project, model), first)
        self._observe(families.MODEL_TIME_TO_FIRST_TOKEN, (model, record.first_token_kind), first)
        each = record.seconds_per_output_token
        if each is not None:
            self._observe(families.MODEL_TIME_PER_OUTPUT_TOKEN, (model,), each)

    def _give_birth(self, model: str) -> None:
        for family in (families.REUSE_UNKNOWN, families.ACTIVE_STREAMS):
            self._add(family, (model,), 0.0)
        for outcome in OUTCOMES:
            self._series(families.MODEL_DURATION, (model, outcome))
            self._add(families.STREAMS_WITHOUT_TOKEN, (model, WITHOUT_TOKEN_REASON[outcome]), 0.0)
            self._add(families.USAGE_UNKNOWN, (model, USAGE_UNKNOWN_REASON[outcome]), 0.0)
        for kind in TOKEN_KINDS:
            self._series(families.MODEL_TIME_TO_FIRST_TOKEN, (model, kind))
        self._series(families.MODEL_UPSTREAM_TIME_TO_FIRST_TOKEN, (model,))
        self._series(families.MODEL_TIME_PER_OUTPUT_TOKEN, (model,))

    def _scope(self, record: Record) -> tuple[str, str]:
        if record.workspace is None or record.project is None:
            return _NO_SCOPE
        scope = (record.workspace, record.project)
        return scope if self._scopes.admits(scope) else _OTHER_SCOPE

    def _model(self, record: Record) -> str:
        if record.model is None:
            return ""
        return record.model if self._models.admits((record.model,)) else OTHER

    def _count_overflow(self, workspace: str, model: str) -> None:
        if workspace == OTHER:
            self._add(families.METRICS_OVERFLOW, ("scope",), 1.0)
        if model == OTHER:
            self._add(families.METRICS_OVERFLOW, ("model",), 1.0)

    def _series(self, family: Family, labels: tuple[str, ...]) -> list[float]:
        rows = self._values[family.name]
        row = rows.get(labels)
        if row is None:
            row = rows[labels] = [0.0] * family.width
        return row

    def _add(self, family: Family, labels: tuple[str, ...], amount: float) -> None:
        self._series(family, labels)[0] += amount

    def _set(self, family: Family, labels: tuple[str, ...], value: float) -> None:
        self._series(family, labels)[0] = value

    def _observe(self, family: Family, labels: tuple[str, ...], seconds: float) -> None:
        row = self._series(family, labels)
        row[bisect_left(family.buckets, seconds)] += 1.0
        row[-1] += seconds


class _Bounded:
    """The first `limit` keys that ask are admitted, for good: a series that went away would look like a restart."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._admitted: set[tuple[str, ...]] = set()

    def admits(self, key: tuple[str, ...]) -> bool:
        if key in self._admitted:
            return True
        if len(self._admitted) >= self._limit:
            return False
        self._admitted.add(key)
        return True


_NO_SCOPE: Final = ("", "")
_OTHER_SCOPE: Final = (OTHER, OTHER)


def _one_of(known: frozenset[str], value: str) -> str:
    return value if value in known else OTHER


def _outcome(record: Record) -> Outcome:
    return record.outcome if record.outcome is not None else "gate_error"
