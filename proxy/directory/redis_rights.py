"""Whether a Redis user may do something, found out without doing it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import NoPermissionError

from config.settings import Directory as Settings
from proxy.directory.redis_connection import LONG_SECONDS, bounded, connection_pool
from proxy.directory.redis_transaction import Command
from proxy.directory.store import StoreUnavailable


async def forbidden(settings: Settings, commands: Iterable[Command]) -> tuple[str, ...]:
    """The names of those commands that the user of `[directory]` may not use on these keys and channels, each once.

    Redis judges a command when it is queued in a transaction, and this one is discarded: no command is ever executed.
    Raises StoreUnavailable, also where the user may have no transactions, or the server takes no writes now.
    """
    pool = connection_pool(settings)
    try:
        async with bounded(LONG_SECONDS):
            connection: AbstractConnection = await pool.get_connection()  # type: ignore[no-untyped-call]
            try:
                await _begin(connection)
                refused = [str(command[0]) for command in commands if not await _may(connection, command)]
                await _answer(connection, "DISCARD")
            finally:
                # A transaction that was cut short goes with its connection.
                await connection.disconnect()
    finally:
        await pool.aclose()
    return tuple(dict.fromkeys(refused))


async def _begin(connection: AbstractConnection) -> None:
    """Outside a transaction the commands would be executed, so whatever is not its beginning ends all."""
    if await _answer(connection, "MULTI") != b"OK":
        raise StoreUnavailable("Redis begins no transaction; look at [directory].redis and at Redis itself")


async def _may(connection: AbstractConnection, command: Command) -> bool:
    try:
        await _answer(connection, *command)
    except NoPermissionError:
        return False
    return True


async def _answer(connection: AbstractConnection, *command: str | bytes | int) -> Any:
    await connection.send_command(*command)
    return await connection.read_response()
