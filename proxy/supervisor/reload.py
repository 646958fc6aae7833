"""A configuration read anew, in a fresh process: with the code that is installed now, and with nothing to lose."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final

import msgspec

from proxy.plan import Plan, Reading

READ_SECONDS: Final = 60.0


class CannotReload(Exception):  # noqa: N818 - what the operator reads
    """Why nothing changes: each fault as key and message."""

    def __init__(self, *faults: tuple[str, str]) -> None:
        super().__init__(*faults)
        self.faults = faults


async def read_anew(path: Path) -> Plan:
    """The plan of what stands in `path` now. Raises CannotReload with every fault of it."""
    try:
        process = await _reader(path)
    except OSError as error:  # no descriptors, memory or processes left, or no Python where it was at the start
        raise CannotReload((str(path), f"could not be read: {error.strerror}")) from error
    try:
        async with asyncio.timeout(READ_SECONDS):
            output, _ = await process.communicate()
        reading = msgspec.msgpack.decode(output, type=Reading)
    except TimeoutError as error:
        raise CannotReload((str(path), f"was not read within {READ_SECONDS:.0f} s")) from error
    except ValueError as error:
        raise CannotReload((str(path), f"could not be read: exit code {process.returncode}")) from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if reading.plan is None:
        raise CannotReload(*reading.faults)
    return reading.plan


async def _reader(path: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-c",
        "from proxy.reading import main; main()",
        str(path),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )


def check_fixed(old: Plan, new: Plan) -> None:
    """Raises CannotReload where the new plan differs in what only a restart can change."""
    changed = [key for key in old.fixed if new.fixed.get(key) != old.fixed[key]]
    if changed:
        raise CannotReload(*((key, "cannot change by a reload; restart saltgate") for key in changed))
