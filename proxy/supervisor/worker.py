"""One worker as the supervisor sees it: a process, started anew whenever it dies, until it is told to end."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from observability.counted import Counted, State
from observability.open_requests import OpenRequest, take_left_open
from observability.totals import Totals
from proxy.channel import Assignment, Cut, Listen, Order, Retire, Tell, Told, WorkerState, frame, read_frame
from proxy.listening.loads import LoadPage, Loads, open_area
from proxy.supervisor.gathering import Gathering

FIRST_RESTART_SECONDS: Final = 0.5
LONGEST_RESTART_SECONDS: Final = 30.0
ANSWER_SECONDS: Final = 5.0
# A worker that has told nothing for so long is stuck. Its start counts as told: imports take seconds on a busy machine.
HUNG_SECONDS: Final = 60.0

_log = structlog.get_logger("saltgate.server")


def _nobody_asks(lost: Sequence[OpenRequest]) -> None:
    """Where nobody wants to know."""


@dataclass(frozen=True, slots=True)
class Outfit:
    """What every worker of a generation gets. `packed` are its settings, `page` is where it tells its load, `totals`
    what its counts are added to, `gathering` is told of its requests, `lost` of what it had open when it ended.
    """

    packed: bytes
    listening: socket.socket
    page: LoadPage
    totals: Totals
    gathering: Gathering
    lost: Callable[[Sequence[OpenRequest]], None] = _nobody_asks
    answer_seconds: float = ANSWER_SECONDS
    hung_seconds: float = HUNG_SECONDS


class Worker:
    """See the module. Until `listen` it takes no connections.

    `states` are what the running process last told of how things are; `deaths` is how many have ended without being
    told to.
    """

    def __init__(self, outfit: Outfit, number: int) -> None:
        self._outfit = outfit
        self._number = number
        self._process: asyncio.subprocess.Process | None = None
        self._control: asyncio.StreamWriter | None = None
        self._asked = 0
        self._waiting: dict[int, asyncio.Future[Told | None]] = {}
        self._instance = ""
        self._heard = 0.0
        self._listens = False
        self._ending = asyncio.Event()
        self._draining = False
        self._complained = False
        self.states: list[State] = []
        self.deaths = 0

    async def keep_running(self) -> None:
        """Returns when the worker has ended after `retire`, `stop` or `kill`."""
        pause = FIRST_RESTART_SECONDS
        loop = asyncio.get_running_loop()
        while not self._ending.is_set():
            began = loop.time()
            try:
                code: int | None = await self._run_once()
            except OSError as error:  # no memory, no processes or no descriptors left: the others go on
                code = None
                _log.error("worker.not_started", worker=self._number, why=error.strerror)
            if self._ending.is_set():
                return
            self.deaths += 1
            _log.error("worker.died", worker=self._number, exit_code=code)
            pause = FIRST_RESTART_SECONDS if loop.time() - began > LONGEST_RESTART_SECONDS else pause
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._ending.wait()
            pause = min(pause * 2, LONGEST_RESTART_SECONDS)

    @property
    def process_id(self) -> int | None:
        """Of the running process."""
        return None if self._process is None else self._process.pid

    async def state(self, *, counts: bool) -> WorkerState | None:
        """What the worker says of itself; None where it does not answer in time. One that hangs is killed.

        With `counts` it has told before what it counted until now.
        """
        told = await self._ask(Tell(self._next_number(), counts), self._outfit.answer_seconds)
        if told is not None:
            return told.state
        if self._control is not None and self._silent_seconds() > self._outfit.hung_seconds:
            _log.error("worker.hung", worker=self._number)
            self._signal(signal.SIGKILL)
        return None

    async def ask(self, question: bytes, seconds: float) -> bytes | None:
        """The worker's answer to a question; None where it has none in time."""
        told = await self._ask(Tell(self._next_number(), counts=False, question=question), seconds)
        return told.answer if told is not None and told.answer else None

    def _next_number(self) -> int:
        self._asked += 1
        return self._asked

    def _silent_seconds(self) -> float:
        return asyncio.get_running_loop().time() - self._heard

    async def _ask(self, tell: Tell, seconds: float) -> Told | None:
        if self._control is None:
            return None
        answer: asyncio.Future[Told | None] = asyncio.get_running_loop().create_future()
        self._waiting[tell.number] = answer
        self._order(tell)
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            return None
        finally:
            del self._waiting[tell.number]

    def listen(self) -> None:
        """Take connections, now and after each start."""
        self._listens = True
        self._order(Listen())

    def retire(self) -> None:
        """Others have taken over: end with the last open connection."""
        self._ending.set()
        self._order(Retire())

    def stop(self) -> None:
        """Ask the worker to drain and end; asked again, it cuts what is still open.

        SIGTERM says only the first: whoever stops a whole service (systemd) sends it to every process of it.
        """
        self._ending.set()
        if self._draining:
            self._order(Cut())
        self._draining = True
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._ending.set()
        self._signal(signal.SIGKILL)

    async def _run_once(self) -> int:
        ours, theirs = socket.socketpair()
        with contextlib.closing(theirs):
            try:
                process = self._process = await self._start(theirs)
            except OSError:
                ours.close()
                raise
        if self._ending.is_set():
            self._signal(signal.SIGTERM)
        instance = self._instance = f"{socket.gethostname()}-{process.pid}-{secrets.token_hex(3)}"
        self._heard = asyncio.get_running_loop().time()
        reader, writer = await asyncio.open_connection(sock=ours)
        writer.write(frame(Assignment(self._outfit.packed, self._number, instance, self._listens, tells_requests=True)))
        self._control = writer
        try:
            async with asyncio.TaskGroup() as tasks:
                hearing = tasks.create_task(self._hear(reader))
                code = await process.wait()
                await asyncio.wait((hearing,), timeout=ANSWER_SECONDS)  # its last words may still be on their way
                hearing.cancel()
            return code
        finally:
            self._ended(writer)

    async def _start(self, control: socket.socket) -> asyncio.subprocess.Process:
        page = self._outfit.page
        descriptors = (self._outfit.listening.fileno(), control.fileno(), *page.descriptors)
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # else the working folder's modules would win over ours
            "-c",
            "from proxy.worker import main; main()",
            *map(str, descriptors),
            pass_fds=descriptors,
            stdin=asyncio.subprocess.DEVNULL,
        )

    def _order(self, order: Order) -> None:
        if self._control is not None:
            self._control.write(frame(order))

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        """Take the worker's answers as they come; one that comes too late still tells that it lives."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                message = await read_frame(reader)
                self._heard = asyncio.get_running_loop().time()
                self._take(message)
                await asyncio.sleep(0)  # many pieces may be there already

    def _take(self, message: bytes) -> None:
        try:
            told = msgspec.msgpack.decode(message, type=Told)
            if told.counted:
                self._add(told.counted)
            if told.requests:
                self._outfit.gathering.take(self._instance, told.requests)
        except ValueError:
            self._complain()
            return
        waiting = self._waiting.get(told.number)
        if waiting is not None and not waiting.done():
            waiting.set_result(told)

    def _add(self, piece: bytes) -> None:
        counted, strange = Counted.decode(piece)
        self._outfit.totals.add(counted)
        if counted.states is not None:
            self.states = counted.states
        if strange:
            self._complain()

    def _complain(self) -> None:
        """The worker is another version: saltgate was installed anew while it runs."""
        if not self._complained:
            self._complained = True
            _log.warning("worker.not_understood", worker=self._number, remedy="restart saltgate for all its metrics")

    def _ended(self, writer: asyncio.StreamWriter) -> None:
        self._control = self._process = None
        self._outfit.gathering.end(self._instance)
        self.states = []
        with contextlib.closing(Loads(self._outfit.page, self._number)) as loads:
            loads.leave()
        self._tell_lost()
        writer.close()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(None)

    def _tell_lost(self) -> None:
        """What it had open has ended with it."""
        area = open_area(self._outfit.page, self._number)
        if area is not None:
            with contextlib.closing(area):
                self._outfit.lost(take_left_open(area))

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
