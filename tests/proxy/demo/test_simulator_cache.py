"""The simulator's prefix cache against a naive one that knows no hashes: it compares whole prefixes."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from proxy.demo.simulator.cache import Namespace, PrefixCache
from proxy.demo.simulator.tokens import END, Message, Prompt, chat_prompt, mark, tokenize

NAMESPACES = [
    Namespace(model, adapter, salt) for model in ("a", "b") for adapter in (None, "x") for salt in (None, "", "x", " x")
]
prompts = st.lists(st.sampled_from("pq"), min_size=1, max_size=9).map(tuple)
steps = st.lists(st.tuples(st.booleans(), prompts, st.sampled_from(NAMESPACES)), max_size=30)


@dataclass(frozen=True)
class Entry:
    model: str
    adapter: str | None
    salt: str | None
    prefix: Prompt


class NaiveCache:
    """The same contract in the plainest words: a list of prefixes, the least recently used first."""

    def __init__(self, block_size: int, capacity: int) -> None:
        self.block_size, self.capacity = block_size, capacity
        self.held: list[Entry] = []

    def prefixes(self, tokens: Prompt, space: Namespace) -> list[Entry]:
        ends = range(self.block_size, len(tokens) + 1, self.block_size)
        return [Entry(space.model, space.adapter, space.salt or None, tokens[:end]) for end in ends]

    def use(self, entries: list[Entry]) -> None:
        for entry in reversed(entries):
            if entry in self.held:
                self.held.remove(entry)
            self.held.append(entry)
        self.held = self.held[max(len(self.held) - self.capacity, 0) :]

    def reuse(self, tokens: Prompt, space: Namespace) -> int:
        entries = self.prefixes(tokens[: len(tokens) - 1], space)
        hits = next((n for n, entry in enumerate(entries) if entry not in self.held), len(entries))
        self.use(entries[:hits])
        return hits * self.block_size

    def keep(self, tokens: Prompt, space: Namespace) -> int:
        entries = self.prefixes(tokens, space)
        new = sum(entry not in self.held for entry in entries)
        self.use(entries)
        return new * self.block_size


@given(steps=steps, block_size=st.integers(1, 3), capacity=st.integers(1, 12))
def test_the_cache_reuses_and_forgets_exactly_what_the_naive_cache_does(
    steps: list[tuple[bool, Prompt, Namespace]], block_size: int, capacity: int
) -> None:
    cache = PrefixCache(block_size=block_size, capacity=capacity)
    naive = NaiveCache(block_size, capacity)
    for keeps, tokens, space in steps:
        if keeps:
            assert cache.keep(tokens, space) == naive.keep(tokens, space)
        else:
            assert cache.reuse(tokens, space) == naive.reuse(tokens, space)
        assert len(cache) == len(naive.held) <= capacity


@given(tokens=prompts, keeper=st.sampled_from(NAMESPACES), asker=st.sampled_from(NAMESPACES))
def test_a_prompt_is_reused_only_under_the_same_model_adapter_and_salt(
    tokens: Prompt, keeper: Namespace, asker: Namespace
) -> None:
    cache = PrefixCache(block_size=2, capacity=100)
    cache.keep(tokens, keeper)
    same = (keeper.model, keeper.adapter, keeper.salt or None) == (asker.model, asker.adapter, asker.salt or None)
    assert cache.reuse(tokens, asker) == ((len(tokens) - 1) // 2 * 2 if same else 0)


def test_the_salt_in_the_first_block_reaches_every_later_block() -> None:
    cache = PrefixCache(block_size=2, capacity=100)
    cache.keep(("a", "b", "c", "d", "e"), Namespace("m", None, "one"))
    assert cache.reuse(("a", "b", "c", "d", "e"), Namespace("m", None, "two")) == 0


def test_a_prefix_of_16_tokens_is_reused_by_17_and_not_by_16() -> None:
    cache = PrefixCache(block_size=16, capacity=100)
    space = Namespace("m", None, "s")
    cache.keep(tuple("abcdefghijklmnopq"), space)
    assert cache.reuse(tuple("abcdefghijklmnop"), space) == 0
    assert cache.reuse(tuple("abcdefghijklmnopx"), space) == 16


def test_the_tail_of_a_prompt_is_forgotten_before_its_head() -> None:
    cache = PrefixCache(block_size=1, capacity=3)
    space = Namespace("m", None, None)
    cache.keep(("a", "b", "c"), space)
    cache.keep(("z",), space)
    assert cache.reuse(("a", "b", "c", "d"), space) == 2


def test_what_was_reused_lately_is_kept_longer() -> None:
    cache = PrefixCache(block_size=1, capacity=2)
    space = Namespace("m", None, None)
    for tokens in ("a", "b"):
        cache.keep((tokens,), space)
    assert cache.reuse(("a", "x"), space) == 1
    cache.keep(("c",), space)
    assert (cache.reuse(("a", "x"), space), cache.reuse(("b", "x"), space)) == (1, 0)


@given(text=st.text())
def test_the_tokens_of_a_text_are_the_text(text: str) -> None:
    assert "".join(tokenize(text)) == text


@given(text=st.text(), role=st.sampled_from(["user", "system", "tool"]))
def test_no_text_can_spell_a_mark_of_the_template(text: str, role: str) -> None:
    spelled = (text, role, mark(role), END, mark("assistant"))
    assert {mark(role), mark("assistant"), END}.isdisjoint(tokenize(" ".join(spelled)) + tokenize("".join(spelled)))
    assert mark(role) not in tokenize(role)
    assert chat_prompt([Message(role, text)]).count(END) == 1
