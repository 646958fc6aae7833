"""The run of `make sequence`, short."""

import pytest

from tests.bench.numbered import Arrived
from tests.bench.sequence import Order, Tally, run

ORDER = Order(events=2, cut="anywhere", seed=1, manner="read slowly")


@pytest.mark.slow
async def test_events_of_every_cut_come_through_two_workers_once_and_in_order() -> None:
    tally = await run(events=20_000, workers=2)
    assert tally.verdict().startswith("YES: 20,000 events")


def test_a_stream_that_is_not_whole_makes_the_verdict_no() -> None:
    tally = Tally(2)
    tally.add(ORDER, Arrived(events=1, lost=1))
    assert tally.verdict().startswith("NO: 1 events in 1 streams")
    assert "1 lost" in tally.verdict()
