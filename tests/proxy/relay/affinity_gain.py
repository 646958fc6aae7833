"""What it brings that requests go to the replica that holds their prefix.

    python -m tests.proxy.relay.affinity_gain

The same conversations are played against simulated replicas whose caches are too small for all of it, through a whole
gate, once by each choice: the product's, each replica in its turn, and who has least to do. Told are the share of the
prompt tokens that was reused, the time to the first token as clients see it, and how even the load was: the busiest
replica's requests to the mean.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from proxy.demo.simulator import EngineShape, Pace, Simulator
from proxy.relay.choice import Affinity, Choice
from tests.parts.gate_bed import GateBed, gate_bed
from tests.parts.redis_server import RedisServer
from tests.proxy.relay.choices import LeastOutstanding, RoundRobin

CHOICES: Final[Mapping[str, Callable[[], Choice]]] = {
    "affinity": lambda: Affinity(time.monotonic),
    "round robin": RoundRobin,
    "least outstanding": LeastOutstanding,
}
PROJECTS: Final = 24
SHAPE: Final = EngineShape(
    pace=Pace(prefill_tokens_per_second=25_000.0, seconds_per_token=0.004), capacity_blocks=1500, answer_tokens=16
)


@dataclass(frozen=True, slots=True)
class Conversation:
    """What one client says in a project, turn by turn, under these instructions."""

    project: str
    instructions: str
    says: tuple[str, ...]


@dataclass(slots=True)
class Played:
    """What became of it. `seconds` are the times to the first token, `requests` counts those at each replica."""

    prompt_tokens: int = 0
    reused_tokens: int = 0
    seconds: list[float] = field(default_factory=list)
    requests: Counter[str] = field(default_factory=Counter)

    @property
    def reuse(self) -> float:
        """The share of the prompt tokens that was reused."""
        return self.reused_tokens / self.prompt_tokens

    @property
    def unevenness(self) -> float:
        """The busiest replica's requests to the mean."""
        return max(self.requests.values()) / statistics.mean(self.requests.values())


def text(name: str, words: int) -> str:
    """So many words that no other name gives, some five characters each."""
    drawn = random.Random(name)
    return " ".join(f"{drawn.randrange(16**4):04x}" for _ in range(words))


def documents(name: str, *, projects: int = PROJECTS, questions: int = 6, words: int = 1600) -> list[Conversation]:
    """In each project one document, and questions about it by people who ask one thing each."""
    return [
        Conversation(f"p{number}", text(f"{name} {number}", words), (f"Question {question} {number}?",))
        for question in range(questions)
        for number in range(projects)
    ]


def chats(
    name: str, *, projects: int = PROJECTS, each: int = 3, turns: int = 6, words: int = 150
) -> list[Conversation]:
    """In each project some conversations that have nothing in common but a sentence."""
    return [
        Conversation(f"p{n}", "Be brief.", tuple(text(f"{name} {n} {one} {turn}", words) for turn in range(turns)))
        for one in range(each)
        for n in range(projects)
    ]


def crowd(name: str, *, conversations: int = 60, turns: int = 5, words: int = 100) -> list[Conversation]:
    """One project, one agent with long instructions, and everybody in it."""
    return [
        Conversation("p0", text(name, 1600), tuple(text(f"{name} {one} {turn}", words) for turn in range(turns)))
        for one in range(conversations)
    ]


WORKLOADS: Final[Mapping[str, Callable[[str], list[Conversation]]]] = {
    "documents": documents,
    "chats": chats,
    "crowd": crowd,
}


async def play(bed: GateBed, conversations: Sequence[Conversation], *, users: int, seed: int = 1) -> Played:
    """All turns of all conversations, so many at a time, those of one conversation in their order."""
    played, drawn = Played(), random.Random(seed)
    before = len(await bed.completed(0))
    waiting = [(one, [{"role": "system", "content": one.instructions}], list(one.says)) for one in conversations]

    async def user() -> None:
        while waiting:
            # Among the oldest few: conversations come one after the other, and some people answer faster.
            conversation, messages, left = waiting.pop(drawn.randrange(min(len(waiting), users * 2)))
            messages.append({"role": "user", "content": left.pop(0)})
            messages.append({"role": "assistant", "content": await _ask(bed, conversation.project, messages, played)})
            if left:
                waiting.insert(min(len(waiting), users * 2), (conversation, messages, left))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(users):
            tasks.create_task(user())
    for line in (await bed.completed(before + len(played.seconds)))[before:]:
        played.requests[str(line.get("replica"))] += 1
    return played


async def _ask(bed: GateBed, project: str, messages: Sequence[Mapping[str, str]], played: Played) -> str:
    """One turn: the answer's text."""
    document = {"model": "tiny", "messages": list(messages), "max_tokens": 16, "temperature": 0, "stream": True}
    document["stream_options"] = {"include_usage": True}
    answer, began, first = [], time.perf_counter(), None
    async with bed.session.post(
        f"{bed.url}/v1/chat/completions", json=document, headers=bed.headers(project=project)
    ) as response:
        assert response.status == 200, await response.text()
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            for choice in event["choices"]:
                if choice["delta"].get("content"):
                    first = first or time.perf_counter() - began
                    answer.append(choice["delta"]["content"])
            if usage := event.get("usage"):
                played.prompt_tokens += usage["prompt_tokens"]
                played.reused_tokens += (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    played.seconds.append(first if first is not None else time.perf_counter() - began)
    return "".join(answer)


def directory(projects: int = PROJECTS) -> str:
    """A directory, to be formatted with its issuer, in which alice is a member of so many projects."""
    members = (f'[workspaces.acme.projects.p{n}]\nmembers = ["user:u-alice-0001"]\n' for n in range(projects))
    return '[workspaces.acme]\nissuer = "{issuer}"\n\n' + "\n".join(members)


@asynccontextmanager
async def simulated(
    folder: Path, choice: Choice, *, replicas: int, shape: EngineShape = SHAPE
) -> AsyncIterator[GateBed]:
    """A gate that chooses so, before so many simulators with empty caches."""
    async with AsyncExitStack() as stack:
        redis = stack.enter_context(RedisServer(folder))
        engines = [await stack.enter_async_context(Simulator(shape)) for _ in range(replicas)]
        urls = [engine.url for engine in engines]
        bed = await stack.enter_async_context(
            gate_bed(redis.settings(), urls, folder, document=directory(), proof="off", models=("tiny",))
        )
        async with asyncio.timeout(10):
            while not all(replica.reachable for replica in bed.gate.engines.engines[0].replicas):
                await asyncio.sleep(0.01)
        bed.gate.gateway.relay.choice = choice
        yield bed


def row(workload: str, choice: str, played: Played) -> str:
    """One line of the table."""
    cuts = statistics.quantiles(played.seconds, n=20)
    return (
        f"| {workload} | {choice} | {played.reuse:.0%} | {cuts[9] * 1000:.0f} ms | {cuts[18] * 1000:.0f} ms "
        f"| {played.unevenness:.2f} |"
    )


HEAD: Final = (
    "| workload | choice | tokens reused | first token, median | 95 % | busiest to mean |\n|---|---|---|---|---|---|"
)


async def _main(workloads: Sequence[str], replicas: int, users: int) -> None:
    """Each workload by each choice, with caches that are empty at first."""
    sys.stdout.write(f"{replicas} replicas, {users} users at a time\n\n{HEAD}\n")
    for workload in workloads:
        for name, choice in CHOICES.items():
            with tempfile.TemporaryDirectory() as folder:
                async with simulated(Path(folder), choice(), replicas=replicas) as bed:
                    played = await play(bed, WORKLOADS[workload]("gain"), users=users)
            sys.stdout.write(row(workload, name, played) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS), help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--users", type=int, default=12)
    arguments = parser.parse_args()
    asyncio.run(_main(arguments.workloads, arguments.replicas, arguments.users))
