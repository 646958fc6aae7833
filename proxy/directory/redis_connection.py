"""The connections to the Redis of `[directory]`, which also keeps the records of tokens and login sessions."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from redis.asyncio import ConnectionPool
from redis.asyncio.connection import SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.maint_notifications import MaintNotificationsConfig

from config.client_tls import client_context
from config.settings import Directory as Settings
from proxy.directory.store import StoreUnavailable

PREFIX: Final = "{saltgate}:1:"
"""What every key of ours begins with: one hash slot, and the version of the layout."""

# One answer of Redis may be large (all workspaces), so only short questions have the short limit.
SHORT_SECONDS: Final = 1.0
LONG_SECONDS: Final = 5.0


def connection_pool(settings: Settings) -> ConnectionPool:
    """Opens no connection yet. Raises ValueError where the URL or a certificate cannot be used."""
    if settings.redis is None:
        raise ValueError("[directory].redis is not set")
    address = parse_url(settings.redis)
    unknown = set(address) - {"host", "port", "path", "db", "username", "password", "connection_class"}
    if unknown:
        # Such as ssl_cert_reqs=none: what guards the connection is not for a URL to change.
        raise ValueError(f"[directory].redis may not set {', '.join(sorted(unknown))}; leave out what follows the ?")
    options: dict[str, Any] = {
        **address,
        "protocol": 3,
        "socket_timeout": LONG_SECONDS,
        "socket_connect_timeout": SHORT_SECONDS,
        "retry": Retry(NoBackoff(), 0),
        "maint_notifications_config": MaintNotificationsConfig(enabled=False),
    }
    if settings.username is not None:
        options["username"] = settings.username
    if settings.password is not None:
        options["password"] = settings.password.value.decode()
    if address.get("connection_class") is SSLConnection:
        options |= {"connection_class": _TlsConnection, "tls": _tls(settings)}
    return ConnectionPool(**options)


def _tls(settings: Settings) -> ssl.SSLContext:
    try:
        return client_context(settings.ca, settings.client_cert)
    except OSError as error:
        raise ValueError(f"[directory].ca or [directory].client_cert cannot be used: {error}") from error


@asynccontextmanager
async def bounded(seconds: float) -> AsyncIterator[None]:
    """At most that long, and Redis's troubles in our words."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise StoreUnavailable(
            "Redis does not answer in time; look at [directory].redis and at Redis itself"
        ) from error
    except (RedisError, OSError) as error:
        raise StoreUnavailable(
            f"Redis cannot be used: {error}; look at [directory].redis and at Redis itself"
        ) from error


class _TlsConnection(SSLConnection):
    """A TLS connection under our context instead of one made of redis-py's own options."""

    def __init__(self, *, tls: ssl.SSLContext, **options: Any) -> None:
        super().__init__(**options)
        self.ssl_context.context = tls
