"""What the gate and the commands need of a place that keeps the directory, be it Redis or a file."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Protocol

from proxy.directory.changes import Change, Deed
from proxy.directory.records import Records


class StoreUnavailable(Exception):  # noqa: N818 - a state, not an error of the program
    """The store cannot be read or written now. The message names the place, never a credential."""


def unix_now() -> float:
    """This machine's clock, in Unix seconds."""
    return datetime.now(UTC).timestamp()


class Hearing(Protocol):
    """An open ear for changes."""

    async def heard(self, within: float) -> bool:
        """True at once when a change is told, False after `within` seconds without. Raises StoreUnavailable."""
        ...


class Store(Protocol):
    """A place that keeps the directory. No method waits without a bound; each raises StoreUnavailable.

    Changes may be missed by a hearing (a half-open connection hears nothing), so whoever follows a store also asks for
    the stamp.
    """

    def hearing(self) -> AbstractAsyncContextManager[Hearing]:
        """Changes are told from the moment it is entered."""
        ...

    async def stamp(self) -> bytes:
        """What `Records.stamp` would be now, for little cost."""
        ...

    async def read(self) -> Records:
        """All records as of one moment: no reader ever sees half a change."""
        ...

    async def change(self, deed: Deed) -> Change:
        """Decide on the present records and write the change in one step, or raise ChangeRefused or StoreUnavailable.

        Where others change the records meanwhile, the deed is decided anew. `Records.now` is later than any loss of
        what was there before. A change waits for the second in which it may be written (`changes.pause_before`).
        Gives what was written.
        """
        ...

    async def close(self) -> None: ...
