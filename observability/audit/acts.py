"""Acts of administrators and of people with what is their own: a line before, on disk, and a line after."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import msgspec

from observability.audit.entries import Act
from observability.audit.subjects import Names


class Unaccountable(Exception):  # noqa: N818 - an answer
    """What nobody could be told of later is not done. `why` is the operator's word."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Told:
    """What is to be told of an act beside what was known before it."""

    def __init__(self, act: Act) -> None:
        self.act = act

    def tell(self, **changes: Any) -> None:
        """The fields of `Act` by their names."""
        self.act = msgspec.structs.replace(self.act, **changes)


def named(act: Act, names: Names) -> Act:
    """With people named as the audit names them."""
    by, subject = names.name(act.by_issuer, act.by), names.name(act.issuer, act.subject)
    return msgspec.structs.replace(act, by=by, subject=subject)


class Acts(Protocol):
    """Where acts are told."""

    def acting(self, act: Act) -> AbstractAsyncContextManager[Told]:
        """Its context is the act itself. Raises Unaccountable before it is entered: then nothing is to be done."""
        ...


@asynccontextmanager
async def told_twice(
    act: Act, act_id: str, before: Callable[[Act], Awaitable[None]], after: Callable[[Act], None]
) -> AsyncIterator[Told]:
    """`before` returns once the first line is on disk; `after` takes the second."""
    told = Told(msgspec.structs.replace(act, act=act_id, state="begun"))
    await before(told.act)
    try:
        yield told
    except BaseException as error:
        told.tell(state="failed", error_type=type(error).__name__)
        after(told.act)
        raise
    told.tell(state="done")
    after(told.act)


class NoActs:
    """Where there is no audit, acts are told nowhere."""

    @asynccontextmanager
    async def acting(self, act: Act) -> AsyncIterator[Told]:
        yield Told(act)
