"""What may not be in a log line, whoever writes it: fields by name, values by form, the text of errors."""

from __future__ import annotations

import re
import traceback
from functools import lru_cache
from typing import Final

# What is no secret and no content, though its name is like one's: numbers, times, and ids that open nothing.
SAFE_KEYS: Final = frozenset(
    {
        "body_ms",
        "cache_written_tokens",
        "key_id",
        "key_ids",
        "output_tokens",
        "prompt_tokens",
        "reasoning_tokens",
        "reused_tokens",
        "salt_epoch",
        "salt_fingerprint",
        "salt_key_id",
        "token_id",
        "tokens_known",
    }
)


@lru_cache(maxsize=1024)
def is_safe_key(key: str) -> bool:
    """Whether a field of this name may be in a line. A name that speaks of a secret or of content may not."""
    name = key.lower()
    if name in SAFE_KEYS:
        return True
    bare = name.replace("saltgate", "")
    return _SECRET_NAME.search(bare) is None and _CONTENT_WORDS.isdisjoint(_WORD_BORDER.split(bare))


def plain(value: object) -> str | int | float | bool | list[str | int | float | bool | None] | None:
    """The value as a line may hold it: text cut to 2000 characters, numbers, lists of these; else the type's name.

    An object's repr or its fields may hold anything, so they are never asked for.
    """
    if isinstance(value, str):
        return value if len(value) <= _MAX_TEXT else value[:_MAX_TEXT]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, list | tuple):
        return [_plain_item(item) for item in value[:_MAX_ITEMS]]
    return f"<{type(value).__name__}>"


def without_secrets(line: bytes) -> bytes:
    """The written line less what looks like a credential, a salt or a password in an address, wherever it stands.

    The last net, below every rule about fields: whatever it finds should not have got here.
    """
    if _may_hold_secret(line):
        line = _SECRET_VALUE.sub(b"[redacted]", line)
    if _AT in line:
        line = _USER_INFO.sub(rb"\1[redacted]@", line)
    return line


def error_stack(error: BaseException) -> tuple[str, ...]:
    """Where an error came from and from which class: the innermost frames, then its causes. No text, no locals.

    The text of an error may quote what it failed on: a header, a token, a prompt.
    """
    lines: list[str] = []
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen and len(lines) < _MAX_ITEMS:
        seen.add(id(link))
        lines.append(type(link).__qualname__)
        frames = list(traceback.walk_tb(link.__traceback__))[-_MAX_FRAMES:]
        lines.extend(f"{_short(f.f_code.co_filename)}:{number} {f.f_code.co_name}" for f, number in reversed(frames))
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return tuple(lines[:_MAX_ITEMS])


_MAX_TEXT: Final = 2000
_MAX_ITEMS: Final = 40
_MAX_FRAMES: Final = 12
_WORD_BORDER: Final = re.compile(r"[^a-z0-9]+")
_SECRET_NAME: Final = re.compile(
    r"authori[sz]ation|bearer|token|jwt|cookie|secret|passw|passphrase|credential|salt|assertion|api_?key|private|prompt"
)
_CONTENT_WORDS: Final = frozenset(
    {"body", "content", "email", "headers", "input", "key", "keys", "messages", "nonce", "output", "sub", "subject"}
)
_SECRET_VALUE: Final = re.compile(
    rb"eyJ[\w-]+(?:\.[\w-]*)+"  # a JWS or JWE in compact form (RFC 7515, RFC 7516)
    rb"|sg1-[\w-]{1,32}-[\w-]{43}"  # a salt
    rb"|sgp_[\w-]+"  # a personal access token
    rb"|(?i:bearer|basic) [\w.~+/=-]{8,}"  # RFC 6750, RFC 7617
)
_J, _SPACE, _AT = b"J @"
_USER_INFO: Final = re.compile(rb'(://)[^/\s"@]+@')


def _may_hold_secret(line: bytes) -> bool:
    # Spelled out, because each line comes by here, and first what is quickly found and rarely there: many times quicker
    # than the expression or a loop. A byte is looked for as a number, and several by `find`: `in` tries first whether
    # they are a number, which takes as long as the search.
    found = line.find
    if _J in line and found(b"eyJ") >= 0:
        return True
    if found(b"sg1-") >= 0 or found(b"sgp_") >= 0:
        return True
    if _SPACE not in line:
        return False
    return found(b"earer ") >= 0 or found(b"EARER ") >= 0 or found(b"asic ") >= 0 or found(b"ASIC ") >= 0


def _plain_item(item: object) -> str | int | float | bool | None:
    if item is None or isinstance(item, bool | int | float):
        return item
    return item[:_MAX_TEXT] if isinstance(item, str) else f"<{type(item).__name__}>"


def _short(path: str) -> str:
    return "/".join(path.rsplit("/", 2)[-2:])
