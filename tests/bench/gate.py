"""saltgate as it is deployed: tokens, memberships in Redis, salt, spans to a collector, metrics, log lines."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.bench.load import process
from tests.bench.machine import GATEWAY_CORE, children
from tests.bench.proxies import SALTGATE, Proxy, until_answered, until_served
from tests.bench.stage import SUBJECTS, Stage
from tests.parts.redis_server import free_port

MODEL: Final = "mock"
_START_SECONDS: Final = 180.0
_IMPORT_TRIES: Final = 3
COMMAND: Final = (sys.executable, "-c", "from proxy.cli import main; main()")


@dataclass(frozen=True, slots=True)
class Setting:
    """What differs between the gates of one run.

    `engines` are the replicas' ports by the model that they serve. `directory` is a whole directory file, by default
    that of one project with all the people of the stage; it is kept in the Redis database `database`. Without `cores`
    the gate runs where it likes. `more` is further TOML.
    """

    engines: Mapping[str, Sequence[int]]
    directory: str | None = None
    database: int = 0
    collector: int | None = None
    workers: int = 1
    cores: Sequence[int] = (GATEWAY_CORE,)
    more: str = ""
    trace_ratio: float = 0.1
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Served:
    """A running gate: its public and admin ports, the supervisor, what it logged, and how to find its workers."""

    port: int
    admin_port: int
    supervisor: int
    log: Path
    configuration: Path = field(repr=False)

    def workers(self) -> tuple[int, ...]:
        """The workers just now."""
        return children(self.supervisor)

    def proxy(self, name: str = SALTGATE) -> Proxy:
        return Proxy(name, self.port, self.workers())


def one_project(issuer: str, subjects: Sequence[str] = SUBJECTS) -> str:
    """A directory file in which all these people are members of one project."""
    members = ", ".join(f'"user:{subject}"' for subject in subjects)
    return f'workspaces.acme = {{ issuer = "{issuer}", projects.apollo.members = [{members}] }}\n'


@contextmanager
def served(stage: Stage, setting: Setting, name: str = "gate") -> Iterator[Served]:
    """Imports the directory and serves. Raises CalledProcessError, NotServing."""
    port, admin_port = free_port(), free_port()
    configuration = prepared(stage, setting, name, port, admin_port)
    log = stage.folder / f"{name}.log"
    pinned = ("taskset", "-c", ",".join(map(str, setting.cores))) if setting.cores else ()
    with process(*pinned, *COMMAND, "serve", "-c", str(configuration), log=log, env=setting.environment) as running:
        # First the one, then the other: every worker is ready, and a request comes through.
        until_answered(name, f"http://127.0.0.1:{admin_port}/readyz", {}, log, seconds=_START_SECONDS)
        until_served(name, port, stage.token, log)
        yield Served(port, admin_port, running.pid, log, configuration)


def prepared(stage: Stage, setting: Setting, name: str, port: int, admin_port: int = 0) -> Path:
    """Imports the directory; the file of the configuration. Raises CalledProcessError."""
    configuration = stage.folder / f"{name}.toml"
    (stage.folder / "salt").write_text("0123456789abcdef0123456789abcdef")
    configuration.write_text(_configuration(stage, setting, port, admin_port or free_port()))
    directory = one_project(stage.mint.issuer) if setting.directory is None else setting.directory
    _import(stage.folder / f"{name}-directory.toml", directory, configuration)
    return configuration


def _import(file: Path, directory: str, configuration: Path) -> None:
    file.write_text(directory)
    words = (*COMMAND, "directory", "import", str(file), "-c", str(configuration))
    for tries in reversed(range(_IMPORT_TRIES)):
        # On a busy machine Redis may not answer in time at first.
        if subprocess.run(words, check=tries == 0, stdout=subprocess.DEVNULL).returncode == 0:
            return


def _configuration(stage: Stage, setting: Setting, port: int, admin_port: int) -> str:
    engines = ", ".join(_engine(model, ports) for model, ports in setting.engines.items())
    collector = "" if setting.collector is None else f'otlp_endpoint = "http://127.0.0.1:{setting.collector}"'
    return f"""
workers = {setting.workers}
public.listen = "127.0.0.1:{port}"
admin.listen = "127.0.0.1:{admin_port}"
engines = [{engines}]
issuers = [{{ issuer = "{stage.mint.issuer}", audiences = ["saltgate"] }}]
directory.redis = "redis://127.0.0.1:{stage.redis.port}/{setting.database}"
isolation.keys = [{{ id = "k1", secret = {{ file = "salt" }} }}]
{setting.more}
[telemetry]
trace_ratio = {setting.trace_ratio}
{collector}
"""


def _engine(model: str, ports: Sequence[int]) -> str:
    """The mock engine has no cache that a proof could look at."""
    urls = ", ".join(f'"http://127.0.0.1:{port}"' for port in ports)
    return f'{{ name = "{model}", urls = [{urls}], models = ["{model}"], proof = "off" }}'
