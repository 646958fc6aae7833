"""Ports for the demo's parts: the usual one where it is free, else the next. No two demos choose the same."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

CANDIDATES: Final = 200


class Ports:
    """The ports that were chosen, claimed until this is left.

    Between the choice and the moment when a part listens, a second may pass, and another demo may choose meanwhile. So
    each port is claimed by a Unix socket of a name that all demos know (unix(7), abstract: it ends with its process).
    """

    def __init__(self) -> None:
        self._claims = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._claims.close()

    def choose(self, wanted: int) -> int:
        """The first free port of 127.0.0.1, from `wanted` upwards. Raises OSError where there is none."""
        for port in range(wanted, wanted + CANDIDATES):
            if self._claim(port) and _is_free(port):
                return port
        raise OSError(errno.EADDRINUSE, f"no port from {wanted} to {wanted + CANDIDATES - 1} is free on 127.0.0.1")

    def _claim(self, port: int) -> bool:
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0saltgate-demo-port-{port}")
        except OSError:
            claim.close()
            return False
        self._claims.enter_context(claim)
        return True


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the parts bind: connections that ended a moment ago are no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
