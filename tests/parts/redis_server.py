"""A real redis-server of a test's own, on a free port of loopback, that can be stopped, restarted and frozen.

with RedisServer(tmp_path) as server:
    store = RedisStore(server.settings())
"""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from config.settings import Directory

_START_SECONDS: Final = 20.0


class RedisServer:
    """Keeps its data over `stop` and `start` in `folder`. Needs `redis-server` on the path: without it, tests fail."""

    def __init__(self, folder: Path, *options: str) -> None:
        """`options` are words of the command line, such as --tls-port and its number."""
        self.port = free_port()
        self._options = options
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def settings(self, *, max_stale: float = 300.0) -> Directory:
        return Directory(redis=self.url, max_stale=max_stale)

    def start(self) -> None:
        """Returns when it answers."""
        command = (
            f"redis-server --port {self.port} --bind 127.0.0.1 --dir {self._folder} --appendonly yes --save".split()
        )
        with (self._folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen([*command, "", *self._options], stdout=log, stderr=log)
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self._folder / "redis.log").read_text())
            time.sleep(0.01)

    def stop(self) -> None:
        """Ends it; what was written stays in the folder."""
        if self._process is not None:
            self.resume()
            self._process.terminate()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Frozen: it accepts connections and answers nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def command(self, *words: str | bytes) -> bytes:
        """One command in the plain protocol, and the first bytes of its answer."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            encoded = [word.encode() if isinstance(word, str) else word for word in words]
            parts = [b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded]
            connection.sendall(b"*%d\r\n" % len(parts) + b"".join(parts))
            return connection.recv(65536)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _answers(self) -> bool:
        try:
            return self.command("PING").startswith(b"+PONG")
        except OSError:
            return False

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            raise RuntimeError("redis-server does not run")
        self._process.send_signal(number)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
