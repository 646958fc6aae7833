"""What one worker has of a limit that holds for all of them together. Pure.

Workers share no memory, so each keeps to a part of its own, and the parts add up to the limit: it is never exceeded,
but where one worker has more of the connections than another, it is full while the other has room.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Share:
    """Worker `number`, from 0, of so many `workers`."""

    number: int = 0
    workers: int = 1

    def part(self, limit: int) -> int:
        """The worker's part; the parts of all workers differ by 1 at most, and add up to the limit."""
        part, rest = divmod(limit, self.workers)
        return part + (self.number < rest)

    def of(self, limit: int) -> int:
        """Its part, and at least 1: a worker that may do nothing would refuse all that comes to it."""
        return max(self.part(limit), 1)
