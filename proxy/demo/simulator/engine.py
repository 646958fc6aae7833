"""The engine behind the routes: prefill one prompt at a time, reuse what the cache holds, then decode in steps.

What an answer says depends on the prompt alone, never on the cache or the salt: it is the same when it was reused.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import Final

from proxy.demo.simulator.cache import Namespace, PrefixCache
from proxy.demo.simulator.order import Order
from proxy.demo.simulator.shape import EngineShape
from proxy.demo.simulator.tokens import END, Prompt, tokenize


@dataclass(frozen=True, slots=True)
class Prefilled:
    """One prompt is computed. In tokens: its length, how much of it was reused, how much was newly put into the
    cache.
    """

    tokens: int
    reused: int
    created: int


@dataclass(frozen=True, slots=True)
class Token:
    """One token of one answer. `choice` is OpenAI's index; `finish` is None, "stop" or "length"."""

    choice: int
    text: str
    finish: str | None


@dataclass(slots=True)
class Counters:
    """What /metrics tells, since the start."""

    prompt_tokens: int = 0
    generated_tokens: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    running: int = 0
    waiting: int = 0
    stopped: int = 0
    cut_short: int = 0
    aborted: int = 0


class Engine:
    """A scheduler with a prefix cache. Leaving an iterator early aborts its request."""

    def __init__(self, shape: EngineShape) -> None:
        self._shape = shape
        self._prefilling = asyncio.Lock()
        self.cache = PrefixCache(block_size=shape.block_size, capacity=shape.capacity_blocks)
        self.counters = Counters()

    async def prefill(self, order: Order) -> tuple[Prefilled, ...]:
        """Computes the order's prompts, in turn with everybody else's."""
        try:
            return tuple([await self._prefill(prompt, order) for prompt in order.prompts])
        except asyncio.CancelledError:
            self.counters.aborted += 1
            raise

    async def decode(self, order: Order) -> AsyncGenerator[Token, None]:
        """The tokens of all answers, step by step: in each step one of each answer that is not finished."""
        answers = [
            _Answer(index, prompt, order, self._shape)
            for index, (prompt, _) in enumerate(itertools.product(order.prompts, range(order.n)))
        ]
        self.counters.running += 1
        try:
            while running := [answer for answer in answers if not answer.finish]:
                # Also without a pace the loop must turn, or nobody would notice that the client has left.
                await asyncio.sleep(self._shape.pace.seconds_per_token)
                for answer in running:
                    self.counters.generated_tokens += 1
                    yield answer.step()
        finally:
            self._leave(order, answers)

    async def _prefill(self, prompt: Prompt, order: Order) -> Prefilled:
        self.counters.waiting += 1
        try:
            await self._prefilling.acquire()
        finally:
            self.counters.waiting -= 1
        try:
            return await self._compute(prompt, order)
        finally:
            self._prefilling.release()

    async def _compute(self, prompt: Prompt, order: Order) -> Prefilled:
        namespace = self._namespace(order)
        reads = order.reads_cache and not self._shape.flaws.no_prefix_cache
        reused = self.cache.reuse(prompt, namespace) if reads else 0
        self.counters.prompt_tokens += len(prompt)
        self.counters.prefix_queries += len(prompt) if reads else 0
        self.counters.prefix_hits += reused
        await asyncio.sleep(self._shape.pace.prefill_seconds(prompt=len(prompt), reused=reused))
        return Prefilled(len(prompt), reused, self._keep(prompt, namespace))

    def _leave(self, order: Order, answers: list[_Answer]) -> None:
        self.counters.running -= 1
        for answer in answers:
            self._keep(answer.computed(), self._namespace(order))
            self.counters.stopped += answer.finish == "stop"
            self.counters.cut_short += answer.finish == "length"
            self.counters.aborted += answer.finish is None

    def _keep(self, tokens: Prompt, namespace: Namespace) -> int:
        return 0 if self._shape.flaws.no_prefix_cache else self.cache.keep(tokens, namespace)

    def _namespace(self, order: Order) -> Namespace:
        ignored = order.endpoint in self._shape.flaws.ignores_salt
        return Namespace(order.model, order.adapter, None if ignored else order.salt)


class _Answer:
    """One answer as it grows. Its words come from the prompt alone; it ends by itself, or where the order cuts it."""

    def __init__(self, index: int, prompt: Prompt, order: Order, shape: EngineShape) -> None:
        self._index = index
        self._prompt = prompt
        self._words = _call_tokens(order) or _words(prompt, index % order.n)
        self._length = len(tokenize(order.tool_call.arguments)) if order.tool_call else shape.answer_tokens
        # Arguments that go on after their end are no JSON any more, so nothing prolongs a call.
        self._least = 0 if order.tool_call else order.min_tokens
        self._endless = order.ignore_eos and order.tool_call is None
        self._most = min(order.max_tokens or shape.max_model_len, shape.max_model_len - len(prompt))
        self._said: list[str] = []
        self.finish: str | None = None

    def step(self) -> Token:
        """The next token."""
        if not self._endless and len(self._said) >= max(self._length, self._least):
            self.finish, text = "stop", ""
        else:
            text = next(self._words)
            self.finish = "length" if len(self._said) + 1 == self._most else None
        self._said.append(text or END)
        return Token(self._index, text, self.finish)

    def computed(self) -> Prompt:
        """The tokens whose keys and values exist: all but the last, which was sampled and never fed back."""
        return (*self._prompt, *self._said[:-1])


def _call_tokens(order: Order) -> Iterator[str] | None:
    return iter(tokenize(order.tool_call.arguments)) if order.tool_call else None


def _words(prompt: Prompt, sample: int) -> Iterator[str]:
    """An endless answer: what was counted, then words drawn from the prompt's own hash. Different for each sample."""
    yield from tokenize(f"You said {len(prompt):,} tokens;")
    for number in itertools.count():
        seed = hashlib.sha256(repr((prompt[-64:], len(prompt), sample, number)).encode()).digest()
        yield from (f" {_WORDS[byte % len(_WORDS)]}" for byte in seed)


# Four characters at most, so that each word is one token.
_WORDS: Final = ("salt", "gate", "key", "ring", "wave", "tide", "reef", "sand", "cove", "bay", "port", "mast", "sail")
