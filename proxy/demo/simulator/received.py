"""What an engine got and what became of it: the evidence that tests look at."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Received:
    """One POST. `headers` and `body` are the bytes as they came; `target` is the request line's, undecoded.

    `salt` is the body's own, before any flaw drops it. `prompt_tokens` and `reused` are set when prefill is done
    (summed over the prompts), `generated` counts tokens. Exactly one of `finished` and `aborted` becomes True, unless a
    fault ended the request. `aborted` means that the client left first.
    """

    path: str
    target: str
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    salt: str | None = None
    status: int | None = None
    prompt_tokens: int | None = None
    reused: int | None = None
    generated: int = 0
    finished: bool = False
    aborted: bool = False

    def header(self, name: str) -> list[bytes]:
        """All values of a header, in order."""
        return [value for key, value in self.headers if key.lower() == name.lower().encode()]
