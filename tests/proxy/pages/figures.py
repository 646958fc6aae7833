"""Data as the admin listener gives it, invented: a few customers with a day of their own, the same every time.

Shapes only, in JSON's own types: the pages must take what the gate says, not what a class here says.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

Json = dict[str, Any]

WINDOW_SECONDS: Final = {"15m": 900, "1h": 3600, "6h": 21600, "24h": 86400}
POINTS: Final = 60
NOW: Final = 1_796_119_380.0  # 2026-12-01 05:23 UTC
PREFILL_SECONDS_PER_TOKEN: Final = 0.00011

# workspace, project, requests a minute, reuse, TTFT p50, what is the matter with it
CAST: Final = (
    ("acme", "apollo", 46.0, 0.82, 0.19, None),
    ("acme", "ares", 12.0, 0.74, 0.22, None),
    ("acme", "hermes", 5.0, 0.64, 0.31, "reuse"),
    ("aoyama-bank", "kyc-review", 21.0, 0.88, 0.24, None),
    ("aoyama-bank", "call-center", 33.0, 0.79, 0.21, "slower"),
    ("globex", "support-bot", 58.0, 0.91, 0.16, None),
    ("globex", "code-review", 17.0, 0.58, 0.42, "failing"),
    ("initech", "tps-reports", 2.4, 0.37, 0.28, None),
    ("northwind", "catalog", 9.0, 0.69, 0.2, None),
    ("northwind", "returns", 0.5, 0.45, 0.33, "quiet"),
    ("umbrella", "triage", 26.0, 0.85, 0.26, None),
    ("umbrella", "lab-notes", 3.1, 0.52, 0.61, "refused"),
)


def overview(window: str, *, now: float = NOW, cast: Sequence[tuple[Any, ...]] = CAST) -> Json:
    """GET /api/overview."""
    step = WINDOW_SECONDS[window] // POINTS
    found: dict[str, list[Json]] = {}
    for workspace, project, *kind in cast:
        found.setdefault(workspace, []).append({"project": project, **figures(workspace, project, *kind, step=step)})
    workspaces = [{"workspace": name, **together(parts), "projects": parts} for name, parts in found.items()]
    return {
        "now": now,
        "window": window,
        "step": step,
        "since": now - 90_000,
        "gate": {
            "version": "0.1.0", "workers": 4, "ready": True, "waits_for": [], "untold": 0, "waiting": 3,
            "kept_in": "redis", "open_streams": sum(each["open_streams"] for each in workspaces),
        },
        "total": together([part for parts in found.values() for part in parts]),
        "workspaces": workspaces,
        "other": None,
        "unscoped": None,
        "refusals": refused(workspaces),
        "alarms": ALARMS,
        "engines": [
            {"engine": "main", "replica": "10.0.8.11:8000", "up": True, "proofs": PROOFS},
            {"engine": "main", "replica": "10.0.8.12:8000", "up": True, "proofs": PROOFS},
            {"engine": "vision", "replica": "10.0.8.20:8000", "up": True, "proofs": {"chat": "proven"}},
        ],
    }  # fmt: skip


ALARMS: Final = ({"check": "salt_in_answer", "count": 0, "last": None},)
PROOFS: Final = {
    "chat": "proven", "completions": "proven", "responses": "proven", "messages": "proven", "embeddings": "no cache",
}  # fmt: skip


def scope(
    workspace: str, project: str, window: str, *, now: float = NOW, cast: Sequence[tuple[Any, ...]] = CAST
) -> Json | None:
    """GET /api/scopes/{workspace}/{project}; None: there is no such scope."""
    kind = next((rest for w, p, *rest in cast if (w, p) == (workspace, project)), None)
    if kind is None:
        return None
    step = WINDOW_SECONDS[window] // POINTS
    own = figures(workspace, project, *kind, step=step)
    small = {key: value for key, value in own.items() if key != "points"}
    models = [{"model": "qwen3-32b", **part(small, 0.82)}, {"model": "qwen3-coder-30b", **part(small, 0.18)}]
    return {
        "now": now, "window": window, "step": step, "since": now - 90_000, "workspace": workspace, "project": project,
        **own, "models": models, "refusals": refused([own]),
        "recent": [request(workspace, project, number, *kind, now=now) for number in range(60)],
    }  # fmt: skip


def figures(
    workspace: str, project: str, rate: float, reuse: float, ttft: float, matter: str | None, *, step: float
) -> Json:
    """One project's figures, with its points."""
    noise = random.Random(f"{workspace}/{project}/{step}")
    requests, failed, reuses, p50s, p95s = [], [], [], [], []
    for point in range(POINTS):
        late = max(0.0, (point - POINTS * 0.72) / (POINTS * 0.1))
        wave = 1 + 0.45 * math.sin(point / POINTS * 5 + len(project)) * (0.4 if step < 300 else 1)
        number = max(0, round(rate * step / 60 * wave * noise.uniform(0.8, 1.2)))
        if matter == "quiet" and 14 < point < 33:
            number = 0
        if point == POINTS - 1:
            number = round(number * 0.4)
        here = reuse * noise.uniform(0.94, 1.05) + 0.06 * math.sin(point / 9)
        time = ttft * noise.uniform(0.9, 1.15) * (1.25 - 0.3 * reuse + 0.12 * (wave - 1))
        if matter == "reuse" and late:
            here, time = here * max(0.22, 1 - late), time * min(2.1, 1 + late * 0.6)
        if matter == "slower" and late:
            time *= min(3.4, 1 + late * 1.6)
        bad = sum(noise.random() < (0.13 if matter == "failing" and late else 0.001) for _ in range(min(number, 400)))
        requests.append(number)
        failed.append(bad)
        reuses.append(round(min(here, 0.99), 4) if number else None)
        p50s.append(round(time, 4) if number else None)
        p95s.append(round(time * noise.uniform(2.2, 3.1), 4) if number else None)
    return summed(requests, failed, reuses, p50s, p95s, rate=rate, reuse=reuse, matter=matter, noise=noise)


def summed(
    requests: list[int], failed: list[int], reuses: list[float | None], p50s: list[float | None],
    p95s: list[float | None], *, rate: float, reuse: float, matter: str | None, noise: random.Random,
) -> Json:  # fmt: skip
    total, bad = sum(requests), sum(failed)
    refused = round(total * 0.31) if matter == "refused" else round(total * 0.004)
    gone = round(total * 0.012)
    prompt = [number * 2150 for number in requests]
    reused = sum(round(tokens * (share or 0)) for tokens, share in zip(prompt, reuses, strict=True))
    return {
        "requests": total,
        "outcomes": {"ok": total - bad - refused - gone, "refused": refused, "client_gone": gone,
                     "engine_failed": bad // 2, "truncated": bad - bad // 2},
        "open_streams": round(rate * noise.uniform(0.1, 0.3)),
        "ttft_p50": middle(p50s), "ttft_p95": middle(p95s),
        "prompt_tokens": sum(prompt), "reused_tokens": reused, "output_tokens": total * 310,
        "reuse_rate": round(reused / sum(prompt), 4) if total else None,
        "reuse_rate_before": round(reuse * noise.uniform(0.93, 1.04), 4),
        "prefill_seconds_saved": round(reused * PREFILL_SECONDS_PER_TOKEN, 2),
        "points": {"requests": requests, "failed": failed, "reuse_rate": reuses, "ttft_p50": p50s, "ttft_p95": p95s},
    }  # fmt: skip


def together(parts: Sequence[Json]) -> Json:
    """The figures of several scopes as one."""
    points = {
        name: [sum(at) for at in zip(*(part["points"][name] for part in parts), strict=True)]
        for name in ("requests", "failed")
    }
    for name in ("reuse_rate", "ttft_p50", "ttft_p95"):
        points[name] = [
            weighted(at, [part["points"]["requests"][index] for part in parts])
            for index, at in enumerate(zip(*(part["points"][name] for part in parts), strict=True))
        ]
    before, weights = [each["reuse_rate_before"] for each in parts], [each["requests"] for each in parts]
    prompt, reused = (sum(part[name] for part in parts) for name in ("prompt_tokens", "reused_tokens"))
    outcomes: dict[str, int] = {}
    for each in parts:
        for name, count in each["outcomes"].items():
            outcomes[name] = outcomes.get(name, 0) + count
    return {
        **{name: sum(part[name] for part in parts) for name in ("requests", "open_streams", "output_tokens")},
        "outcomes": outcomes, "prompt_tokens": prompt, "reused_tokens": reused,
        "reuse_rate": round(reused / prompt, 4) if prompt else None,
        "reuse_rate_before": weighted(before, weights),
        "ttft_p50": middle(points["ttft_p50"]), "ttft_p95": middle(points["ttft_p95"]),
        "prefill_seconds_saved": round(reused * PREFILL_SECONDS_PER_TOKEN, 2), "points": points,
    }  # fmt: skip


def part(whole: Json, ratio: float) -> Json:
    scaled = {name: round(value * ratio) for name, value in whole.items() if isinstance(value, int)}
    return {**whole, **scaled, "points": None, "ttft_p50": round((whole["ttft_p50"] or 0) * (0.8 + ratio / 2), 4)}


def refused(parts: Sequence[Json]) -> list[Json]:
    number = sum(each["outcomes"].get("refused", 0) for each in parts)
    shares = (("not_a_member", 0.5), ("token_expired", 0.27), ("model_not_allowed", 0.14), ("engine_busy", 0.09))
    return [{"code": code, "count": round(number * ratio)} for code, ratio in shares]


ENGINE_FAULTS: Final = {name: name for name in ("engine_failed", "engine_timeout")}
OUTCOMES: Final = ("ok",) * 17 + ("client_gone", "refused")


def request(
    workspace: str, project: str, number: int, rate: float, reuse: float, ttft: float, matter: str | None, *, now: float
) -> Json:
    """One of the recent requests."""
    noise = random.Random(f"{workspace}/{project}/{number}")
    outcome = noise.choice(
        (*OUTCOMES, "truncated", "engine_failed", "engine_timeout") if matter == "failing" else OUTCOMES
    )
    prompt = round(noise.lognormvariate(7.4, 0.7))
    cold = noise.random() < (0.65 if matter == "reuse" else 0.18)
    reused = 0 if cold else int(prompt * min(0.98, reuse * noise.uniform(0.95, 1.25)) / 16) * 16
    prefill = 0.05 + (prompt - reused) * 0.00022 * noise.uniform(0.8, 1.3) + (ttft if matter == "slower" else 0)
    queue = noise.choice((0.0, 0.0, 0.0, noise.uniform(0.02, 0.4)))
    stages = [("body", noise.uniform(0.001, 0.03)), ("auth", noise.uniform(0.0002, 0.004)),
              ("directory", noise.uniform(0.0001, 0.002)), ("queue", queue), ("stamp", noise.uniform(0.0001, 0.0006)),
              ("prefill", prefill), ("stream", noise.uniform(0.6, 9.0))]  # fmt: skip
    stages = stages[: {"refused": 3, "engine_failed": 6, "engine_timeout": 6}.get(outcome, 7)]
    spans, at = [], 0.0
    for name, took in stages:
        if took:
            spans.append({"name": name, "start": round(at, 6), "duration": round(took, 6)})
        at += took
    first = next((span["start"] for span in spans if span["name"] == "stream"), None)
    known = outcome == "ok"
    return {
        "request_id": f"req_{noise.getrandbits(96):024x}", "trace_id": f"{noise.getrandbits(128):032x}",
        "started": now - 4 - number * (60 / max(rate, 1)) * noise.uniform(0.9, 1.1),
        "workspace": workspace, "project": project, "unit": f"project:{workspace}/{project}",
        "model": None if outcome == "refused" else noise.choice(("qwen3-32b",) * 4 + ("qwen3-coder-30b",)),
        "operation": noise.choice(("chat", "chat", "messages", "completions")), "stream": True, "outcome": outcome,
        "status": {"refused": 403, "engine_failed": 502, "engine_timeout": 504}.get(outcome, 200),
        "refusal_code": {"refused": "model_not_allowed", **ENGINE_FAULTS}.get(outcome),
        "error_type": {"truncated": "truncated", **ENGINE_FAULTS}.get(outcome),
        "engine": None if outcome == "refused" else "10.0.8.11:8000",
        "salt_fingerprint": None if outcome == "refused" else "baa6d2677094",
        "salt_epoch": None if outcome == "refused" else 1795960800,
        "duration": round(at, 6), "ttft": first,
        "ttft_kind": None if first is None else noise.choice(("content", "content", "reasoning")),
        "upstream_ttft": None if first is None else round(prefill - 0.0006, 6),
        "largest_gap": None if first is None else round(noise.uniform(0.03, 0.2), 4),
        "prompt_tokens": prompt if known else None, "reused_tokens": reused if known else None,
        "output_tokens": noise.randrange(40, 600) if known else None, "finish_reasons": ["stop"] if known else [],
        "spans": spans,
    }  # fmt: skip


def middle(values: Sequence[float | None]) -> float | None:
    known = sorted(value for value in values if value is not None)
    return known[len(known) // 2] if known else None


def weighted(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    known = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None and weight]
    total = sum(weight for _, weight in known)
    return round(sum(value * weight for value, weight in known) / total, 4) if total else None


def many(scopes: int) -> Sequence[tuple[Any, ...]]:
    """A cast of so many projects, ten a workspace."""
    return [
        (f"customer-{n // 10:03}", f"project-{n % 10}", CAST[n % len(CAST)][2] / 50, *CAST[n % len(CAST)][3:])
        for n in range(scopes)
    ]


def find(scopes: Mapping[tuple[str, str], Json], request_id: str) -> Json | None:
    return next(
        (each for found in scopes.values() for each in found["recent"] if each["request_id"] == request_id), None
    )


def beside(data: Json | None, now: float = NOW) -> Json | None:
    """What a scope and a request have beside their own fields."""
    return None if data is None else data | {"now": now, "alarms": ALARMS}
