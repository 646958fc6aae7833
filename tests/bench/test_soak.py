"""The run of `make soak`, short."""

import pytest

from tests.bench.soak import soak
from tests.bench.stage import open_stage


@pytest.mark.slow
async def test_a_gate_that_worked_for_a_while_gives_everything_back() -> None:
    async with open_stage() as stage:
        assert await soak(stage, warm=5.0, seconds=10.0, rest=8.0, clients=30) == []
