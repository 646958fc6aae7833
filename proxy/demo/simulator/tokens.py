"""Text into tokens and messages into a prompt: a tokenizer and a chat template that never change.

A token is a piece of up to four characters with the blank before it, so that English comes near the usual four
characters a token. Marks of the template are one token each and longer than any piece of text without blanks, so no
text can spell one. An answer that comes back in the next turn's messages splits into the tokens that it was generated
as: that is what lets a conversation reuse its own past, as with a real tokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

Prompt = tuple[str, ...]

END: Final = "<|end|>"


@dataclass(frozen=True, slots=True)
class Message:
    """One message as the template sees it: who speaks, and all of what is said as text."""

    role: str
    text: str


def tokenize(text: str) -> Prompt:
    """The tokens of a text; joined they are the text again."""
    return tuple(_PIECE.findall(text))


def mark(name: str) -> str:
    """A token that stands for itself: a role, a token id, a tool list."""
    return f"<|{name}|>"


def chat_prompt(messages: Iterable[Message]) -> Prompt:
    """The messages in order, each between its role and END, then the mark that asks the assistant to speak."""
    tokens: list[str] = []
    for message in messages:
        tokens += [mark(message.role), *tokenize(message.text), END]
    return (*tokens, mark("assistant"))


_PIECE: Final = re.compile(r"\s?\S{1,4}|\s")
