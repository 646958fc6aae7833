"""saltgate's commands as a person runs them: processes of their own, with a home folder of the test's."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from config.person import GATE_VARIABLE
from proxy.cli.sign_in.kept import SignIns

SALTGATE = (sys.executable, "-c", "from proxy.cli import main; main()")
_PERSONAL = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY", GATE_VARIABLE)


@dataclass(frozen=True, slots=True)
class Said:
    status: int
    out: str
    err: str


class Home:
    """One person's home folder on a machine without a browser."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sign_ins = SignIns(folder / ".local" / "state" / "saltgate")

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in (*_PERSONAL, "XDG_STATE_HOME")}
        return kept | {"HOME": str(self.folder), "PYTHONPATH": str(Path(__file__).parents[4])}

    async def run(self, *words: str) -> Said:
        """The command, to its end."""
        async with self.running(*words) as process:
            out, err = await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode is not None
        return Said(process.returncode, out.decode(), err.decode())

    @asynccontextmanager
    async def running(self, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
        process = await asyncio.create_subprocess_exec(
            *SALTGATE,
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self.environment(),
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def told(process: asyncio.subprocess.Process, pattern: str) -> str:
    """What the pattern's group finds on standard error, as soon as it is there."""
    assert process.stderr is not None
    text = ""
    async with asyncio.timeout(30):
        while (match := re.search(pattern, text)) is None:
            line = await process.stderr.readline()
            if not line:
                raise AssertionError(f"it ended, and said: {text}")
            text += line.decode()
    return match[1]
