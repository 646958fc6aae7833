"""What stands beside saltgate: each opener starts one proxy on the gateway's core and ends it.

`nginx` does no job at all: it is the floor that the ratios are to. `Envoy` checks the JWT and writes the salt into the
body with Lua. `simple aiohttp` is what one writes in an afternoon. `LiteLLM` routes by model and checks nothing.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.envoy import envoy_configuration
from tests.bench.load import FOLDER, START_SECONDS, process
from tests.bench.machine import GATEWAY_CORE, family
from tests.bench.stage import Stage
from tests.parts.redis_server import free_port

NGINX: Final = "nginx"
ENVOY: Final = "Envoy"
SIMPLE: Final = "simple aiohttp"
LITELLM: Final = "LiteLLM"
SALTGATE: Final = "saltgate"

_ON_ITS_CORE: Final = ("taskset", "-c", str(GATEWAY_CORE))


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy under load: where it listens, and the processes whose CPU time is its cost.

    A `slow` one gets the light load.
    """

    name: str
    port: int
    processes: tuple[int, ...]
    slow: bool = False


class Absent(Exception):  # noqa: N818 - what the person at the terminal reads
    """This proxy cannot be measured here. The message says what to install."""


class NotServing(Exception):  # noqa: N818 - what the person at the terminal reads
    """It was started and does not answer. The message has its log."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """Where what is not ours was installed; None: looked for on the path."""

    envoy: Path | None = None
    litellm: Path | None = None


Opener = Callable[[Stage, int], AbstractContextManager[Proxy]]


def beside(binaries: Binaries) -> tuple[Opener, ...]:
    """The openers of all that is measured beside saltgate. Each raises Absent where its program is not there."""
    return (
        nginx,
        lambda stage, engine_port: envoy(stage, engine_port, binaries.envoy),
        simple_aiohttp,
        lambda stage, engine_port: litellm(stage, engine_port, binaries.litellm),
    )


@contextmanager
def nginx(stage: Stage, engine_port: int) -> Iterator[Proxy]:
    program = _program("nginx", None, "nginx: apt-get install nginx-light")
    port = free_port()
    text = (FOLDER / "nginx.conf").read_text()
    for word, value in (("FOLDER", stage.folder), ("ENGINE", engine_port), ("LISTEN", port)):
        text = text.replace(word, str(value))
    configuration = stage.folder / "nginx.conf"
    configuration.write_text(text)
    with _started(NGINX, stage, port, program, "-c", str(configuration), "-p", str(stage.folder)) as proxy:
        yield proxy


@contextmanager
def envoy(stage: Stage, engine_port: int, installed: Path | None) -> Iterator[Proxy]:
    program = _program("envoy", installed, "Envoy: make bench-tools")
    port = free_port()
    configuration = stage.folder / "envoy.json"
    configuration.write_text(json.dumps(envoy_configuration(port, engine_port, stage.mint)))
    words = ("-c", str(configuration), "--concurrency", "1", "--disable-hot-restart", "--log-level", "warning")
    with _started(ENVOY, stage, port, program, *words) as proxy:
        yield proxy


@contextmanager
def simple_aiohttp(stage: Stage, engine_port: int) -> Iterator[Proxy]:
    port = free_port()
    keys = stage.folder / "jwks.json"
    keys.write_text(json.dumps(stage.mint.jwks()))
    words = ("-m", "tests.bench.simple_proxy", str(port), str(engine_port), stage.mint.issuer, str(keys))
    with _started(SIMPLE, stage, port, sys.executable, *words) as proxy:
        yield proxy


@contextmanager
def litellm(stage: Stage, engine_port: int, installed: Path | None) -> Iterator[Proxy]:
    program = _program("litellm", installed, "LiteLLM: make litellm")
    port = free_port()
    model = {"model": "openai/mock", "api_base": f"http://127.0.0.1:{engine_port}/v1", "api_key": "x"}
    # JSON is YAML.
    settings = {
        "model_list": [{"model_name": "mock", "litellm_params": model}],
        "litellm_settings": {"num_retries": 0, "request_timeout": 600, "telemetry": False},
        # Without a key it checks nobody, which costs it least.
        "general_settings": {"dangerously_permit_weak_or_unset_master_key": True},
    }
    configuration = stage.folder / "litellm.yaml"
    configuration.write_text(json.dumps(settings))
    words = ("--config", str(configuration), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1")
    with _started(LITELLM, stage, port, program, *words, slow=True, seconds=120) as proxy:
        yield proxy


def _program(name: str, installed: Path | None, remedy: str) -> str:
    found = shutil.which(name if installed is None else str(installed))
    if found is None:
        raise Absent(remedy)
    return found


@contextmanager
def _started(
    name: str, stage: Stage, port: int, *command: str, slow: bool = False, seconds: float = START_SECONDS
) -> Iterator[Proxy]:
    log = stage.folder / f"{command[0].rpartition('/')[2]}-{port}.log"
    with process(*_ON_ITS_CORE, *command, log=log) as running:
        until_served(name, port, stage.token, log, seconds)
        if running.poll() is not None:
            raise NotServing(f"{name} has ended:\n{log.read_text()[-4000:]}")
        yield Proxy(name, port, family(running.pid), slow)


def until_served(name: str, port: int, token: str, log: Path, seconds: float = START_SECONDS) -> None:
    """Returns once it answers as an engine does. Raises NotServing."""
    until_answered(
        name, f"http://127.0.0.1:{port}/v1/models", {"Authorization": f"Bearer {token}"}, log, seconds=seconds
    )


def until_answered(name: str, url: str, headers: dict[str, str], log: Path, *, seconds: float) -> None:
    """Returns once a GET there is answered well. Raises NotServing."""
    request = urllib.request.Request(url, headers=headers)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(request, timeout=10):
                return
        except OSError:
            time.sleep(0.1)
    raise NotServing(f"{name} does not serve:\n{log.read_text()[-4000:]}")
