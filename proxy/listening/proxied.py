"""Reads the header of the PROXY protocol off a connection, and not a byte of what follows it: that may be TLS."""

from __future__ import annotations

import asyncio
import socket

from proxy.listening.proxy_protocol import NoProxyHeader, Told, belonging, is_complete, told


async def read_header(connection: socket.socket) -> Told:
    """What the header tells. Raises NoProxyHeader where the connection begins otherwise or ends, OSError, and waits for
    as long as the header is not whole.
    """
    seen = b""
    while not is_complete(seen):
        waiting = await _waiting(connection)
        if not waiting:
            raise NoProxyHeader("ends")
        seen += connection.recv(belonging(seen, waiting))
    return told(seen)


async def _waiting(connection: socket.socket) -> bytes:
    """What has come and was not taken yet; empty at the end."""
    while True:
        try:
            return connection.recv(256, socket.MSG_PEEK)
        except BlockingIOError:
            await _readable(connection)


async def _readable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    loop.add_reader(connection.fileno(), came.set)
    try:
        await came.wait()
    finally:
        loop.remove_reader(connection.fileno())
