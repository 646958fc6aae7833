"""Streams of numbered events (numbered.py)."""

import random

import pytest

from tests.bench.numbered import CUTS, Arrived, Cut, chunks, event


def arrived(*numbers: int) -> Arrived:
    found = Arrived()
    for number in numbers:
        found.feed(event(number, b"text "))
    found.feed(b"data: [DONE]\n\n")
    return found


@pytest.mark.parametrize("cut", CUTS)
def test_every_way_of_cutting_keeps_the_events(cut: Cut) -> None:
    found = Arrived()
    for payload in chunks(500, cut, random.Random(1)):
        found.feed(payload)
    assert found.is_whole(500)


def test_chunks_are_cut_inside_events_and_characters() -> None:
    pieces = list(chunks(200, "anywhere", random.Random(1)))
    assert any(not piece.endswith(b"\n\n") for piece in pieces)
    with pytest.raises(UnicodeDecodeError):
        [piece.decode() for piece in pieces]


def test_a_lost_event_is_found() -> None:
    assert (arrived(0, 1, 3).lost, arrived(0, 1, 3).again) == (1, 0)


def test_a_doubled_event_is_found() -> None:
    assert (arrived(0, 1, 1, 2).lost, arrived(0, 1, 1, 2).again) == (0, 1)


def test_a_reordered_event_is_found() -> None:
    found = arrived(0, 2, 1, 3)
    assert (found.lost, found.again) == (1, 1)
    assert not found.is_whole(4)


def test_faults_inside_one_read_are_found() -> None:
    found = Arrived()
    found.feed(event(0, b"") + event(2, b"") + event(1, b"") + b"data: [DONE]\n\n")
    assert (found.events, found.lost, found.again) == (3, 1, 1)


def test_events_lost_at_the_end_are_found() -> None:
    assert not arrived(0, 1, 2).is_whole(4)


def test_a_stream_without_its_end_is_not_whole() -> None:
    found = Arrived()
    found.feed(event(0, b""))
    assert not found.is_whole(1)


def test_half_an_event_at_the_end_is_not_whole() -> None:
    found = arrived(0)
    found.feed(b"data: {")
    assert not found.is_whole(1)
