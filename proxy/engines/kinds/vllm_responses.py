"""vLLM 0.32's /v1/responses: its fields beyond those that it shares with chat."""

from __future__ import annotations

from typing import Final, Literal

from config.settings import EngineLimits
from proxy.engines.content import NO_STORE, responses_input, responses_tools
from proxy.engines.forms import (
    BOOLEAN,
    COUNT,
    REASONING,
    RESPONSES_TOOL_CHOICE,
    TEXT,
    answer_tokens,
    passes,
    responses_text,
    whole,
)
from proxy.engines.profile import Line, drops, lines
from proxy.engines.rules import Refuses

_PROTOCOL: Final = "vllm/entrypoints/openai/responses/protocol.py"
_SERVING: Final = "vllm/entrypoints/openai/responses/serving.py"


def responses_fields(limits: EngineLimits) -> dict[str, Line]:
    return {
        **lines(
            "the prompt; of items only texts and the caller's own calls, nothing that names media or the store",
            _PROTOCOL,
            {"input": responses_input(), "instructions": TEXT},
        ),
        **lines(
            "only what the caller runs: other tools would run in the engine's network",
            "vllm/entrypoints/mcp/tool_server.py",
            {
                "tools": responses_tools(limits, "function", "custom"),
                "tool_choice": RESPONSES_TOOL_CHOICE,
                "parallel_tool_calls": BOOLEAN,
                "max_tool_calls": COUNT,
            },
        ),
        **lines(
            "acts on the caller's own answer only",
            _PROTOCOL,
            {
                "max_output_tokens": answer_tokens(limits),
                "include": passes(
                    list[Literal["message.output_text.logprobs", "reasoning.encrypted_content"]],
                    "an array of message.output_text.logprobs or reasoning.encrypted_content",
                ),
                "include_reasoning": BOOLEAN,
                "reasoning": REASONING,
                "truncation": passes(Literal["auto", "disabled"], '"auto" or "disabled"'),
            },
        ),
        **lines(
            "vLLM's --max-logprobs; -1 would be the whole vocabulary",
            _PROTOCOL,
            {"top_logprobs": whole(0, limits.logprobs)},
        ),
        **lines(
            "compiled on a process that serves everybody, so bounded in bytes and depth",
            "vllm/v1/structured_output/backend_xgrammar.py",
            {"text": responses_text(limits)},
        ),
        **drops(
            _SERVING,
            {
                "store": "sent as false: the store knows no owner, and any client could read or overwrite by id",
                "stream_options": "obfuscation and the like, which vLLM has not",
            },
        ),
        **lines(
            "the store knows no owner: any client could read or continue another's by id",
            _SERVING,
            {
                "previous_response_id": Refuses(NO_STORE),
                "conversation": Refuses(NO_STORE),
                "previous_input_messages": Refuses(NO_STORE),
            },
        ),
        **lines(
            "sent as false: it runs on when the caller has left, and its answer lies in the store",
            _SERVING,
            {"background": Refuses("background is not enabled on this deployment. Use stream.")},
        ),
        **lines(
            "vLLM has no prompt templates",
            _PROTOCOL,
            {"prompt": Refuses("Prompt templates are not supported. Send the text in input and instructions.")},
        ),
        **lines(
            "the prompt as the engine renders it is not handed out",
            _PROTOCOL,
            {
                "enable_response_messages": Refuses(
                    "enable_response_messages is not enabled on this deployment. Leave it out."
                )
            },
        ),
    }
