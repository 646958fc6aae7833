"""What `saltgate pat` needs of a place with tokens, and how tokens are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from proxy.cli.sign_in.web import shown as fit_for_a_terminal


class WrongUse(Exception):  # noqa: N818 - not an error of the program
    """What was written on the command line, or the configuration, cannot be meant. The message is the remedy."""


class PatRefused(Exception):  # noqa: N818 - an answer
    """The answer is no. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Whose:
    """Whose tokens are meant, as far as it was said: without a subject the person's own."""

    issuer: str | None
    subject: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownToken:
    """A token without its secret. Times are Unix seconds; `projects` None: all that its owner has."""

    id: str
    name: str
    projects: tuple[str, ...] | None
    created_at: int
    expires_at: int
    last_used_at: int | None


@dataclass(frozen=True, slots=True)
class MadeToken:
    """`gate` is the base URL of the gate that takes it, without a slash at its end."""

    secret: str = field(repr=False)
    shown: ShownToken
    gate: str


class Tokens(Protocol):
    """One person's tokens. Each method raises PatRefused, WrongUse, or that the place is away."""

    async def create(self, name: str, lifetime: int | None, projects: Sequence[str] | None) -> MadeToken: ...

    async def owned(self) -> tuple[ShownToken, ...]: ...

    async def revoke(self, token_id: str) -> None: ...

    async def revoke_all(self) -> int: ...


def listed(tokens: Sequence[ShownToken]) -> str:
    """A line for each, with a head where there is any. No name in it can draw on the terminal."""
    if not tokens:
        return ""
    head = ("id", "expires", "last used", "for", "name")
    rows = [head, *(_row(token) for token in tokens)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head) - 1)]
    return "".join(
        "  ".join((*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1])) + "\n"
        for row in rows
    )


def until(token: ShownToken) -> str:
    return _time(token.expires_at)


def _row(token: ShownToken) -> tuple[str, str, str, str, str]:
    limit = "all" if token.projects is None else fit_for_a_terminal(", ".join(token.projects)) or "none"
    used = "never" if token.last_used_at is None else _time(token.last_used_at)
    return (fit_for_a_terminal(token.id), until(token), used, limit, fit_for_a_terminal(token.name))


def _time(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):
        return "unknown"
