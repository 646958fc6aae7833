"""vLLM 0.32's /v1/messages and /v1/messages/count_tokens (vllm/entrypoints/anthropic/)."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from config.settings import EngineLimits
from proxy.engines.content import MESSAGES, MESSAGES_SYSTEM, messages_tools
from proxy.engines.forms import TokenCount, answer_tokens, output_config, passes, stops
from proxy.engines.profile import Line, drops, lines
from proxy.engines.rules import Refuses

_PROTOCOL: Final = "vllm/entrypoints/anthropic/protocol.py"
_SERVING: Final = "vllm/entrypoints/anthropic/serving.py"
_OWN: Final = "acts on the caller's own answer only"


class _ToolChoice(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["auto", "any", "tool", "none"]
    name: Annotated[str, Meta(max_length=256)] | None = None
    disable_parallel_tool_use: bool | None = None


class _BlockBinding(msgspec.Struct, forbid_unknown_fields=True):
    prefix_mismatch_behavior: Annotated[str, Meta(max_length=32)] | None = None


class _Thinking(msgspec.Struct, forbid_unknown_fields=True):
    """All that Anthropic's SDK has; vLLM reads the first two."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: TokenCount | None = None
    display: Annotated[str, Meta(max_length=32)] | None = None
    block_binding: _BlockBinding | None = None


def _prompt(limits: EngineLimits) -> dict[str, Line]:
    """What the prompt is rendered from; both endpoints share it."""
    return {
        **lines(
            "the prompt; of messages and blocks only texts and the caller's own calls, nothing that names media",
            _SERVING,
            {"messages": MESSAGES, "system": MESSAGES_SYSTEM},
        ),
        **lines(
            "only what the caller runs; schemas and texts in them stay as they are",
            _SERVING,
            {
                "tools": messages_tools(limits),
                "tool_choice": passes(_ToolChoice, "an object whose type is auto, any, tool or none"),
            },
        ),
        **lines(
            _OWN,
            _PROTOCOL,
            {"thinking": passes(_Thinking, "an object whose type is enabled, disabled or adaptive")},
        ),
        **lines(
            "compiled on a process that serves everybody, so bounded in bytes and depth",
            "vllm/v1/structured_output/backend_xgrammar.py",
            {"output_config": output_config(limits)},
        ),
        **drops(
            _SERVING,
            {
                "context_management": "edits of old turns, which vLLM does not make: the model sees them all",
                "inference_geo": "vLLM ignores it",
                "speed": "vLLM ignores it",
            },
        ),
        **lines(
            "vLLM has not got it, so the answer would not be what was asked",
            _SERVING,
            {
                "container": Refuses("Containers are not supported. Leave container out."),
                "mcp_servers": Refuses(
                    "Built-in tools are not enabled on this deployment. Call MCP servers from your client."
                ),
            },
        ),
    }


def messages_fields(limits: EngineLimits) -> dict[str, Line]:
    return {
        **_prompt(limits),
        **lines(
            _OWN,
            _PROTOCOL,
            {"max_tokens": answer_tokens(limits, least=1), "stop_sequences": stops(limits)},
        ),
    }


def count_tokens_fields(limits: EngineLimits) -> dict[str, Line]:
    """Texts only: with media the engine fills a shared cache before it has seen them (facts, mm P0/P1 drift)."""
    return _prompt(limits)
