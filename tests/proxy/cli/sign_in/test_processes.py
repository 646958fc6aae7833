"""The commands as processes, from signing in to signing out: at providers of flesh and blood, and at rogues."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from html import unescape
from pathlib import Path
from urllib.parse import parse_qs, urljoin, urlsplit

import aiohttp
import pytest
from aiohttp import web

from config.settings import Issuer, Login
from proxy.cli.sign_in.kept import KeptSignIn
from proxy.demo.provider import Lifetimes, LoopbackAddress, open_provider
from tests.parts.certified_provider import RESOURCE, CertifiedProvider
from tests.parts.chromium import open_chromium
from tests.parts.gate_bed import GateBed, gate_bed
from tests.parts.raw_engine import RawEngine
from tests.parts.redis_server import RedisServer, free_port
from tests.proxy.cli.sign_in.commands import Home, told
from tests.proxy.cli.sign_in.rogue import CLIENT, SECRETS, Rogue
from tests.proxy.demo.provider_parts import PASSWORD, Browser, clients, keys, people

pytestmark = pytest.mark.process

DIRECTORY = """
[workspaces.acme]
issuer = "{issuer}"
[workspaces.acme.projects.apollo]
members = ["user:{subject}"]
"""
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}]}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    folder = tmp_path / "home"
    folder.mkdir()
    return Home(folder)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as opened:
        yield opened


@asynccontextmanager
async def gate(redis: RedisServer, folder: Path, issuer: Issuer, subject: str) -> AsyncIterator[GateBed]:
    document = DIRECTORY.replace("{issuer}", issuer.issuer).replace("{subject}", subject)
    async with (
        RawEngine() as engine,
        gate_bed(
            redis.settings(),
            [engine.url],
            folder,
            document=document,
            proof="off",
            models=("tiny",),
            issuers=(issuer,),
            port=free_port(),
        ) as bed,
    ):
        await until_known(bed, issuer.issuer)
        yield bed


async def until_known(bed: GateBed, issuer: str) -> None:
    async with asyncio.timeout(10):
        while not all(each.ready for each in bed.gate.reception.issuers.issuers if each.rules.issuer == issuer):
            await asyncio.sleep(0.01)


async def status_with(bed: GateBed, token: str) -> int:
    headers = {"Authorization": f"Bearer {token.strip()}"}
    async with bed.session.get(f"{bed.url}/v1/models", headers=headers) as answer:
        return answer.status


# The demo's own provider.


@asynccontextmanager
async def demo_gate(redis: RedisServer, folder: Path, *, seconds: float = 3600) -> AsyncIterator[tuple[GateBed, str]]:
    lifetimes = Lifetimes(access_token=seconds, device_interval=1.0)
    async with open_provider(
        LoopbackAddress("127.0.0.1", 0),
        people=people(),
        clients=clients(),
        clock=time.time,
        keys=keys(),
        lifetimes=lifetimes,
    ) as provider:
        login = Login(native_client_id="saltgate-cli", native_scopes=("openid", "groups"))
        issuer = Issuer(issuer=provider.issuer, audiences=("saltgate",), algorithms=("RS256",), login=login)
        async with gate(redis, folder, issuer, "u-alice") as bed:
            yield bed, provider.issuer


async def allow_device(session: aiohttp.ClientSession, issuer: str, complete: str) -> None:
    """Alice types the code and her password."""
    browser = Browser(session, issuer)
    code = parse_qs(urlsplit(complete).query)["user_code"][0]
    page = await browser.post("/device", {"user_code": code})
    assert (await browser.sign_in(page, "alice", PASSWORD)).status == 200


COMPLETE = r"(http\S+user_code=\S+)"


async def test_from_the_sign_in_to_the_sign_out(
    redis: RedisServer, tmp_path: Path, home: Home, session: aiohttp.ClientSession
) -> None:
    async with demo_gate(redis, tmp_path) as (bed, issuer):
        async with home.running("login", "--gate", bed.url + "/v1", "--json") as process:
            await allow_device(session, issuer, await told(process, COMPLETE))
            out, err = await process.communicate()
        assert process.returncode == 0, err
        said = json.loads(out)
        assert said | {"expires_at": 0} == {
            "gate": bed.url,
            "issuer": issuer,
            "subject": "u-alice",
            "expires_at": 0,
            "refreshes": True,
        }
        who = await home.run("whoami")
        assert (who.status, who.err) == (0, "")
        assert "acme/apollo" in who.out
        token = await home.run("token")
        assert (token.status, token.err, token.out.count("\n")) == (0, "", 1)
        assert await status_with(bed, token.out) == 200
        kept = home.sign_ins.find(bed.url)
        assert kept is not None
        gone = await home.run("logout")
        assert (gone.status, gone.out) == (0, "")
        assert (await home.run("token")).status == 1
        form = {"grant_type": "refresh_token", "client_id": "saltgate-cli", "refresh_token": str(kept.refresh_token)}
        async with session.post(f"{issuer}/token", data=form) as answer:
            assert (answer.status, (await answer.json())["error"]) == (400, "invalid_grant")
        for said_text in (out.decode(), err.decode(), who.out, who.err, gone.err):
            assert kept.access_token not in said_text
            assert str(kept.refresh_token) not in said_text
        assert kept.access_token not in bed.log.read_text()


async def test_a_real_browser_signs_in_and_is_told_that_its_window_may_be_closed(
    redis: RedisServer, tmp_path: Path, home: Home
) -> None:
    async with (
        demo_gate(redis, tmp_path) as (bed, _),
        open_chromium(tmp_path) as browser,
        home.running("login", "--gate", bed.url, "--browser", "--json") as process,
    ):
        await browser.open(await told(process, r"(http\S+/authorize\?\S+)"))
        await browser.until("document.querySelector('[name=password]') !== null")
        await browser.run("document.querySelector('[name=username]').value = 'alice'")
        await browser.run(f"document.querySelector('[name=password]').value = '{PASSWORD}'")
        await browser.run("document.querySelector('form').requestSubmit()")
        await browser.until("document.body.innerText.includes('You may close this window')")
        out, err = await process.communicate()
        assert process.returncode == 0, err
        assert json.loads(out)["subject"] == "u-alice"
        assert await status_with(bed, (await home.run("token")).out) == 200


async def test_twenty_at_once_make_one_refresh(home: Home) -> None:
    async with Rogue() as rogue:
        keep_stale(home, rogue)
        said = await asyncio.gather(*(home.run("token") for _ in range(20)))
        assert {each.status for each in said} == {0}
        assert {each.err for each in said} == {""}
        assert len({each.out for each in said}) == 1
        assert len(rogue.forms("/token")) == 1


def keep_stale(home: Home, rogue: Rogue) -> None:
    home.sign_ins.keep(
        KeptSignIn(
            gate=rogue.url,
            issuer=rogue.url,
            client_id=CLIENT,
            resource=None,
            subject=None,
            access_token="old",
            refresh_token=f"{SECRETS[1]}-0",
            expires_at=0.0,
            lifetime=300.0,
        ),
        as_last=True,
    )


async def test_a_refresh_that_is_killed_leaves_no_lock(home: Home) -> None:
    async with Rogue() as rogue:
        keep_stale(home, rogue)
        released = asyncio.Event()
        rogue.instead["/.well-known/openid-configuration"] = lambda: hanging(released)
        async with home.running("token") as process:
            while not rogue.asked:
                await asyncio.sleep(0.01)
            process.kill()
            await process.wait()
        released.set()
        rogue.instead.clear()
        assert (await home.run("token")).status == 0


def hanging(released: asyncio.Event) -> web.StreamResponse:
    async def nothing() -> AsyncIterator[bytes]:
        await released.wait()
        yield b""

    return web.Response(body=nothing())


@pytest.mark.parametrize("way", ["--device", "--browser"])
async def test_ctrl_c_at_the_prompt_leaves_nothing_behind(home: Home, way: str) -> None:
    async with Rogue() as rogue:
        async with home.running("login", "--gate", rogue.url, way) as process:
            await told(process, r"(ABCD-EFGH|/authorize)")
            await asyncio.sleep(0.1)
            process.send_signal(signal.SIGINT)
            out, err = await asyncio.wait_for(process.communicate(), 10)
        assert (process.returncode, out) == (130, b"")
        assert b"Traceback" not in err
        assert not list(home.folder.iterdir())


async def test_nothing_secret_is_in_the_process_list(home: Home) -> None:
    async with Rogue() as rogue:
        rogue.device["interval"] = 1
        async with home.running("login", "--gate", rogue.url, "--device") as process:
            await told(process, "(ABCD-EFGH)")
            command_line = Path(f"/proc/{process.pid}/cmdline").read_bytes()
            assert await process.wait() == 0
        kept = home.sign_ins.find(rogue.url)
        assert kept is not None
        assert SECRETS[0].encode() not in command_line


async def test_a_token_that_the_gate_does_not_take_is_given_back_and_not_kept(home: Home) -> None:
    async with Rogue() as rogue:
        rogue.device["interval"], rogue.refuse_token = 1, 401
        said = await home.run("login", "--gate", rogue.url, "--device", "--json")
        assert (said.status, said.out) == (1, "")
        assert "This token is not valid here" in said.err
        assert not any(secret in said.err for secret in (*SECRETS, "eyJ"))
        assert home.sign_ins.find(rogue.url) is None
        assert [form["token_type_hint"] for form in rogue.forms("/revoke")] == ["refresh_token", "access_token"]


async def test_a_gate_that_says_no_to_the_person_is_told_of(home: Home) -> None:
    async with Rogue() as rogue:
        rogue.device["interval"], rogue.refuse_token = 1, 403
        said = await home.run("login", "--gate", rogue.url, "--device", "--json")
        assert (said.status, json.loads(said.out)["subject"]) == (0, "u-alice-0001")
        assert "warning:" in said.err


# A certified provider.


@pytest.fixture(scope="module")
def certified() -> Iterator[CertifiedProvider]:
    with CertifiedProvider(access_token_seconds=90) as running:
        yield running


def certified_issuer(provider: CertifiedProvider) -> Issuer:
    login = Login(
        native_client_id="gateway-cli", native_scopes=("openid", "offline_access", "llm.chat"), resource=RESOURCE
    )
    return Issuer(issuer=provider.issuer, audiences=("llm-gateway",), login=login)


async def allow_at_certified(session: aiohttp.ClientSession, provider: CertifiedProvider, address: str) -> None:
    """Alice in her browser: pages that send themselves, her password, and a button."""
    answer = await session.get(address, allow_redirects=False)
    for _ in range(12):
        text = await answer.text()
        if answer.status in {302, 303}:
            answer = await session.get(urljoin(address, answer.headers["Location"]), allow_redirects=False)
            continue
        match = re.search(r'action="([^"]+)"', text)
        if match is None:
            return
        form = {name: unescape(value) for name, value in re.findall(r'name="([^"]+)" value="([^"]*)"', text)}
        if "password" in text:
            form = {"username": "alice", "password": "alice-pw"}
        elif "confirm" in text and "user_code" not in form:
            form["confirm"] = "yes"
        answer = await session.post(urljoin(provider.issuer, match[1]), data=form, allow_redirects=False)
    raise AssertionError("the sign-in goes in circles")


async def test_a_device_at_a_certified_provider(
    redis: RedisServer, tmp_path: Path, home: Home, session: aiohttp.ClientSession, certified: CertifiedProvider
) -> None:
    async with gate(redis, tmp_path, certified_issuer(certified), "u-alice-0001") as bed:
        async with home.running("login", "--gate", bed.url, "--device", "--json") as process:
            await allow_at_certified(session, certified, await told(process, COMPLETE))
            out, err = await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 0, err
        await stays_signed_in(home, bed, session, certified, json.loads(out))


async def test_a_browser_at_a_certified_provider(
    redis: RedisServer, tmp_path: Path, home: Home, session: aiohttp.ClientSession, certified: CertifiedProvider
) -> None:
    async with gate(redis, tmp_path, certified_issuer(certified), "u-alice-0001") as bed:
        async with home.running("login", "--gate", bed.url, "--browser", "--json") as process:
            address = await told(process, r"(http\S+/auth\?\S+)")
            redirect_uri = parse_qs(urlsplit(address).query)["redirect_uri"][0]
            landed = await certified.walk(session, address, "alice", until=redirect_uri)
            async with session.get(landed) as answer:
                assert "close this window" in await answer.text()
            out, err = await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 0, err
        await stays_signed_in(home, bed, session, certified, json.loads(out))


async def stays_signed_in(
    home: Home, bed: GateBed, session: aiohttp.ClientSession, certified: CertifiedProvider, said: dict[str, object]
) -> None:
    assert (said["subject"], said["refreshes"]) == ("u-alice-0001", True)
    first = await home.run("token", "--min-validity", "0")
    assert await status_with(bed, first.out) == 200
    before = home.sign_ins.find(bed.url)
    assert before is not None
    home.sign_ins.keep(replace(before, expires_at=0.0), as_last=False)
    second = await home.run("token")
    assert (second.status, second.err) == (0, "")
    assert second.out != first.out
    assert await status_with(bed, second.out) == 200
    after = home.sign_ins.find(bed.url)
    assert after is not None
    gone = await home.run("logout")
    assert gone.status == 0, gone.err
    form = {"grant_type": "refresh_token", "client_id": "gateway-cli", "refresh_token": str(after.refresh_token)}
    async with session.post(f"{certified.issuer}/token", data=form) as answer:
        assert (await answer.json())["error"] == "invalid_grant"


async def test_a_token_that_is_good_costs_no_import_of_a_server(home: Home) -> None:
    """It runs before each of somebody's requests: with what else saltgate imports it would take a second."""
    async with Rogue() as rogue:
        keep_stale(home, rogue)
        kept = home.sign_ins.find(rogue.url)
        assert kept is not None
        home.sign_ins.keep(replace(kept, expires_at=time.time() + 3600), as_last=True)
        program = "import sys\nfrom proxy.cli import main\ntry: main(['token'])\nexcept SystemExit: print(*sys.modules)"
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, env=home.environment()
        )
        out, _ = await process.communicate()
    token, modules = out.decode().splitlines()
    assert token == "old"
    assert {"aiohttp", "asyncio", "pydantic", "authlib", "joserfc", "ssl", "email"}.isdisjoint(modules.split())
