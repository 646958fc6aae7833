"""The guard before an engine: a request goes up only where the audit will tell of it, whatever happens to it.

An `Accounted` is the proof, and the relay takes no request without one. Where no audit is configured, every request has
it; where one is, its line is promised, or the policy says to go on without.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from observability.audit.acts import NoActs, Told, Unaccountable
from observability.audit.audit import Audit, AuditState
from observability.audit.entries import Act
from observability.record import Record
from proxy.refusals import AuditUnavailable

_TRY_AGAIN: Final = "saltgate cannot keep its audit just now, so it serves nobody. Try again in a moment."


class Accounted:
    """A request of which the audit will tell. Only `Accounting` makes one."""

    __slots__ = ()


_ACCOUNTED: Final = Accounted()


class Accounting:
    """`audit` None: there is no audit."""

    def __init__(self, audit: Audit | None) -> None:
        self._audit = audit
        self._acts = NoActs() if audit is None else audit

    @property
    def ready(self) -> bool:
        """Whether requests are let in."""
        return self._audit is None or self._audit.ready

    def state(self) -> AuditState | None:
        """For the metrics; None where there is no audit."""
        return None if self._audit is None else self._audit.state()

    def accounted(self, record: Record) -> Accounted:
        """Once all is known of the request that is known before its engine answers. Raises AuditUnavailable."""
        if self._audit is not None:
            try:
                self._audit.enter(record)
            except Unaccountable as error:
                raise AuditUnavailable(_TRY_AGAIN, reason=_REASON) from error
        return _ACCOUNTED

    def check(self) -> None:
        """Before anything is granted that needs no engine. Raises AuditUnavailable."""
        if self._audit is not None:
            try:
                self._audit.check()
            except Unaccountable as error:
                raise AuditUnavailable(_TRY_AGAIN, reason=_REASON) from error

    def tell(self, act: Act) -> None:
        """Of an act that is done already, and takes rights away: it did not wait for its line."""
        if self._audit is not None:
            self._audit.tell(act)

    @asynccontextmanager
    async def acting(self, act: Act) -> AsyncIterator[Told]:
        """The act is done in the context. Raises AuditUnavailable before it is entered: then it is not to be done."""
        try:
            async with self._acts.acting(act) as told:
                yield told
        except Unaccountable as error:
            raise AuditUnavailable(_TRY_AGAIN, reason=_REASON) from error


_REASON: Final = "audit_unwritten"
