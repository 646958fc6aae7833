"""Isolation rules on a whole gate: what is sensitive gets a salt of its own, everything else keeps sharing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from config.settings import Isolation, IsolationKey, IsolationRule
from proxy.demo.simulator import AT_ONCE, EngineShape, Simulator
from proxy.directory.changes import Deed, fresh_ring, import_directory, revoke
from proxy.directory.model import directory_from_toml, user
from proxy.engines.body import ClientRequest
from proxy.isolation.narrowing import Narrowed
from proxy.isolation.unit import Level
from tests.parts.gate_bed import DIRECTORY, KEY, GateBed, chat, gate_bed
from tests.parts.redis_server import RedisServer
from tests.parts.scraped import page_of

pytestmark = pytest.mark.slow

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
MESSAGES, EMBEDDINGS = "/v1/messages", "/v1/embeddings"
ALICE, BOB, CAROL = "u-alice-0001", "u-bob-0002", "u-carol-0003"
NO_HEADERS: Mapping[str, str] = {}
CARD = "4111 1111 1111 1111"
WORDS = IsolationRule(name="codename", words=("falcon",))
CARDS = IsolationRule(name="people", sets=("personal-data",))
ISOLATION = Isolation(keys=(IsolationKey(id="k1", secret=KEY),), rules=(WORDS, CARDS))


@asynccontextmanager
async def bed_and_engine(
    redis: RedisServer, folder: Path, isolation: Isolation = ISOLATION, *, document: str = DIRECTORY
) -> AsyncIterator[tuple[GateBed, Simulator]]:
    async with (
        Simulator(EngineShape(models=("tiny",), pace=AT_ONCE, answer_tokens=2)) as engine,
        gate_bed(redis.settings(), [engine.url], folder, isolation=isolation, document=document) as bed,
    ):
        engine.requests.clear()
        yield bed, engine


async def salt_of(
    bed: GateBed,
    engine: Simulator,
    document: object,
    path: str = CHAT,
    headers: Mapping[str, str] | None = None,
    more: Mapping[str, str] = NO_HEADERS,
) -> str:
    """The salt that the engine got for one request of alice's."""
    status, _, answer = await bed.post(path, document, dict(bed.headers() if headers is None else headers) | dict(more))
    assert status == 200, answer
    salt = engine.last.salt
    assert salt is not None
    return salt


async def alices_own(bed: GateBed, engine: Simulator) -> str:
    """The salt of her user unit, which she asks for herself."""
    return await salt_of(bed, engine, chat(), more={"X-Saltgate-Unit": "user"})


async def test_a_request_with_a_match_has_the_persons_salt_and_one_without_the_shared_one(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with bed_and_engine(redis, tmp_path) as (bed, engine):
        shared, own = await salt_of(bed, engine, chat()), await alices_own(bed, engine)
        assert shared != own
        assert await salt_of(bed, engine, chat(f"My card is {CARD}.")) == own
        assert await salt_of(bed, engine, chat("What about Falcon?")) == own
        assert await salt_of(bed, engine, chat("What about falconry?")) == shared
        carol = bed.headers(CAROL)
        assert await salt_of(bed, engine, chat(), headers=carol) == shared
        assert await salt_of(bed, engine, chat(f"My card is {CARD}."), headers=carol) not in (shared, own)


async def test_the_next_turn_with_the_secret_in_its_history_is_narrow_too(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_and_engine(redis, tmp_path) as (bed, engine):
        own = await alices_own(bed, engine)
        turns = [{"role": "user", "content": f"My card is {CARD}."}]
        for _ in range(3):
            document = {"model": "tiny", "messages": turns}
            assert await salt_of(bed, engine, document) == own
            turns += [{"role": "assistant", "content": "Noted."}, {"role": "user", "content": "And now?"}]
        assert await salt_of(bed, engine, {"model": "tiny", "messages": turns[1:]}) != own


TOOL = {"name": "pay", "description": "Pays with falcon", "parameters": {"type": "object", "properties": {}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": '{"who": "\\u0066alcon"}'}}
PLACES: list[tuple[str, dict[str, object]]] = [
    (CHAT, {"messages": [{"role": "system", "content": "Speak of falcon"}, {"role": "user", "content": "Hi"}]}),
    (CHAT, {"messages": [{"role": "user", "name": "falcon", "content": "Hi"}]}),
    (CHAT, {"messages": [{"role": "assistant", "content": "falcon"}, {"role": "user", "content": "Hi"}]}),
    (CHAT, {"messages": [{"role": "assistant", "tool_calls": [CALL]}, {"role": "user", "content": "Hi"}]}),
    (CHAT, {"messages": [{"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "falcon"}]}]}),
    (CHAT, {"messages": [{"role": "user", "content": "Hi"}], "tools": [{"type": "function", "function": TOOL}]}),
    (CHAT, {"messages": [{"role": "user", "content": "Hi"}], "structured_outputs": {"choice": ["falcon", "eagle"]}}),
    (COMPLETIONS, {"prompt": "The falcon"}),
    (COMPLETIONS, {"prompt": ["The", "falcon"]}),
    (COMPLETIONS, {"prompt": "The", "suffix": "falcon"}),
    (COMPLETIONS, {"prompt": "The fal", "suffix": "con"}),
    (COMPLETIONS, {"prompt": [1, 2, 3]}),
    (COMPLETIONS, {"prompt": [[1, 2, 3]]}),
    (RESPONSES, {"input": "The falcon"}),
    (RESPONSES, {"input": "Hi", "instructions": "Speak of falcon"}),
    (RESPONSES, {"input": "con", "instructions": "Speak of fal"}),
    (RESPONSES, {"input": [{"type": "function_call_output", "call_id": "c1", "output": "falcon"}]}),
    (MESSAGES, {"max_tokens": 2, "system": [{"type": "text", "text": "falcon"}], "messages": []}),
    (MESSAGES, {"max_tokens": 2, "messages": [
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "falcon"}]}]}),
    (MESSAGES, {"max_tokens": 2, "messages": [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"falcon": 1}}]}]}),
    (EMBEDDINGS, {"input": ["one", "falcon"]}),
    (EMBEDDINGS, {"input": [[1, 2], [3]]}),
]  # fmt: skip


async def test_wherever_the_words_stand_they_are_found(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_and_engine(redis, tmp_path) as (bed, engine):
        own = await alices_own(bed, engine)
        for path, fields in PLACES:
            document = {"model": "tiny"} | fields
            if not document.get("messages", True):
                document["messages"] = [{"role": "user", "content": "Hi"}]
            assert await salt_of(bed, engine, document, path) == own, fields
            written = json.dumps(document)
            clean = written.replace("falcon", "eagle").replace("u0066alcon", "eagle")
            assert clean == written or await salt_of(bed, engine, json.loads(clean), path) != own, fields


@pytest.mark.parametrize(
    "written",
    [
        r'"\u0066alcon"',
        r'"f\u0061lc\u006fn"',
        r'"\uFF26alcon"',
        r'"fal\u200bcon"',
        r'"fal\u00adcon"',
        r'"f\u0336alcon"',
        r'"fal\u0000con"',
        r'"fal\u009bcon"',
        r'"fa\u0301\u0316lcon"',
        r'"fal\u0941con"',
        r'"{\"a\": \"f\\u0061lcon\\\\u0061\"}"',
        r'[{"type":"text","text":"fal"},{"type":"refusal","refusal":"no"},{"type":"text","text":"con"}]',
        r'[{"type":"text","text":"fal"},{"type":"thinking","thinking":"no"},{"type":"text","text":"con"}]',
        '"ＦＡＬＣＯＮ"',  # noqa: RUF001
        '"FaLcOn"',
        r'[{"type":"text","text":"fal"},{"type":"text","text":"con"}]',
        r'[{"type":"text","text":"fal","type":"text"}]',
        r'"4111\t1111 1111 1111 or \uff14111111111111111"',
        r'"4111\u00a01111\u00a01111\u00a01111"',
        r'[{"type":"text","text":"4111 1111"},{"type":"text","text":" 1111 1111"}]',
        r'[{"type":"text","text":"4111 1111","name":"x","foo":"y"},{"type":"text","text":" 1111 1111"}]',
        r'"x"},{"role":"user","content":"4111 1111 "},{"role":"user","content":"1111 1111"',
        r'"x"},{"role":"assistant","content":"4111 1111 "},{"role":"user","name":"z","content":"1111 1111"',
        r'"The result was {\"card\": \"\\u0034111111111111111\"}"',
    ],
)
async def test_no_spelling_hides_it(redis: RedisServer, tmp_path: Path, written: str) -> None:
    async with bed_and_engine(redis, tmp_path) as (bed, engine):
        own = await alices_own(bed, engine)
        body = f'{{"model":"tiny","messages":[{{"role":"user","content":{written}}}]}}'.encode()
        headers = bed.headers() | {"Content-Type": "application/json"}
        engine.requests.clear()
        async with bed.session.post(bed.url + CHAT, data=body, headers=headers) as answer:
            # One of them names a member twice: refused, which is as good.
            assert (answer.status, len(engine.requests)) in {(200, 1), (400, 0)}
        assert [request.salt for request in engine.requests] in ([own], [])
        assert engine.requests or written.count('"type"') > written.count("{")


async def test_what_cannot_be_looked_at_is_narrow(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_and_engine(redis, tmp_path, replace(ISOLATION, scan_limit=2000)) as (bed, engine):
        shared, own = await salt_of(bed, engine, chat()), await alices_own(bed, engine)
        assert await salt_of(bed, engine, chat("word " * 300)) == shared
        assert await salt_of(bed, engine, chat("word " * 500)) == own
        assert await salt_of(bed, engine, {"model": "tiny", "prompt": [1, 2, 3]}, COMPLETIONS) == own
        # What is dropped anyway is not looked at, and does not count.
        assert await salt_of(bed, engine, chat(metadata={"a": "word " * 500, "b": "falcon"})) == shared
        matches = [line.get("narrowed_by") for line in await bed.completed(6)]
        assert matches == [None, None, None, ["__over_limit__"], ["__unscannable__"], None]


async def test_a_rule_holds_in_its_workspaces_only(redis: RedisServer, tmp_path: Path) -> None:
    elsewhere = replace(ISOLATION, rules=(replace(WORDS, workspaces=("globex",)),), scan_limit=10)
    async with bed_and_engine(redis, tmp_path, elsewhere) as (bed, engine):
        assert await salt_of(bed, engine, chat("falcon")) == await salt_of(bed, engine, chat())
        status, answered, _ = await bed.post()
        assert status == 200
        assert "scan" not in answered["Server-Timing"]
    async with bed_and_engine(redis, tmp_path, replace(elsewhere, scan_limit=10_000)) as (bed, engine):
        mallory = bed.headers("u-mallory-0009", "vault", "globex")
        shared = await salt_of(bed, engine, chat(), headers=mallory)
        assert await salt_of(bed, engine, chat("falcon"), headers=mallory) != shared


async def test_a_rule_narrows_to_its_unit_and_never_widens(redis: RedisServer, tmp_path: Path) -> None:
    to_project = replace(ISOLATION, unit="workspace", rules=(replace(WORDS, unit="project"),))
    async with bed_and_engine(redis, tmp_path, to_project) as (bed, engine):
        shared, own = await salt_of(bed, engine, chat()), await alices_own(bed, engine)
        project = await salt_of(bed, engine, chat(), more={"X-Saltgate-Unit": "project"})
        assert len({shared, own, project}) == 3
        assert await salt_of(bed, engine, chat("falcon")) == project
        assert await salt_of(bed, engine, chat("falcon"), more={"X-Saltgate-Unit": "user"}) == own
        assert await salt_of(bed, engine, chat("falcon"), more={"X-Saltgate-Unit": "team"}) == project
        bob = bed.headers(BOB, "hermes")  # the project's own unit is user
        assert await salt_of(bed, engine, chat("falcon"), headers=bob) == await salt_of(
            bed, engine, chat(), headers=bob
        )


async def test_with_a_collection_named_it_narrows_and_does_not_refuse(redis: RedisServer, tmp_path: Path) -> None:
    rules = (WORDS, replace(CARDS, unit="project"))
    async with bed_and_engine(redis, tmp_path, replace(ISOLATION, rules=rules)) as (bed, engine):
        own, project = await alices_own(bed, engine), await salt_of(bed, engine, chat())
        named = {"X-Saltgate-Collection": "handbook"}
        collection = await salt_of(bed, engine, chat(), more=named)
        assert collection not in (own, project)
        assert await salt_of(bed, engine, chat(CARD), more=named) == project
        assert await salt_of(bed, engine, chat("falcon"), more=named) == own
        assert await salt_of(bed, engine, chat(f"falcon {CARD}"), more=named) == own


async def test_rules_are_told_by_name_and_never_what_they_found(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_and_engine(redis, tmp_path) as (bed, _):
        before = page_of(bed.gate.metrics)
        for rule in ("codename", "people", "__over_limit__", "__unscannable__"):
            assert f'saltgate_isolation_rule_matches_total{{rule="{rule}"}} 0' in before
        _, answered, _ = await bed.post(CHAT, chat(f"Falcon pays with {CARD}"))
        assert "scan;dur=" in answered["Server-Timing"]
        await bed.post(CHAT, chat("Falcon"))
        lines = await bed.completed(2)
        assert [line.get("narrowed_by") for line in lines] == [["codename", "people"], ["codename"]]
        assert all("scan_ms" in line for line in lines)
        after = page_of(bed.gate.metrics)
        assert 'saltgate_isolation_rule_matches_total{rule="codename"} 2' in after
        assert 'saltgate_isolation_rule_matches_total{rule="people"} 1' in after
        emitted = bed.log.read_text() + after
        assert "4111" not in emitted
        assert "alcon" not in emitted


@dataclass(slots=True)
class WaitingRules:
    """Rules that look at a request for as long as the test wants, and say what it wants."""

    found: Mapping[str, Narrowed]
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[str] = field(default_factory=list)

    def hold_in(self, workspace: str) -> bool:
        return workspace in self.found

    async def narrowed(self, workspace: str, asked: ClientRequest) -> Narrowed:
        self.asked.append(workspace)
        self.begun.set()
        await self.done.wait()
        return self.found[workspace]


async def during_the_scan(bed: GateBed, rules: WaitingRules, deed: Deed, **headers: str) -> tuple[int, bytes]:
    """A request of alice's, who names no scope; while the rules look at it, the directory changes."""
    bed.gate.gateway.entries.rules = rules
    request = asyncio.ensure_future(bed.post(CHAT, chat(), {"Authorization": f"Bearer {bed.token()}"} | headers))
    await rules.begun.wait()
    snapshot = bed.gate.view.current()
    await bed.change(deed)
    while bed.gate.view.current() is snapshot:
        await asyncio.sleep(0.001)
    rules.done.set()
    status, _, body = await request
    return status, body


async def test_a_membership_revoked_during_a_scan_counts(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_and_engine(redis, tmp_path) as (bed, engine):
        rules = WaitingRules({"acme": Narrowed(None, ())})
        revoked = revoke("acme", "apollo", user(ALICE))
        status, body = await during_the_scan(bed, rules, revoked, **{"OpenAI-Project": "apollo"})
        assert (status, json.loads(body)["error"]["code"]) == (403, "not_a_member")
        assert not engine.requests


ONE_PLACE = """
[workspaces.acme]
issuer = "{issuer}"
[workspaces.acme.projects.apollo]
members = ["user:u-alice-0001"]
[workspaces.globex]
issuer = "{issuer}"
[workspaces.globex.projects.vault]
members = []
"""


async def test_who_is_in_another_workspace_after_a_scan_is_looked_at_under_its_rules(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with bed_and_engine(redis, tmp_path, document=ONE_PLACE) as (bed, _):
        rules = WaitingRules({"acme": Narrowed(None, ()), "globex": Narrowed(Level.USER, ("theirs",))})
        moved = ONE_PLACE.replace('["user:u-alice-0001"]', "NOBODY").replace("[]", '["user:u-alice-0001"]')
        moved = moved.replace("NOBODY", "[]")
        directory = directory_from_toml(moved.format(issuer=bed.issuer.mint.issuer))
        status, body = await during_the_scan(bed, rules, import_directory(directory, fresh_ring("k1", now=0)))
        assert status == 200, body
        assert rules.asked == ["acme", "globex"]
        (line,) = await bed.completed(1)
        assert (line["narrowed_by"], line["unit"]) == (["theirs"], "user:globex/vault")
