"""The isolation rules at work: in this thread for a small request, in another one for a larger, within a time limit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from proxy.engines.body import ClientRequest
from proxy.engines.texts import texts
from proxy.isolation.narrowing import NOTHING_FOUND, Forms, Narrowed, Rule, Unseen, forms_of, narrowed_by
from proxy.turns import Turns

# Up to this size a scan takes a fraction of a millisecond, as handing it over would. A text of escapes and marks has
# two dozen readings, which are made first and then counted. A hostile text can make each byte cost as many steps as the
# operator's patterns have instructions, so with large patterns the size is smaller.
INLINE_BYTES: Final = 4 * 1024
INLINE_FORMS_BYTES: Final = 2 * INLINE_BYTES
INLINE_STEPS: Final = 2_000_000
# The expressions run without Python's lock, so two scans make use of two cores; more would take the cores from streams.
# One workspace has no more, whatever it sends; the third thread is there for the others.
THREADS: Final = 3
OF_ONE_WORKSPACE: Final = 2
# A scan of 1 MiB takes a tenth of it. What takes longer is a hostile text, or a pattern that should not be there.
LIMIT_SECONDS: Final = 2.0


class _GivenUp(Exception):  # noqa: N818 - an answer, not an error
    """Nobody waits for the scan any more."""


def _go_on() -> None:
    """A scan in the loop's own thread is short, and is waited for."""


class Scanner:
    """The rules of every workspace, and the threads in which they look at requests, workspace by workspace in turn.

    One a worker; to be closed.
    """

    def __init__(self, rules: Sequence[Rule], *, limit_bytes: int, limit_seconds: float = LIMIT_SECONDS) -> None:
        self._limit_bytes = limit_bytes
        self._limit_seconds = limit_seconds
        self._everywhere = tuple(rule for rule in rules if rule.workspaces is None)
        named = {workspace for rule in rules for workspace in rule.workspaces or ()}
        self._of_workspace = {one: tuple(rule for rule in rules if rule.holds_in(one)) for one in named}
        self._turns = Turns(THREADS, OF_ONE_WORKSPACE)
        # Threads begin with the first scan that needs one.
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="saltgate-scan")

    def hold_in(self, workspace: str) -> bool:
        """Whether any rule holds there. Where none does, a request is not looked at."""
        return bool(self._of_workspace.get(workspace, self._everywhere))

    async def narrowed(self, workspace: str, asked: ClientRequest) -> Narrowed:
        """What the workspace's rules say of the request. What takes too long, its waiting for a thread included, counts
        as over the limit.
        """
        rules = self._rules(workspace)
        if not rules:
            return NOTHING_FOUND
        size = sum(map(len, asked.fields.values()))
        if size > self._limit_bytes:
            return self._look(rules, asked)
        if size <= INLINE_BYTES:
            forms = self._forms(asked)
            if isinstance(forms, Unseen) or _is_quick(rules, forms):
                return narrowed_by(rules, forms)
        given_up = threading.Event()
        try:
            async with asyncio.timeout(self._limit_seconds):
                return await self._look_elsewhere(workspace, rules, asked, given_up)
        except TimeoutError:
            return narrowed_by(rules, Unseen.OVER_LIMIT)
        finally:
            given_up.set()

    def close(self) -> None:
        """Takes no scan any more. One that runs is not waited for: nobody needs its answer."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _look_elsewhere(
        self, workspace: str, rules: Sequence[Rule], asked: ClientRequest, given_up: threading.Event
    ) -> Narrowed:
        loop = asyncio.get_running_loop()

        def ended(_: Future[Narrowed]) -> None:
            # The loop may have ended before the thread: then nobody waits for a turn.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._turns.give_back, workspace)

        def go_on() -> None:
            if given_up.is_set():
                raise _GivenUp

        await self._turns.take(workspace)
        try:
            scan = self._threads.submit(self._look, rules, asked, go_on)
        except RuntimeError:
            self._turns.give_back(workspace)
            raise
        # Of the thread itself and not of who waits for it: the turn is over when the thread is free.
        scan.add_done_callback(ended)
        return await asyncio.wrap_future(scan)

    def _look(self, rules: Sequence[Rule], asked: ClientRequest, go_on: Callable[[], None] = _go_on) -> Narrowed:
        return narrowed_by(rules, self._forms(asked), go_on)

    def _forms(self, asked: ClientRequest) -> Forms | Unseen:
        found = texts(asked, limit_bytes=self._limit_bytes)
        return found if isinstance(found, Unseen) else forms_of(found)

    def _rules(self, workspace: str) -> tuple[Rule, ...]:
        return self._of_workspace.get(workspace, self._everywhere)


def _is_quick(rules: Sequence[Rule], forms: Forms) -> bool:
    size = forms.size_bytes
    return size <= INLINE_FORMS_BYTES and size * sum(rule.own_instructions for rule in rules) < INLINE_STEPS
