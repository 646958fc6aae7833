"""From an engine's name to its addresses: looked up for each new connection, so that a name that moves is followed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Protocol


class Lookup(Protocol):
    """The addresses of a host, as plain IP addresses, in the order in which to try them. Raises OSError where it has
    none.
    """

    async def addresses(self, host: str, port: int) -> Sequence[str]: ...


class LoopLookup:
    """As the system looks names up, in the threads of the running loop."""

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return tuple(dict.fromkeys(str(address[0]) for *_, address in found))
