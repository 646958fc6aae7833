"""What the kernel knows of a connection: what its other side has not taken yet, and whether it has gone."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import termios
from typing import Final

_TCP_CLOSE: Final = 7  # net/tcp_states.h of Linux; the first byte of TCP_INFO is the state


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
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    try:
        state: int = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    except OSError:
        return True
    return state == _TCP_CLOSE
