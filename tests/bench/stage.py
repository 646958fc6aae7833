"""What every measurement stands on: the built programs, Redis, an issuer, and people with tokens."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.load import Programs, build
from tests.parts.redis_server import RedisServer
from tests.parts.tokens import IssuerServer, TokenMint

SUBJECTS: Final = tuple(f"u-{number:05}" for number in range(64))
_TOKEN_SECONDS: Final = 4 * 3600.0


@dataclass(frozen=True, slots=True)
class Stage:
    """A folder to write in, the C programs, Redis, whose tokens to accept, one of them, and a file of many."""

    folder: Path
    programs: Programs
    redis: RedisServer
    mint: TokenMint
    token: str
    tokens: Path


@asynccontextmanager
async def open_stage() -> AsyncIterator[Stage]:
    """Whoever enters must keep the loop running, since the issuer answers in it: work goes to a thread."""
    with tempfile.TemporaryDirectory() as name, RedisServer(Path(name)) as redis:
        folder = Path(name)
        programs = await asyncio.to_thread(build, folder)
        async with IssuerServer(TokenMint()) as issuer:
            signed = tokens_of(issuer.mint, SUBJECTS)
            (folder / "tokens").write_text("".join(f"{token}\n" for token in signed))
            yield Stage(folder, programs, redis, issuer.mint, signed[0], folder / "tokens")


def tokens_of(mint: TokenMint, subjects: Sequence[str]) -> list[str]:
    return [mint.token(subject, (), lifetime=_TOKEN_SECONDS) for subject in subjects]
