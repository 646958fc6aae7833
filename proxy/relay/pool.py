"""The connections to one replica: kept between requests, newest first, and dropped before the engine drops them."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from typing import Final

from proxy.relay.leg import Home, Leg

# uvicorn, which serves vLLM, closes an idle connection after 5 s (VLLM_HTTP_TIMEOUT_KEEP_ALIVE): we close first, so
# that a request and the engine's FIN rarely cross.
IDLE_SECONDS: Final = 4.0


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
    """The legs to one replica. `outstanding` counts the requests that are on their way there."""

    def __init__(self, address: Address, *, connect_seconds: float) -> None:
        self.address = address
        self.headers = address.headers
        self.outstanding = 0
        self._connect_seconds = connect_seconds
        self._idle: dict[Leg, asyncio.TimerHandle] = {}
        self._closed = False

    def idle_leg(self) -> Leg | None:
        """The leg that was used last, if one waits. No await lies between taking it and sending on it."""
        while self._idle:
            leg, timer = self._idle.popitem()
            timer.cancel()
            if leg.usable:
                return leg
        return None

    async def new_leg(self, home: Home | None = None, *, seconds: float | None = None) -> Leg:
        """A new connection, at home here unless said otherwise, within `seconds` or else the pool's own time. Raises
        OSError, ssl.SSLError (an OSError) or TimeoutError.
        """
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._connect_seconds if seconds is None else seconds):
            if self.address.unix is not None:
                _, leg = await loop.create_unix_connection(lambda: Leg(home or self), self.address.unix)
            else:
                _, leg = await loop.create_connection(
                    lambda: Leg(home or self), self.address.host, self.address.port, ssl=self.address.tls
                )
        if self._closed:
            # Whoever closed the pool meanwhile no longer trusts what answers at this address.
            leg.abort()
            raise ConnectionError("the pool was closed")
        return leg

    def back(self, leg: Leg) -> None:
        if self._closed:
            leg.close()
        else:
            self._idle[leg] = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._expire, leg)

    def lost(self, leg: Leg) -> None:
        timer = self._idle.pop(leg, None)
        if timer is not None:
            timer.cancel()

    def _expire(self, leg: Leg) -> None:
        if self._idle.pop(leg, None) is not None:
            leg.close()

    def close(self) -> None:
        self._closed = True
        for leg, timer in self._idle.items():
            timer.cancel()
            leg.close()
        self._idle.clear()
