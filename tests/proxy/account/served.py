"""`saltgate serve` with two workers and a certified provider that signs its people in, as processes of their own."""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.parts.certified_provider import CertifiedProvider
from tests.parts.redis_server import RedisServer, free_port

DIRECTORY = """
[workspaces.acme]
issuer = "{issuer}"
[workspaces.acme.projects.apollo]
members = ["group:eng"]
[workspaces.globex]
issuer = "{issuer}"
[workspaces.globex.projects.hermes]
members = ["user:u-bob-0002"]
"""
CONFIGURATION = """
workers = 2
[public]
listen = "127.0.0.1:{port}"
[admin]
listen = "127.0.0.1:{admin}"
[[engines]]
name = "main"
urls = ["http://127.0.0.1:9"]
models = ["tiny"]
[[issuers]]
issuer = "{issuer}"
audiences = ["llm-gateway"]
[issuers.login]
client_id = "gateway-web"
client_secret = {{ file = "web.secret" }}
scopes = ["openid", "profile", "groups"]
[directory]
redis = "{redis}"
[[isolation.keys]]
id = "k1"
secret = {{ file = "salt.key" }}
"""
_START_SECONDS: Final = 120.0
SALTGATE: Final = (sys.executable, "-c", "from proxy.cli import main; main()")


@dataclass(frozen=True, slots=True)
class Served:
    """`url` is the gate's public address."""

    url: str
    provider: CertifiedProvider
    log: Path


@contextmanager
def served(redis: RedisServer, folder: Path) -> Iterator[Served]:
    port, admin = free_port(), free_port()
    with CertifiedProvider(gateway=f"http://127.0.0.1:{port}") as provider:
        (folder / "web.secret").write_text("gateway-web-secret\n")
        (folder / "salt.key").write_text("x" * 43 + "\n")
        (folder / "people.toml").write_text(DIRECTORY.format(issuer=provider.issuer))
        configuration = folder / "saltgate.toml"
        configuration.write_text(CONFIGURATION.format(port=port, admin=admin, issuer=provider.issuer, redis=redis.url))
        subprocess.run(
            [*SALTGATE, "directory", "import", str(folder / "people.toml"), "-c", str(configuration)], check=True
        )
        with (folder / "serve.log").open("wb") as log:
            process = subprocess.Popen([*SALTGATE, "serve", "-c", str(configuration)], stdout=log, stderr=log)
            try:
                _until_it_serves(port)
                yield Served(f"http://127.0.0.1:{port}", provider, folder / "serve.log")
            finally:
                process.terminate()
                process.wait()


def _until_it_serves(port: int, times: int = 12) -> None:
    """So many in a row on new connections: both workers are there."""
    good, deadline = 0, time.monotonic() + _START_SECONDS
    while good < times:
        if time.monotonic() > deadline:
            raise TimeoutError("saltgate serve does not sign people in")
        good = good + 1 if _status(port) == 303 else 0
        time.sleep(0.05)


def _status(port: int) -> int | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/auth/login")
        return connection.getresponse().status
    except OSError:
        return None
    finally:
        connection.close()
