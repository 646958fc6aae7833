"""The scene that the demo plays: who sends the same text after whom, how soon the first token comes, what was
reused.
"""

from __future__ import annotations

import json
import secrets
import statistics
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import aiohttp

from proxy.demo.cast import ALICE, BOB, CAROL, Role

# The number of words of each prompt, and roughly the tokens that they become on the simulator.
LENGTHS: Final = (("medium", 2260), ("long", 5960))

_TOLD_CHARACTERS: Final = 400


class SceneFailed(Exception):  # noqa: N818 - what the person at the keyboard reads
    """A request of the scene was not answered as it must be."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `seconds` is the client's own time to the first token; tokens are as the engine counts."""

    prompt: str
    who: str
    seconds: float
    prompt_tokens: int
    reused: int | None


@dataclass(frozen=True, slots=True)
class Line:
    """One step of the scene: who sends the text, and what is said of him."""

    role: Role
    caption: str


LINES: Final = (
    Line(ALICE, "Alice (acme/apollo) sends it"),
    Line(CAROL, "Carol, her colleague, sends the same"),
    Line(BOB, "Bob (globex/hermes), a stranger"),
    Line(BOB, "Bob sends it again"),
)


async def play(
    session: aiohttp.ClientSession, url: str, tokens: Mapping[str, str], *, model: str, trials: int
) -> AsyncGenerator[Row, None]:
    """The rows as they happen; with several trials the medians of each. A text of its own for each trial.

    A long text that the model has no room for is left out. Raises SceneFailed.
    """
    stage = _Stage(session, url, tokens, model)
    for number, (name, words) in enumerate(LENGTHS):
        try:
            async for row in _trials(stage, name, words, trials):
                yield row
        except _TooLong:
            if number == 0:
                raise
            return


async def ask(
    session: aiohttp.ClientSession, url: str, tokens: Mapping[str, str], *, model: str, role: Role, text: str
) -> Row:
    """One request of somebody's. Raises SceneFailed."""
    return await _send(_Stage(session, url, tokens, model), Line(role, role.name), "", text)


def text_of(words: int) -> str:
    """A text that nobody has sent before."""
    return _text(words)


@dataclass(frozen=True, slots=True)
class _Stage:
    session: aiohttp.ClientSession
    url: str
    tokens: Mapping[str, str]
    model: str


class _TooLong(SceneFailed):
    """The engine took the text for a bad request."""


async def _trials(stage: _Stage, prompt: str, words: int, trials: int) -> AsyncIterator[Row]:
    if trials == 1:
        text = _text(words)
        for line in LINES:
            yield await _send(stage, line, prompt, text)
        return
    runs = []
    for _ in range(trials):
        text = _text(words)
        runs.append([await _send(stage, line, prompt, text) for line in LINES])
    for rows in zip(*runs, strict=True):
        yield _median(rows)


def _median(rows: Sequence[Row]) -> Row:
    reused = [row.reused for row in rows if row.reused is not None]
    return Row(
        rows[0].prompt,
        rows[0].who,
        statistics.median(row.seconds for row in rows),
        round(statistics.median(row.prompt_tokens for row in rows)),
        round(statistics.median(reused)) if reused else None,
    )


def _text(words: int) -> str:
    """A text that nobody has sent before: what is reused of it was sent in this scene."""
    # Common words are a token each with most tokenizers, so the lengths mean the same on any engine.
    return f"Summarise report {secrets.token_hex(8)}: " + " ".join(_WORDS[n * n % len(_WORDS)] for n in range(words))


_WORDS: Final = (
    *("road", "tree", "moon", "fish", "door", "wind", "gold", "hand", "ship"),
    *("rain", "book", "star", "milk", "song", "fire", "leaf", "snow"),
)


async def _send(stage: _Stage, line: Line, prompt: str, text: str) -> Row:
    document = {
        "model": stage.model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 4,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    headers = {
        "Authorization": f"Bearer {stage.tokens[line.role.username]}",
        "OpenAI-Organization": line.role.workspace,
        "OpenAI-Project": line.role.project,
    }
    began = time.perf_counter()
    first: float | None = None
    usage: dict[str, object] = {}
    try:
        async with stage.session.post(f"{stage.url}/v1/chat/completions", json=document, headers=headers) as answer:
            if answer.status != 200:
                failure = _TooLong if answer.status == 400 else SceneFailed
                raise failure(f"{line.caption}: status {answer.status}, {(await answer.text())[:_TOLD_CHARACTERS]}")
            async for event in _events(answer.content):
                if "error" in event:
                    raise SceneFailed(f"{line.caption}: {str(event['error'])[:_TOLD_CHARACTERS]}")
                if first is None and _has_token(event):
                    first = time.perf_counter() - began
                told = event.get("usage")
                usage = told if isinstance(told, dict) else usage
    except (aiohttp.ClientError, TimeoutError) as error:
        raise SceneFailed(f"{line.caption}: {str(error) or type(error).__name__}") from error
    if first is None:
        raise SceneFailed(f"{line.caption}: the engine answered without a token")
    details = usage.get("prompt_tokens_details")
    reused = details.get("cached_tokens") if isinstance(details, dict) else None
    return Row(prompt, line.caption, first, int(str(usage.get("prompt_tokens", 0))), reused)


def _has_token(event: Mapping[str, object]) -> bool:
    """Whether it brings a token. The first of a model that thinks before it speaks is one of its thoughts."""
    match event:
        case {"choices": [{"delta": {**delta}}]}:
            return any(delta.get(member) for member in ("content", "reasoning", "reasoning_content", "tool_calls"))
        case _:
            return False


async def _events(content: aiohttp.StreamReader) -> AsyncIterator[dict[str, object]]:
    async for line in content:
        if line.startswith(b"data: {"):
            yield json.loads(line[6:])
