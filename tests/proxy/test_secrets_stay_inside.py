"""Everything that a gate writes, on good days and bad ones, is searched for what callers showed it."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from config.secret import Secret
from config.settings import Telemetry
from proxy.demo.simulator import AT_ONCE, EngineShape, Fault, FaultKind, Simulator
from proxy.demo.simulator.received import Received
from tests.parts.assertions import SECRET, front
from tests.parts.canaries import Canaries
from tests.parts.gate_bed import DIRECTORY, KEY, chat, gate_bed
from tests.parts.otlp_sink import OtlpSink
from tests.parts.raw_engine import RawEngine, Send, json_answer
from tests.parts.redis_server import RedisServer
from tests.parts.scraped import page_of
from tests.parts.tokens import TokenMint
from tests.proxy.telling_requests import Telling, Telltale, answered
from tests.proxy.test_audit import settings as audit_settings

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
            answer = await self.ask(port, telling)
            if not has_status(answer, telling):
                unexpected.append((telling.name, answer[:120]))
        assert not unexpected

    async def tell_a_broken_engine(self, mint: TokenMint, port: int, engine: Simulator) -> None:
        """A good request for each way in which an engine can fail it."""
        for kind in FaultKind:
            engine.faults.add(Fault(kind))
            await self.ask(port, Telling(kind.value, Telltale(mint, self.credentials, self.contents).one(), None))
            engine.faults.clear()

    async def ask(self, port: int, telling: Telling) -> bytes:
        answer = await answered(port, telling)
        self.answers += answer
        self.sent += 1
        return answer


def has_status(answer: bytes, telling: Telling) -> bool:
    """Whether it was answered as it should be."""
    return telling.status is None or answer.startswith(f"HTTP/1.1 {telling.status} ".encode())


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


async def test_nothing_of_an_image_comes_out_but_at_the_engine(redis: RedisServer, tmp_path: Path) -> None:
    contents = Canaries()
    picture = b64encode(b"GIF89a" + contents.new("image").encode()).decode()
    said: list[dict[str, object]] = [
        {"type": "text", "text": contents.new("what is said of it")},
        {"type": "image_url", "image_url": {"url": f"data:image/gif;base64,{picture}"}},
    ]
    quoted = json_answer(json.dumps({"error": {"message": said}}).encode(), "400 Bad Request")
    async with OtlpSink() as sink:
        async with (
            RawEngine([Send(quoted)]) as engine,
            gate_bed(
                redis.settings(),
                [engine.url],
                tmp_path,
                proof="off",
                models=("tiny",),
                media=True,
                telemetry=Telemetry(otlp_endpoint=sink.url),
                audit=audit_settings(tmp_path / "audit"),
            ) as bed,
        ):
            for parts in (said, [*said, said[1] | {"image_url": {"url": f"data:image/gif;base64,!{picture}"}}]):
                status, _, body = await bed.post(document=chat() | {"messages": [{"role": "user", "content": parts}]})
                assert status == 400, body
            assert len(engine.requests) == 1
            (known,) = {bytes(found) for found in _IDENTITY.findall(engine.requests[0].body)}
            contents.known("its identity", known.decode())
            await bed.completed(2)
            metrics = page_of(bed.gate.metrics).encode()
        audit = b"".join(path.read_bytes() for path in (tmp_path / "audit").iterdir() if path.is_file())
        spans = b"".join(sink.raw)
        contents.check({"log": bed.log.read_bytes(), "spans": spans, "metrics": metrics, "audit": audit})


_IDENTITY = re.compile(rb'"uuid":"([0-9a-f]{64})"')
