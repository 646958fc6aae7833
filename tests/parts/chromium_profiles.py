"""A real Chromium without a window, driven over its DevTools protocol.

async with open_chromium(tmp_path) as chromium:
    page = await chromium.page()          # a profile of its own: cookies are shared only within it
    await page.go("http://127.0.0.1:8080/account")
    await page.until("document.title.includes('Sign in')")

Needs `chromium` on the path (`.ci/browser` installs it); without it tests fail and say so.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import shutil
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp

_START_SECONDS: Final = 60.0
_WAIT_SECONDS: Final = 30.0
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")


class Chromium:
    """One browser. Answers come over one web socket, told apart by their numbers."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.events: deque[dict[str, Any]] = deque(maxlen=10_000)  # what the enabled domains of the protocol told

    async def listen(self) -> None:
        async for message in self._socket:
            document = json.loads(message.data)
            if "id" not in document:
                self.events.append(document)
            waiting = self._waiting.pop(document.get("id"), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(document)

    async def ask(self, method: str, session: str | None = None, **parameters: object) -> dict[str, Any]:
        """One command of the protocol. Raises RuntimeError where it fails."""
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        command = {"id": number, "method": method, "params": parameters}
        await self._socket.send_json(command if session is None else command | {"sessionId": session})
        async with asyncio.timeout(_WAIT_SECONDS):
            answer = await self._waiting[number]
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        found: dict[str, Any] = answer["result"]
        return found

    async def page(self) -> Page:
        """A page in a new profile, with nothing remembered."""
        context = (await self.ask("Target.createBrowserContext"))["browserContextId"]
        return await self.tab(context)

    async def tab(self, context: str) -> Page:
        """A further page of the same profile."""
        target = await self.ask("Target.createTarget", url="about:blank", browserContextId=context)
        attached = await self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        page = Page(self, attached["sessionId"], context)
        await self.ask("Page.enable", page.session)
        return page


@dataclass(frozen=True, slots=True)
class Page:
    """What somebody sees."""

    chromium: Chromium
    session: str
    context: str

    async def go(self, address: str) -> None:
        await self.chromium.ask("Page.navigate", self.session, url=address)
        await self.until("document.readyState === 'complete'")

    async def asked(self, expression: str) -> Any:
        """What a script on the page would see. Raises RuntimeError while the page is changing."""
        answer = await self.chromium.ask(
            "Runtime.evaluate", self.session, expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"])[:500])
        return answer["result"].get("value")

    async def until(self, expression: str) -> None:
        """Waits until it is true. Raises TimeoutError, with what is to be seen."""
        deadline = asyncio.get_running_loop().time() + _WAIT_SECONDS
        while True:
            try:
                if await self.asked(expression):
                    return
            except RuntimeError:
                pass  # between two pages
            if asyncio.get_running_loop().time() > deadline:
                raise TimeoutError(f"{expression}: {await self.address()} shows {await self.text()}")
            await asyncio.sleep(0.02)

    async def until_at(self, beginning: str) -> None:
        """Waits until the page's address begins so, and it is there whole."""
        await self.until(f"location.href.startsWith({json.dumps(beginning)}) && document.readyState === 'complete'")

    async def fill(self, **fields: str) -> None:
        for name, value in fields.items():
            await self.asked(f"document.querySelector('[name={name}]').value = {json.dumps(value)}")

    async def click(self, selector: str) -> None:
        """As a person does: a form is sent with all that a browser adds."""
        await self.until(f"document.querySelector({json.dumps(selector)}) !== null")
        await self.asked(f"document.querySelector({json.dumps(selector)}).click()")

    async def address(self) -> str:
        return str(await self.asked("location.href"))

    async def text(self) -> str:
        return str(await self.asked("document.body.innerText"))

    async def cookies(self) -> dict[str, dict[str, Any]]:
        """All cookies of the profile, also those that no script sees."""
        found = await self.chromium.ask("Storage.getCookies", browserContextId=self.context)
        return {cookie["name"]: cookie for cookie in found["cookies"]}

    async def picture(self, file: Path) -> None:
        import base64

        shot = await self.chromium.ask("Page.captureScreenshot", self.session, format="png")
        file.write_bytes(base64.b64decode(shot["data"]))


@asynccontextmanager
async def open_chromium(folder: Path) -> AsyncIterator[Chromium]:
    """A browser whose files are in `folder`. Raises RuntimeError where there is none."""
    program = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if program is None:
        raise RuntimeError("no Chromium is installed: sh .ci/browser")
    process = await asyncio.create_subprocess_exec(
        program,
        "--headless=new",
        "--no-sandbox",  # tests run as root in containers
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--remote-debugging-port=0",
        f"--user-data-dir={folder / 'chromium'}",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        address = await _address(process)
        async with aiohttp.ClientSession() as session, session.ws_connect(address, max_msg_size=0) as socket:
            chromium = Chromium(socket)
            reading, draining = asyncio.ensure_future(chromium.listen()), asyncio.ensure_future(_drain(process))
            try:
                yield chromium
            finally:
                reading.cancel()
                draining.cancel()
                await asyncio.gather(reading, draining, return_exceptions=True)
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            async with asyncio.timeout(10):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    async with asyncio.timeout(_START_SECONDS):
        while line := await process.stderr.readline():
            if match := re.search(rb"DevTools listening on (ws://\S+)", line):
                return match[1].decode()
    raise RuntimeError("Chromium did not start")


async def _drain(process: asyncio.subprocess.Process) -> None:
    assert process.stderr is not None
    while await process.stderr.read(65536):
        pass
