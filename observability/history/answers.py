"""What the administrators' pages are given, as JSON. Times are Unix seconds, durations seconds, shares 0 to 1; null is
unknown, and never 0. Fields are added here, and never change their meaning.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from observability.waterfall import Bar

WINDOWS: dict[str, int] = {"15m": 0, "1h": 1, "6h": 2, "24h": 3}
"""By name, the level of `timeline.LEVELS` whose 60 newest slots are the window."""


class Points(msgspec.Struct, kw_only=True, frozen=True):
    """One value a step, the oldest first. The last step is not over yet."""

    requests: list[int]
    failed: list[int]
    reuse_rate: list[float | None]
    ttft_p50: list[float | None]
    ttft_p95: list[float | None]


class Figures(msgspec.Struct, kw_only=True, frozen=True):
    """What happened in a window. `reuse_rate` is reused tokens by prompt tokens, of the requests of which both are
    known; `reuse_rate_before` the same of the window before this one. `prefill_seconds_saved` is the estimate that
    `speed` describes. Times to first token are those of streams, within 5 %.
    """

    requests: int
    outcomes: dict[str, int]
    open_streams: int
    ttft_p50: float | None
    ttft_p95: float | None
    prompt_tokens: int
    reused_tokens: int
    output_tokens: int
    reuse_rate: float | None
    reuse_rate_before: float | None
    prefill_seconds_saved: float | None
    points: Points | None = None


class Project(Figures, kw_only=True, frozen=True):
    project: str


class Workspace(Figures, kw_only=True, frozen=True):
    workspace: str
    projects: list[Project]


class Model(Figures, kw_only=True, frozen=True):
    model: str


class Refusals(msgspec.Struct, frozen=True):
    code: str
    count: int


class Alarm(msgspec.Struct, frozen=True):
    """`last` is when it was seen last; null where it was not seen since the start, and then `count` is 0."""

    check: str
    count: int
    last: float | None


class EngineReplica(msgspec.Struct, kw_only=True, frozen=True):
    """As the worst worker sees it."""

    engine: str
    replica: str
    up: bool
    proofs: dict[str, str]


class Gate(msgspec.Struct, kw_only=True, frozen=True):
    """`waiting` requests wait for a place at an engine. `untold` ended without being counted here, because this process
    stood still for long.
    """

    version: str
    workers: int
    ready: bool
    waits_for: list[str]
    open_streams: int
    waiting: int
    kept_in: Literal["memory", "redis"]
    untold: int = 0


class Viewer(msgspec.Struct, kw_only=True, frozen=True):
    """Who is looking. A form to `sign_out` holds `form_token`."""

    name: str
    sign_out: str | None = None
    form_token: str | None = None


class Beside(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What stands in each answer beside its own fields. `alarms` are the gate's, where an overview has them itself, and
    `now` is where an answer has no time of its own.
    """

    viewer: Viewer
    now: float | None = None
    alarms: tuple[Alarm, ...] | None = None


class Overview(msgspec.Struct, kw_only=True, frozen=True):
    """`total` is everything: the workspaces, `other` and `unscoped` add up to it. `other` are scopes beyond the bound,
    `unscoped` requests that were refused before their scope was confirmed.
    """

    now: float
    window: str
    step: int
    since: float
    gate: Gate
    total: Figures
    workspaces: list[Workspace]
    other: Figures | None
    unscoped: Figures | None
    refusals: list[Refusals]
    alarms: list[Alarm]
    engines: list[EngineReplica]


class Request(msgspec.Struct, kw_only=True, frozen=True):
    """One request that has ended."""

    request_id: str
    trace_id: str
    started: float
    workspace: str | None
    project: str | None
    unit: str | None
    model: str | None
    operation: str | None
    stream: bool
    outcome: str
    status: int | None
    refusal_code: str | None
    error_type: str | None
    engine: str | None
    salt_fingerprint: str | None
    salt_epoch: int | None
    duration: float
    ttft: float | None
    ttft_kind: str | None
    upstream_ttft: float | None
    largest_gap: float | None
    prompt_tokens: int | None
    reused_tokens: int | None
    output_tokens: int | None
    finish_reasons: list[str]
    spans: list[RequestSpan]


class RequestSpan(msgspec.Struct, kw_only=True, frozen=True):
    """A step of `observability.waterfall`; `start` is counted from the request's own `started`."""

    name: str
    start: float
    duration: float

    @staticmethod
    def of(bar: Bar) -> RequestSpan:
        return RequestSpan(name=bar.step, start=round(bar.begins, 6), duration=round(bar.seconds, 6))


class ScopeView(Figures, kw_only=True, frozen=True):
    """One scope's own page."""

    now: float
    window: str
    step: int
    since: float
    workspace: str
    project: str
    models: list[Model]
    refusals: list[Refusals]
    recent: list[Request]


class ErrorText(msgspec.Struct, frozen=True):
    message: str
    code: str


class Refused(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why there is no answer. `sign_in` is where one signs in."""

    error: ErrorText
    sign_in: str | None = None
