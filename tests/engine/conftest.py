"""One real vLLM for all tests of this folder, started when the first of them asks for it.

These tests run only when they are meant: `-m engine`, or this folder named on the command line.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, NoReturn

import aiohttp
import pytest
import pytest_asyncio

from tests.engine import report
from tests.engine.client import EngineClient, Vllm
from tests.engine.environment import EngineEnvironment, NoEngineError, default_cache, engine_environment
from tests.engine.gate import GateClient, gate_before
from tests.engine.server import BARRIER_KEY, free_port, is_healthy, running_engine
from tests.parts.otlp_sink import SinkThread
from tests.parts.redis_server import RedisServer

HERE: Final = Path(__file__).parent
NO_ENGINE: Final = "NO REAL ENGINE, so nothing was tested against vLLM"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("engine", "a real vLLM on the CPU")
    group.addoption(
        "--engine-cache", help="where the engine is installed (SALTGATE_ENGINE_CACHE, ~/.cache/saltgate/engine)"
    )
    group.addoption("--engine-reuse", metavar="URL", help="use this running engine instead of starting one")
    group.addoption(
        "--engine-reuse-barred", metavar="URL", help="use this running engine with saltgate's barrier inside"
    )
    group.addoption("--engine-reuse-second", metavar="URL", help="use this running engine as the second replica")
    group.addoption("--engine-reuse-images", metavar="URL", help="use this running engine, whose model takes images")
    group.addoption("--engine-required", action="store_true", help="fail, not skip, where no engine can be installed")
    group.addoption("--engine-record", action="store_true", help="write tests/engine/captures anew")
    group.addoption(
        "--engine-report", metavar="FILE", help="write down what this run measured (tests/engine/last-run.md)"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ours = [item for item in items if HERE in item.path.parents]
    for item in ours:
        item.add_marker(pytest.mark.engine)
    if not _is_meant(config):
        items[:] = [item for item in items if item not in ours]
        config.hook.pytest_deselected(items=ours)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Sections of their own: a suite that skipped what it is for must not look like one that passed, and what was
    measured is to be seen.
    """
    skipped = [str(report.longrepr) for report in terminalreporter.getreports("skipped")]
    if any(NO_ENGINE in reason for reason in skipped):
        terminalreporter.section(NO_ENGINE, red=True)
    for compared in report.comparisons(terminalreporter):
        terminalreporter.section("two replicas: where requests go, and what is reused")
        terminalreporter.write_line(compared)
    measured = report.measured(terminalreporter)
    file = terminalreporter.config.getoption("engine_report", None)
    if measured is not None:
        terminalreporter.section("time to the first token through saltgate, on a real vLLM")
        terminalreporter.write_line(report.table(measured))
        if file:
            Path(file).write_text(report.document(measured, terminalreporter))
    elif file:
        terminalreporter.section(f"nothing was measured, so {file} is as it was", red=True)


@pytest.fixture(scope="session")
def vllm(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vllm]:
    """The engine, healthy. Skips where this machine cannot have one; an installed engine that fails is a failure."""
    named = pytestconfig.getoption("engine_reuse", None)
    if named:
        assert is_healthy(named), f"--engine-reuse: {named}/health does not answer"
        yield Vllm(named)
        return
    with _one_for_all_workers(_shared_folder(tmp_path_factory), pytestconfig) as url:
        yield Vllm(url)


@pytest.fixture(scope="session")
def second_vllm(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vllm]:
    """Another engine like `vllm`, for tests of several replicas."""
    named = pytestconfig.getoption("engine_reuse_second", None)
    if named:
        assert is_healthy(named), f"--engine-reuse-second: {named}/health does not answer"
        yield Vllm(named)
        return
    with _started(tmp_path_factory.mktemp("second") / "vllm.log", pytestconfig) as url:
        yield Vllm(url)


@pytest.fixture(scope="session")
def spans() -> Iterator[SinkThread]:
    """A collector that takes the spans of `barred_vllm`, and whatever else is sent there."""
    with SinkThread() as sink:
        yield sink


@pytest.fixture(scope="session")
def barred_vllm(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory, spans: SinkThread
) -> Iterator[Vllm]:
    """An engine of its own with saltgate's barrier inside, which wants the key `tests.engine.server.BARRIER_KEY`, and
    which sends its spans to `spans`: but not one that is used again.
    """
    named = pytestconfig.getoption("engine_reuse_barred", None)
    if named:
        assert is_healthy(named), f"--engine-reuse-barred: {named}/health does not answer"
        yield Vllm(named)
        return
    folder = tmp_path_factory.mktemp("barred")
    key = folder / "barrier.key"
    key.write_bytes(BARRIER_KEY)
    with _started(folder / "vllm.log", pytestconfig, barrier_key=key, spans_to=spans.url) as url:
        yield Vllm(url)


@pytest.fixture(scope="session")
def image_vllm(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vllm]:
    """An engine of its own whose model takes images."""
    named = pytestconfig.getoption("engine_reuse_images", None)
    if named:
        assert is_healthy(named), f"--engine-reuse-images: {named}/health does not answer"
        yield Vllm(named)
        return
    environment = _environment(pytestconfig)
    seeing = replace(environment, model=environment.image_model)
    log = tmp_path_factory.mktemp("images") / "vllm.log"
    with running_engine(seeing, port=free_port(), log=log) as url:
        yield Vllm(url)


@pytest.fixture(scope="session")
def engine_python(pytestconfig: pytest.Config) -> Path:
    """The Python that vLLM is installed in, for tests of its own code."""
    return _environment(pytestconfig).python


@pytest.fixture
async def engine(vllm: Vllm) -> AsyncIterator[EngineClient]:
    """A client of the engine, its connections closed at the end of the test."""
    async with aiohttp.ClientSession(vllm.url) as session:
        yield EngineClient(session)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gate(vllm: Vllm, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GateClient]:
    """saltgate in front of the engine, on a Redis of its own: one for all tests of a file."""
    folder = tmp_path_factory.mktemp("gate")
    with RedisServer(folder) as redis:
        async with gate_before(vllm, redis.settings(), folder) as client:
            yield client


def _is_meant(config: pytest.Config) -> bool:
    named = [Path(argument.split("::")[0]).resolve() for argument in config.args]
    return "engine" in (config.option.markexpr or "") or any(path == HERE or HERE in path.parents for path in named)


def _shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all processes of this run: pytest-xdist gives each worker a folder inside it."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if os.environ.get("PYTEST_XDIST_WORKER") else own


@contextmanager
def _one_for_all_workers(folder: Path, config: pytest.Config) -> Iterator[str]:
    """The first process to come starts the engine, and ends it when no other uses it any more.

    Both locks are always taken in this order, so nobody joins while the engine ends and nobody waits for ever.
    """
    address = folder / "engine.url"
    with ExitStack() as engine, ExitStack() as use:
        with _locked(folder / "engine.start", fcntl.LOCK_EX):
            users = use.enter_context(_locked(folder / "engine.users", fcntl.LOCK_SH))
            started = not address.exists()
            if started:
                address.write_text(engine.enter_context(_started(folder / "vllm.log", config)))
        try:
            yield address.read_text()
        finally:
            if started:
                with _locked(folder / "engine.start", fcntl.LOCK_EX):
                    fcntl.flock(users, fcntl.LOCK_EX)
                    address.unlink()
                    engine.close()


@contextmanager
def _started(
    log: Path, config: pytest.Config, *, barrier_key: Path | None = None, spans_to: str | None = None
) -> Iterator[str]:
    environment = _environment(config)
    with running_engine(environment, port=free_port(), log=log, barrier_key=barrier_key, spans_to=spans_to) as url:
        yield url


def _environment(config: pytest.Config) -> EngineEnvironment:
    cache = Path(config.getoption("engine_cache", None) or default_cache())
    try:
        return engine_environment(cache)
    except NoEngineError as reason:
        _give_up(str(reason), required=config.getoption("engine_required", False))


def _give_up(reason: str, *, required: bool) -> NoReturn:
    if required:
        pytest.fail(f"{NO_ENGINE}: {reason}")
    pytest.skip(f"{NO_ENGINE}: {reason}")


@contextmanager
def _locked(path: Path, kind: int) -> Iterator[int]:
    with path.open("a") as lock:
        fcntl.flock(lock, kind)
        yield lock.fileno()
