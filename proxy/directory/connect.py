"""The store that the configuration names."""

from __future__ import annotations

from config.settings import Directory as Settings
from config.settings import Isolation
from proxy.directory.file_store import FileStore
from proxy.directory.file_tokens import FileTokens
from proxy.directory.redis_store import RedisStore
from proxy.directory.redis_tokens import RedisTokens
from proxy.directory.removal import RemovalPolicy
from proxy.directory.store import Store
from proxy.directory.token_store import TokenStore
from proxy.isolation.unit import Level


def open_store(settings: Settings, removal: RemovalPolicy | None) -> Store:
    """Opens nothing yet: the first use does. Raises ValueError where `[directory]` cannot be used as it is.

    `removal` is for those whom people take out of a directory file; a deed brings its own.
    """
    if settings.redis is not None:
        return RedisStore(settings)
    if settings.file is None or settings.state is None:
        raise ValueError("[directory] needs redis, or file together with state")
    return FileStore(settings.file, settings.state, removal=removal)


def open_tokens(settings: Settings) -> TokenStore:
    """Where the directory lives, personal access tokens do. As `open_store`."""
    if settings.redis is not None:
        return RedisTokens(settings)
    if settings.state is None:
        raise ValueError("[directory] needs redis, or file together with state")
    return FileTokens(settings.state)


def removal_policy(isolation: Isolation) -> RemovalPolicy | None:
    """What a removal raises; None: nothing."""
    return RemovalPolicy(Level(isolation.unit)) if isolation.raise_on_removal else None
