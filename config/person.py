"""What the environment says of a person at a command line: where his sign-ins are kept, and whether he sees a browser.

It imports little: `saltgate token` runs before each of somebody's requests.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

GATE_VARIABLE: Final = "SALTGATE_GATE"
"""The gate that `saltgate login`, `token`, `whoami` and `logout` mean where no option names one."""


@dataclass(frozen=True, slots=True)
class Person:
    """`state` is the folder for what saltgate keeps for him; it may not exist yet. `gate` is the one that the
    environment names, as it stands there. `has_browser`: a window could open where he sits.
    """

    state: Path
    gate: str | None
    has_browser: bool


def person(environment: Mapping[str, str] | None = None, platform: str = sys.platform) -> Person:
    """By default the one who runs this process. Raises RuntimeError where he has no home folder."""
    variables = os.environ if environment is None else environment
    return Person(
        state=_state_home(variables) / "saltgate",
        gate=variables.get(GATE_VARIABLE) or None,
        has_browser=_has_browser(variables, platform),
    )


def _state_home(variables: Mapping[str, str]) -> Path:
    """Tokens are state, and no configuration: people share their configuration folder, and put it under git.

    XDG Base Directory Specification: a relative path is to be ignored.
    """
    stated = Path(variables.get("XDG_STATE_HOME", ""))
    if stated.is_absolute():
        return stated
    home = Path(variables.get("HOME", ""))
    return (home if home.is_absolute() else Path.home()) / ".local" / "state"


def _has_browser(variables: Mapping[str, str], platform: str) -> bool:
    """Over SSH a window would open at the other end, if at all."""
    if any(variables.get(name) for name in ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY")):
        return False
    return platform == "darwin" or any(variables.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
