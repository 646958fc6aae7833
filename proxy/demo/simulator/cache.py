"""A prefix cache with the block hashes of vLLM (vllm/v1/core/kv_cache_utils.py, kv_cache_manager.py; version 0.32).

Only full blocks are kept. Each block's hash covers its parent's hash, so a hash names the whole prefix. The salt is a
key of the first block only and reaches the others through the chain; an empty salt is no salt. The last token of a
prompt is always computed anew, because its logits are needed. One LRU list serves everybody: a salt separates contents,
not capacity.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from proxy.demo.simulator.tokens import Prompt


@dataclass(frozen=True, slots=True)
class Namespace:
    """What besides the tokens goes into a block's hash. `adapter` is the name of a LoRA adapter."""

    model: str
    adapter: str | None
    salt: str | None


class PrefixCache:
    """The blocks that an engine remembers, in whole blocks of `block_size` tokens, at most `capacity` of them."""

    def __init__(self, *, block_size: int, capacity: int) -> None:
        self._block_size = block_size
        self._capacity = capacity
        self._blocks: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        """How many blocks are held."""
        return len(self._blocks)

    def reuse(self, tokens: Prompt, namespace: Namespace) -> int:
        """How many of the prompt's first tokens are held already; they count as used just now."""
        held: list[bytes] = []
        for block in block_hashes(tokens[:-1], namespace, self._block_size):
            if block not in self._blocks:
                break
            held.append(block)
        self._touch(held)
        return len(held) * self._block_size

    def keep(self, tokens: Prompt, namespace: Namespace) -> int:
        """Holds the full blocks of `tokens`; returns how many tokens were not held before."""
        blocks = block_hashes(tokens, namespace, self._block_size)
        new = sum(block not in self._blocks for block in blocks)
        self._touch(blocks)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)
        return new * self._block_size

    def _touch(self, blocks: list[bytes]) -> None:
        # From the tail to the head: a block is of no use without those before it, so the head must be the last to go.
        for block in reversed(blocks):
            self._blocks[block] = None
            self._blocks.move_to_end(block)


def block_hashes(tokens: Prompt, namespace: Namespace, block_size: int) -> list[bytes]:
    """One hash for each full block of `tokens`, chained from the model's own seed."""
    hashes: list[bytes] = []
    parent = hashlib.sha256(repr((_SEED, namespace.model)).encode()).digest()
    for start in range(0, len(tokens) - block_size + 1, block_size):
        keys = _extra_keys(namespace, is_first=start == 0)
        parent = hashlib.sha256(repr((parent, tokens[start : start + block_size], keys)).encode()).digest()
        hashes.append(parent)
    return hashes


def _extra_keys(namespace: Namespace, *, is_first: bool) -> tuple[tuple[str, str], ...]:
    lora = (("lora", namespace.adapter),) if namespace.adapter else ()
    salt = (("cache_salt", namespace.salt),) if is_first and namespace.salt else ()
    return (*lora, *salt)


_SEED: Final = "vllm-none-hash"
