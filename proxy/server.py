"""`saltgate serve` as a process: the supervisor with its listeners, signals and log."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import structlog
import uvloop

from config import settings
from observability.logs import Logs, configure_logs
from proxy.descriptors import raise_limit
from proxy.memory import settle
from proxy.plan import Plan
from proxy.supervisor.admin import admin_listener
from proxy.supervisor.keeping import Keeping
from proxy.supervisor.last_words import say_last_words
from proxy.supervisor.listener import bound
from proxy.supervisor.page_routes import Site
from proxy.supervisor.reload import read_anew
from proxy.supervisor.shown import Shown
from proxy.supervisor.supervisor import Supervisor
from proxy.supervisor.terminal import Terminal, controlling_terminal
from proxy.supervisor.visitors import Visitors

_log = structlog.get_logger("saltgate.server")


def serve(plan: Plan, configuration: Path, logs: settings.Logs, *, beside: AbstractAsyncContextManager[object]) -> None:
    """Run until SIGTERM, SIGINT or the end of the terminal, then drain; a second signal cuts what is still open. SIGHUP
    reads `configuration`, of which `plan` was made, anew.

    `beside` is what has to run as long as saltgate does: entered before the first worker starts. Raises CannotListen,
    and whatever entering `beside` raises, before anything was served.
    """
    raise_limit()  # the workers inherit it
    lines = configure_logs(logs, sys.stdout.buffer, monotonic_ns=time.monotonic_ns)
    with contextlib.closing(lines):
        uvloop.run(_supervise(plan, configuration, lines, beside))


async def _supervise(plan: Plan, configuration: Path, lines: Logs, beside: AbstractAsyncContextManager[object]) -> None:
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        listening = stack.enter_context(bound(plan.public))
        supervisor = Supervisor(plan, listening, partial(read_anew, configuration), wall_clock=time.time, told=(lines,))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, supervisor.signalled)
        terminal = stack.enter_context(controlling_terminal())
        loop.add_signal_handler(signal.SIGHUP, lambda: _hung_up(supervisor, terminal))
        keeping = Keeping(supervisor.gathering.history, supervisor, clock=time.time) if plan.kept else None
        others = None if keeping is None else keeping.others
        shown = Shown(supervisor, clock=time.time, monotonic=time.monotonic, others=others)
        visitors = Visitors(supervisor, clock=time.time)
        site = Site(visitors, shown, lambda: supervisor.admin_origin)
        await stack.enter_async_context(admin_listener(plan.admin, supervisor, site.routes()))
        await stack.enter_async_context(_while_open(shown.watch()))
        await stack.enter_async_context(beside)
        settle()
        _log.info("server.listening", public=plan.public, admin=plan.admin, workers=supervisor.size)
        async with contextlib.nullcontext() if keeping is None else _while_open(keeping.follow()):
            await supervisor.run()
        if keeping is not None:
            await say_last_words(supervisor.plan.packed, keeping.last())
    _log.info("server.stopped")


@asynccontextmanager
async def _while_open(endless: Coroutine[None, None, None]) -> AsyncIterator[None]:
    task = asyncio.get_running_loop().create_task(endless)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _hung_up(supervisor: Supervisor, terminal: Terminal) -> None:
    if terminal.is_closed:
        supervisor.signalled()
    else:
        supervisor.reload()
