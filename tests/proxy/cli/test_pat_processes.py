"""The local issuer of one PC, with whole processes: a token made at a command line is the key of everything."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import aiohttp
import pytest
import tomli_w

from proxy.demo.simulator import AT_ONCE, EngineShape, Simulator
from tests.parts.redis_server import free_port
from tests.proxy.cli.sign_in.commands import Home

pytestmark = pytest.mark.process


async def test_one_pc_one_owner_one_token(tmp_path: Path) -> None:
    home, public, issuer = Home(tmp_path), free_port(), f"http://127.0.0.1:{free_port()}"
    (tmp_path / "salt").write_text("0" * 43)
    async with Simulator(EngineShape(pace=AT_ONCE)) as engine, aiohttp.ClientSession() as session:
        configuration = tmp_path / "saltgate.toml"
        configuration.write_text(
            tomli_w.dumps(
                {
                    "workers": 2,
                    "public": {"listen": f"127.0.0.1:{public}"},
                    "admin": {"listen": f"127.0.0.1:{free_port()}"},
                    "engines": [{"name": "main", "urls": [engine.url]}],
                    "issuers": [{"issuer": issuer, "kind": "local", "audiences": ["saltgate"]}],
                    "directory": {"file": "directory.toml", "state": "state"},
                    "isolation": {"keys": [{"id": "k1", "secret": {"file": "salt"}}]},
                }
            )
        )
        here = ("-c", str(configuration))
        (tmp_path / "directory.toml").write_text("[workspaces]\n")
        made = await home.run("pat", "create", *here)
        member = re.search(r"member +(user:\S+)", made.err)
        assert (made.status, member is None) == (0, False)
        assert member is not None
        assert f"`saltgate pat revoke {made.out[4:12]} -c {configuration}` ends it" in made.err
        (tmp_path / "people.toml").write_text(
            f'[workspaces.home]\nissuer = "{issuer}"\n[workspaces.home.projects.notes]\nmembers = ["{member[1]}"]\n'
        )
        assert (await home.run("directory", "import", str(tmp_path / "people.toml"), *here)).status == 0
        token = made.out.strip()
        async with home.running("serve", *here) as serving:
            assert await _answered(session, public, token, 200)
            again = await home.run("pat", "revoke", token[4:12], *here)
            assert again.status == 0
            assert await _answered(session, public, token, 401)
            serving.terminate()
            assert serving.stdout is not None
            told = await serving.stdout.read()
            await serving.wait()
    assert token[13:56].encode() not in told


async def _answered(session: aiohttp.ClientSession, port: int, token: str, status: int) -> bool:
    """Whether each of some answers in a row has this status, soon."""
    chat = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}]}
    in_a_row = 0
    async with asyncio.timeout(40):
        while in_a_row < 8:
            try:
                async with session.post(
                    f"http://127.0.0.1:{port}/v1/chat/completions",
                    json=chat,
                    headers={"Authorization": f"Bearer {token}", "Connection": "close"},
                ) as answer:
                    in_a_row = in_a_row + 1 if answer.status == status else 0
            except aiohttp.ClientConnectionError:
                in_a_row = 0
            if not in_a_row:
                await asyncio.sleep(0.1)
    return True
