"""Becomes another program, one that ends when the demo ends: `python tether.py DEMO_PID PROGRAM ARGUMENT ...`.

A script that imports nothing of saltgate, so that it costs a few milliseconds. However the demo ends, be it by SIGKILL,
the kernel sends the program SIGTERM (prctl(2), PR_SET_PDEATHSIG, which outlives exec).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    demo, *command = sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0) != 0:
        sys.exit(f"tether: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != int(demo):
        sys.exit("tether: the demo has ended")  # before the line above, so that no signal will tell
    # Ctrl-C reaches every process of a terminal. What it ends, and in which order, is the demo's to say.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    os.execv(command[0], command)  # noqa: S606 - no shell: the command comes as a list


if __name__ == "__main__":
    main()
