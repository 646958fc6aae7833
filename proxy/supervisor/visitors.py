"""Who may see the pages of the admin listener: administrators, and operators of this machine. Nobody else, also on
loopback: other people and other programs are on this machine, too.

Somebody comes with a ticket (`proxy.ticket`) and gets a cookie and a key. Both are needed: browsers show a cookie to
every port of a host, but what a page keeps belongs to its origin alone, so another program on this machine that is
visited by the same browser has the cookie at most. Whether a person may still look is asked of a worker each time.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Protocol

import msgspec

from proxy.plan import Plan
from proxy.questions import Judged, MayLook, WhoLooks
from proxy.ticket import LEEWAY_SECONDS, TICKET_SECONDS, Holder, opened

SESSION_SECONDS: Final = 12 * 3600.0
MOST_SESSIONS: Final = 1000


class Asked(Protocol):
    """The workers, and the configuration that is in force."""

    @property
    def plan(self) -> Plan: ...

    async def ask(self, question: bytes) -> bytes | None: ...


class Refused(Exception):  # noqa: N818 - an answer
    """Nobody may look with this. `status` 401: sign in; 403: he is no administrator; 503: it cannot be told now."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(code)
        self.status, self.code, self.message = status, code, message


@dataclass(frozen=True, slots=True)
class _Session:
    holder: Holder
    key_digest: bytes
    ends: float


@dataclass(frozen=True, slots=True)
class Entry:
    """What somebody who came in gets: the cookie's value, and the key that his page keeps."""

    cookie: str
    key: str


class Visitors:
    """`clock` is Unix seconds. Sessions live in memory: after a restart everybody needs a ticket again."""

    def __init__(self, asked: Asked, *, clock: Callable[[], float]) -> None:
        self._asked = asked
        self._clock = clock
        self._began = clock()
        self._used: dict[str, float] = {}
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()

    async def enter(self, ticket: str) -> Entry:
        """Trade a ticket. Raises Refused for one that is not good, or was used, or whose holder may not look."""
        plan, now = self._asked.plan, self._clock()
        found = None
        if plan.admin_origin is not None:
            found = opened(ticket, plan.admin_keys, audience=plan.admin_origin, now=now)
        # What was used before a restart is not known any more.
        if found is None or found.made_at < self._began or not self._first_use(found.number, now):
            raise Refused(401, "ticket_not_good", _TICKET)
        await self._judge(found.holder)
        entry = Entry(secrets.token_urlsafe(32), secrets.token_urlsafe(32))
        self._sessions[_digest(entry.cookie)] = _Session(found.holder, _digest(entry.key), now + SESSION_SECONDS)
        while len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return entry

    async def name(self, cookie: str | None, key: str) -> str:
        """Of whom the cookie and the key are. Raises Refused."""
        session = self._session(cookie)
        if session is None or not hmac.compare_digest(session.key_digest, _digest(key)):
            raise Refused(401, "sign_in_required", _SIGN_IN)
        try:
            await self._judge(session.holder)
        except Refused as refused:
            if refused.status != _UNKNOWN:
                self.leave(cookie)
            raise
        return session.holder.name

    async def bearer(self, headers: Sequence[tuple[str, str]], path: str) -> str:
        """Whose credential the headers show. Raises Refused."""
        judged = await self._ask(WhoLooks(tuple((_text(name), _text(value)) for name, value in headers), path))
        _raise(judged)
        return judged.name

    def has_cookie(self, cookie: str | None) -> bool:
        """Whether somebody came in with it. That is not enough to see anything."""
        return self._session(cookie) is not None

    def leave(self, cookie: str | None) -> None:
        """The session is over."""
        if cookie is not None:
            self._sessions.pop(_digest(cookie), None)

    def _session(self, cookie: str | None) -> _Session | None:
        session = None if cookie is None else self._sessions.get(_digest(cookie))
        return session if session is not None and self._clock() < session.ends else None

    def _first_use(self, number: str, now: float) -> bool:
        self._used = {one: until for one, until in self._used.items() if until > now}
        if number in self._used:
            return False
        self._used[number] = now + TICKET_SECONDS + 2 * LEEWAY_SECONDS
        return True

    async def _judge(self, holder: Holder) -> None:
        if holder.identity:
            _raise(await self._ask(MayLook(holder.identity, holder.session)))

    async def _ask(self, question: MayLook | WhoLooks) -> Judged:
        answer = await self._asked.ask(msgspec.msgpack.encode(question))
        if answer is None:
            return Judged("unknown")
        try:
            return msgspec.msgpack.decode(answer, type=Judged)
        except ValueError:  # a worker of another version
            return Judged("unknown")


_UNKNOWN: Final = 503


def _raise(judged: Judged) -> None:
    match judged.verdict:
        case "yes":
            return
        case "no":
            raise Refused(403, "not_an_administrator", _NOT_ONE)
        case "nobody":
            raise Refused(401, "sign_in_required", _SIGN_IN)
        case _:
            raise Refused(_UNKNOWN, "cannot_check", _CANNOT)


_SIGN_IN: Final = (
    "Sign in: open the pages from your account page, or run `saltgate admin ticket` on the machine of this gate."
)
_TICKET: Final = (
    "This link is over: it is good once, for a minute, at its own gate. Open the pages from your account page again, "
    "or run `saltgate admin ticket` on the machine of this gate."
)
_NOT_ONE: Final = (
    "You are no administrator of this gate: [[admin.administrators]] does not list you, or you are blocked."
)
_CANNOT: Final = "No worker of this gate can tell now whether you may see this. Try again in a moment."


def _text(line: str) -> str:
    """Bytes that are no UTF-8 are no part of any credential."""
    return line.encode("utf-8", "replace").decode("utf-8")


def _digest(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "surrogateescape")).digest()
