"""`vllm serve` as the engine tests need it: on loopback, with the flags that compose/ gives it, ended as a whole.

`python -m tests.engine.server 8100` starts one by hand, for work on the tests: `pytest tests/engine --engine-reuse
http://127.0.0.1:8100` then spends no time on a start of its own. `python -m tests.engine.server 8101 barrier` starts
one with saltgate's barrier inside, for `--engine-reuse-barred`.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from tests.engine.environment import BrokenEngineError, EngineEnvironment, default_cache, engine_environment

MODEL: Final = "tiny"
BLOCK_TOKENS: Final = 128
"""The CPU build's block: reuse comes in whole blocks."""

BARRIER_KEY: Final = b"barrier-key-0123456789"
"""What the barrier of the tests asks for; a secret in no deployment."""

BARRIER: Final = Path(__file__).parents[2] / "compose" / "engine" / "saltgate_barrier.py"

_START_SECONDS: Final = 400
_STOP_SECONDS: Final = 20
_ENGINE_VARIABLES: Final = {
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}
# Its default is gRPC, for which one would need another collector.
_SPANS_VARIABLES: Final = {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf", "OTEL_SERVICE_NAME": "vllm"}


@contextmanager
def running_engine(
    environment: EngineEnvironment,
    *,
    port: int,
    log: Path,
    barrier_key: Path | None = None,
    spans_to: str | None = None,
) -> Iterator[str]:
    """The base URL of an engine that answers /health; its whole process group is gone afterwards. With the file of a
    `barrier_key` it has saltgate's barrier inside. `spans_to` is an OTLP/HTTP collector that it sends its spans to.

    Raises BrokenEngineError, with the end of its log, where it exits or does not answer in time.
    """
    with log.open("wb") as output, _process(environment, port, output, barrier_key, spans_to) as process:
        url = f"http://127.0.0.1:{port}"
        _wait_until_healthy(process, url, log)
        yield url


def free_port() -> int:
    """A port of the loopback address that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_healthy(url: str) -> bool:
    """Whether the engine at `url` says that it can serve."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


@contextmanager
def _process(
    environment: EngineEnvironment, port: int, output: BinaryIO, barrier_key: Path | None, spans_to: str | None
) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [
            *_command(environment, port),
            *([] if barrier_key is None else ["--middleware", "saltgate_barrier.Barrier"]),
            *([] if spans_to is None else ["--otlp-traces-endpoint", f"{spans_to}/v1/traces"]),
        ],
        cwd=environment.model.parent,
        env={**os.environ, **_ENGINE_VARIABLES, **_SPANS_VARIABLES, **_barrier_variables(barrier_key)},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    with _nothing_left_of(process.pid):
        try:
            yield process
        finally:
            _end(process)


def _barrier_variables(key: Path | None) -> dict[str, str]:
    """The barrier is found by its folder alone, as in compose/: nothing of saltgate is installed in the engine."""
    if key is None:
        return {}
    return {"PYTHONPATH": str(BARRIER.parent), "SALTGATE_BARRIER_KEY_FILE": str(key)}


@contextmanager
def _nothing_left_of(group: int) -> Iterator[None]:
    """Kills the process group at the end, also where this process is killed: vLLM's engine core outlives its parent.

    A shell waits for the end of a pipe that only we hold open, and we cannot end without ending it.
    """
    guard = subprocess.Popen(
        ["sh", "-c", "cat; kill -s KILL -- -$0", str(group)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        guard.communicate()


def _command(environment: EngineEnvironment, port: int) -> list[str]:
    engine = [str(environment.vllm), "serve", str(environment.model), "--served-model-name", MODEL]
    listener = ["--host", "127.0.0.1", "--port", str(port)]
    shape = ["--dtype", "bfloat16", "--max-model-len", "16384", "--enforce-eager"]
    gate = ["--enable-prefix-caching", "--enable-prompt-tokens-details", "--max-num-queued-reqs", "64"]
    tools = ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    return [*engine, *listener, *shape, *gate, *tools]


def _wait_until_healthy(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not is_healthy(url):
        if process.poll() is not None:
            raise BrokenEngineError(f"vllm serve exited with {process.returncode}:\n{_end_of(log)}")
        if time.monotonic() > deadline:
            raise BrokenEngineError(f"vllm serve was not healthy within {_START_SECONDS} s:\n{_end_of(log)}")
        time.sleep(0.5)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_SECONDS)


def _end_of(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-40:])


def _main(port: int, *, barred: bool) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    log = default_cache() / f"serve-{port}.log"
    key = None
    if barred:
        key = default_cache() / "barrier.key"
        key.write_bytes(BARRIER_KEY)
    environment = engine_environment(default_cache())
    with suppress(KeyboardInterrupt), running_engine(environment, port=port, log=log, barrier_key=key) as url:
        sys.stdout.write(f"{url} answers; log in {log}; Ctrl-C ends it\n")
        sys.stdout.flush()
        signal.pause()


if __name__ == "__main__":
    _main(int(sys.argv[1]), barred=sys.argv[2:] == ["barrier"])
