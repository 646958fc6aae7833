"""Engines of the other kinds, imitated: each takes the salt from where its kind reads it, and is as strict as its kind.

Behind each stands a simulated engine with a real prefix cache. What its kind makes of a request's salts is written here
from the kind's own source, and shares nothing with the gate's profiles.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
from aiohttp import web
from multidict import CIMultiDictProxy

from proxy.demo.simulator import Simulator

Headers = CIMultiDictProxy[str]


@dataclass(frozen=True, slots=True)
class Got:
    """One POST as it came, and the salt that the kind took from it; None is the namespace of everybody."""

    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    salt: str | None

    @property
    def document(self) -> Any:
        return json.loads(self.body)


class _Refused(Exception):  # noqa: N818 - an answer
    """The kind's own 400."""


def sglang_salt(_: Headers, body: Mapping[str, Any]) -> str | None:
    """The radix key is the pair (extra_key, cache_salt); what is empty is none."""
    pair = (body.get("extra_key") or None, body.get("cache_salt") or None)
    return None if pair == (None, None) else json.dumps(pair)


def tensorrt_salt(_: Headers, body: Mapping[str, Any]) -> str | None:
    """pydantic's extra="forbid": every field that the model has not is a 400."""
    unknown = body.keys() - _TENSORRT
    if unknown:
        raise _Refused(f"Extra inputs are not permitted: {sorted(unknown)}")
    salt = body.get("cache_salt")
    return salt if isinstance(salt, str) else None


def dynamo_salt(headers: Headers, body: Mapping[str, Any]) -> str | None:
    """x-tenant-id over nvext.cache_salt over cache_salt, and what is empty is absent. Unknown fields are 400, in
    `nvext`, too.
    """
    nvext = body.get("nvext") or {}
    unknown = (body.keys() - _DYNAMO) | (nvext.keys() - _NVEXT)
    if unknown:
        raise _Refused(f"Unsupported parameter(s): {sorted(unknown)}")
    salts = (*headers.getall("x-tenant-id", ()), nvext.get("cache_salt"), body.get("cache_salt"))
    return next((salt for salt in salts if salt), None)


class Imitation:
    """A server of one kind while entered. `requests` are its POSTs. `deaf`: it drops every salt; `silent`: it reports
    no reuse.
    """

    def __init__(self, kind: str, engine: Simulator, *, deaf: bool = False, silent: bool = False) -> None:
        self.requests: list[Got] = []
        self._engine = engine
        self._salt = _SALTS[kind]
        self._paths = _PATHS[kind]
        self._deaf = deaf
        self._silent = silent
        application = web.Application(client_max_size=0)
        application.router.add_get("/v1/models", self._models)
        application.router.add_get("/metrics", self._metrics)
        application.router.add_post("/{path:.*}", self._post)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession()
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()
        await self._session.close()

    @property
    def url(self) -> str:
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    async def _models(self, _: web.Request) -> web.Response:
        async with self._session.get(self._engine.url + "/v1/models") as answer:
            return web.Response(body=await answer.read(), content_type="application/json")

    async def _metrics(self, _: web.Request) -> web.Response:
        # Numbers in names of its own, and one in vLLM's that says something else there.
        page = b'sglang:cache_hit_rate 0.0\nvllm:cache_config_info{enable_prefix_caching="False"} 1.0\n'
        return web.Response(body=page, content_type="text/plain")

    async def _post(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        if request.path not in self._paths:
            return web.json_response({"detail": "Not Found"}, status=404)
        body = json.loads(raw)
        try:
            salt = self._salt(request.headers, body)
        except _Refused as refused:
            return web.json_response({"object": "error", "message": str(refused), "code": 400}, status=400)
        headers = tuple(request.headers.items())
        self.requests.append(Got(request.path, headers, raw, salt))
        meant = {name: value for name, value in body.items() if name not in ("nvext", "extra_key", "cache_salt")}
        if salt is not None and not self._deaf:
            # As a form that the simulated engine takes, whatever a client wrote.
            meant["cache_salt"] = salt.encode().hex()[-120:]
        async with self._session.post(self._engine.url + request.path, json=meant) as answer:
            if answer.content_type == "text/event-stream":
                return await self._stream(request, answer)
            return web.Response(
                body=self._told(await answer.read()), status=answer.status, content_type="application/json"
            )

    async def _stream(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        async for data in answer.content.iter_any():
            await response.write(data)
        await response.write_eof()
        return response

    def _told(self, body: bytes) -> bytes:
        document = json.loads(body)
        if self._silent and "usage" in document:
            document["usage"]["prompt_tokens_details"] = None
        return json.dumps(document).encode()


_SALTS: Final[Mapping[str, Callable[[Headers, Mapping[str, Any]], str | None]]] = {
    "sglang": sglang_salt,
    "tensorrt-llm": tensorrt_salt,
    "dynamo": dynamo_salt,
}
# What the kinds serve, also what the gate must not use: SGLang's and TensorRT-LLM's other routes drop the salt.
_PATHS: Final[Mapping[str, frozenset[str]]] = {
    "sglang": frozenset({"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/v1/embeddings"}),
    "tensorrt-llm": frozenset({"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"}),
    "dynamo": frozenset({"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"}),
}
_OPENAI: Final = frozenset(
    {
        *(
            "messages",
            "model",
            "frequency_penalty",
            "logit_bias",
            "logprobs",
            "top_logprobs",
            "max_tokens",
            "n",
            "stop",
        ),
        *("max_completion_tokens", "presence_penalty", "response_format", "seed", "stream", "stream_options", "top_p"),
        *("temperature", "tools", "tool_choice", "parallel_tool_calls", "user", "reasoning_effort", "cache_salt"),
    }
)
_TENSORRT: Final = _OPENAI | {"top_k", "min_p", "min_tokens", "ignore_eos", "thinking", "chat_template_kwargs"}
_DYNAMO: Final = _OPENAI | {
    *("prompt", "input", "instructions", "max_output_tokens", "store", "background", "text", "top_k", "min_p"),
    *("ignore_eos", "min_tokens", "nvext", "encoding_format", "dimensions", "thinking", "chat_template_kwargs"),
}
_NVEXT: Final = frozenset({"cache_salt", "annotations", "extra_fields", "agent_hints", "token_data", "dp_rank"})
