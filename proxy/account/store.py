"""Sessions in the Redis of `[directory]`: the same for all workers of all machines.

`proxy/directory/redis-layout.md` describes the keys. A session is there or it is not: whoever ends one deletes it, and
from then on no worker finds it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any, Final

import structlog
from redis.asyncio import ConnectionPool, Redis

from proxy.account.session import Listed, Session, listed, opened_record, sealed_record, session_key
from proxy.directory.redis_connection import PREFIX, SHORT_SECONDS, bounded
from proxy.directory.store import StoreUnavailable
from proxy.refusals import DirectoryUnavailable

SESSION: Final = PREFIX + "session:"
SESSIONS_OF: Final = PREFIX + "sessions_of:"
SESSIONS_IN: Final = PREFIX + "sessions_in:"
ONCE: Final = PREFIX + "once:"

MOST_SESSIONS: Final = 32
"""Of one person; a further sign-in ends the oldest."""

_log = structlog.get_logger("saltgate.account")


class SessionStore:
    """`clock` gives Unix seconds. `idle` and `absolute` are `[sessions]`, in seconds. Every method raises
    DirectoryUnavailable where Redis does not answer.
    """

    def __init__(self, pool: ConnectionPool, *, clock: Callable[[], float], idle: float, absolute: float) -> None:
        self._pool = pool
        self._redis: Any = Redis(connection_pool=pool)
        self._clock = clock
        self._idle = idle
        self.absolute = absolute

    async def close(self) -> None:
        await self._redis.aclose()
        await self._pool.aclose()

    async def start(self, session: Session, cookie: str) -> None:
        """Keep the session under a cookie that nobody has had before."""
        key, now = session_key(cookie), self._clock()
        indexes = _indexes(session)
        known = await self.listed(session)
        async with self._answering(), self._redis.pipeline(transaction=True) as pipe:
            _queue(pipe, "SET", SESSION + key, sealed_record(session, cookie), "PX", _milliseconds(self._idle))
            for index in indexes:
                _queue(pipe, "ZREMRANGEBYSCORE", index, "-inf", int(now))
                _queue(pipe, "ZADD", index, int(session.identity.expires_at) + 1, key)
                _queue(pipe, "PEXPIRE", index, _milliseconds(self.absolute))
            for old in known[: max(len(known) - MOST_SESSIONS + 1, 0)]:
                _queue(pipe, "DEL", SESSION + old.key)
            await pipe.execute()

    async def find(self, cookie: str) -> Session | None:
        """The session of this cookie, which is now used; None where there is none, or it is over."""
        key, now = session_key(cookie), self._clock()
        record = await self._command("GET", SESSION + key)
        session = None if record is None else opened_record(record, cookie)
        if session is None or now >= session.identity.expires_at:
            return None
        rest = min(self._idle, session.identity.expires_at - now)
        # Of a session that was ended meanwhile nothing comes back by this.
        await self._command("PEXPIRE", SESSION + key, _milliseconds(rest))
        return session

    async def is_open(self, key: str) -> bool:
        """Whether there is a session of this `session_key`. It is not used by that."""
        return bool(await self._command("EXISTS", SESSION + key))

    async def end(self, cookie: str) -> None:
        await self._command("DEL", SESSION + session_key(cookie))

    async def listed(self, session: Session) -> Sequence[Listed]:
        """All sessions of the person, the oldest first."""
        return await self._in(_of(session.identity.issuer, session.subject))

    async def end_listed(self, sessions: Sequence[Listed]) -> None:
        if sessions:
            await self._command("DEL", *(SESSION + session.key for session in sessions))

    async def end_all(self, issuer: str, *, session: str | None, subject: str | None) -> Sequence[Listed]:
        """End the sessions that belong to a session of the issuer, or to its subject where no session is named. Gives
        those that there were.

        Where the issuer's ID tokens named no session, one that it names now may be any of the subject's.
        """
        found = [] if session is None else [*await self._in(_in_session(issuer, session))]
        if subject is not None:
            of_subject = await self._in(_of(issuer, subject))
            found += [one for one in of_subject if session is None or not one.is_named]
        await self.end_listed(found)
        return found

    async def first_time(self, what: str, *, seconds: float) -> bool:
        """Whether this was never seen before; from now on it was, for that long at least."""
        answer = await self._command("SET", _once(what), "", "NX", "PX", _milliseconds(seconds))
        return bool(answer)

    async def was_seen(self, what: str) -> bool:
        """Whether `first_time` was asked about it."""
        return bool(await self._command("EXISTS", _once(what)))

    async def forget(self, what: str) -> None:
        """Undo `first_time`: what was begun then did not come about."""
        await self._command("DEL", _once(what))

    async def _in(self, index: str) -> Sequence[Listed]:
        keys = [key.decode("ascii") for key in await self._command("ZRANGE", index, 0, -1)]
        if not keys:
            return ()
        records = await self._command("MGET", *(SESSION + key for key in keys))
        gone = [key for key, record in zip(keys, records, strict=True) if record is None]
        if gone:
            await self._command("ZREM", index, *gone)
        found = [listed(key, record) for key, record in zip(keys, records, strict=True) if record is not None]
        return sorted((one for one in found if one is not None), key=lambda one: one.started_at)

    async def _command(self, *command: str | bytes | int) -> Any:
        async with self._answering():
            return await self._redis.execute_command(*command)

    @asynccontextmanager
    async def _answering(self) -> AsyncIterator[None]:
        try:
            async with bounded(SHORT_SECONDS):
                yield
        except StoreUnavailable as error:
            _log.warning("sessions_unavailable", cause=str(error))
            raise DirectoryUnavailable(
                "saltgate cannot reach its directory, so nobody can sign in or be known here. Try again soon.",
                reason="sessions_unavailable",
            ) from error


def _indexes(session: Session) -> tuple[str, ...]:
    identity = session.identity
    of = _of(identity.issuer, session.subject)
    return (of,) if identity.session is None else (of, _in_session(identity.issuer, identity.session))


def _of(issuer: str, subject: str) -> str:
    return SESSIONS_OF + _digest(issuer, subject)


def _in_session(issuer: str, session: str) -> str:
    return SESSIONS_IN + _digest(issuer, session)


def _digest(issuer: str, name: str) -> str:
    # No issuer has a space: the first one ends it.
    return sha256(f"{issuer} {name}".encode("utf-8", "surrogatepass")).hexdigest()


def _once(what: str) -> str:
    return ONCE + sha256(what.encode("utf-8", "surrogatepass")).hexdigest()


def _milliseconds(seconds: float) -> int:
    return max(int(seconds * 1000), 1)


def _queue(pipe: Any, *command: str | bytes | int) -> None:
    pipe.execute_command(*command)
