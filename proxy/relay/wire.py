"""What the kernel holds and knows of a connection.

Left to itself, the kernel takes megabytes for a client that reads nothing, from the engine and for the client, since it
sizes its buffers by what went through them before. Here a slow client has a bounded part of both.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import termios
from typing import Final

# For a client, beside what is on its way to it and not confirmed: so no distance makes a stream slower by it.
UNSENT_BYTES: Final = 32 * 1024
# From an engine. The kernel doubles it, for its own book-keeping (socket(7)). Engines are near.
UNREAD_BYTES: Final = 64 * 1024

_TCP: Final = (socket.AF_INET, socket.AF_INET6)
_TCP_CLOSE: Final = 7  # net/tcp_states.h of Linux; the first byte of TCP_INFO is the state


def keep_little_unsent(wire: asyncio.Transport) -> None:
    connection = wire.get_extra_info("socket")
    if connection.family in _TCP:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)


def keep_little_unread(wire: asyncio.Transport) -> None:
    wire.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, UNREAD_BYTES)


def untaken_bytes(wire: asyncio.Transport) -> int:
    """Our buffer and the kernel's: bytes written that the other side's kernel has not confirmed, or that, over a Unix
    socket, the other side has not read.
    """
    waiting = wire.get_write_buffer_size()
    try:
        queued = fcntl.ioctl(wire.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
    except OSError:
        return waiting
    unacknowledged: int = struct.unpack("i", queued)[0]
    return waiting + unacknowledged


def was_reset(wire: asyncio.Transport) -> bool:
    """Whether the other side of a TCP connection has sent RST. Over a Unix socket a write says that at once."""
    connection = wire.get_extra_info("socket")
    if connection.family not in _TCP:
        return False
    try:
        state: int = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    except OSError:
        return True
    return state == _TCP_CLOSE
