"""Where and for how long the rules look at a request."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from dataclasses import replace

import pytest

from config.expressions import Expression
from proxy.engines.body import ClientRequest, read_body
from proxy.engines.profile import Operation
from proxy.isolation.detectors import Detector
from proxy.isolation.narrowing import NOTHING_FOUND, Narrowed, Rule, isolation_rule
from proxy.isolation.unit import Level
from proxy.scanner import INLINE_BYTES, INLINE_STEPS, OF_ONE_WORKSPACE, Scanner
from tests.proxy.engines.asking import ENDPOINT

CODENAME = isolation_rule("codename", words=["falcon"], workspaces=["acme"])
EVERYWHERE = isolation_rule("everywhere", patterns=["x{3}"], level=Level.PROJECT)
LIMIT = 100_000


def chat(*texts: str) -> ClientRequest:
    document = {"model": "tiny", "messages": [{"role": "user", "content": text} for text in texts]}
    return read_body(ENDPOINT[Operation.CHAT], json.dumps(document).encode())


class Blows:
    """Fields that may not be looked at."""

    @property
    def fields(self) -> object:
        raise AssertionError("looked at")


async def test_where_no_rule_holds_a_request_is_not_looked_at() -> None:
    scanner = Scanner([CODENAME], limit_bytes=LIMIT)
    assert not scanner.hold_in("globex")
    assert scanner.hold_in("acme")
    assert await scanner.narrowed("globex", Blows()) == NOTHING_FOUND  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="looked at"):
        await scanner.narrowed("acme", Blows())  # type: ignore[arg-type]


async def test_each_workspace_has_its_rules_and_those_of_all() -> None:
    scanner = Scanner([CODENAME, EVERYWHERE], limit_bytes=LIMIT)
    asked = chat("falcon xxx")
    assert await scanner.narrowed("acme", asked) == Narrowed(Level.USER, ("codename", "everywhere"))
    assert await scanner.narrowed("globex", asked) == Narrowed(Level.PROJECT, ("everywhere",))
    # Over the limit it is the narrowest border of the workspace's rules, not of all there are.
    assert await scanner.narrowed("globex", chat("y" * LIMIT)) == Narrowed(Level.PROJECT, ("__over_limit__",))


@pytest.mark.parametrize(
    ("size", "instructions", "elsewhere"),
    [
        (10, 0, False),
        (INLINE_BYTES - 200, 0, False),
        (INLINE_BYTES, 0, True),
        (1000, INLINE_STEPS // 2000, False),
        (1000, INLINE_STEPS // 1000, True),
    ],
)
async def test_what_may_take_long_is_done_in_another_thread(size: int, instructions: int, elsewhere: bool) -> None:
    threads: list[threading.Thread] = []

    def tells(match: str) -> bool:
        threads.append(threading.current_thread())
        return True

    told = Rule("told", None, Level.USER, (), (Detector(Expression("y"), tells),), instructions)
    scanner = Scanner([told], limit_bytes=LIMIT)
    assert (await scanner.narrowed("acme", chat("y" * size))).by == ("told",)
    assert [thread is not threading.current_thread() for thread in threads] == [elsewhere]
    scanner.close()


ESCAPES = r"\\\\\\\\n"
"""Three levels of them, each of which is a reading of its own."""


@pytest.mark.parametrize(
    ("texts", "instructions", "elsewhere"),
    [
        (["y" * 1000 + ESCAPES + "a\u0301\u0670", "y" * 1000 + ESCAPES], 0, True),
        (["y" * 500 + ESCAPES], INLINE_STEPS // 1500, True),
        (["y" * 500], INLINE_STEPS // 1500, False),
        (["y" * 100 + ESCAPES + "a\u0301\u0670", "y" * 100 + ESCAPES], 0, False),
    ],
)
async def test_a_small_text_of_many_readings_counts_as_all_of_them(
    texts: list[str], instructions: int, elsewhere: bool
) -> None:
    threads: list[threading.Thread] = []

    def tells(match: str) -> bool:
        threads.append(threading.current_thread())
        return True

    told = Rule("told", None, Level.USER, (), (Detector(Expression("y"), tells),), instructions)
    scanner = Scanner([told], limit_bytes=LIMIT)
    assert (await scanner.narrowed("acme", chat(*texts))).by == ("told",)
    assert [thread is not threading.current_thread() for thread in threads] == [elsewhere]
    scanner.close()


async def test_a_scan_that_takes_too_long_is_over_the_limit_and_holds_up_nobody() -> None:
    may_end = threading.Event()
    waits = Rule("waits", None, Level.TEAM, (), (Detector(Expression("y"), lambda match: may_end.wait(30)),))
    scanner = Scanner([waits], limit_bytes=LIMIT, limit_seconds=0.02)
    for _ in range(4):  # more than there are threads
        began = time.monotonic()
        assert await scanner.narrowed("acme", chat("y" * INLINE_BYTES)) == Narrowed(Level.TEAM, ("__over_limit__",))
        assert time.monotonic() - began < 20
    may_end.set()
    scanner.close()


class Gate:
    """Detectors that hold their thread until the test lets them go, and tell in which order they began."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.may_end = threading.Event()

    def rule(self, workspace: str, word: str) -> Rule:
        def holds(_: str) -> bool:
            self.begun.append(workspace)
            return self.may_end.wait(30)

        return Rule(word, frozenset({workspace}), Level.TEAM, (), (Detector(Expression(word), holds),))


async def test_a_workspace_that_sends_slow_texts_without_end_does_not_keep_others_from_being_looked_at() -> None:
    gate = Gate()
    quick = isolation_rule("quick", words=["falcon"], workspaces=["globex"])
    scanner = Scanner([gate.rule("acme", "y"), quick], limit_bytes=LIMIT, limit_seconds=30)
    slow = [asyncio.ensure_future(scanner.narrowed("acme", chat("y" * INLINE_BYTES))) for _ in range(8)]
    while len(gate.begun) < OF_ONE_WORKSPACE:
        await asyncio.sleep(0.001)
    assert (await scanner.narrowed("globex", chat("x" * INLINE_BYTES + " falcon"))).by == ("quick",)
    assert gate.begun == ["acme"] * OF_ONE_WORKSPACE
    gate.may_end.set()
    assert {answer.by for answer in await asyncio.gather(*slow)} == {("y",)}
    scanner.close()


async def test_what_waits_too_long_for_its_turn_is_over_the_limit_and_never_begun() -> None:
    gate = Gate()
    scanner = Scanner([gate.rule("acme", "y")], limit_bytes=LIMIT, limit_seconds=0.05)
    answers = await asyncio.gather(*(scanner.narrowed("acme", chat("y" * INLINE_BYTES)) for _ in range(6)))
    assert {answer.by for answer in answers} == {("__over_limit__",)}
    assert len(gate.begun) <= OF_ONE_WORKSPACE
    gate.may_end.set()
    scanner.close()


async def test_a_thread_counts_as_taken_until_its_scan_ends_and_not_until_it_is_given_up() -> None:
    gate = Gate()
    scanner = Scanner([gate.rule("acme", "y")], limit_bytes=LIMIT, limit_seconds=0.02)
    for _ in range(3):
        await scanner.narrowed("acme", chat("y" * INLINE_BYTES))
    assert len(gate.begun) <= OF_ONE_WORKSPACE
    gate.may_end.set()
    while True:  # as soon as they have ended, there are turns again
        if (await scanner.narrowed("acme", chat("y" * INLINE_BYTES))).by == ("y",):
            break
    scanner.close()


async def test_a_scan_that_is_given_up_looks_for_nothing_more() -> None:
    gate, tried = Gate(), threading.Event()

    def tells(_: str) -> bool:
        tried.set()
        return True

    after = Rule("after", frozenset({"acme"}), Level.TEAM, (), (Detector(Expression("y"), tells),))
    scanner = Scanner([gate.rule("acme", "y"), after], limit_bytes=LIMIT, limit_seconds=0.02)
    assert (await scanner.narrowed("acme", chat("y" * INLINE_BYTES))).by == ("__over_limit__",)
    gate.may_end.set()
    scanner._threads.shutdown(wait=True)
    assert gate.begun
    assert not tried.is_set()


async def test_a_text_over_the_limit_takes_no_thread() -> None:
    scanner = Scanner([replace(CODENAME, workspaces=None)], limit_bytes=1000)
    scanner.close()  # a thread could not be had any more
    assert (await scanner.narrowed("acme", chat("y" * 5000))).by == ("__over_limit__",)
