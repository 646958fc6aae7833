"""Speaking straight to the engine, as saltgate's upstream leg does and no client of saltgate can."""

from __future__ import annotations

from dataclasses import dataclass

import aiohttp

from tests.engine.endpoints import Endpoint, Json


@dataclass(frozen=True, slots=True)
class Vllm:
    """A running engine. It serves the model `tests.engine.server.MODEL`."""

    url: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: `body` is the whole of it, also of a stream."""

    status: int
    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class EngineClient:
    """A client without a gate: what it sends is what the engine gets."""

    session: aiohttp.ClientSession

    async def post(self, path: str, body: Json | bytes) -> Answer:
        """Sends JSON, or bytes as they are, and reads the whole answer."""
        sent = {"data": body} if isinstance(body, bytes) else {"json": body}
        headers = {"Content-Type": "application/json"}
        async with self.session.post(path, headers=headers, **sent) as answer:
            return Answer(answer.status, answer.content_type, await answer.read())

    async def get(self, path: str) -> Answer:
        async with self.session.get(path) as answer:
            return Answer(answer.status, answer.content_type, await answer.read())

    async def reused(self, endpoint: Endpoint, prompt: str, salt: str | None, *, stream: bool = False) -> int:
        """How many tokens of `prompt` the engine took from its cache. None sends no salt."""
        salted = {} if salt is None else {"cache_salt": salt}
        answer = await self.post(endpoint.path, endpoint.body(prompt, stream=stream) | salted)
        assert answer.status == 200, answer.body
        return endpoint.usage(answer.body).reused
