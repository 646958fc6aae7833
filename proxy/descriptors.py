"""How many files a worker may have open: each connection is one."""

from __future__ import annotations

import resource
from typing import Final

# Beyond it nothing is won, and a limit of a thousand million, as some containers have it, slows programs down.
MOST: Final = 1_048_576
# For everything that is no client's: Redis, issuers, leashes on replicas, files.
RESERVED: Final = 256


def raise_limit() -> None:
    """As many as this process may have without asking anybody."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connections_possible() -> int:
    """How many clients can be served at once, each of them with a connection to an engine."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    descriptors = MOST if soft == resource.RLIM_INFINITY else min(soft, MOST)
    return max((descriptors - RESERVED) // 2, 1)
