"""Everything that a gate writes, on good days and bad ones, is searched for what callers showed it."""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from config.secret import Secret
from config.settings import Telemetry
from proxy.demo.simulator import AT_ONCE, EngineShape, Fault, FaultKind, Simulator
from proxy.demo.simulator.received import Received
from tests.parts.assertions import SECRET, SERVICE, front
from tests.parts.canaries import Canaries
from tests.parts.gate_bed import DIRECTORY, KEY, gate_bed
from tests.parts.otlp_sink import OtlpSink
from tests.parts.redis_server import RedisServer
from tests.parts.scraped import page_of
from tests.parts.tokens import TokenMint
from tests.proxy.telling_requests import Telling, Telltale, answered
from tests.proxy.test_server import serving

pytestmark = pytest.mark.slow

SHAPE = EngineShape(pace=AT_ONCE, answer_tokens=3)
PEOPLE = DIRECTORY.replace('"group:eng"]', '"user:front:webui/u-alice-0001"]')
ENGINES_KEY = b"engine-key-0123456789abcdef"


@dataclass(slots=True)
class Told:
    """What was said to the gate, and what it answered."""

    credentials: Canaries
    contents: Canaries
    answers: bytes = b""
    sent: int = 0

    async def tell(self, mint: TokenMint, port: int) -> None:
        """Sends every telling request. Each good one must be served and each bad one refused, or it told nothing."""
        unexpected = []
        for telling in Telltale(mint, self.credentials, self.contents).requests():
            answer = await self._ask(port, telling)
            if telling.status is not None and not _has_status(answer, telling):
                unexpected.append((telling.name, answer[:120]))
        assert not unexpected

    async def tell_a_broken_engine(self, mint: TokenMint, port: int, engine: Simulator) -> None:
        """A good request for each way in which an engine can fail it."""
        for kind in FaultKind:
            engine.faults.add(Fault(kind))
            await self._ask(port, Telling(kind.value, Telltale(mint, self.credentials, self.contents).one(), None))
            engine.faults.clear()

    async def _ask(self, port: int, telling: Telling) -> bytes:
        answer = await answered(port, telling)
        self.answers += answer
        self.sent += 1
        return answer


def _has_status(answer: bytes, telling: Telling) -> bool:
    return answer.startswith(f"HTTP/1.1 {telling.status} ".encode())


def secrets_of_ours(told: Told, received: Iterable[Received]) -> None:
    """The configuration's own secrets, and the salts: nobody may see these either, but the engine its own."""
    for name, secret in (("salt key", KEY.value), ("front's secret", SECRET), ("engine's key", ENGINES_KEY)):
        told.contents.known(name, secret.decode())
    salts = {request.salt for request in received if request.salt}
    assert salts
    for salt in salts:
        told.contents.known("salt", salt)
        told.credentials.known("salt", salt)


def up(received: Iterable[Received]) -> bytes:
    """All that reached the engine, but the salt in its place."""
    return b"\n".join(
        request.target.encode() + repr(request.headers).encode() + _SALT.sub(b"", request.body) for request in received
    )


_SALT = re.compile(rb'"cache_salt":"sg1-[\w-]{1,32}-[\w-]{43}"')


async def test_nothing_that_a_caller_shows_comes_out_of_a_gate_anywhere(
    redis: RedisServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with OtlpSink() as sink:
        async with (
            Simulator(SHAPE) as engine,
            gate_bed(
                redis.settings(),
                [engine.url],
                tmp_path,
                document=PEOPLE,
                api_key=Secret(ENGINES_KEY, "test"),
                fronts=[front()],
                telemetry=Telemetry(otlp_endpoint=sink.url),
            ) as bed,
        ):
            engine.requests.clear()
            told = Told(Canaries(), Canaries())
            await told.tell(bed.mint, bed.port)
            await told.tell_a_broken_engine(bed.mint, bed.port, engine)
            status, _, body = await bed.post()
            assert status == 200, body
            lines = await bed.completed(told.sent // 2)
            metrics = page_of(bed.gate.metrics).encode()
            received = list(engine.requests)
        secrets_of_ours(told, received)
    outcomes = Counter(line["outcome"] for line in lines)
    assert outcomes["ok"] > 20
    assert outcomes["refused"] > 50
    assert len(sink.spans) > 70
    written = {"log": bed.log.read_bytes(), "spans": b"\n".join(sink.raw), "metrics": metrics}
    captured = capfd.readouterr()
    output = {"standard output": b"." + captured.out.encode(), "standard error": b"." + captured.err.encode()}
    told.credentials.check(written | output | {"answers": told.answers, "engine": up(received)})
    told.contents.check(written | output)


FRONT = f"""
[[fronts]]
name = "webui"
issuer = "{{issuer}}"
subject = "{SERVICE}"
workspaces = ["acme"]
secret = {{{{ file = "front" }}}}
[telemetry]
otlp_endpoint = "OTLP"
[logs]
level = "debug"
"""


@pytest.mark.process
async def test_nothing_that_a_caller_shows_comes_out_of_a_served_gate_from_its_start_to_its_end(
    redis: RedisServer, tmp_path: Path
) -> None:
    (tmp_path / "front").write_bytes(SECRET)
    told = Told(Canaries(), Canaries())
    async with OtlpSink() as sink:
        tables = FRONT.replace("OTLP", sink.url)
        async with serving(redis, tmp_path, workers=2, tables=tables, document=PEOPLE) as served:
            await served.until("/readyz", 200)
            served.engine.requests.clear()
            await told.tell(served.mint, int(served.url.rpartition(":")[2]))
            await told.tell_a_broken_engine(served.mint, int(served.url.rpartition(":")[2]), served.engine)
            pages = b""
            for page in ("/metrics", "/healthz", "/readyz"):
                async with served.session.get(served.admin + page) as answer:
                    pages += await answer.read()
            secrets_of_ours(told, served.engine.requests)
            served.process.send_signal(signal.SIGTERM)
            assert await served.ended() == 0
            written = {"all output": served.log.read_bytes(), "pages": pages, "spans": b"\n".join(sink.raw)}
            engine = up(served.engine.requests)
    assert written["all output"].count(b"request.completed") > told.sent // 2
    told.credentials.check(written | {"answers": told.answers, "engine": engine})
    told.contents.check(written)
