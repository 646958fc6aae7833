"""From a host to the addresses that may be connected to: looked up here, judged here, and used as they are.

What is connected to is the address that was judged. Were the name looked up once more after that, whoever answers for
it could say something else the second time (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Final, Protocol

import structlog
from aiohttp.abc import AbstractResolver, ResolveResult

from config.media_hosts import may_be_behind
from proxy.engines.remote import Origin
from proxy.turns import Turns

# A name server that does not answer holds a thread for a long while, longer than anybody waits: so one host has only
# some of them. These are not the threads in which the engines' own names are looked up.
THREADS: Final = 4
OF_ONE_HOST: Final = 2

_log = structlog.get_logger("saltgate.images")


class Lookup(Protocol):
    """The addresses of a host, as plain IP addresses. Raises OSError where it has none."""

    async def addresses(self, host: str, port: int) -> Sequence[str]: ...


class NoAllowedAddressError(OSError):
    """A host has no address that it may have. `found` are those that it has."""

    def __init__(self, host: str, found: Sequence[str]) -> None:
        super().__init__(f"{host} has no address that may be asked")
        self.found = tuple(found)


class SystemLookup:
    """As the system looks names up. To be closed."""

    def __init__(self, look_up: Callable[[str, int], Sequence[str]] | None = None) -> None:
        """`look_up` asks the system, in a thread."""
        self._look_up = _look_up if look_up is None else look_up
        self._turns = Turns(THREADS, OF_ONE_HOST)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="saltgate-lookup")  # begin with the first lookup

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        loop = asyncio.get_running_loop()

        def ended(_: Future[Sequence[str]]) -> None:
            # The loop may have ended before the thread: then nobody waits for a turn.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._turns.give_back, host)

        await self._turns.take(host)
        try:
            lookup = self._threads.submit(self._look_up, host, port)
        except RuntimeError:
            self._turns.give_back(host)
            raise
        # Of the thread itself and not of who waits for it: the turn is over when the thread is free.
        lookup.add_done_callback(ended)
        return await asyncio.wrap_future(lookup)

    def close(self) -> None:
        """Takes no lookup any more. One that runs is not waited for: nobody needs its answer."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str, port: int) -> Sequence[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return tuple(dict.fromkeys(str(address[0]) for *_, address in found))


async def allowed_addresses(lookup: Lookup, origin: Origin) -> Sequence[str]:
    """The addresses of an origin's host that it may have, at least one. Raises NoAllowedAddressError, OSError."""
    found = await lookup.addresses(origin.host, origin.port)
    allowed = tuple(address for address in found if may_be_behind(address, origin.reach))
    if not allowed:
        raise NoAllowedAddressError(origin.host, found)
    return allowed


class AllowedResolver(AbstractResolver):
    """aiohttp's resolver of one request: it knows the hosts of its origins, and no other."""

    def __init__(self, lookup: Lookup, origins: Iterable[Origin]) -> None:
        self._lookup = lookup
        self._origins = {(origin.host, origin.port): origin for origin in origins}

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_UNSPEC,  # noqa: ARG002 - aiohttp asks for both
    ) -> list[ResolveResult]:
        origin = self._origins.get((host, port))
        if origin is None:
            raise NoAllowedAddressError(host, ())
        try:
            allowed = await allowed_addresses(self._lookup, origin)
        except NoAllowedAddressError as refused:
            # Somebody should look at this: a host on the list that leads inwards.
            _log.warning("image.host_refused", host=host, addresses=refused.found)
            raise
        return [_result(host, address, port) for address in allowed]

    async def close(self) -> None:
        pass


def _result(host: str, address: str, port: int) -> ResolveResult:
    return {
        "hostname": host,
        "host": address,
        "port": port,
        "family": socket.AF_INET6 if ":" in address else socket.AF_INET,
        "proto": 0,
        "flags": socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
    }
