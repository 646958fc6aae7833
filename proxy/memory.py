"""How a worker keeps its memory: large blocks stay with it, and no collection looks at what is there for good."""

from __future__ import annotations

import ctypes
import gc
import os
from typing import Final

# Of malloc.h. glibc gives a freed block of this size back to the kernel, which hands it out again page by page and
# each page zeroed: for a body of a megabyte that costs more than everything else that is done with it.
_M_TRIM_THRESHOLD: Final = -1
_M_TOP_PAD: Final = -2
_M_MMAP_THRESHOLD: Final = -3
KEPT_BYTES: Final = 32 * 1024 * 1024
_TOP_PAD_BYTES: Final = 4 * 1024 * 1024

# Collections of the young are cheap, and a request leaves no cycle behind. One of everything stops all streams of a
# worker for a tenth of a second where there are thousands, so it comes rarely.
_GENERATIONS: Final = (20_000, 20, 1_000)


def keep_large_blocks() -> bool:
    """Let malloc keep up to `KEPT_BYTES` of freed memory for the next large body. False where the C library has no
    such setting (musl).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or os.confstr("CS_GNU_LIBC_VERSION") is None:
        return False
    settings = ((_M_MMAP_THRESHOLD, KEPT_BYTES), (_M_TRIM_THRESHOLD, KEPT_BYTES), (_M_TOP_PAD, _TOP_PAD_BYTES))
    return all(mallopt(ctypes.c_int(name), ctypes.c_int(value)) == 1 for name, value in settings)


def settle() -> None:
    """To be called when everything that lasts is there: no collection looks at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GENERATIONS)
