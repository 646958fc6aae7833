"""Which DPoP proofs have come already, known to all workers at once: in Redis, or in the state folder of a machine."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Final, Protocol

from redis.asyncio import Redis

from config.settings import Directory as Settings
from proxy.directory.redis_connection import PREFIX, SHORT_SECONDS, bounded, connection_pool
from proxy.directory.store import StoreUnavailable
from proxy.identity.dpop import Proof
from proxy.identity.possession import REMEMBERED_SECONDS
from proxy.refusals import DirectoryUnavailable

PROOFS: Final = PREFIX + "proofs:"
FOLDER: Final = "used-proofs"

# So many wait for Redis at once on one worker; more of them wait for these.
_AT_ONCE: Final = 64


class UsedProofs(Protocol):
    """`proxy.identity.possession.UsedProofs`, with an end."""

    async def first_use(self, proof: Proof) -> bool: ...

    async def close(self) -> None: ...


def open_used_proofs(settings: Settings) -> UsedProofs:
    """Opens nothing yet. Raises ValueError where `[directory]` cannot be used as it is."""
    if settings.redis is not None:
        return RedisUsedProofs(settings)
    if settings.state is None:
        raise ValueError("[directory] needs redis, or file together with state")
    return FileUsedProofs(settings.state)


class RedisUsedProofs:
    """For all workers of all machines. `SET … NX` is one step in Redis: of many at once, one is the first."""

    def __init__(self, settings: Settings) -> None:
        self._pool = connection_pool(settings)
        self._redis = Redis(connection_pool=self._pool)
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def first_use(self, proof: Proof) -> bool:
        """Raises DirectoryUnavailable where Redis does not say it in time."""
        try:
            async with bounded(SHORT_SECONDS), self._room:
                return bool(await self._redis.set(PROOFS + proof.name, b"", nx=True, ex=REMEMBERED_SECONDS))
        except StoreUnavailable as error:
            raise _unknown() from error

    async def close(self) -> None:
        await self._redis.aclose()
        await self._pool.aclose()


class FileUsedProofs:
    """For all workers of one machine: an empty file for each proof, which only one of them can be the first to make.

    The files lie in folders by the time that the proofs name, so that the same proof is looked for in the same one, and
    those of long ago go at once.
    """

    def __init__(self, state: Path) -> None:
        self._folder = state / FOLDER

    async def first_use(self, proof: Proof) -> bool:
        """Raises DirectoryUnavailable where the folder cannot be written to."""
        try:
            return await asyncio.to_thread(self._make, proof)
        except OSError as error:
            raise _unknown() from error

    async def close(self) -> None:
        """Nothing is open."""

    def _make(self, proof: Proof) -> bool:
        number = int(proof.issued_at // REMEMBERED_SECONDS)
        folder = self._folder / str(number)
        if not folder.is_dir():
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            self._forget_before(number - 2)
        try:
            os.close(os.open(folder / proof.name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return False
        return True

    def _forget_before(self, number: int) -> None:
        """Folders in which no proof is accepted any more, whatever it says. Other workers may be at it, too."""
        for folder in self._folder.iterdir():
            if folder.name.isdecimal() and int(folder.name) < number:
                shutil.rmtree(folder, ignore_errors=True)


def _unknown() -> DirectoryUnavailable:
    return DirectoryUnavailable(
        "saltgate cannot tell now whether your DPoP proof came before. Try again in a moment, with a new proof.",
        reason="used_proofs_unavailable",
    )
