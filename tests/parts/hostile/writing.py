"""How the corpus writes its requests: a chat of alice's, with one thing about it that is not as it should be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

CHAT: Final = "/v1/chat/completions"
EVIL: Final = "sg1-k1-evil"
EVIL_MEMBER: Final = f'"cache_salt":"{EVIL}"'


def request(
    body: bytes | str | Mapping[str, object],
    *lines: str,
    path: str = CHAT,
    framing: str | None = None,
    kind: str = "application/json",
    start: str = "POST {path} HTTP/1.1",
    credentials: str = "@credentials@",
) -> bytes:
    """One request of alice's, the credentials to be filled in later."""
    encoded = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
    framing = f"Content-Length: {len(encoded)}" if framing is None else framing
    head = [start.format(path=path), "Host: gate.test", credentials, f"Content-Type: {kind}", *lines]
    return "\r\n".join([*(line for line in head if line), framing, "", ""]).encode("utf-8", "surrogateescape") + encoded


def chat(**more: object) -> dict[str, object]:
    return {"model": "tiny", "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]} | more


def member(text: str) -> str:
    """A chat with a member exactly as it is written."""
    return json.dumps(chat())[:-1] + "," + text + "}"


def in_message(**more: object) -> dict[str, object]:
    return chat(messages=[{"role": "user", "content": "Hello", **more}])


def in_part(**more: object) -> dict[str, object]:
    return chat(messages=[{"role": "user", "content": [{"type": "text", "text": "Hello", **more}]}])


SALTED: Final = json.dumps(chat(cache_salt=EVIL))
