"""Removes the demo's folder when the demo has ended, however it ended: `python sweeper.py FOLDER`.

A script that imports nothing of saltgate. Its standard input is a pipe whose other end nobody but the demo holds.
"""

from __future__ import annotations

import shutil
import signal
import sys


def main() -> None:
    # What ends the demo may be meant for its whole process group; this is what remains to be done then.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.read()
    shutil.rmtree(sys.argv[1], ignore_errors=True)


if __name__ == "__main__":
    main()
