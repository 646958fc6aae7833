"""What saltgate shows of tokens is what the real engine counts, to the token: four who count apart, and one sum.

The engine counts what it schedules, /metrics what workers told the supervisor, the pages' history what they told it
beside that, the audit what is on the disk; and the callers add up the usage that they were answered.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import pytest

from tests.engine.client import Vllm
from tests.engine.endpoints import CHAT, SALTED, Endpoint, Usage
from tests.engine.gate import fresh_prompt
from tests.parts.redis_server import RedisServer
from tests.proxy.test_admin_pages import Viewer
from tests.proxy.test_server import SALTGATE, Served, serving

AUDIT: Final = """
[audit]
directory = "audit"
[[audit.keys]]
id = "a1"
secret = {{ file = "audit-key" }}
"""
ALICE: Final = ("u-alice-0001", "acme", "apollo")
MALLORY: Final = ("u-mallory-0009", "globex", "vault")
TRIES: Final = 5
"""A worker may prove the engine while it is counted."""


@dataclass(frozen=True, slots=True)
class Tokens:
    prompt: int = 0
    reused: int = 0
    output: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(self.prompt + other.prompt, self.reused + other.reused, self.output + other.output)

    def __sub__(self, other: Tokens) -> Tokens:
        return Tokens(self.prompt - other.prompt, self.reused - other.reused, self.output - other.output)

    @classmethod
    def of(cls, usage: Usage) -> Self:
        return cls(usage.prompt, usage.reused, usage.output)

    @classmethod
    def told(cls, numbers: Mapping[str, int]) -> Self:
        """As our own documents name them."""
        return cls(numbers["prompt_tokens"], numbers["reused_tokens"], numbers["output_tokens"])


Scope = tuple[str, str]
ByScope = Mapping[Scope, Tokens]


@dataclass(frozen=True, slots=True)
class Page:
    """One /metrics page."""

    text: str

    def samples(self, family: str) -> Iterator[tuple[dict[str, str], int]]:
        for labels, value in re.findall(rf"^{family}\{{(.*)\}} (\S+)$", self.text, re.MULTILINE):
            yield dict(re.findall(r'(\w+)="([^"]*)"', labels)), int(float(value))

    def sum(self, family: str, **labels: str) -> int:
        return sum(value for found, value in self.samples(family) if labels.items() <= found.items())

    def prompt_tokens(self) -> int:
        """All that an engine counts."""
        return self.sum("vllm:prompt_tokens_total")

    def scopes(self) -> ByScope:
        """The tokens of each scope that had any."""
        families = ("prompt_tokens", "reused_prompt_tokens", "output_tokens")
        columns: dict[Scope, list[int]] = defaultdict(lambda: [0, 0, 0])
        for column, family in enumerate(families):
            for labels, value in self.samples(f"saltgate_{family}_total"):
                columns[labels["workspace"], labels["project"]][column] += value
        return {scope: Tokens(*numbers) for scope, numbers in columns.items() if any(numbers)}


@dataclass(frozen=True, slots=True)
class Counts:
    """What the engine counts: of what it answered, and of what it looked up in its cache. `probes` are the gate's."""

    served: Tokens
    looked_up: Tokens
    computed: int
    preempted: int
    probes: int

    def since(self, before: Counts) -> Counts:
        return Counts(
            self.served - before.served,
            self.looked_up - before.looked_up,
            self.computed - before.computed,
            self.preempted - before.preempted,
            self.probes - before.probes,
        )


@dataclass(slots=True)
class Sums:
    """A served gate, its engine, and what its callers were answered."""

    served: Served
    engine: str
    answered: dict[Scope, Tokens] = field(default_factory=dict)
    requests: int = 0

    async def ask(self, caller: tuple[str, str, str], endpoint: Endpoint, prompt: str, *, stream: bool) -> None:
        subject, workspace, project = caller
        headers = {
            "Authorization": f"Bearer {self.served.mint.token(subject=subject, groups=())}",
            "OpenAI-Organization": workspace,
            "OpenAI-Project": project,
        }
        body = endpoint.body(prompt, stream=stream)
        async with self.served.session.post(self.served.url + endpoint.path, json=body, headers=headers) as answer:
            data = await answer.read()
        assert answer.status == 200, data
        scope = (workspace, project)
        self.answered[scope] = self.answered.get(scope, Tokens()) + Tokens.of(endpoint.usage(data))
        self.requests += 1

    async def a_day(self) -> None:
        """All endpoints, streams and not: alone, again, both scopes at once, and what is too short to be reused."""
        for endpoint in SALTED:
            prompt = fresh_prompt(30)
            for stream in (False, True):
                await self.ask(ALICE, endpoint, prompt, stream=stream)
            await self.ask(MALLORY, endpoint, prompt, stream=True)
        prompts = [fresh_prompt(lines) for lines in (1, 12, 60)]
        callers = [(caller, prompt) for prompt in prompts for caller in (ALICE, MALLORY)]
        for stream in (True, False):
            await asyncio.gather(*(self.ask(caller, CHAT, prompt, stream=stream) for caller, prompt in callers))

    async def page(self, url: str) -> Page:
        async with self.served.session.get(f"{url}/metrics") as answer:
            return Page(await answer.text())

    async def counts(self) -> Counts:
        gate = await self.page(self.served.admin)
        page = await self.page(self.engine)
        output = page.sum("vllm:generation_tokens_total")
        source = "vllm:prompt_tokens_by_source_total"
        return Counts(
            served=Tokens(page.prompt_tokens(), page.sum("vllm:prompt_tokens_cached_total"), output),
            looked_up=Tokens(
                page.sum("vllm:prefix_cache_queries_total"), page.sum("vllm:prefix_cache_hits_total"), output
            ),
            computed=page.sum(source, source="local_compute"),
            preempted=page.sum("vllm:num_preemptions_total"),
            probes=gate.sum("saltgate_engine_probes_total"),
        )

    async def quiet(self) -> Counts:
        """As soon as nothing is counted any more, and no probe was sent for a moment. Raises TimeoutError."""
        async with asyncio.timeout(60):
            before = None
            while (now := await self.counts()) != before:
                before = now
                await asyncio.sleep(1.5)
        return now

    async def undisturbed_day(self) -> tuple[Tokens, Counts]:
        """What callers were answered in a day without a probe, and how much more the engine had counted after it."""
        for _ in range(TRIES):
            before, answered = await self.quiet(), total(self.answered)
            await self.a_day()
            counted = (await self.quiet()).since(before)
            if not counted.probes:
                return total(self.answered) - answered, counted
        pytest.fail("the engine is probed all the time")


def total(by_scope: ByScope) -> Tokens:
    return sum(by_scope.values(), Tokens())


async def test_metrics_pages_and_audit_sum_up_to_what_the_engine_counts(
    second_vllm: Vllm, redis: RedisServer, tmp_path: Path
) -> None:
    (tmp_path / "audit-key").write_bytes(b"fedcba9876543210fedcba9876543210")
    engine = second_vllm.url  # nobody else asks it meanwhile
    async with serving(redis, tmp_path, workers=2, tables=AUDIT, engine_url=engine) as served:
        sums = Sums(served, engine)
        first = await sums.page(engine)
        await served.until("/readyz", 200, seconds=120)
        day, counted = await sums.undisturbed_day()
        assert 0 < day.reused < day.prompt
        assert counted.preempted == 0
        assert counted.served == counted.looked_up == day
        assert counted.computed == day.prompt - day.reused

        async with Viewer(served) as viewer:
            await viewer.until_requests(sums.requests)
            for (workspace, project), tokens in sums.answered.items():
                _, view = await viewer.get(f"/api/scopes/{workspace}/{project}?window=1h")
                assert Tokens.told(view) == tokens
                assert view["reuse_rate"] == pytest.approx(tokens.reused / tokens.prompt, abs=1e-4)
            _, overview = await viewer.get("/api/overview?window=1h")
            assert shown(overview) == sums.answered

        metrics, last = await sums.page(served.admin), await sums.page(engine)
        assert metrics.scopes() == sums.answered
        # Of all that the engine was ever asked, the gate knows what it asked itself.
        probed = metrics.sum("saltgate_engine_probe_prompt_tokens_total")
        assert probed > 0
        assert last.prompt_tokens() - first.prompt_tokens() - probed == total(sums.answered).prompt

        served.process.send_signal(signal.SIGTERM)
        assert await served.ended() == 0
        assert await audited(served) == (sums.answered, sums.requests)


def shown(overview: Mapping[str, Any]) -> ByScope:
    """By the administrators' pages."""
    return {
        (workspace["workspace"], project["project"]): Tokens.told(project)
        for workspace in overview["workspaces"]
        for project in workspace["projects"]
    }


async def audited(served: Served) -> tuple[ByScope, int]:
    """By the audit, and of how many requests."""
    words = ("audit", "show", "--sum", "--json", "-c", str(served.configuration))
    process = await asyncio.create_subprocess_exec(*SALTGATE, *words, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert process.returncode == 0
    sums = json.loads(output)["sums"]
    return {(one["workspace"], one["project"]): Tokens.told(one) for one in sums}, sum(one["granted"] for one in sums)
