"""Where a person's sign-ins are kept, and whether he sees a browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.person import GATE_VARIABLE, person
from tests.config.configuration import good_table, loaded


@pytest.mark.parametrize(
    ("variables", "state"),
    [
        ({"XDG_STATE_HOME": "/s", "HOME": "/h"}, "/s/saltgate"),
        ({"HOME": "/h"}, "/h/.local/state/saltgate"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/h"}, "/h/.local/state/saltgate"),
        ({"XDG_STATE_HOME": "", "HOME": "/h"}, "/h/.local/state/saltgate"),
    ],
)
def test_sign_ins_are_state_and_no_configuration(variables: dict[str, str], state: str) -> None:
    assert person(variables).state == Path(state)


@pytest.mark.parametrize(
    ("variables", "platform", "has_browser"),
    [
        ({}, "linux", False),
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({}, "darwin", True),
        ({"DISPLAY": "localhost:10.0", "SSH_CONNECTION": "x"}, "linux", False),
        ({"SSH_TTY": "/dev/pts/0"}, "darwin", False),
    ],
)
def test_a_browser_is_at_hand_where_he_sits(variables: dict[str, str], platform: str, has_browser: bool) -> None:
    assert person({"HOME": "/h"} | variables, platform).has_browser is has_browser


def test_the_gates_variable_is_no_override_and_needs_no_warning(tmp_path: Path) -> None:
    variables = {GATE_VARIABLE: "https://llm.example.com", "SALTGATE_OTHER": "x"}
    (warning,) = loaded(tmp_path, good_table(), variables).warnings
    assert "SALTGATE_OTHER" in warning
    assert GATE_VARIABLE not in warning
