"""Pages in a real browser (Chromium, which must be on the path): what a listed one may do at the gate, and no other."""

from __future__ import annotations

import asyncio
import json
import re
from html import unescape
from pathlib import Path

import pytest
from aiohttp import web

from config.settings import Cors
from proxy.demo.simulator import AT_ONCE, EngineShape, Simulator
from tests.parts.gate_bed import GateBed, chat, gate_bed
from tests.parts.redis_server import RedisServer, free_port

pytestmark = pytest.mark.process

# Each try tells its status and what of the answer the script could read, or that the browser kept it from the script.
SCRIPT = """
const tries = TRIES, told = {};
for (const [name, path, options] of tries) {
  try {
    const answer = await fetch(GATE + path, options);
    const body = await answer.text();
    told[name] = {status: answer.status, size: body.length, id: answer.headers.get("x-request-id"),
                  challenge: answer.headers.get("www-authenticate"), done: body.includes("[DONE]")};
  } catch (error) { told[name] = "kept"; }
}
document.body.innerHTML = "<pre></pre>";
document.querySelector("pre").textContent = JSON.stringify(told);
"""


async def tried(bed: GateBed, host: str, port: int, tries: list[tuple[str, str, object]]) -> dict[str, object]:
    """What a page of that origin got at the gate."""
    script = SCRIPT.replace("TRIES", json.dumps(tries)).replace("GATE", json.dumps(bed.url))

    async def page(_: web.Request) -> web.Response:
        text = f"<!doctype html><body><script type=module>{script}</script>"
        return web.Response(text=text, content_type="text/html")

    app = web.Application()
    app.router.add_get("/", page)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    profile = f"--user-data-dir={bed.log.parent}/chromium-{host}"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom", profile]
    try:
        async with asyncio.timeout(60):
            process = await asyncio.create_subprocess_exec(
                *("chromium", *options, f"http://{host}:{port}/"),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            out, _ = await process.communicate()
    finally:
        await runner.cleanup()
    match = re.search(r"<pre>(.*)</pre>", out.decode())
    assert match, out.decode()
    found: dict[str, object] = json.loads(unescape(match[1]))
    return found


async def test_a_browser_lets_a_listed_page_in_and_no_other(redis: RedisServer, tmp_path: Path) -> None:
    port = free_port()
    async with (
        Simulator(EngineShape(pace=AT_ONCE)) as engine,
        gate_bed(redis.settings(), [engine.url], tmp_path, cors=Cors(origins=(f"http://127.0.0.1:{port}",))) as bed,
    ):
        sdk = bed.headers() | {"X-Stainless-Lang": "js", "Content-Type": "application/json"}
        body = json.dumps(chat(stream=True))
        stranger = {"Authorization": "Bearer no.such.token"}
        tries: list[tuple[str, str, object]] = [
            ("models", "/v1/models", {"headers": bed.headers()}),
            ("stream", "/v1/chat/completions", {"method": "POST", "headers": sdk, "body": body}),
            ("refused", "/w/acme/p/apollo/v1/models", {"headers": stranger}),
            ("absent", "/v1/no-such", {}),
            ("own header", "/v1/models", {"headers": bed.headers() | {"X-Custom": "1"}}),
            ("own method", "/v1/models", {"method": "DELETE", "headers": bed.headers()}),
            ("with cookies", "/v1/models", {"headers": bed.headers(), "credentials": "include"}),
            ("for people", "/account", {}),
        ]
        listed = await tried(bed, "127.0.0.1", port, tries)
        other = await tried(bed, "localhost", port, tries)
    statuses = {name: got["status"] if isinstance(got, dict) else got for name, got in listed.items()}
    assert statuses == {
        "models": 200,
        "stream": 200,
        "refused": 401,
        "absent": 404,
        "own header": "kept",
        "own method": "kept",
        "with cookies": "kept",
        "for people": "kept",
    }
    stream, refused = listed["stream"], listed["refused"]
    assert isinstance(stream, dict)
    assert stream["done"]
    assert str(stream["id"]).startswith("req_")
    assert isinstance(refused, dict)
    assert "oauth-protected-resource/w/acme/p/apollo/v1" in str(refused["challenge"])
    assert set(other.values()) == {"kept"}
