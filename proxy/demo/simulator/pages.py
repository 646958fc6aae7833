"""What an engine tells about itself: models, metrics, schemas."""

from __future__ import annotations

from typing import Final

from proxy.demo.simulator.engine import Counters
from proxy.demo.simulator.shape import Endpoint, EngineShape
from proxy.demo.simulator.wire import compact


def models_page(shape: EngineShape, created: int) -> bytes:
    """/v1/models: the served names, then the adapters with their `parent`."""
    bases = [_card(name, None, shape, created) for name in shape.models]
    adapters = [_card(name, base, shape, created) for name, base in shape.adapters.items()]
    return compact({"object": "list", "data": bases + adapters})


def metrics_page(shape: EngineShape, counters: Counters, held_blocks: int) -> bytes:
    """/metrics: the counters and gauges of vllm/v1/metrics/loggers.py that a gate can use."""
    labels = f'engine="0",model_name="{shape.models[0]}"'
    lines: list[str] = []
    for name, kind, value in (
        ("vllm:num_requests_running", "gauge", counters.running),
        ("vllm:num_requests_waiting", "gauge", counters.waiting),
        ("vllm:kv_cache_usage_perc", "gauge", held_blocks / shape.capacity_blocks),
        ("vllm:prefix_cache_queries_total", "counter", counters.prefix_queries),
        ("vllm:prefix_cache_hits_total", "counter", counters.prefix_hits),
        ("vllm:prompt_tokens_total", "counter", counters.prompt_tokens),
        ("vllm:generation_tokens_total", "counter", counters.generated_tokens),
    ):
        lines += [f"# HELP {name} See vllm/v1/metrics/loggers.py.", f"# TYPE {name} {kind}"]
        lines.append(f"{name}{{{labels}}} {float(value)}")
    lines += ["# HELP vllm:request_success_total Finished requests.", "# TYPE vllm:request_success_total counter"]
    for reason, count in (("stop", counters.stopped), ("length", counters.cut_short), ("abort", counters.aborted)):
        finished = f'engine="0",finished_reason="{reason}",model_name="{shape.models[0]}"'
        lines.append(f"vllm:request_success_total{{{finished}}} {float(count)}")
    return "\n".join([*lines, ""]).encode()


def openapi_page(shape: EngineShape) -> bytes:
    """/openapi.json: for each route its request schema; `cache_salt` is a property of those that declare it."""
    served = sorted(shape.endpoints, key=lambda endpoint: endpoint.value)
    schemas = {_SCHEMAS[endpoint]: _schema(endpoint, shape) for endpoint in served}
    document = {
        "openapi": "3.1.0",
        "info": {"title": "FastAPI", "version": "0.1.0"},
        "paths": {endpoint.value: {"post": _operation(endpoint)} for endpoint in served},
        "components": {"schemas": schemas},
    }
    return compact(document)


def _card(name: str, parent: str | None, shape: EngineShape, created: int) -> dict[str, object]:
    permission = {
        "id": f"modelperm-{name}",
        "object": "model_permission",
        "created": created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "vllm",
        "root": name,
        "parent": parent,
        "max_model_len": None if parent else shape.max_model_len,
        "permission": [permission],
    }


def _operation(endpoint: Endpoint) -> dict[str, object]:
    reference = {"$ref": f"#/components/schemas/{_SCHEMAS[endpoint]}"}
    # The embedding route takes a union, the others one model; a reader must follow both.
    schema = {"anyOf": [reference], "title": "Request"} if endpoint is Endpoint.EMBEDDINGS else reference
    return {
        "requestBody": {"content": {"application/json": {"schema": schema}}, "required": True},
        "responses": {"200": {"description": "Successful Response"}},
    }


def _schema(endpoint: Endpoint, shape: EngineShape) -> dict[str, object]:
    properties: dict[str, object] = {
        "model": {"anyOf": [{"type": "string"}, {"type": "null"}], "title": "Model"},
        "stream": {"anyOf": [{"type": "boolean"}, {"type": "null"}], "title": "Stream", "default": False},
    }
    if endpoint not in shape.flaws.undeclared_salt:
        # vLLM declares 1024 and accepts 128.
        text = {"type": "string", "maxLength": 1024}
        properties["cache_salt"] = {"anyOf": [text, {"type": "null"}], "title": "Cache Salt"}
    return {"properties": properties, "type": "object", "title": _SCHEMAS[endpoint], "additionalProperties": True}


_SCHEMAS: Final = {
    Endpoint.CHAT: "ChatCompletionRequest",
    Endpoint.COMPLETIONS: "CompletionRequest",
    Endpoint.RESPONSES: "ResponsesRequest",
    Endpoint.MESSAGES: "AnthropicMessagesRequest",
    Endpoint.EMBEDDINGS: "EmbeddingCompletionRequest",
}
