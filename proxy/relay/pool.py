"""The connections to one replica: kept between requests, newest first, and dropped before the engine drops them."""

from __future__ import annotations

import asyncio
import math
import ssl
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final

from proxy.relay.leg import Home, Leg
from proxy.relay.lookup import Lookup, LoopLookup

# uvicorn, which serves vLLM, closes an idle connection after 5 s (VLLM_HTTP_TIMEOUT_KEEP_ALIVE): we close first, so
# that a request and the engine's FIN rarely cross.
IDLE_SECONDS: Final = 4.0
AGE_SECONDS: Final = 300.0
# A name that cannot be looked up in this time is taken to lead where it led before.
LOOK_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Address:
    """Where a replica listens: a host and port, or the path of a Unix socket."""

    host: str
    port: int
    unix: str | None = None
    tls: ssl.SSLContext | None = None
    api_key: bytes | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"unix:{self.unix}" if self.unix is not None else f"{self.host}:{self.port}"

    @property
    def authority(self) -> bytes:
        """The Host line's value (RFC 9110 section 7.2)."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}".encode("ascii") if self.unix is None else b"localhost"

    @property
    def headers(self) -> bytes:
        """The lines that every request to this replica begins with, ready to be sent."""
        lines = b"Host: %b\r\nAccept: */*\r\nAccept-Encoding: identity\r\n" % self.authority
        return lines + (b"Authorization: Bearer %b\r\n" % self.api_key if self.api_key is not None else b"")


class Pool:
    """The legs to one replica. `outstanding` counts the requests that are on their way there; `name` is its address.

    A name is looked up for each new leg, and all of its addresses are tried; once `keep_to` has said which of them is
    meant, only that one, and no leg of before takes a further request. Nor does one that is older than `age_seconds`.
    """

    def __init__(
        self,
        address: Address,
        *,
        connect_seconds: float,
        age_seconds: float = AGE_SECONDS,
        lookup: Lookup | None = None,
    ) -> None:
        self.address = address
        self.name = str(address)
        self.headers = address.headers
        self.outstanding = 0
        self.age_seconds = age_seconds
        self._connect_seconds = connect_seconds
        self._lookup = lookup or LoopLookup()
        self._kept_to: str | None = None
        self._kept_since = -math.inf
        self._idle: dict[Leg, float] = {}  # since when each waits, the longest first
        self._sweep: asyncio.TimerHandle | None = None  # one for all of them: to set one each time is dear
        self._closed = False

    def idle_leg(self) -> Leg | None:
        """The leg that was used last, if one waits. No await lies between taking it and sending on it."""
        while self._idle:
            leg, since = self._idle.popitem()
            now = leg.loop.time()
            if leg.usable and now - since < IDLE_SECONDS and self._may_serve(leg, now):
                return leg
            leg.close()
        return None

    async def new_leg(self, home: Home | None = None, *, seconds: float | None = None) -> Leg:
        """A new connection, at home here unless said otherwise, within `seconds` or else the pool's own time. Raises
        OSError, ssl.SSLError (an OSError) or TimeoutError.
        """
        patience = self._connect_seconds if seconds is None else seconds
        async with asyncio.timeout(patience):
            leg = await self._connected(home or self, patience)
        if self._closed or self._kept_to not in (None, leg.peer):
            # Whoever closed the pool meanwhile, or had it keep to another address, does not trust what answers here.
            leg.abort()
            raise ConnectionError("the connection leads where nothing is to be sent any more")
        return leg

    def keep_to(self, leg: Leg) -> None:
        """Use nothing from now on but what this leg is connected to: what is proven is proven of that. A leg of before
        may lead to another address of the name, or to the process that listened there before.
        """
        self._kept_to, self._kept_since = leg.peer, leg.born
        self._close_idle()

    async def has_moved(self) -> bool:
        """Whether the name is known to lead elsewhere now than to what the pool keeps to."""
        if self._kept_to is None or self._is_no_name:
            return False
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                return self._kept_to not in await self._lookup.addresses(self.address.host, self.address.port)
        except (OSError, TimeoutError):
            return False

    def back(self, leg: Leg) -> None:
        now = leg.loop.time()
        if self._closed or not self._may_serve(leg, now):
            leg.close()
            return
        self._idle[leg] = now
        if self._sweep is None:
            self._sweep = leg.loop.call_later(IDLE_SECONDS, self._close_tired, leg.loop)

    def lost(self, leg: Leg) -> None:
        self._idle.pop(leg, None)

    def close(self) -> None:
        self._closed = True
        self._close_idle()

    def _close_idle(self) -> None:
        idle, self._idle = self._idle, {}
        for leg in idle:
            leg.close()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    def _close_tired(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the legs that have waited for as long as they may, and look again when the next one has."""
        self._sweep = None
        over = loop.time() - IDLE_SECONDS
        while self._idle:
            leg, since = next(iter(self._idle.items()))
            if since > over:
                self._sweep = loop.call_later(since - over, self._close_tired, loop)
                return
            del self._idle[leg]
            leg.close()

    @property
    def _is_no_name(self) -> bool:
        """Whether there is nothing to look up: a Unix socket, or a plain address."""
        return self.address.unix is not None or is_address(self.address.host)

    def _may_serve(self, leg: Leg, now: float) -> bool:
        """Whether it may take a further request."""
        return leg.born >= self._kept_since and now - leg.born < self.age_seconds

    async def _connected(self, home: Home, seconds: float) -> Leg:
        loop = asyncio.get_running_loop()
        if self.address.unix is not None:
            _, leg = await loop.create_unix_connection(lambda: Leg(home), self.address.unix)
            return leg
        if self._kept_to is not None or self._is_no_name:
            return await self._connected_to(self._kept_to or self.address.host, home)
        deadline = loop.time() + seconds
        addresses = await self._lookup.addresses(self.address.host, self.address.port)
        failed: OSError = OSError(f"{self.address.host} has no address")
        for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
            try:
                # Its share of the time: one address that never answers must not take it from the others.
                async with asyncio.timeout((deadline - loop.time()) / left):
                    return await self._connected_to(address, home)
            except OSError as error:  # a TimeoutError is one
                failed = error
        raise failed

    async def _connected_to(self, address: str, home: Home) -> Leg:
        tls = self.address.tls
        _, leg = await asyncio.get_running_loop().create_connection(
            lambda: Leg(home), address, self.address.port, ssl=tls, server_hostname=self.address.host if tls else None
        )
        return leg


def is_address(host: str) -> bool:
    """Whether a host is a plain IP address and no name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
