"""A revoked token is refused within a second by every worker of every gate: measured on two real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proxy.revocation_latency import measure

pytestmark = pytest.mark.process


async def test_a_revoked_token_is_refused_by_all_within_a_second(tmp_path: Path) -> None:
    times = await measure(5, tmp_path)
    assert max(times.here + times.there) < 1.0
