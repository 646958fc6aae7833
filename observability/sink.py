"""Lines to a file descriptor without ever waiting for its reader."""

from __future__ import annotations

import fcntl
import os
import select
from collections import deque
from collections.abc import Iterator
from threading import Event, Lock, Thread
from typing import Final


class LineSink:
    """A bounded queue and one thread that writes it to a duplicate of `descriptor`, which stays the caller's.

    A terminal, pipe or disk that takes nothing fills the queue; from then on lines are dropped and counted. Lines
    gather for some milliseconds and are written many together: waking the thread costs a request more than the rest of
    its line does, and so does each write, for which the two threads hand the interpreter to each other. Workers that
    share a pipe take turns by a lock on it (POSIX fcntl, of the process), so that none cuts another's lines. Where
    there can be no lock, writes are whole lines of up to PIPE_BUF bytes, which a pipe keeps together (POSIX write).
    Made after the fork: a thread does not survive it.
    """

    def __init__(self, descriptor: int, *, limit: int = 10_000) -> None:
        # Our own: were the caller's closed, its number might soon be a client's connection.
        self._descriptor = os.dup(descriptor)
        self._limit = limit
        self._piece_bytes = PIECE_BYTES if _can_be_locked(self._descriptor) else select.PIPE_BUF
        # Taken from and put to without a lock: waiting for one would be waiting for the thread that writes.
        self._lines: deque[bytes] = deque()
        self._being_written = 0
        self._some = Event()  # there are lines, or it is closed
        self._told = False  # that there are lines
        self._hurry = Event()  # it is closed
        self._counting = Lock()
        self._dropped = 0
        self._abandoned = False
        self._thread = Thread(target=self._run, name="saltgate-log-sink", daemon=True)
        self._thread.start()

    def write(self, line: bytes) -> None:
        """Takes one line, its newline included. From any thread; never waits for the reader, never raises."""
        if self._hurry.is_set() or len(self._lines) + self._being_written >= self._limit:
            self._drop(1)
            return
        self._lines.append(line)
        if not self._told:
            self._told = True
            self._some.set()

    def dropped(self) -> int:
        """How many lines were lost so far."""
        return self._dropped

    def close(self, timeout: float) -> None:
        """Writes what is queued, for at most `timeout` seconds; the rest counts as dropped."""
        if self._hurry.is_set():
            return
        self._hurry.set()
        self._some.set()
        self._thread.join(timeout)
        self._abandoned = True
        self._drop(len(self._lines) + self._being_written)

    def _run(self) -> None:
        while not self._abandoned:
            self._some.wait()
            self._hurry.wait(_GATHER_SECONDS)
            for piece in _pieces(self._take(), self._piece_bytes):
                if not self._wrote_alone(b"".join(piece)) and not self._abandoned:
                    self._drop(len(piece))
                self._being_written -= len(piece)
            if self._hurry.is_set() and not self._lines:
                break
        os.close(self._descriptor)

    def _take(self) -> list[bytes]:
        # Told anew from here on, so that a line which comes after the last look wakes this thread once more.
        self._some.clear()
        self._told = False
        taken: list[bytes] = []
        while self._lines:
            self._being_written += 1
            taken.append(self._lines.popleft())
        if self._hurry.is_set():
            self._some.set()
        return taken

    def _drop(self, count: int) -> None:
        with self._counting:
            self._dropped += count

    def _wrote_alone(self, data: bytes) -> bool:
        if self._piece_bytes == select.PIPE_BUF:
            return self._wrote(data)
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
        except OSError:
            return False
        try:
            return self._wrote(data)
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)

    def _wrote(self, data: bytes) -> bool:
        # os.write, not a buffered file: a thread that hangs in one would hold its lock at the interpreter's end.
        rest = memoryview(data)
        while rest and not self._abandoned:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                # Somebody made the shared pipe non-blocking; then we do the waiting.
                _wait_until_writable(self._descriptor)
            except OSError:
                # The reader is gone or the disk is full. Where would one say so? The count is on the metrics page.
                return False
        return True


PIECE_BYTES: Final = 64 * 1024  # what a pipe holds

_GATHER_SECONDS: Final = 0.02
_RETRY_MILLISECONDS: Final = 500


def _can_be_locked(descriptor: int) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True  # another worker writes just now
    except OSError:
        return False
    fcntl.lockf(descriptor, fcntl.LOCK_UN)
    return True


def _pieces(lines: list[bytes], most_bytes: int) -> Iterator[list[bytes]]:
    piece: list[bytes] = []
    size = 0
    for line in lines:
        if piece and size + len(line) > most_bytes:
            yield piece
            piece, size = [], 0
        piece.append(line)
        size += len(line)
    if piece:
        yield piece


def _wait_until_writable(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    poll.poll(_RETRY_MILLISECONDS)
