"""The store that the configuration names."""

from __future__ import annotations

from config.settings import Directory as Settings
from proxy.directory.file_store import FileStore
from proxy.directory.redis_store import RedisStore
from proxy.directory.store import Store


def open_store(settings: Settings) -> Store:
    """Opens nothing yet: the first use does. Raises ValueError where `[directory]` cannot be used as it is."""
    if settings.redis is not None:
        return RedisStore(settings)
    if settings.file is None or settings.state is None:
        raise ValueError("[directory] needs redis, or file together with state")
    return FileStore(settings.file, settings.state)
