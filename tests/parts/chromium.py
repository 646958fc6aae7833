"""A real Chromium without a window, driven over its debugging protocol: what a page looks like to a person's browser.

    async with open_chromium(tmp_path) as browser:
        await browser.open("http://127.0.0.1:8080/")
        await browser.run("document.querySelector('form').submit()")
        await browser.until("document.body.innerText.includes('done')")

Needs `chromium` on the path: without it, tests fail. Tests with it are marked `process`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp

START_SECONDS: Final = 30.0


class Browser:
    """One page. What is run in it is JavaScript."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = itertools.count(1)

    async def open(self, address: str) -> None:
        await self._ask("Page.navigate", url=address)

    async def run(self, script: str) -> object:
        """The value of the expression; None also where the page just goes to another."""
        answer = await self._ask("Runtime.evaluate", expression=script, returnByValue=True)
        match answer:
            case {"result": {"result": {"value": value}}}:
                return value
            case _:
                return None

    async def until(self, script: str, *, seconds: float = 15.0) -> None:
        """Waits until the expression is true. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while await self.run(script) is not True:
                await asyncio.sleep(0.05)

    async def _ask(self, method: str, **parameters: object) -> object:
        number = next(self._ids)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(START_SECONDS):
            while True:
                answer = await self._socket.receive_json()
                if answer.get("id") == number:
                    return answer


@asynccontextmanager
async def open_chromium(folder: Path) -> AsyncIterator[Browser]:
    """Its profile is in `folder`."""
    process = await asyncio.create_subprocess_exec(
        *("chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"),
        *("--remote-debugging-port=0", f"--user-data-dir={folder / 'chromium'}", "about:blank"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        port = await _port(folder / "chromium" / "DevToolsActivePort")
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                page = next(each for each in await answer.json() if each["type"] == "page")
            async with session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                yield Browser(socket)
    finally:
        process.terminate()
        await process.wait()


async def _port(told: Path) -> int:
    async with asyncio.timeout(START_SECONDS):
        while not (told.exists() and told.read_text().count("\n")):
            await asyncio.sleep(0.05)
    return int(told.read_text().splitlines()[0])
