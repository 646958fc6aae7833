"""What a connection's other side has not taken yet."""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios


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
