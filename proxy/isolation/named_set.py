"""An entry of a named set: a detector, its name, and why it is as it is."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.isolation.detectors import Detector


@dataclass(frozen=True, slots=True)
class Entry:
    """`finds` names it in the documents; `why` is the source or the reason of its form."""

    finds: str
    why: str
    detector: Detector
