"""Whether the terminal that saltgate was started from has been closed: that, too, comes as SIGHUP."""

from __future__ import annotations

import contextlib
import os
import termios
from collections.abc import Iterator


class Terminal:
    """The controlling terminal of the time of the start, if there was one: a service has none."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    @property
    def is_closed(self) -> bool:
        """Whether there was one that has hung up since."""
        if self._descriptor is None:
            return False
        try:
            termios.tcgetattr(self._descriptor)
        except termios.error:  # EIO: it has hung up
            return True
        return False


@contextlib.contextmanager
def controlling_terminal() -> Iterator[Terminal]:
    try:
        descriptor = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        yield Terminal(None)
        return
    try:
        yield Terminal(descriptor)
    finally:
        os.close(descriptor)
