"""How many connections each worker has, in a page of memory that all of them see, and whose turn it is to take one.

A shared listening socket gives a connection to whoever asks first, and a burst to one worker; sockets of their own
(SO_REUSEPORT) lose what waits in them when a worker ends. So all workers share one socket, and a worker that is ahead
of the least loaded one rests until the others have caught up. It is woken by the one whose taking makes it its turn.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Final

from observability.open_requests import AREA_BYTES

_CELL_BYTES: Final = 8
# Of each worker: its connections, and whether it rests.
_CELLS: Final = 2
ABSENT: Final = -1
# Workers may differ by one connection, and by one more for so many of the least loaded: a difference of a few percent
# is none, and most connections then find two workers that may take them.
SLACK_SHARE: Final = 16


def most_to_take(connections: Iterable[int]) -> int:
    """With how many connections a worker may take one more, where the workers that are there have these."""
    least = min((each for each in connections if each != ABSENT), default=0)
    return least + least // SLACK_SHARE


@dataclass(frozen=True, slots=True)
class LoadPage:
    """The descriptors of the page and of each worker's bell, an eventfd. The workers of a generation inherit them."""

    page: int
    bells: tuple[int, ...]

    @property
    def workers(self) -> int:
        """How many share the page."""
        return len(self.bells)

    @property
    def descriptors(self) -> tuple[int, ...]:
        return (self.page, *self.bells)

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


def load_page(workers: int) -> LoadPage:
    """A page on which all of so many workers are absent. Raises OSError where there are no descriptors left."""
    with ExitStack() as undo:
        made = [os.memfd_create("loads", os.MFD_CLOEXEC)]
        undo.callback(os.close, made[0])
        os.write(made[0], ABSENT.to_bytes(_CELL_BYTES, sys.byteorder, signed=True) * _CELLS * workers)
        os.ftruncate(made[0], _areas_begin(workers) + workers * AREA_BYTES)
        for _ in range(workers):
            made.append(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
            undo.callback(os.close, made[-1])
        undo.pop_all()
    return LoadPage(made[0], tuple(made[1:]))


def open_area(page: LoadPage, own: int) -> mmap.mmap | None:
    """Where the worker at place `own` keeps its open requests, behind the cells of all; None where a supervisor of
    older code made the page.
    """
    begin = _areas_begin(page.workers) + own * AREA_BYTES
    if os.fstat(page.page).st_size < begin + AREA_BYTES:
        return None
    return mmap.mmap(page.page, AREA_BYTES, offset=begin)


def _areas_begin(workers: int) -> int:
    """Memory is mapped from such places on only."""
    cells, unit = _CELL_BYTES * _CELLS * workers, mmap.ALLOCATIONGRANULARITY
    return -(-cells // unit) * unit


class Loads:
    """The page as the worker at place `own` sees it. Each worker writes its own cells only.

    The supervisor, which takes no connections, says of a worker that has ended by itself that it is absent.
    """

    def __init__(self, page: LoadPage, own: int) -> None:
        self._bells = page.bells
        self._own = own * _CELLS
        self._memory = mmap.mmap(page.page, _CELL_BYTES * _CELLS * len(page.bells))
        self._cells = memoryview(self._memory).cast("q")

    def close(self) -> None:
        self._cells.release()
        self._memory.close()

    @property
    def bell(self) -> int:
        """What becomes readable when it may be the own turn."""
        return self._bells[self._own // _CELLS]

    def heard(self) -> None:
        """The own bell was heard."""
        with suppress(BlockingIOError):  # it was heard already
            os.eventfd_read(self.bell)

    def may_take(self) -> bool:
        """Whether it is the own turn."""
        return self._cells[self._own] <= most_to_take(self._cells[::_CELLS].tolist())

    def tell(self, connections: int) -> None:
        """So many are the own; whose turn that makes it is woken."""
        before = self._cells[self._own]
        self._cells[self._own] = connections
        if connections > before:
            self._wake()

    def rest(self, resting: bool) -> None:
        """Whether the own worker waits for its bell."""
        self._cells[self._own + 1] = int(resting)

    def leave(self) -> None:
        """The own worker takes no connections: nobody waits for it any more."""
        self._cells[self._own] = ABSENT
        self.rest(False)
        self._wake()

    def _wake(self) -> None:
        connections, resting = self._cells[::_CELLS].tolist(), self._cells[1::_CELLS].tolist()
        most = most_to_take(connections)
        for bell, own, rests in zip(self._bells, connections, resting, strict=True):
            if rests == 1 and own <= most:
                os.eventfd_write(bell, 1)
