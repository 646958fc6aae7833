"""`saltgate check` on real parts: what is right, what is not, and what an operator is told to do about it."""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from aiohttp import web

from proxy.assurance.about import NOTHING_TOLD
from proxy.assurance.metrics_page import MetricsPage
from proxy.assurance.outside import Outside, Stranger
from proxy.cli import check, serve
from proxy.cli.engine_words import engine_words
from proxy.cli.lines import Level
from proxy.demo.simulator import ALL_ENDPOINTS, AT_ONCE, Endpoint, EngineShape, Flaws, Simulator
from proxy.directory.changes import fresh_ring, import_directory
from proxy.directory.connect import open_store
from proxy.directory.model import directory_from_toml
from proxy.directory.rotation import rotate_ring
from tests.parts.gate_bed import gate_bed
from tests.parts.imitations import Imitation
from tests.parts.redis_server import RedisServer
from tests.parts.tokens import IssuerServer, TokenMint
from tests.proxy.assurance.facade import Contents, Facade, Identities, Images, Nothing

pytestmark = pytest.mark.slow

SECRET = "0123456789abcdef0123456789abcdef"
SOUND = EngineShape(pace=AT_ONCE)


@dataclass(frozen=True, slots=True)
class Answer:
    """How the command ended, and what it said."""

    code: int
    out: str
    err: str

    def lines(self, level: str) -> list[str]:
        """The messages of a level, each after its part and what it is about (--json)."""
        checks = json.loads(self.out)["checks"]
        return [f"{line['part']} {line['about']}: {line['message']}" for line in checks if line["level"] == level]


class Deployment:
    """A configuration in a folder, and `saltgate check` on it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.file = folder / "saltgate.toml"
        self._capsys = capsys

    def configure(
        self,
        *,
        engines: str,
        issuer: str,
        redis: str,
        algorithms: Sequence[str] = ("RS256",),
        key: str = "k1",
        introspection: str = "",
    ) -> None:
        self.file.write_text(
            f"""
{engines}
[[issuers]]
issuer = "{issuer}"
audiences = ["saltgate"]
algorithms = {json.dumps(list(algorithms))}
{introspection}
[directory]
redis = "{redis}"
[timeouts]
connect = "500ms"
[[isolation.keys]]
id = "{key}"
secret = {{ file = "salt.key" }}
"""
        )
        (self.file.parent / "salt.key").write_text(SECRET)
        (self.file.parent / "engine.key").write_text("engine-password")

    async def check(self, *words: str) -> Answer:
        """Beside the parts, which live in this thread's event loop."""
        parser = argparse.ArgumentParser()
        check.add_arguments(parser)
        code = await asyncio.to_thread(check.run, parser.parse_args(["-c", str(self.file), *words]))
        captured = self._capsys.readouterr()
        assert SECRET not in captured.out + captured.err
        assert "engine-password" not in captured.out + captured.err
        return Answer(code, captured.out, captured.err)


@pytest.fixture
def deployment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Deployment:
    return Deployment(tmp_path, capsys)


def engine(*urls: str, name: str = "main", more: str = "") -> str:
    return f'[[engines]]\nname = "{name}"\nurls = {json.dumps(urls)}\n{more}\n'


@asynccontextmanager
async def issuer_and_directory(redis: RedisServer) -> AsyncIterator[str]:
    """An issuer that answers, and a directory of one workspace of its. Gives the issuer's name."""
    async with IssuerServer(TokenMint()) as issuer:
        await fill(redis, issuer.mint.issuer)
        yield issuer.mint.issuer


async def fill(redis: RedisServer, issuer: str, *, more: str = "") -> None:
    store = open_store(redis.settings(), removal=None)
    document = f'[workspaces.acme]\nissuer = "{issuer}"\n[workspaces.acme.projects.apollo]\nmembers = ["user:alice"]\n'
    document += more
    try:
        await store.change(import_directory(directory_from_toml(document), fresh_ring("k1", now=1_700_000_000)))
    finally:
        await store.close()


async def test_where_everything_is_right_each_part_and_each_endpoint_is_said_to_be(
    deployment: Deployment, redis: RedisServer
) -> None:
    shape = EngineShape(pace=AT_ONCE, api_key="engine-password")
    async with issuer_and_directory(redis) as issuer, Simulator(shape) as one, Simulator(shape) as two:
        engines = engine(one.url, two.url, more='api_key = { file = "engine.key" }')
        deployment.configure(engines=engines, issuer=issuer, redis=redis.url)
        told, shown = await deployment.check(), await deployment.check("--json")
        urls = (one.url, two.url)
    assert (told.code, shown.code) == (0, 0)
    assert json.loads(shown.out)["ok"] is True
    assert (shown.lines("fault"), shown.lines("warning"), told.err) == ([], [], "")
    for url in urls:
        proven = [line for line in shown.lines("ok") if line.startswith(f"engine main {url} /v1/") and "proven" in line]
        assert len(proven) == len(ALL_ENDPOINTS)
    assert f"issuer {issuer} : 1 usable key" in shown.lines("ok")
    assert max(map(len, told.out.splitlines())) <= max(80, len(str(deployment.file)) + 20)
    assert "  ok       models: tiny" in told.out


async def test_every_fault_of_the_configuration_is_told_and_nothing_is_asked(
    deployment: Deployment, redis: RedisServer
) -> None:
    async with Simulator(SOUND) as simulator:
        engines = engine(simulator.url, more='proof = "maybe"')
        deployment.configure(engines=engines, issuer="http://sso.example.com", redis=redis.url)
        told, shown = await deployment.check(), await deployment.check("--json")
        assert not simulator.requests
    assert (told.code, shown.code) == (2, 2)
    assert told.out == ""
    assert [line.split(": ")[1:3] for line in told.err.splitlines()] == [
        [str(deployment.file), "engines.0.proof"],
        [str(deployment.file), "issuers.0.issuer"],
    ]
    assert len(shown.lines("fault")) == 2


async def test_a_certificate_that_cannot_be_used_is_a_fault_of_the_configuration(
    deployment: Deployment, redis: RedisServer
) -> None:
    (deployment.file.parent / "ca.pem").write_text("none")
    engines = engine("https://127.0.0.1:1", more='ca = "ca.pem"')
    deployment.configure(engines=engines, issuer="http://127.0.0.1:1", redis=redis.url)
    answer = await deployment.check()
    assert answer.code == 2
    assert answer.err.startswith(f"saltgate: {deployment.file}: engines.0.ca: ")


async def test_what_cannot_be_reached_is_told_all_at_once_with_its_address(deployment: Deployment) -> None:
    deployment.configure(
        engines=engine("http://127.0.0.1:1"), issuer="http://127.0.0.1:2", redis="redis://127.0.0.1:3/0"
    )
    answer = await deployment.check("--json")
    assert answer.code == 1
    issuer, directory, main = answer.lines("fault")
    assert "http://127.0.0.1:2/.well-known/openid-configuration can be reached" in issuer
    assert "127.0.0.1:3" in directory
    assert "127.0.0.1:1" in main


@pytest.mark.slow
async def test_parts_that_never_answer_are_given_up_side_by_side(deployment: Deployment) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        place = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        deployment.configure(engines=engine(f"http://{place}"), issuer=f"http://{place}", redis=f"redis://{place}/0")
        began = time.monotonic()
        answer = await deployment.check("--json")
    assert answer.code == 1
    assert len(answer.lines("fault")) == 3
    assert time.monotonic() - began < 60


async def test_an_issuer_whose_keys_fit_no_accepted_algorithm_is_a_fault(
    deployment: Deployment, redis: RedisServer
) -> None:
    async with issuer_and_directory(redis) as issuer, Simulator(SOUND) as simulator:
        deployment.configure(engines=engine(simulator.url), issuer=issuer, redis=redis.url, algorithms=("ES384",))
        answer = await deployment.check("--json")
    assert answer.code == 1
    (fault,) = answer.lines("fault")
    assert "none of its keys is for ES384" in fault
    assert "RS256" in fault


async def test_a_local_issuer_that_only_serve_starts_is_no_fault(deployment: Deployment, redis: RedisServer) -> None:
    await fill(redis, "http://127.0.0.1:2")
    async with Simulator(SOUND) as simulator:
        deployment.configure(engines=engine(simulator.url), issuer="http://127.0.0.1:2", redis=redis.url)
        text = deployment.file.read_text().replace("audiences =", 'kind = "local"\naudiences =')
        deployment.file.write_text(text)
        answer = await deployment.check("--json")
    assert answer.code == 0, answer.out
    assert "saltgate serve" in answer.lines("note")[0]


async def test_an_empty_directory_has_no_ring_and_the_command_that_makes_it_is_named(
    deployment: Deployment, redis: RedisServer
) -> None:
    async with IssuerServer(TokenMint()) as issuer, Simulator(SOUND) as simulator:
        deployment.configure(engines=engine(simulator.url), issuer=issuer.mint.issuer, redis=redis.url)
        answer = await deployment.check("--json")
    assert answer.code == 1
    (fault,) = answer.lines("fault")
    assert "salt ring: it is missing: `saltgate directory import FILE -c …`" in fault
    assert "nobody is a member" in answer.lines("warning")[0]


async def test_a_redis_that_may_throw_away_who_is_blocked_is_a_fault(
    deployment: Deployment, own_redis: RedisServer
) -> None:
    own_redis.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    async with issuer_and_directory(own_redis) as issuer, Simulator(SOUND) as simulator:
        deployment.configure(engines=engine(simulator.url), issuer=issuer, redis=own_redis.url)
        (fault,) = (await deployment.check("--json")).lines("fault")
    assert "maxmemory-policy: allkeys-lru" in fault


async def test_a_ring_on_its_way_to_a_key_which_is_not_configured_is_a_fault(
    deployment: Deployment, redis: RedisServer
) -> None:
    async with issuer_and_directory(redis) as issuer, Simulator(SOUND) as simulator:
        store = open_store(redis.settings(), removal=None)
        await store.change(rotate_ring("k9", over=86_400))
        await store.close()
        deployment.configure(engines=engine(simulator.url), issuer=issuer, redis=redis.url)
        (fault,) = (await deployment.check("--json")).lines("fault")
    assert "salt ring: it uses the keys k9, which [[isolation.keys]] lacks" in fault


async def test_a_ring_that_uses_a_key_which_is_not_configured_is_a_fault(
    deployment: Deployment, redis: RedisServer
) -> None:
    async with issuer_and_directory(redis) as issuer, Simulator(SOUND) as simulator:
        deployment.configure(engines=engine(simulator.url), issuer=issuer, redis=redis.url, key="other")
        answer = await deployment.check("--json")
    assert answer.code == 1
    (fault,) = answer.lines("fault")
    assert "salt ring: it uses the keys k1, which [[isolation.keys]] lacks" in fault


async def test_records_that_cannot_be_read_and_workspaces_of_an_unknown_issuer_are_told(
    deployment: Deployment, redis: RedisServer
) -> None:
    async with issuer_and_directory(redis) as issuer, Simulator(SOUND) as simulator:
        await fill(redis, "https://elsewhere.example")
        deployment.configure(engines=engine(simulator.url), issuer=issuer, redis=redis.url)
        other = await deployment.check("--json")
        keys = redis.command("KEYS", "*workspaces*").split(b"\r\n")
        redis.command("HSET", keys[2], "acme", "{")
        broken = await deployment.check("--json")
    assert other.code == 0
    assert "workspace acme: its issuer https://elsewhere.example is none of [[issuers]]" in other.lines("warning")[0]
    assert broken.code == 1
    assert "acme" in broken.lines("fault")[0]
    assert any("without what is left out" in line for line in broken.lines("note"))
    assert not any(line.startswith("directory") and "generation" in line for line in broken.lines("ok"))


async def test_a_directory_file_that_is_missing_is_a_fault_and_nothing_says_ok_above_it(
    deployment: Deployment,
) -> None:
    async with IssuerServer(TokenMint()) as issuer, Simulator(SOUND) as simulator:
        deployment.configure(engines=engine(simulator.url), issuer=issuer.mint.issuer, redis="redis://unused")
        text = deployment.file.read_text().replace('redis = "redis://unused"', 'file = "people.toml"\nstate = "state"')
        deployment.file.write_text(text)
        answer = await deployment.check("--json")
    assert answer.code == 1
    file = deployment.file.parent / "people.toml"
    assert any(line.startswith(f"directory {file} {file}: cannot be read") for line in answer.lines("fault"))
    assert not any(line.startswith("directory") for line in answer.lines("ok"))


@pytest.mark.parametrize(("proof", "level", "code"), [("strict", "fault", 1), ("warn", "warning", 0)])
async def test_an_endpoint_that_ignores_the_salt_is_a_fault_and_under_warn_a_warning(
    deployment: Deployment, redis: RedisServer, proof: str, level: str, code: int
) -> None:
    flaws = Flaws(ignores_salt=frozenset({Endpoint.RESPONSES}))
    async with issuer_and_directory(redis) as issuer, Simulator(EngineShape(pace=AT_ONCE, flaws=flaws)) as simulator:
        deployment.configure(engines=engine(simulator.url, more=f'proof = "{proof}"'), issuer=issuer, redis=redis.url)
        answer = await deployment.check("--json")
    assert answer.code == code
    assert any("/v1/responses: failed." in line and "does not separate" in line for line in answer.lines(level))
    assert len([line for line in answer.lines("ok") if "proven" in line]) == len(ALL_ENDPOINTS) - 1


async def test_proof_that_is_off_is_warned_of_and_nothing_is_probed(deployment: Deployment, redis: RedisServer) -> None:
    async with issuer_and_directory(redis) as issuer, Simulator(SOUND) as simulator:
        deployment.configure(engines=engine(simulator.url, more='proof = "off"'), issuer=issuer, redis=redis.url)
        answer = await deployment.check("--json")
        assert not simulator.requests
    assert answer.code == 0
    assert 'proof = "off"' in answer.lines("warning")[0]


@pytest.mark.parametrize(
    ("images", "level", "code", "words"),
    [
        (Identities(), "ok", 0, "proven. Its media cache found the same salt's image again"),
        (Contents(), "fault", 1, "failed. Its media cache found an image that another salt had sent"),
        (Nothing(), "fault", 1, "unknown. Its media cache never found an image again"),
        (None, "fault", 1, "mm_cache_queries_total"),
    ],
    ids=["identities", "contents", "nothing kept", "not counted"],
)
async def test_where_images_may_come_the_media_cache_is_probed_too(
    deployment: Deployment, redis: RedisServer, images: Images | None, level: str, code: int, words: str
) -> None:
    async with (
        issuer_and_directory(redis) as issuer,
        Simulator(SOUND) as sound,
        Facade([sound], images=images) as facade,
    ):
        deployment.configure(engines=engine(facade.url, more="media = true"), issuer=issuer, redis=redis.url)
        answer = await deployment.check("--json")
    (said,) = [line for line in answer.lines(level) if " images: " in line]
    assert words in said
    assert answer.code == code


async def test_where_no_images_may_come_nothing_is_said_of_them(deployment: Deployment, redis: RedisServer) -> None:
    async with issuer_and_directory(redis) as issuer, Simulator(SOUND) as sound:
        deployment.configure(engines=engine(sound.url), issuer=issuer, redis=redis.url)
        answer = await deployment.check()
    assert " images: " not in answer.out
    assert answer.code == 0


async def test_an_endpoint_that_an_engine_does_not_have_is_information(
    deployment: Deployment, redis: RedisServer
) -> None:
    shape = EngineShape(pace=AT_ONCE, endpoints=ALL_ENDPOINTS - {Endpoint.EMBEDDINGS})
    async with issuer_and_directory(redis) as issuer, Simulator(shape) as simulator:
        deployment.configure(engines=engine(simulator.url), issuer=issuer, redis=redis.url)
        answer = await deployment.check("--json")
    assert answer.code == 0
    assert any("/v1/embeddings: the engine does not serve it" in note for note in answer.lines("note"))


@pytest.mark.parametrize(("kind", "proven"), [("sglang", 2), ("tensorrt-llm", 1), ("dynamo", 3)])
async def test_an_engine_of_another_kind_is_checked_on_its_own_endpoints(
    deployment: Deployment, redis: RedisServer, kind: str, proven: int
) -> None:
    async with (
        issuer_and_directory(redis) as issuer,
        Simulator(SOUND) as simulator,
        Imitation(kind, simulator) as sound,
        Imitation(kind, simulator, deaf=True) as deaf,
        Imitation(kind, simulator, silent=True) as silent,
    ):
        answers = []
        for imitation in (sound, deaf, silent):
            engines = engine(imitation.url, more=f'kind = "{kind}"')
            deployment.configure(engines=engines, issuer=issuer, redis=redis.url)
            answers.append(await deployment.check("--json"))
    assert [answer.code for answer in answers] == [0, 1, 1]
    assert len([line for line in answers[0].lines("ok") if "/v1/" in line and "proven" in line]) == proven
    # What no setting could prove is no fault of this deployment.
    warnings = [line for line in answers[0].lines("warning") if "other doors" not in line]
    assert len(warnings) == (kind == "dynamo")
    assert all("/v1/embeddings: unknown. Dynamo reports no reuse" in line for line in warnings)
    assert any("does not separate by cache_salt" in line for line in answers[1].lines("fault"))
    assert any("The engine does not report reused tokens" in line for line in answers[2].lines("fault"))
    assert not any("vLLM" in line for line in answers[2].lines("fault") if kind != "dynamo")


async def test_a_field_that_must_not_be_added_is_a_fault_of_the_configuration(
    deployment: Deployment, redis: RedisServer
) -> None:
    async with Simulator(SOUND) as simulator:
        fields = '[[engines.limits.fields]]\nname = "extra_key"\ntype = "string"'
        deployment.configure(
            engines=engine(simulator.url, more=fields), issuer="https://sso.example.com", redis=redis.url
        )
        told = await deployment.check()
        assert not simulator.requests
    assert told.code == 2
    assert told.err == (
        f"saltgate: {deployment.file}: engines.0.limits.fields.0.name: "
        "can never pass: a cache namespace; with it a client would choose its border\n"
    )


async def test_an_engine_without_one_endpoint_that_may_be_used_is_a_fault(
    deployment: Deployment, redis: RedisServer
) -> None:
    shape = EngineShape(pace=AT_ONCE, endpoints=frozenset())
    async with issuer_and_directory(redis) as issuer, Simulator(shape) as simulator:
        deployment.configure(engines=engine(simulator.url), issuer=issuer, redis=redis.url)
        answer = await deployment.check("--json")
    assert answer.code == 1
    assert "no endpoint of it may be used" in answer.lines("fault")[0]


async def test_models_that_are_missing_or_at_two_engines_and_a_wrong_key_are_faults(
    deployment: Deployment, redis: RedisServer
) -> None:
    locked = EngineShape(pace=AT_ONCE, api_key="another-password")
    async with (
        issuer_and_directory(redis) as issuer,
        Simulator(SOUND) as one,
        Simulator(SOUND) as two,
        Simulator(locked) as three,
    ):
        engines = (
            engine(one.url, name="one")
            + engine(two.url, name="two")
            + engine(three.url, name="three", more='api_key = { file = "engine.key" }')
            + engine(two.url, name="four", more='models = ["huge"]')
        )
        deployment.configure(engines=engines, issuer=issuer, redis=redis.url)
        answer = await deployment.check("--json")
    assert answer.code == 1
    faults = answer.lines("fault")
    assert any(line.startswith("engines tiny: two engines list a model of this name") for line in faults)
    assert any("engine three" in line and "401" in line and "api_key" in line for line in faults)
    assert any(line.startswith("engine four") and "does not list it" in line for line in faults)


async def test_plain_addresses_on_other_machines_are_warned_of(deployment: Deployment) -> None:
    deployment.configure(
        engines=engine("http://engine.invalid:8000"), issuer="http://127.0.0.1:2", redis="redis://redis.invalid:6379/0"
    )
    answer = await deployment.check("--json")
    assert answer.code == 1
    directory, main = answer.lines("warning")
    assert "rediss://" in directory
    assert "https://" in main


# What can be told of an engine from outside.


class Engine:
    """A vLLM as far as `check` looks at it from outside: pages, doors and who is let in. It computes nothing."""

    def __init__(self, *, version: str = "0.32.0", metrics: str = "", barrier: bool = False, key: str = "") -> None:
        self.asked: list[tuple[str, str]] = []
        self.doors: frozenset[str] = frozenset()
        self._pages = {
            "/version": json.dumps({"version": version}),
            "/metrics": metrics,
            "/v1/models": json.dumps({"data": [{"id": "tiny"}]}),
        }
        self._barrier = barrier
        self._key = key
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        finally:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked.append((request.method, request.path))
        keyed = not self._key or request.headers.get("Authorization") == f"Bearer {self._key}"
        if self._barrier and (not keyed or request.path not in self._pages):
            return web.json_response({"error": {"code": "saltgate_barrier"}}, status=403)
        if not keyed and request.path.startswith("/v1"):
            return web.json_response({"error": "Unauthorized"}, status=401)
        if request.path in self._pages:
            return web.Response(text=self._pages[request.path], content_type="application/json")
        return web.Response(status=405 if request.path in self.doors else 404)


async def looked_at(deployment: Deployment, redis: RedisServer, looked: Engine, *, key: bool = False) -> Answer:
    """The check of one such engine, with nothing else at fault."""
    async with issuer_and_directory(redis) as issuer, looked.listening() as url:
        more = 'api_key = { file = "engine.key" }' if key else ""
        deployment.configure(engines=engine(url, more=f'proof = "off"\n{more}'), issuer=issuer, redis=redis.url)
        answer = await deployment.check("--json")
    assert answer.code == 0, answer.out
    assert {method for method, _ in looked.asked} == {"GET"}
    return answer


def about(answer: Answer, what: str) -> list[tuple[str, str]]:
    """The level and the message of each line on this."""
    return [(line["level"], line["message"]) for line in json.loads(answer.out)["checks"] if line["about"] == what]


@pytest.mark.parametrize(
    ("version", "level", "words"),
    [
        ("0.32.0", "ok", "tested with"),
        ("0.31.2", "warning", "none that this release is tested with (0.32)"),
        ("0.33.0", "warning", "none that this release is tested with (0.32)"),
        ("<script>", "note", "it tells none"),
    ],
)
async def test_a_version_is_said_to_be_tested_or_not(
    deployment: Deployment, redis: RedisServer, version: str, level: str, words: str
) -> None:
    ((said, message),) = about(await looked_at(deployment, redis, Engine(version=version)), "version")
    assert said == level
    assert words in message


@pytest.mark.parametrize(
    ("barrier", "key", "level", "words"),
    [
        (False, False, "note", "answered without a key"),
        (False, True, "ok", "leaves other paths open"),
        (True, False, "note", "SALTGATE_BARRIER_KEY_FILE"),
        (True, True, "ok", "asks for a key on every path"),
    ],
)
async def test_who_reaches_the_engine_without_saltgate_is_said_as_it_answers_a_stranger(
    deployment: Deployment, redis: RedisServer, barrier: bool, key: bool, level: str, words: str
) -> None:
    looked = Engine(barrier=barrier, key="engine-password" if key else "")
    ((said, message),) = about(await looked_at(deployment, redis, looked, key=key), "without saltgate")
    assert said == level
    assert words in message


def seen(stranger: Stranger, *, barrier: bool = False, barrier_key: bool = False) -> Outside:
    return Outside(NOTHING_TOLD, MetricsPage(b""), stranger, barrier, barrier_key, frozenset(), is_saltgate=False)


@pytest.mark.parametrize("url", ["http://10.0.0.7:8000", "https://engine.example.com", "http://[2001:db8::1]:80"])
def test_an_engine_on_another_machine_that_strangers_can_use_is_warned_of(url: str) -> None:
    open_to_all = [
        seen(Stranger.SERVED),
        seen(Stranger.SERVED, barrier=True),
        seen(Stranger.ASKED_FOR_A_KEY),
        seen(Stranger.ASKED_FOR_A_KEY, barrier=True),
    ]
    for outside in open_to_all:
        (line,) = [line for line in engine_words("engine", url, outside) if line.about == "without saltgate"]
        assert line.level is Level.WARNING
        assert "barrier" in line.message
    for outside in (seen(Stranger.SHUT_OUT), seen(Stranger.ASKED_FOR_A_KEY, barrier=True, barrier_key=True)):
        (line,) = [line for line in engine_words("engine", url, outside) if line.about == "without saltgate"]
        assert line.level is Level.OK


@pytest.mark.parametrize(
    ("socket", "folder", "level"), [(0o777, 0o755, "warning"), (0o777, 0o700, "ok"), (0o770, 0o755, "ok")]
)
def test_a_socket_that_every_user_can_open_is_warned_of(tmp_path: Path, socket: int, folder: int, level: str) -> None:
    place = tmp_path / "run"
    place.mkdir()
    file = place / "engine.sock"
    file.touch()
    file.chmod(socket)
    place.chmod(folder)
    lines = engine_words("engine", f"unix:{file}", seen(Stranger.SERVED))
    assert [line.level for line in lines if line.about == "without saltgate"] == [level]


DOORS = {
    "/reset_prefix_cache": "VLLM_SERVER_DEV_MODE",
    "/v1/load_lora_adapter": "VLLM_ALLOW_RUNTIME_LORA_UPDATING",
}


@pytest.mark.parametrize("door", DOORS)
async def test_a_door_that_should_not_be_there_is_found_without_opening_it(
    deployment: Deployment, redis: RedisServer, door: str
) -> None:
    looked = Engine()
    looked.doors = frozenset({door})
    ((level, message),) = about(await looked_at(deployment, redis, looked), "other doors")
    assert level == "warning"
    assert message.startswith(f"{door}: ")
    assert DOORS[door] in message


async def test_doors_that_only_the_schema_names_are_told_and_the_barrier_shuts_them_all(
    deployment: Deployment, redis: RedisServer
) -> None:
    paths = ["/v1/chat/completions", "/collective_rpc", "/inference/v1/generate", "/invocations", "/tokenize"]
    for barrier in (False, True):
        looked = Engine(barrier=barrier)
        looked._pages["/openapi.json"] = json.dumps({"paths": {path: {} for path in paths}})
        said = about(await looked_at(deployment, redis, looked), "other doors")
        if barrier:
            assert said == [("ok", "saltgate's barrier inside it shuts them")]
        else:
            assert [level for level, _ in said] == ["warning", "warning", "note"]
            assert "/collective_rpc" in said[0][1]
            assert "--enable-scale-out" in said[1][1]
            assert "/invocations, /tokenize" in said[2][1]


CACHE = 'vllm:cache_config_info{enable_prefix_caching="%s",prefix_caching_hash_algo="%s"} 1.0\n'


@pytest.mark.parametrize(
    ("metrics", "what", "level", "words"),
    [
        (CACHE % ("True", "sha256"), "prefix cache", "ok", "hashed by sha256"),
        (CACHE % ("False", "sha256"), "prefix cache", "note", "--enable-prefix-caching"),
        ("", "prefix cache", "note", "do not say"),
        ("", "external cache", "note", "cannot be told from here"),
        ('vllm:external_prefix_cache_queries_total{e="0"} 0.0\n', "external cache", "note", "none was used so far"),
        ('vllm:external_prefix_cache_queries_total{e="0"} 64.0\n', "external cache", "warning", "no name here"),
        ("# TYPE lmcache:num_hit_tokens counter\n", "external cache", "warning", "LMCacheMPConnector knows"),
        ("# TYPE vllm:mooncake_store_operation_total counter\n", "external cache", "ok", "Mooncake"),
        ("# TYPE vllm:kv_offload_load_bytes counter\n", "external cache", "ok", "host's memory"),
        ("# TYPE vllm:nixl_xfer_time_seconds histogram\n", "external cache", "note", "NIXL"),
    ],
)
async def test_what_the_metrics_tell_of_caches_is_said(
    deployment: Deployment, redis: RedisServer, metrics: str, what: str, level: str, words: str
) -> None:
    ((said, message),) = about(await looked_at(deployment, redis, Engine(metrics=metrics)), what)
    assert said == level
    assert words in message


async def test_a_second_gate_that_does_not_know_the_first_is_told_what_to_write(
    deployment: Deployment, redis: RedisServer, tmp_path: Path
) -> None:
    """The first gate's border would be lost there; with [[gates]] it is not."""
    place = replace(redis.settings(), redis=redis.url.removesuffix("/0") + "/1")
    for known in (False, True):
        gates = ("u-mallory-0009",) if known else ()
        async with (
            issuer_and_directory(redis) as issuer,
            Simulator(SOUND) as simulator,
            gate_bed(place, [simulator.url], tmp_path, gates=gates) as second,
        ):
            deployment.configure(
                engines=engine(second.url, more='api_key = { file = "token" }'), issuer=issuer, redis=redis.url
            )
            (tmp_path / "token").write_text(second.token("u-mallory-0009"))
            answer = await deployment.check("--json")
        ((level, message),) = about(answer, "/v1/chat/completions")
        assert (level, answer.code) == (("ok", 0) if known else ("fault", 1))
        assert known or "under its [[gates]]" in message
        assert about(answer, "version")[0][1].startswith("it is another saltgate")


def front_in(project: str, *, workspace: str = "acme") -> str:
    return f'[workspaces.{workspace}.projects.{project}]\nmembers = ["user:front"]\n'


QUIET = '[workspaces.quiet]\nissuer = "@"\nshow_reuse = false\n' + front_in("ares", workspace="quiet")
FOREIGN = '[workspaces.other]\nissuer = "https://elsewhere.example"\n' + front_in("ares", workspace="other")


@pytest.mark.parametrize(
    ("more", "level", "words"),
    [
        ("", "note", "named in no project"),
        (front_in("ares"), None, ""),
        (front_in("ares") + front_in("hera"), "fault", "acme/ares, acme/hera"),
        (QUIET, "fault", "show_reuse"),
        (FOREIGN, "note", "named in no project"),
    ],
)
async def test_a_gate_in_front_that_would_be_refused_or_could_prove_nothing_is_told(
    deployment: Deployment, redis: RedisServer, more: str, level: str | None, words: str
) -> None:
    async with issuer_and_directory(redis) as issuer, Simulator(SOUND) as simulator:
        await fill(redis, issuer, more=more.replace("@", issuer))
        gates = f'[[gates]]\nissuer = "{issuer}"\nsubject = "front"\n'
        deployment.configure(engines=engine(simulator.url) + gates, issuer=issuer, redis=redis.url)
        answer = await deployment.check("--json")
    said = about(answer, "gate front")
    assert [one for one, _ in said] == ([] if level is None else [level])
    assert words in "".join(message for _, message in said)
    assert answer.code == int(level == "fault")


def test_the_real_command_says_no_with_its_exit_status(deployment: Deployment) -> None:
    deployment.configure(
        engines=engine("http://127.0.0.1:1"), issuer="http://127.0.0.1:2", redis="redis://127.0.0.1:3/0"
    )
    command = [sys.executable, "-c", "from proxy.cli import main; main()", "check", "-c", str(deployment.file)]
    answer = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert (answer.returncode, answer.stderr) == (1, b"")
    assert answer.stdout.endswith(b"Not everything is right: see each fault above.\n")


async def test_serve_starts_with_no_field_that_must_not_be_added(
    deployment: Deployment, redis: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    fields = '[[engines.limits.fields]]\nname = "cache_salt"\ntype = "string"'
    engines = engine("http://127.0.0.1:9", more=fields)
    deployment.configure(engines=engines, issuer="https://sso.example.com", redis=redis.url)
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    assert await asyncio.to_thread(serve.run, parser.parse_args(["-c", str(deployment.file)])) == 2
    assert "engines.0.limits.fields.0.name: can never pass" in capsys.readouterr().err


async def test_a_rule_for_a_workspace_that_there_is_not_is_a_warning(
    deployment: Deployment, redis: RedisServer
) -> None:
    async with issuer_and_directory(redis) as issuer, Simulator(SOUND) as simulator:
        deployment.configure(engines=engine(simulator.url), issuer=issuer, redis=redis.url)
        with deployment.file.open("a") as file:
            file.write('[[isolation.rules]]\nname = "secrets"\nworkspaces = ["acme", "acne"]\nsets = ["secrets"]\n')
        answer = await deployment.check("--json")
    assert answer.code == 0
    assert any("rule secrets: there is no workspace acne" in line for line in answer.lines("warning"))
