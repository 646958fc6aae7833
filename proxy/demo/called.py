"""How saltgate is called again by whoever called it: for lines that are to be pasted into another terminal."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path


def called_again() -> str:
    """The words of a shell that call the saltgate that runs here, from the folder where it was started."""
    return words_for(sys.argv[0], found=shutil.which("saltgate"), python=sys.executable)


def words_for(called: str, *, found: str | None, python: str) -> str:
    """`called` is how it was called (`sys.argv[0]`), `found` what a shell finds by its name, `python` what runs it.

    Where a shell found it by its name, it has handed down the whole path; what somebody has typed is left as it is.
    """
    if Path(called).name != "saltgate":
        return shlex.join((python, "-c", "from proxy.cli import main; main()"))
    return "saltgate" if called == found else shlex.quote(called)
