"""What `saltgate check` says: one line for each thing that was looked at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How much a line matters. Only a fault makes the answer no."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that was looked at. `part` is a part of the deployment, `about` what of it; no secret is in either."""

    level: Level
    part: str
    about: str
    message: str
