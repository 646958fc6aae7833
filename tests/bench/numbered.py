"""Streams of numbered events, cut into chunks of every size, and what is wrong with them when they arrive. Pure."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

Cut = Literal["one event a chunk", "several events a chunk", "anywhere", "large"]
CUTS: Final[tuple[Cut, ...]] = ("one event a chunk", "several events a chunk", "anywhere", "large")

_NUMBER: Final = re.compile(rb'"content":"#([0-9]+) ')
_WORDS: Final = ("", "word ", "größer ", "日本語のテキスト ", "🙂" * 9) * 10
_PADDING: Final = [text.encode() for text in (*_WORDS, "a" * 200, "a" * 200, "z" * 3000)]
_LONGEST_BATCH: Final = 64


def event(number: int, padding: bytes) -> bytes:
    """One event of a chat stream with its number in it."""
    content = b"#%d %b" % (number, padding)
    return (
        b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1764460800,"model":"mock",'
        b'"choices":[{"index":0,"delta":{"content":"%b"},"logprobs":null,"finish_reason":null}]}\n\n' % content
    )


def chunks(events: int, cut: Cut, rng: random.Random) -> Iterator[bytes]:
    """The payloads of the chunks of a whole stream of so many events and its [DONE]."""
    number = 0
    while number < events:
        batch = min(_batch(cut, rng), events - number)
        data = b"".join(event(number + k, rng.choice(_PADDING)) for k in range(batch))
        number += batch
        yield from _cut_anywhere(data, rng) if cut == "anywhere" else (data,)
    yield b"data: [DONE]\n\n"


def _batch(cut: Cut, rng: random.Random) -> int:
    """How many events are made at once."""
    match cut:
        case "one event a chunk":
            return 1
        case "several events a chunk":
            return rng.randint(1, 8)
        case "anywhere":
            return rng.randint(1, 16)
        case "large":
            return _LONGEST_BATCH


def _cut_anywhere(data: bytes, rng: random.Random) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = rng.choice((1, 2, 7, 100, 900, 5000))
        yield data[at : at + size]
        at += size


@dataclass(slots=True)
class Arrived:
    """What came of one stream so far: fed with body bytes as they come, however they are cut.

    `lost` numbers were jumped over; `again` are those that came twice or too late.
    """

    events: int = 0
    lost: int = 0
    again: int = 0
    done: bool = False
    _next: int = 0
    _rest: bytes = b""

    def feed(self, data: bytes) -> None:
        whole, border, rest = (self._rest + data).rpartition(b"\n\n")
        if not border:
            self._rest = rest
            return
        self._rest = rest
        self.done = self.done or whole.endswith(b"data: [DONE]")
        numbers = [int(number) for number in _NUMBER.findall(whole)]
        self.events += len(numbers)
        # One comparison where all is well: there are millions of them.
        if numbers != list(range(self._next, self._next + len(numbers))):
            self._count_faults(numbers)
        if numbers:
            self._next = max(self._next, numbers[-1] + 1)

    def is_whole(self, events: int) -> bool:
        """Whether exactly so many events came, in order, and then the end."""
        return self.done and not self._rest and (self.events, self.lost, self.again) == (events, 0, 0)

    def _count_faults(self, numbers: list[int]) -> None:
        expected = self._next
        for number in numbers:
            if number < expected:
                self.again += 1
            else:
                self.lost += number - expected
                expected = number + 1
        self._next = expected
