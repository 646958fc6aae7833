"""Commands of one Redis transaction, as plain words, and whether it was written."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Any, Protocol

from redis.exceptions import WatchError

Command = tuple[str | bytes | int, ...]


class Transaction(Protocol):
    """A redis-py pipeline as far as it is used here: what it is given waits in it until it is executed."""

    def immediate_execute_command(self, *command: str | bytes | int) -> Awaitable[Any]: ...

    def multi(self) -> object: ...

    def execute_command(self, *command: str | bytes | int) -> object: ...

    def execute(self) -> Awaitable[object]: ...


def queue(pipe: Transaction, *commands: Command) -> None:
    for command in commands:
        pipe.execute_command(*command)


def begin(pipe: Transaction) -> None:
    """Ends the immediate commands that came after WATCH."""
    pipe.multi()


async def executed(pipe: Transaction) -> bool:
    """Whether the transaction was written; not, where a watched key has changed."""
    try:
        await pipe.execute()
    except WatchError:
        return False
    return True


async def written(pipe: Transaction, commands: Iterable[Command]) -> bool:
    """The commands as one step after WATCH: `executed`."""
    begin(pipe)
    queue(pipe, *commands)
    return await executed(pipe)
