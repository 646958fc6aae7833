"""The real process: `saltgate serve` with its workers, signals, listeners and admin pages."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from proxy.cli import COMMANDS
from proxy.demo.provider import sign_in
from proxy.demo.simulator import AT_ONCE, EngineShape, Simulator
from proxy.observers import VERSION
from tests.parts.emitted import search_files
from tests.parts.gate_bed import DIRECTORY, KEY, chat
from tests.parts.gone_client import GoneClient, post
from tests.parts.redis_server import RedisServer
from tests.parts.tokens import IssuerServer, TokenMint

pytestmark = pytest.mark.process

SALTGATE = (sys.executable, "-P", "-c", "from proxy.cli import main; main()")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(slots=True)
class Served:
    """A running `saltgate serve`."""

    process: asyncio.subprocess.Process
    url: str
    admin: str
    mint: TokenMint
    issuer: IssuerServer
    engine: Simulator
    session: aiohttp.ClientSession
    log: Path
    configuration: Path

    def change(self, old: str, new: str) -> None:
        """Changes the configuration's text, which must have `old` once."""
        text = self.configuration.read_text()
        assert text.count(old) == 1, text
        self.configuration.write_text(text.replace(old, new))

    def events(self, *names: str) -> list[dict[str, object]]:
        """The log's lines of these events, so far."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] in names]

    async def until_told(self, *names: str, times: int = 1, seconds: float = 60.0) -> list[dict[str, object]]:
        """The lines of these events, as soon as there are so many."""
        async with asyncio.timeout(seconds):
            while len(lines := self.events(*names)) < times:
                assert self.process.returncode is None, self.log.read_text()
                await asyncio.sleep(0.02)
        return lines

    async def metric(self, name: str) -> float:
        """The sum of a family's values in /metrics."""
        async with self.session.get(f"{self.admin}/metrics") as answer:
            text = await answer.text()
        return sum(float(value) for value in re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)", text, re.M))

    def headers(self) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {self.mint.token(subject='u-alice-0001', groups=())}",
            "OpenAI-Organization": "acme",
            "OpenAI-Project": "apollo",
        }

    async def status(self, page: str) -> int:
        try:
            async with self.session.get(self.admin + page) as answer:
                return answer.status
        except aiohttp.ClientError:
            return 0

    async def until(self, page: str, status: int, seconds: float = 30.0) -> None:
        async with asyncio.timeout(seconds):
            while await self.status(page) != status:
                assert self.process.returncode is None, self.log.read_text()
                await asyncio.sleep(0.05)

    async def ask(self) -> int:
        async with self.session.post(f"{self.url}/v1/chat/completions", json=chat(), headers=self.headers()) as answer:
            await answer.read()
            return answer.status

    async def counted(self) -> float:
        """Requests with outcome ok, as /metrics tells them for all workers."""
        async with self.session.get(f"{self.admin}/metrics") as answer:
            text = await answer.text()
        found = re.findall(r'^saltgate_requests_total\{[^}]*workspace="acme"[^}]*outcome="ok"[^}]*\} (\S+)', text, re.M)
        return sum(float(value) for value in found)

    def workers(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(child) for child in children.split()]

    async def ended(self, seconds: float = 30.0) -> int:
        async with asyncio.timeout(seconds):
            return await self.process.wait()


@asynccontextmanager
async def serving(
    redis: RedisServer,
    folder: Path,
    *,
    workers: int = 1,
    shape: EngineShape | None = None,
    more: str = "",
    tables: str = "",
    document: str = DIRECTORY,
    listen: str | None = None,
    working_folder: Path | None = None,
    stdout: int | None = None,
    environment: Mapping[str, str] | None = None,
    limit: str = "10s",
    engine_url: str | None = None,
    issuer_server: IssuerServer | None = None,
) -> AsyncIterator[Served]:
    """`more` are further lines of `[public]`, `tables` whole sections, in which `{issuer}` is the issuer; `document` is
    the directory. By default it listens on a free port and all output goes to `log`. With `engine_url` that is its
    engine, and the simulator is asked nothing. People sign in at `issuer_server`.
    """
    mint = TokenMint() if issuer_server is None else issuer_server.mint
    public, admin = free_port(), free_port()
    async with (
        Simulator(shape or EngineShape(pace=AT_ONCE)) as engine,
        issuer_server or IssuerServer(mint) as issuer,
        aiohttp.ClientSession() as session,
    ):
        (folder / "key").write_bytes(KEY.value)
        (folder / "directory.toml").write_text(document.format(issuer=mint.issuer))
        configuration = folder / "saltgate.toml"
        configuration.write_text(
            f"""
workers = {workers}
[public]
listen = "{listen or f"127.0.0.1:{public}"}"
{more}
[admin]
listen = "127.0.0.1:{admin}"
[[engines]]
name = "main"
urls = ["{engine_url or engine.url}"]
[[issuers]]
issuer = "{mint.issuer}"
audiences = ["saltgate"]
[directory]
redis = "{redis.url}"
[[isolation.keys]]
id = "k1"
secret = {{ file = "key" }}
[drain]
limit = "{limit}"
{tables.format(issuer=mint.issuer)}
"""
        )
        importing = await asyncio.create_subprocess_exec(
            *SALTGATE, "directory", "import", str(folder / "directory.toml"), "-c", str(configuration)
        )
        assert await importing.wait() == 0
        log = folder / "serve.log"
        with log.open("wb") as stream:
            process = await asyncio.create_subprocess_exec(
                *SALTGATE,
                "serve",
                "-c",
                str(configuration),
                stdout=stream if stdout is None else stdout,
                stderr=stream,
                cwd=working_folder,
                env=None if environment is None else os.environ | environment,
            )
        scheme = "https" if "tls" in more else "http"
        served = Served(
            process,
            f"{scheme}://127.0.0.1:{public}",
            f"http://127.0.0.1:{admin}",
            mint,
            issuer,
            engine,
            session,
            log,
            configuration,
        )
        try:
            yield served
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        search_files((log,))


async def test_workers_share_the_port_and_metrics_and_a_killed_one_is_replaced(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with serving(redis, tmp_path, workers=2) as served:
        await served.until("/readyz", 200)
        assert await served.status("/healthz") == 200
        for _ in range(10):
            assert await served.ask() == 200
        assert await served.counted() == 10
        victim, other = served.workers()
        os.kill(victim, signal.SIGKILL)
        async with asyncio.timeout(20):
            while len(workers := served.workers()) < 2 or victim in workers:
                await asyncio.sleep(0.05)
        assert other in served.workers()
        await served.until("/readyz", 200)
        assert await served.ask() == 200
        # What a worker counted after it was last asked dies with it; what was told is kept.
        told = await served.counted()
        assert told >= 11
        for worker in served.workers():
            os.kill(worker, signal.SIGKILL)
        await served.until("/readyz", 503)
        await served.until("/readyz", 200)
        assert await served.counted() == told
        served.process.send_signal(signal.SIGINT)
        assert await served.ended() == 0


async def test_readiness_waits_for_issuer_directory_and_engine(redis: RedisServer, tmp_path: Path) -> None:
    async with serving(redis, tmp_path) as served:
        await served.issuer.stop()
        await served.until("/healthz", 200)
        assert await served.status("/readyz") == 503
        await served.issuer.start()
        await served.until("/readyz", 200)
        async with served.session.get(f"{served.admin}/readyz") as answer:
            assert await answer.text() == "ok\n"  # it says nothing else to whoever asks


async def test_sigterm_lets_an_open_stream_finish_and_takes_no_new_connection(
    redis: RedisServer, tmp_path: Path
) -> None:
    shape = EngineShape(answer_tokens=40)
    async with serving(redis, tmp_path, shape=shape) as served:
        await served.until("/readyz", 200)
        async with GoneClient.to(served.url) as client:
            await client.send(post("/v1/chat/completions", chat(stream=True), served.headers()))
            await client.read_until(b'"content":"')
            served.process.send_signal(signal.SIGTERM)
            await served.until("/readyz", 503)
            await client.read_until(b"data: [DONE]")
        assert await served.ended() == 0
        lines = [json.loads(line) for line in served.log.read_text().splitlines()]
        assert [line["outcome"] for line in lines if line["event"] == "request.completed"] == ["ok"]
        assert not [line for line in lines if "stack" in line]
        with pytest.raises(aiohttp.ClientConnectorError):
            await served.session.get(served.url)


async def test_a_worker_whose_supervisor_was_killed_ends_by_itself(redis: RedisServer, tmp_path: Path) -> None:
    async with serving(redis, tmp_path) as served:
        await served.until("/readyz", 200)
        (worker,) = served.workers()
        served.process.kill()
        await served.ended()
        async with asyncio.timeout(20):
            while Path(f"/proc/{worker}/stat").exists() and "Z" not in Path(f"/proc/{worker}/stat").read_text():
                await asyncio.sleep(0.05)


async def test_a_client_that_leaves_frees_the_engine_of_a_served_gate(redis: RedisServer, tmp_path: Path) -> None:
    async with serving(redis, tmp_path, shape=EngineShape(answer_tokens=4000)) as served:
        await served.until("/readyz", 200)
        for streaming in (True, False):
            async with GoneClient.to(served.url) as client:
                before = len(served.engine.requests)
                await client.send(
                    post("/v1/chat/completions", chat(stream=streaming, max_tokens=4000), served.headers())
                )
                await served.engine.wait_for(lambda seen=before: len(served.engine.requests) > seen)  # type: ignore[misc]
                if streaming:
                    await client.read_until(b'"content":"')
                client.leave_by_fin()
                await served.engine.wait_for(lambda: served.engine.last.aborted)


async def test_metrics_off_loopback_rules_ask_for_their_token(redis: RedisServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("metrics-token-of-the-test\n")
    async with serving(redis, tmp_path) as served:
        await served.until("/healthz", 200)
        assert await served.status("/metrics") == 200
        served.process.terminate()
        await served.ended()
    configuration = (tmp_path / "saltgate.toml").read_text()
    (tmp_path / "saltgate.toml").write_text(
        configuration.replace("[[engines]]", 'metrics_token = { file = "token" }\n[[engines]]', 1)
    )
    process = await asyncio.create_subprocess_exec(
        *SALTGATE, "serve", "-c", str(tmp_path / "saltgate.toml"), stdout=asyncio.subprocess.DEVNULL
    )
    try:
        async with aiohttp.ClientSession() as session, asyncio.timeout(30):
            admin = re.search(r'\[admin\]\nlisten = "([^"]+)"', configuration)
            assert admin is not None
            url = f"http://{admin[1]}/metrics"
            while True:
                try:
                    async with session.get(url) as answer:
                        assert answer.status == 401
                        break
                except aiohttp.ClientConnectorError:
                    await asyncio.sleep(0.05)
            for shown, status in (("wrong", 401), ("metrics-token-of-the-test", 200)):
                async with session.get(url, headers={"Authorization": f"Bearer {shown}"}) as answer:
                    assert answer.status == status
    finally:
        process.terminate()
        await process.wait()


async def test_a_faulty_configuration_ends_with_2_and_every_fault(tmp_path: Path) -> None:
    (tmp_path / "saltgate.toml").write_text('[public]\nlisten = "nonsense"\n[directory]\nredis = "http://x"\n')
    process = await asyncio.create_subprocess_exec(
        *SALTGATE, "serve", "-c", str(tmp_path / "saltgate.toml"), stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert process.returncode == 2
    for key in (b"public.listen", b"engines", b"issuers", b"directory.redis", b"isolation"):
        assert key in errors


async def test_a_taken_port_ends_with_2(redis: RedisServer, tmp_path: Path) -> None:
    async with serving(redis, tmp_path) as served:
        await served.until("/healthz", 200)
        second = await asyncio.create_subprocess_exec(
            *SALTGATE,
            "serve",
            "-c",
            str(tmp_path / "saltgate.toml"),
            stderr=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
        )
        _, errors = await second.communicate()
        assert second.returncode == 2
        assert b"cannot listen" in errors


async def run(*arguments: str) -> tuple[int, str, str]:
    """Exit status and output of `saltgate` with these arguments."""
    process = await asyncio.create_subprocess_exec(
        *SALTGATE, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(30):
        output, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode(), errors.decode()


async def test_every_command_has_its_help_and_wrong_usage_ends_with_2() -> None:
    runs = [run("--help"), *(run(command, "--help") for command in COMMANDS)]
    for code, output, errors in await asyncio.gather(*runs):
        assert (code, errors) == (0, "")
        assert output.startswith("usage: saltgate")
    assert await run("--version") == (0, f"{VERSION}\n", "")
    wrong = [run(), run("nonsense"), run("serve"), run("serve", "-c"), run("serve", "-c", "x.toml", "--nonsense")]
    for code, output, errors in await asyncio.gather(*wrong):
        assert (code, output) == (2, "")
        assert errors


async def test_a_second_signal_cuts_what_is_still_open(redis: RedisServer, tmp_path: Path) -> None:
    async with serving(redis, tmp_path, shape=EngineShape(answer_tokens=4000)) as served:
        await served.until("/readyz", 200)
        async with GoneClient.to(served.url) as client:
            await client.send(post("/v1/chat/completions", chat(stream=True, max_tokens=4000), served.headers()))
            await client.read_until(b'"content":"')
            served.process.send_signal(signal.SIGTERM)
            await served.until("/readyz", 503)
            await client.read_until(b'"content":"')  # it still runs
            served.process.send_signal(signal.SIGTERM)
            rest = await client.read_to_end(seconds=5.0)  # the limit is 10 s
        assert b'"draining"' in rest
        assert b"[DONE]" not in rest
        assert await served.ended() == 0


async def test_ctrl_c_which_every_process_hears_lets_an_open_stream_finish(redis: RedisServer, tmp_path: Path) -> None:
    async with serving(redis, tmp_path, shape=EngineShape(answer_tokens=40)) as served:
        await served.until("/readyz", 200)
        async with GoneClient.to(served.url) as client:
            await client.send(post("/v1/chat/completions", chat(stream=True), served.headers()))
            await client.read_until(b'"content":"')
            for process in (*served.workers(), served.process.pid):
                os.kill(process, signal.SIGINT)
            await client.read_until(b"data: [DONE]")
        assert await served.ended() == 0
        assert "server.stopped" in served.log.read_text()
        assert '"error"' not in served.log.read_text()


async def test_a_signal_while_a_worker_waits_for_its_restart_ends_all_at_once(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with serving(redis, tmp_path) as served:
        await served.until("/readyz", 200)
        for worker in served.workers():
            os.kill(worker, signal.SIGKILL)
        async with asyncio.timeout(20):
            while "worker.died" not in served.log.read_text():
                await asyncio.sleep(0.01)
        served.process.send_signal(signal.SIGTERM)
        assert await served.ended(8.0) == 0
        assert "Traceback" not in served.log.read_text()


async def test_readiness_ends_with_the_engine_and_comes_back_with_it(redis: RedisServer, tmp_path: Path) -> None:
    async with serving(redis, tmp_path) as served:
        await served.until("/readyz", 200)
        port = int(served.engine.url.rpartition(":")[2])
        await served.engine.__aexit__(None, None, None)
        await served.until("/readyz", 503)
        async with Simulator(EngineShape(pace=AT_ONCE), port=port):
            await served.until("/readyz", 200)
            assert await served.ask() == 200


async def test_a_worker_that_starts_slowly_is_not_taken_for_a_dead_one(redis: RedisServer, tmp_path: Path) -> None:
    """/readyz is asked all the while: an answer that is not there yet is "not ready" and nothing more."""
    async with serving(redis, tmp_path) as served:
        await served.until("/healthz", 200)
        workers = served.workers()
        os.kill(workers[0], signal.SIGSTOP)
        assert await served.status("/readyz") == 503  # after the time that an answer has
        os.kill(workers[0], signal.SIGCONT)
        await served.until("/readyz", 200)
        assert served.workers() == workers


async def test_modules_in_the_working_folder_are_not_taken_for_saltgates_own(
    redis: RedisServer, tmp_path: Path
) -> None:
    for name in ("config", "proxy", "observability", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the working folder was imported')\n")
    async with serving(redis, tmp_path, working_folder=tmp_path) as served:
        await served.until("/readyz", 200)
        assert await served.ask() == 200


async def test_a_reader_of_the_log_that_stalls_or_leaves_holds_no_request(redis: RedisServer, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    async with serving(redis, tmp_path, stdout=writing) as served:
        os.close(writing)
        await served.until("/readyz", 200)
        async with asyncio.timeout(60):
            for _ in range(200):  # much more than a pipe holds
                assert await served.ask() == 200
        os.close(reading)
        assert await served.ask() == 200
        served.process.send_signal(signal.SIGTERM)
        assert await served.ended() == 0


async def test_a_unix_socket_is_listened_on_and_taken_away_at_the_end(redis: RedisServer, tmp_path: Path) -> None:
    path = tmp_path / "public.sock"
    with socket.socket(socket.AF_UNIX) as left_behind:  # by a process that was killed
        left_behind.bind(str(path))
    async with serving(redis, tmp_path, listen=f"unix:{path}", more='url = "https://llm.example.com"') as served:
        await served.until("/readyz", 200)
        async with GoneClient(unix_path=str(path)) as client:
            await client.send(post("/v1/chat/completions", chat(), served.headers()))
            assert (await client.read_answer()).status == 200
        code, _, errors = await run("serve", "-c", str(tmp_path / "saltgate.toml"))
        assert code == 2  # somebody listens on it
        assert "cannot listen on unix:" in errors
        async with GoneClient(unix_path=str(path)) as client:  # and still does
            await client.send(post("/v1/chat/completions", chat(), served.headers()))
            assert (await client.read_answer()).status == 200
        served.process.send_signal(signal.SIGTERM)
        assert await served.ended() == 0
        assert not path.exists()
        path.write_text("a file of somebody's")
        code, _, errors = await run("serve", "-c", str(tmp_path / "saltgate.toml"))
        assert (code, path.read_text()) == (2, "a file of somebody's")


def certificate(folder: Path, serial: int = 1) -> Path:
    """A certificate of its own authority for 127.0.0.1; `key.pem` beside it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "cert.pem"


async def test_tls_ends_at_the_public_listener_where_a_certificate_is_given(redis: RedisServer, tmp_path: Path) -> None:
    authority = ssl.create_default_context(cafile=str(certificate(tmp_path)))
    tls = 'tls = { certificate = "cert.pem", key = { file = "key.pem" } }'
    async with serving(redis, tmp_path, more=tls) as served:
        await served.until("/readyz", 200)
        async with served.session.post(
            f"{served.url}/v1/chat/completions", json=chat(), headers=served.headers(), ssl=authority
        ) as answer:
            assert answer.status == 200


async def test_a_certificate_that_cannot_be_used_ends_with_2_and_its_key(redis: RedisServer, tmp_path: Path) -> None:
    tls = 'tls = { certificate = "cert.pem", key = { file = "key.pem" } }'
    certificate(tmp_path)
    (tmp_path / "key.pem").write_text("no key\n")
    (tmp_path / "authority.pem").write_text("no authority\n")
    async with serving(redis, tmp_path, more=tls) as served:
        assert await served.ended() == 2
        assert "public.tls: " in served.log.read_text()
    configuration = (tmp_path / "saltgate.toml").read_text()
    (tmp_path / "saltgate.toml").write_text(
        configuration.replace('name = "main"', 'name = "main"\nca = "authority.pem"')
    )
    code, _, errors = await run("serve", "-c", str(tmp_path / "saltgate.toml"))
    assert code == 2
    assert "public.tls: " in errors  # every fault in one run
    assert "engines.0.ca: " in errors
    assert "no key" not in errors


async def test_a_local_issuer_that_cannot_keep_its_state_ends_with_2(redis: RedisServer, tmp_path: Path) -> None:
    port = free_port()
    async with serving(redis, tmp_path) as served:
        served.process.terminate()
        await served.ended()
        issuer = f"http://127.0.0.1:{port}"
    configuration = (tmp_path / "saltgate.toml").read_text().replace(served.mint.issuer, issuer)
    (tmp_path / "saltgate.toml").write_text(configuration.replace("audiences =", 'kind = "local"\naudiences ='))
    open_to_others = tmp_path / f"local-issuer-{port}"
    open_to_others.mkdir(mode=0o755)
    code, _, errors = await run("serve", "-c", str(tmp_path / "saltgate.toml"))
    assert (code, "password" in errors) == (2, False)
    assert "issuers.0: " in errors
    assert f"chmod go-rwx {open_to_others}" in errors
    open_to_others.rmdir()
    open_to_others.write_text("a file")
    code, _, errors = await run("serve", "-c", str(tmp_path / "saltgate.toml"))
    assert code == 2
    assert "issuers.0: " in errors
    assert "Traceback" not in errors


async def test_the_local_issuer_of_one_pc_lets_its_owner_in(redis: RedisServer, tmp_path: Path) -> None:
    issuer = f"http://127.0.0.1:{free_port()}"
    async with serving(redis, tmp_path) as served:
        served.process.terminate()
        await served.ended()
        configuration = (tmp_path / "saltgate.toml").read_text().replace(served.mint.issuer, issuer)
        configuration = configuration.replace("audiences =", 'kind = "local"\naudiences =')
        (tmp_path / "saltgate.toml").write_text(configuration)
        process = await asyncio.create_subprocess_exec(
            *SALTGATE,
            "serve",
            "-c",
            str(tmp_path / "saltgate.toml"),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stderr is not None
            async with asyncio.timeout(30):
                told = b""
                while b"member " not in told:
                    told += await process.stderr.readline()
            password = re.search(rb"password {2,}(\S+)", told)
            member = re.search(rb"member {2,}(\S+)", told)
            assert password is not None
            assert member is not None
            (tmp_path / "directory.toml").write_text(
                f'[workspaces.home]\nissuer = "{issuer}"\n'
                f'[workspaces.home.projects.notes]\nmembers = ["{member[1].decode()}"]\n'
            )
            importing = await asyncio.create_subprocess_exec(
                *SALTGATE,
                "directory",
                "import",
                str(tmp_path / "directory.toml"),
                "-c",
                str(tmp_path / "saltgate.toml"),
            )
            assert await importing.wait() == 0
            await _until_served(served, issuer, password[1].decode())
        finally:
            process.terminate()
            await process.wait()


async def _until_served(served: Served, issuer: str, password: str) -> None:
    token = (await sign_in(served.session, issuer, "owner", password)).access_token
    async with asyncio.timeout(30):
        while True:
            try:
                async with served.session.post(
                    f"{served.url}/v1/chat/completions",
                    json=chat(),
                    headers={"Authorization": f"Bearer {token}"},
                ) as answer:
                    if answer.status == 200:
                        return
                    assert answer.status in (403, 503), await answer.text()  # not in force or not proven yet
            except aiohttp.ClientConnectorError:
                pass
            await asyncio.sleep(0.1)
