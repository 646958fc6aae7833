"""What isolation rules cost, measured here: `python -m tests.proxy.narrowing_cost`. The document shows its table."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable

from proxy.engines.body import ClientRequest, read_body
from proxy.engines.kinds import VLLM
from proxy.engines.profile import Operation
from proxy.engines.texts import texts
from proxy.isolation.narrowing import isolation_rule, narrowed
from proxy.scanner import Scanner

CHAT = next(endpoint for endpoint in VLLM.salted if endpoint.operation is Operation.CHAT)
RULES = (
    isolation_rule("words", words=["falcon", "ward 7", "Müller"]),
    isolation_rule("sets", sets=["personal-data", "secrets"]),
    isolation_rule("pattern", patterns=[r"\bMRN-[0-9]{6}\b"]),
)
LIMIT_BYTES = 2**20
SIZES = (1024, 8 * 1024, 64 * 1024, LIMIT_BYTES - 4096)
RANDOM = random.Random(7)


def english(size: int) -> list[str]:
    return _turns(size, ("the", "patient", "of", "2024-01-02", "is", "well,", "and", "x = f(1)", "says", "thanks."))


def german(size: int) -> list[str]:
    return _turns(size, ("die", "Straße", "—", "grün", "„gut“", "und", "schön,", "heißt", "es", "hier."))


def escapes(size: int) -> list[str]:
    return _turns(size, ('{"a":', '"b\\n",', '"\\u00e4"', "}", "\\t"))


def marks(size: int) -> list[str]:
    """One in each turn, and escapes: a reading without marks at every level."""
    return _turns(size, ("the", "pa\u0301tient", "is", "\\\\\\\\n", "thanks"))


def false_starts(size: int) -> list[str]:
    """Matches whose check says no, without end."""
    return _turns(size, ("you@example.com", "4111111111111112", "password: none"))


def tiny_strings(size: int) -> list[str]:
    return ["a"] * min(size // 40, 16_000)


def _turns(size: int, words: tuple[str, ...]) -> list[str]:
    turns, left = [], size
    while left > 0:
        turn = " ".join(RANDOM.choices(words, k=150))
        turns.append(turn[: max(left // 2, 1)])
        left -= len(json.dumps(turn, ensure_ascii=False).encode()) + 40
    return turns


def request(turns: list[str]) -> ClientRequest:
    messages = [{"role": "user", "content": turn} for turn in turns]
    return read_body(CHAT, json.dumps({"model": "tiny", "messages": messages}, ensure_ascii=False).encode())


def best(work: Callable[[], object], times: int = 5) -> float:
    def once() -> float:
        began = time.thread_time()  # of the processor: the machine may have other work
        work()
        return time.thread_time() - began

    return min(once() for _ in range(times))


async def longest_wait(asked: ClientRequest) -> float:
    """How long the event loop waits for its turn while a scan runs beside it."""
    scanner = Scanner(RULES, limit_bytes=LIMIT_BYTES)
    scan = asyncio.ensure_future(scanner.narrowed("acme", asked))
    longest, last = 0.0, time.perf_counter()
    while not scan.done():
        await asyncio.sleep(0)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    scanner.close()
    return longest


def main() -> None:
    print("| text | size | one scan | µs per KiB | longest wait of the loop |")
    print("|---|---|---|---|---|")
    for kind in (english, german, escapes, marks, false_starts, tiny_strings):
        for size in SIZES:
            asked = request(kind(size))
            length = sum(map(len, asked.fields.values()))
            seconds = best(lambda asked=asked: narrowed(RULES, texts(asked, limit_bytes=LIMIT_BYTES)))  # type: ignore[misc]
            wait = min(asyncio.run(longest_wait(asked)) for _ in range(3))
            name = kind.__name__.replace("_", " ")
            per_kib = seconds * 1e6 / (length / 1024)
            print(
                f"| {name} | {length / 1024:.0f} KiB | {seconds * 1e3:.2f} ms | {per_kib:.0f} | {wait * 1e3:.1f} ms |"
            )


if __name__ == "__main__":
    main()
