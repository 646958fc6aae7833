"""Failures raise a doubt; only a probe opens and closes."""

from __future__ import annotations

from proxy.identity.breaker import Breaker


def breaker() -> Breaker:
    return Breaker(threshold=3, first_pause=1.0, longest_pause=5.0)


def test_failures_in_a_row_raise_a_doubt_and_open_nothing() -> None:
    tried = breaker()
    assert [tried.failed() for _ in range(5)] == [False, False, True, True, True]
    assert not tried.is_open


def test_an_answer_between_failures_ends_the_row() -> None:
    tried = breaker()
    for _ in range(10):
        assert not tried.failed()
        assert not tried.failed()
        tried.answered()


def test_a_failed_probe_opens_it_and_the_pauses_grow_to_a_bound() -> None:
    tried = breaker()
    assert [tried.probed(sound=False) for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert tried.is_open
    assert tried.pause == 5.0


def test_a_sound_probe_closes_it_and_forgets_the_failures() -> None:
    tried = breaker()
    for _ in range(3):
        tried.failed()
    tried.probed(sound=False)
    assert tried.probed(sound=True) is None
    assert not tried.is_open
    assert not tried.failed()
    assert tried.probed(sound=False) == 1.0


def test_what_a_caller_gets_neither_opens_nor_closes_it() -> None:
    tried = breaker()
    for _ in range(100):
        tried.failed()
    assert not tried.is_open
    tried.probed(sound=False)
    tried.answered()
    assert tried.is_open
