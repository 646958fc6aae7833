"""The records in memory, with a clock of their own: what a store does, without a place and without waiting.

ledger = Ledger()
ledger.do(make_first_ring("k1"))
"""

from __future__ import annotations

from proxy.directory.changes import Change, Deed, pause_before
from proxy.directory.file_store import _applied, _records
from proxy.directory.records import Records
from proxy.directory.state_file import State
from proxy.isolation.ring import Ring
from proxy.isolation.unit import Unit


class Ledger:
    """The file store's own records. Where a store waits, the clock goes on instead."""

    def __init__(self, now: float = 1_700_000_000.25) -> None:
        self.now = now
        self._state = State()

    @property
    def records(self) -> Records:
        return _records(self._state, b"", (), now=self.now)

    @property
    def ring(self) -> Ring:
        ring = self.records.ring
        assert ring is not None
        return ring

    def do(self, deed: Deed) -> Change:
        """Decides and writes. Raises ChangeRefused, and then nothing is written."""
        records = self.records
        change = deed(records)
        self.now += pause_before(change, records)
        if not change.is_empty:
            self._state = _applied(self._state, change)
        return change

    def lose_everything(self) -> None:
        self._state = State()

    def used(self, unit: Unit) -> tuple[int, str]:
        """What the unit's salt is made of now: its epoch and its key."""
        return self.ring.epoch(unit), self.ring.key_id(unit, self.now)
