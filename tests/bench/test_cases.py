"""What is measured (cases.py)."""

import pytest

from tests.bench.cases import CASES, Case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_two_halves_of_a_load_are_the_load(case: Case) -> None:
    whole, half = case.load, case.load.half()
    assert 2 * half.units == whole.units
    assert len(half.words) == len(whole.words)
    changed = {
        (option, word, mine)
        for option, word, mine in zip(whole.words, whole.words[1:], half.words[1:], strict=False)
        if word != mine
    }
    assert {option for option, _, _ in changed} == {"-c", "-n"}
    assert all(int(word) == 2 * int(mine) for _, word, mine in changed)
