"""What is kept for a moment, and how its memory goes."""

from __future__ import annotations

from proxy.kept import Kept


def test_the_one_that_was_kept_first_goes_for_the_one_that_is_too_many() -> None:
    kept: Kept[int, str] = Kept(2)
    assert kept.keep(1, "a") is None
    assert kept.keep(2, "b") is None
    assert kept.keep(3, "c") == "a"
    assert [kept.find(key) for key in (1, 2, 3)] == [None, "b", "c"]


def test_a_key_that_is_kept_again_takes_no_more_room() -> None:
    kept: Kept[int, str] = Kept(2)
    assert [kept.keep(1, value) for value in ("a", "b", "c")] == [None, "a", "b"]
    assert (len(kept), kept.find(1)) == (1, "c")


def test_a_key_that_is_kept_again_is_not_the_one_that_was_kept_first() -> None:
    kept: Kept[int, str] = Kept(2)
    assert [kept.keep(key, "a") for key in (1, 2, 1)] == [None, None, "a"]
    kept.keep(3, "c")
    assert [kept.find(key) for key in (1, 2, 3)] == ["a", None, "c"]


def test_what_is_forgotten_is_not_found_from_that_moment() -> None:
    kept: Kept[int, str] = Kept(10)
    kept.keep(1, "a")
    kept.forget()
    assert kept.find(1) is None
    assert len(kept) == 0


def test_its_memory_goes_before_as_much_is_kept_again() -> None:
    kept: Kept[int, str] = Kept(1000)
    for key in range(1000):
        kept.keep(key, "a")
    kept.forget()
    assert kept.held == 1000
    for key in range(300):
        kept.keep(key, "b")
    assert kept.held == 300


def test_forgetting_again_and_again_holds_no_more() -> None:
    kept: Kept[int, str] = Kept(1000)
    most = 0
    for turn in range(50):
        for key in range(100):
            kept.keep(key + turn, "a")
        kept.forget()
        most = max(most, kept.held)
    assert most <= 200
