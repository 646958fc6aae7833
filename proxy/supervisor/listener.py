"""The public address, bound once for all workers, now and after a restart of one."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from config.addresses import TcpAddress, UnixAddress, listen_address

BACKLOG: Final = 2048


class CannotListen(Exception):  # noqa: N818 - what the operator reads
    """An address that saltgate was told to listen on is not to be had. The message has the remedy."""


@contextlib.contextmanager
def bound(listen: str) -> Iterator[socket.socket]:
    """The listening socket. Raises CannotListen."""
    address = listen_address(listen)
    try:
        listening = _unix_socket(address.path) if isinstance(address, UnixAddress) else _tcp_socket(address)
        listening.setblocking(False)
        listening.listen(BACKLOG)
    except OSError as error:
        raise cannot_listen(listen, error) from error
    with listening:
        try:
            yield listening
        finally:
            if isinstance(address, UnixAddress):
                Path(address.path).unlink(missing_ok=True)


def cannot_listen(listen: str, error: OSError) -> CannotListen:
    return CannotListen(
        f"cannot listen on {listen}: {error.strerror or error}. Free the address, or choose another one."
    )


def _tcp_socket(address: TcpAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    return socket.create_server((address.host, address.port), family=family, backlog=BACKLOG)


def _unix_socket(path: str) -> socket.socket:
    """The socket that a killed process left behind is taken away; one that somebody listens on, or a file, is not."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if Path(path).is_socket() and not _is_listened_on(path):
            Path(path).unlink()
        listening.bind(path)
    except OSError:
        listening.close()
        raise
    return listening


def _is_listened_on(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as visitor:
        visitor.settimeout(1.0)
        try:
            visitor.connect(path)
        except ConnectionRefusedError:
            return False
        return True
