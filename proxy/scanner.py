"""The isolation rules at work: in this thread for a small request, in another one for a larger, within a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from proxy.engines.body import ClientRequest
from proxy.engines.texts import texts
from proxy.isolation.narrowing import NOTHING_FOUND, Narrowed, Rule, Unseen, narrowed

# Up to this size a scan takes a fraction of a millisecond, as handing it over would. A hostile text can make each byte
# cost as many steps as the operator's patterns have instructions, so with large patterns the size is smaller.
INLINE_BYTES: Final = 4 * 1024
INLINE_STEPS: Final = 2_000_000
# The expressions run without Python's lock, so two scans make use of two cores; more would take the cores from streams.
THREADS: Final = 2
# A scan of 1 MiB takes a tenth of it. What takes longer is a hostile text, or a pattern that should not be there.
LIMIT_SECONDS: Final = 2.0


class Scanner:
    """The rules of every workspace, and the threads in which they look at requests. One a worker; to be closed."""

    def __init__(self, rules: Sequence[Rule], *, limit_bytes: int, limit_seconds: float = LIMIT_SECONDS) -> None:
        self._limit_bytes = limit_bytes
        self._limit_seconds = limit_seconds
        self._everywhere = tuple(rule for rule in rules if rule.workspaces is None)
        named = {workspace for rule in rules for workspace in rule.workspaces or ()}
        self._of_workspace = {one: tuple(rule for rule in rules if rule.holds_in(one)) for one in named}
        # Threads begin with the first scan that needs one.
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="saltgate-scan")

    def hold_in(self, workspace: str) -> bool:
        """Whether any rule holds there. Where none does, a request is not looked at."""
        return bool(self._rules(workspace))

    async def narrowed(self, workspace: str, asked: ClientRequest) -> Narrowed:
        """What the workspace's rules say of the request. What takes too long counts as over the limit."""
        rules = self._rules(workspace)
        if not rules:
            return NOTHING_FOUND
        size = sum(map(len, asked.fields.values()))
        steps = size * sum(rule.own_instructions for rule in rules)
        if (size <= INLINE_BYTES and steps <= INLINE_STEPS) or size > self._limit_bytes:
            return self._look(rules, asked)
        scan = asyncio.get_running_loop().run_in_executor(self._threads, self._look, rules, asked)
        try:
            async with asyncio.timeout(self._limit_seconds):
                return await scan
        except TimeoutError:
            return narrowed(rules, Unseen.OVER_LIMIT)

    def close(self) -> None:
        """Takes no scan any more. One that runs is not waited for: nobody needs its answer."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _look(self, rules: Sequence[Rule], asked: ClientRequest) -> Narrowed:
        return narrowed(rules, texts(asked, limit_bytes=self._limit_bytes))

    def _rules(self, workspace: str) -> tuple[Rule, ...]:
        return self._of_workspace.get(workspace, self._everywhere)
