"""SIGHUP at the real process: configuration and code change, and nobody who is being served notices."""

from __future__ import annotations

import asyncio
import os
import pty
import shutil
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509

from proxy.demo.simulator import EngineShape, Pace
from tests.parts.gate_bed import chat
from tests.parts.gone_client import GoneClient, post
from tests.parts.redis_server import RedisServer
from tests.proxy.test_server import SALTGATE, Served, certificate, free_port, serving

pytestmark = pytest.mark.process

PACED = EngineShape(answer_tokens=150, pace=Pace(prefill_tokens_per_second=0.0, seconds_per_token=0.02))


@dataclass(slots=True)
class Storm:
    """Clients that ask without end, each request over a new connection or all over one that is kept."""

    answered: int = 0
    failed: list[str] = field(default_factory=list)

    async def ask(self, served: Served, *, kept: bool) -> None:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=not kept)) as session:
            while True:
                await self._ask_once(served, session)
                await asyncio.sleep(0.01)

    async def _ask_once(self, served: Served, session: aiohttp.ClientSession) -> None:
        try:
            async with session.post(
                f"{served.url}/v1/chat/completions", json=chat(max_tokens=1), headers=served.headers()
            ) as answer:
                await answer.read()
                if answer.status != 200:
                    self.failed.append(str(answer.status))
        except aiohttp.ClientError as error:
            self.failed.append(repr(error))
        self.answered += 1


@asynccontextmanager
async def storm(served: Served) -> AsyncIterator[Storm]:
    """Three clients with new connections, and three that keep theirs."""
    made = Storm()
    async with asyncio.TaskGroup() as tasks:
        clients = [tasks.create_task(made.ask(served, kept=kept)) for kept in (True, False) for _ in range(3)]
        try:
            yield made
        finally:
            await asyncio.sleep(0.2)
            for client in clients:
                client.cancel()


async def stream_to_its_end(served: Served) -> bytes:
    async with GoneClient.to(served.url) as client:
        await client.send(post("/v1/chat/completions", chat(stream=True), served.headers()))
        return await client.read_until(b"data: [DONE]", seconds=60)


async def ask_at_length(served: Served) -> int:
    """The status of a request with a body of more than 2 KiB, over a new connection."""
    async with aiohttp.ClientSession() as session:
        url = f"{served.url}/v1/chat/completions"
        async with session.post(url, json=chat("long " * 500, max_tokens=1), headers=served.headers()) as answer:
            return answer.status


async def sums_never_fall(served: Served) -> None:
    """Endless; fails where the sum of all requests falls."""
    before = 0.0
    while True:
        now = await served.metric("saltgate_requests_total")
        assert now >= before
        before = now
        await asyncio.sleep(0.05)


async def test_sigterm_after_a_reload_gives_old_workers_no_more_time_than_they_had_left(
    redis: RedisServer, tmp_path: Path
) -> None:
    """So that they end what is open honestly, before the supervisor ends them."""
    shape = EngineShape(answer_tokens=1000, pace=Pace(prefill_tokens_per_second=0.0, seconds_per_token=0.05))
    async with serving(redis, tmp_path, shape=shape, limit="8s") as served:
        await served.until("/readyz", 200)
        async with GoneClient.to(served.url) as client:
            await client.send(post("/v1/chat/completions", chat(stream=True), served.headers()))
            await client.read_until(b'"content":"')
            served.process.send_signal(signal.SIGHUP)
            await served.until_told("server.reloaded")
            await asyncio.sleep(6)
            served.process.send_signal(signal.SIGTERM)
            began = asyncio.get_running_loop().time()
            assert b'"draining"' in await client.read_to_end(seconds=30)
            assert asyncio.get_running_loop().time() - began < 7  # it had 2 s left
        assert await served.ended() == 0
        assert served.events("server.killing") == []


async def test_a_reload_under_load_changes_settings_and_loses_nothing(redis: RedisServer, tmp_path: Path) -> None:
    """New connections, kept ones and running streams; one setting; the sums in /metrics; the old workers end."""
    async with serving(redis, tmp_path, workers=2, shape=PACED) as served:
        await served.until("/readyz", 200)
        old = served.workers()
        assert await ask_at_length(served) == 200
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(sums_never_fall(served))
            async with storm(served) as seen:
                streams = [tasks.create_task(stream_to_its_end(served)) for _ in range(20)]
                await served.engine.wait_for(
                    lambda: sum(b'"stream":true' in each.body for each in served.engine.requests) >= 20
                )
                served.change("[admin]", 'max_body = "1KiB"\n[admin]')
                served.process.send_signal(signal.SIGHUP)
                await served.until_told("server.reloaded")
                assert await ask_at_length(served) == 413
                answers = await asyncio.gather(*streams)
            watching.cancel()
        assert seen.failed == []
        assert seen.answered > 50
        assert all(answer.count(b'"content":"') >= 150 for answer in answers)
        async with asyncio.timeout(30):
            while set(served.workers()) & set(old):
                await asyncio.sleep(0.05)
        assert len(served.workers()) == 2
        # The six clients end in the middle of a request, perhaps.
        assert 0 <= await served.counted() - (seen.answered + len(answers) + 1) <= 6
        assert await served.metric("saltgate_config_last_reload_successful") == 1
        assert await served.metric("saltgate_worker_deaths_total") == 0
        assert not [line for line in served.events("worker.died", "server.killing", "library") if line]


async def test_a_faulty_configuration_changes_nothing_and_tells_every_fault(redis: RedisServer, tmp_path: Path) -> None:
    async with serving(redis, tmp_path) as served:
        await served.until("/readyz", 200)
        workers, good = served.workers(), served.configuration.read_text()
        read_at = await served.metric("saltgate_config_last_reload_success_timestamp_seconds")
        served.configuration.write_text(good.replace('secret = { file = "key" }', "") + "[cors]\nnonsense = 1\n")
        served.process.send_signal(signal.SIGHUP)
        told = await served.until_told("server.reload_refused", times=2)
        assert {line["setting"] for line in told} == {"isolation.keys.0.secret", "cors.nonsense"}
        assert served.workers() == workers
        assert await served.ask() == 200
        assert await served.metric("saltgate_config_last_reload_successful") == 0
        assert await served.metric("saltgate_config_last_reload_success_timestamp_seconds") == read_at
        served.configuration.write_text(good)
        served.process.send_signal(signal.SIGHUP)
        await served.until_told("server.reloaded")
        assert await served.metric("saltgate_config_last_reload_successful") == 1
        assert await served.metric("saltgate_config_last_reload_success_timestamp_seconds") > read_at
        assert await served.ask() == 200


async def test_what_the_supervisor_holds_open_does_not_change_by_a_reload(redis: RedisServer, tmp_path: Path) -> None:
    async with serving(redis, tmp_path) as served:
        await served.until("/readyz", 200)
        workers = served.workers()
        served.change(f'listen = "{served.url.removeprefix("http://")}"', f'listen = "127.0.0.1:{free_port()}"')
        served.process.send_signal(signal.SIGHUP)
        (line,) = await served.until_told("server.reload_refused")
        assert line["setting"] == "public.listen"
        assert "restart" in str(line["why"])
        assert served.workers() == workers


async def test_new_workers_that_die_before_they_are_ready_change_nothing(redis: RedisServer, tmp_path: Path) -> None:
    async with serving(redis, tmp_path) as served:
        await served.until("/readyz", 200)
        workers = served.workers()
        await served.issuer.stop()  # so that the new one is not ready before it dies
        served.process.send_signal(signal.SIGHUP)
        async with asyncio.timeout(60):
            while not served.events("server.reload_refused"):
                for worker in served.workers():
                    if worker not in workers and b"proxy.worker" in Path(f"/proc/{worker}/cmdline").read_bytes():
                        os.kill(worker, signal.SIGKILL)
                await asyncio.sleep(0.02)
        assert served.workers() == workers
        assert served.events("server.reloaded") == []
        assert await served.status("/readyz") == 200
        assert await served.ask() == 200


async def test_a_reload_that_is_asked_for_while_one_waits_takes_its_place(redis: RedisServer, tmp_path: Path) -> None:
    """The first names an engine that is not there, the second the right one again, with another number of workers."""
    async with serving(redis, tmp_path) as served:
        await served.until("/readyz", 200)
        served.change(served.engine.url, f"http://127.0.0.1:{free_port()}")
        served.process.send_signal(signal.SIGHUP)
        async with asyncio.timeout(60):
            while len(served.workers()) < 2 or served.events("worker.serving")[1:] == []:
                await asyncio.sleep(0.05)
        assert await served.status("/readyz") == 200  # the old one serves on
        text = served.configuration.read_text().replace("workers = 1", "workers = 2")
        wrong = text.split('urls = ["')[1].split('"')[0]
        served.configuration.write_text(text.replace(wrong, served.engine.url))
        for _ in range(3):
            served.process.send_signal(signal.SIGHUP)
        await served.until_told("server.reloaded")
        assert await served.ask() == 200
        await asyncio.sleep(0.5)
        async with asyncio.timeout(60):
            while len(served.workers()) != 2 or len(served.events("server.reloading")) > 3:
                await asyncio.sleep(0.05)


async def test_a_signal_while_new_workers_start_ends_them_too(redis: RedisServer, tmp_path: Path) -> None:
    async with serving(redis, tmp_path, workers=2) as served:
        await served.until("/readyz", 200)
        served.process.send_signal(signal.SIGHUP)
        async with asyncio.timeout(60):
            while len(served.workers()) < 4:
                await asyncio.sleep(0.005)
        served.process.send_signal(signal.SIGTERM)
        assert await served.ended() == 0
        assert "Traceback" not in served.log.read_text()


async def test_a_reload_brings_the_code_that_is_installed_now(redis: RedisServer, tmp_path: Path) -> None:
    code = tmp_path / "code"
    for package in ("proxy", "config", "observability"):
        shutil.copytree(Path(__file__).parents[2] / package, code / package)
    async with serving(redis, tmp_path, environment={"PYTHONPATH": str(code)}) as served:
        await served.until("/readyz", 200)
        families = code / "observability" / "families.py"
        text = families.read_text().replace('names.REFUSALS, "counter"', 'names.REFUSALS + "_renamed", "counter"')
        families.write_text(text)  # also what the older supervisor does not know is no reason to fail
        routes = code / "proxy" / "routes.py"
        routes.write_text(routes.read_text().replace('"/v1/models"', '"/v1/new-models"'))
        served.process.send_signal(signal.SIGHUP)
        await served.until_told("server.reloaded")
        async with served.session.get(f"{served.url}/v1/new-models", headers=served.headers()) as answer:
            assert answer.status == 200
        assert await served.metric("saltgate_workers") >= 1  # whoever looks at the metrics is told
        await served.until_told("worker.not_understood")
        assert await served.metric("saltgate_requests_total") > 0
        # Code that cannot even be imported changes nothing.
        routes.write_text("raise SystemExit(3)\n")
        served.process.send_signal(signal.SIGHUP)
        await served.until_told("server.reload_refused")
        assert await served.status("/readyz") == 200


async def test_a_stream_of_before_is_cut_at_the_drain_limit(redis: RedisServer, tmp_path: Path) -> None:
    endless = EngineShape(answer_tokens=4000, pace=PACED.pace)
    async with serving(redis, tmp_path, shape=endless) as served:
        await served.until("/readyz", 200)
        served.change('limit = "10s"', 'limit = "1s"')
        served.process.send_signal(signal.SIGHUP)
        await served.until_told("server.reloaded")
        async with GoneClient.to(served.url) as client:
            await client.send(post("/v1/chat/completions", chat(stream=True, max_tokens=4000), served.headers()))
            await client.read_until(b'"content":"')
            served.process.send_signal(signal.SIGHUP)
            await served.until_told("server.reloaded", times=2)
            rest = await client.read_to_end(seconds=20)
        assert b'"draining"' in rest
        assert b"[DONE]" not in rest


async def test_a_closed_terminal_drains_and_ends_what_was_started_from_it(redis: RedisServer, tmp_path: Path) -> None:
    async with serving(redis, tmp_path) as served:
        await served.until("/readyz", 200)
        served.process.terminate()
        await served.ended()
    ours, terminal = pty.openpty()
    program = "import os, sys; os.open(os.ttyname(0), os.O_RDWR); os.execv(sys.argv[1], sys.argv[1:])"
    log = tmp_path / "terminal.log"
    with log.open("wb") as stream:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program, *SALTGATE, "serve", "-c", str(served.configuration)),
            stdin=terminal,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    os.close(terminal)
    try:
        async with asyncio.timeout(60):
            while "worker.serving" not in log.read_text():
                await asyncio.sleep(0.05)
        process.send_signal(signal.SIGHUP)  # somebody's, with the terminal open: a reload
        async with asyncio.timeout(60):
            while "server.reload" not in log.read_text():
                await asyncio.sleep(0.05)
        os.close(ours)
        async with asyncio.timeout(60):
            assert await process.wait() == 0
        assert "server.stopped" in log.read_text()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def shown_serial(served: Served) -> int:
    """The serial number of the certificate that a new connection is shown."""
    port = int(served.url.rpartition(":")[2])
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return x509.load_der_x509_certificate(shown).serial_number


async def test_a_renewed_certificate_is_shown_by_itself_and_at_once_by_a_reload(
    redis: RedisServer, tmp_path: Path
) -> None:
    """A request that runs meanwhile, on a connection of before, is answered."""
    certificate(tmp_path, serial=1)
    tls = 'tls = { certificate = "cert.pem", key = { file = "key.pem" } }'
    endless = EngineShape(answer_tokens=4000, pace=PACED.pace)
    async with serving(redis, tmp_path, workers=2, more=tls, shape=endless) as served:
        await served.until("/readyz", 200)
        assert await shown_serial(served) == 1
        url = f"{served.url}/v1/chat/completions"
        asked = chat(stream=True, max_tokens=4000)
        async with served.session.post(url, json=asked, headers=served.headers(), ssl=False) as answer:
            await answer.content.readany()
            certificate(tmp_path, serial=2)
            async with asyncio.timeout(40):
                while await shown_serial(served) != 2:
                    await asyncio.sleep(0.1)
            await served.until_told("tls.certificate_renewed", times=2)
            (tmp_path / "key.pem").write_text("no key\n")
            await served.until_told("tls.certificate_unusable", times=2)
            assert await shown_serial(served) == 2
            assert await served.metric("saltgate_tls_certificate_files_usable") == 0
            served.process.send_signal(signal.SIGHUP)
            (line,) = await served.until_told("server.reload_refused")
            assert line["setting"] == "public.tls"
            certificate(tmp_path, serial=3)
            served.process.send_signal(signal.SIGHUP)
            await served.until_told("server.reloaded")
            assert await shown_serial(served) == 3
            assert await served.metric("saltgate_tls_certificate_files_usable") == 1
            assert b'"content":"' in await answer.content.readany()


async def test_a_kept_connection_has_one_more_answer_that_says_it_is_the_last(
    redis: RedisServer, tmp_path: Path
) -> None:
    """Then nothing keeps the old worker, whatever the drain limit is."""
    async with serving(redis, tmp_path, limit="300s") as served:
        await served.until("/readyz", 200)
        (old,) = served.workers()
        async with GoneClient.to(served.url) as client:
            request = post("/v1/chat/completions", chat(max_tokens=1), served.headers())
            await client.send(request)
            assert b"connection: close" not in (await client.read_answer()).head.lower()
            served.process.send_signal(signal.SIGHUP)
            await served.until_told("worker.retiring")
            await asyncio.sleep(0.3)
            assert old in served.workers()  # it waits for what the client may be sending just now
            await client.send(request)
            answer = await client.read_answer()
            assert (answer.status, b"connection: close" in answer.head.lower()) == (200, True)
            assert await client.read_to_end() == b""
        async with asyncio.timeout(20):
            while old in served.workers():
                await asyncio.sleep(0.05)
        assert served.events("server.killing") == []
