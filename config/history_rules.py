"""What must hold of `[history]` and of the address of the pages that show it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from config.addresses import is_loopback_host, web_address
from config.faults import Fault
from config.settings import Directory, History

MOST_SCOPES: Final = 10_000
MOST_RECENT: Final = 100_000


def faults_of_admin_url(url: str) -> Iterator[Fault]:
    try:
        address = web_address(url)
    except ValueError as error:
        yield Fault("admin.url", str(error))
        return
    if address.path or "?" in url or "#" in url:
        yield Fault("admin.url", "write scheme, host and port only, without a path or query")
    if address.scheme != "https" and not is_loopback_host(address.hostname):
        yield Fault("admin.url", "must be https:// unless the host is loopback; a session travels there")


def faults_of_history(history: History, directory: Directory | None) -> Iterator[Fault]:
    """`directory` None: it could not be read."""
    if history.redis and directory is not None and directory.redis is None:
        yield Fault("history.redis", "needs `redis` of [directory]; leave it out")
    if history.scopes > MOST_SCOPES:
        yield Fault("history.scopes", f"write {MOST_SCOPES} at most; each may take 100 KB")
    if history.recent > MOST_RECENT:
        yield Fault("history.recent", f"write {MOST_RECENT} at most; for more there is the audit log")
