"""Reading a file that somebody named: a regular one, and not more of it than it should have."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_regular(path: Path, *, maximum_bytes: int) -> bytes:
    """The file's bytes. Raises OSError, also for what is no regular file: a pipe would be waited for without end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        content = stream.read(maximum_bytes + 1)
    if len(content) > maximum_bytes:
        raise OSError(errno.EFBIG, f"it has more than {maximum_bytes} bytes")
    return content
