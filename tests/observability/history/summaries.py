"""Summaries as tests need them."""

from __future__ import annotations

from itertools import count

import msgspec

from observability.history.summary import Summary
from observability.waterfall import Times

_numbers = count()


def summary(**changes: object) -> Summary:
    """A chat of acme/apollo that went well, with an id of its own."""
    made = Summary(
        request_id=f"req_{next(_numbers):024x}",
        trace_id="1" * 32,
        started=1_700_000_000.0,
        workspace="acme",
        project="apollo",
        unit="project:acme/apollo",
        model="tiny",
        operation="chat",
        stream=True,
        outcome="ok",
        status=200,
        refusal_code=None,
        error_type=None,
        engine="127.0.0.1:8000",
        salt_fingerprint="baa6d2677094",
        salt_epoch=0,
        duration=1.0,
        ttft=0.1,
        ttft_kind="content",
        upstream_ttft=0.09,
        largest_gap=None,
        prompt_tokens=1000,
        reused_tokens=600,
        output_tokens=20,
        finish_reasons=("stop",),
        times=Times(0, None, None, None, None, None, []),
    )
    return msgspec.structs.replace(made, **changes)
