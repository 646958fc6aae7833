"""What messages, parts, items and tools may hold, in the protocols that several kinds speak.

Engines hand members that they do not know to the chat template, so none but the listed pass; a part's `uuid`, which
vLLM takes for its content's identity, is not among them. Tools' schemas, calls' arguments and texts are not opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from config.settings import EngineLimits
from proxy.engines.forms import tools_extent
from proxy.engines.media import IMAGE, DataImage
from proxy.engines.rules import Opens, Refuses, Rule, Shape

# Media. An engine's caches of media know no salt (vllm/v1/core/encoder_cache_manager.py), a part's `uuid` is taken as
# its content's identity, and URLs are fetched from inside the network. `media.py` says under which conditions images
# may come all the same.

NO_MEDIA: Final = "Media are not enabled on this deployment. Send text parts only."
MEDIA_MEMBERS: Final = frozenset(
    {
        "image_url",
        "input_image",
        "image_pil",
        "image_embeds",
        "audio_url",
        "input_audio",
        "audio_embeds",
        "video_url",
        "video_embeds",
        "prompt_embeds",
    }
)
MEDIA: Final[Mapping[str, str]] = dict.fromkeys(
    (
        *MEDIA_MEMBERS,
        "image",
        "audio",
        "video",
        "input_video",
        "file",
        "input_file",
        "document",
        "container_upload",
        "computer_screenshot",
    ),
    NO_MEDIA,
)


# Of OpenAI's own protocol, in which no engine answers them.
OPENAI_ONLY: Final[Mapping[str, Rule]] = {
    "functions": Refuses("functions is not supported. Use tools."),
    "function_call": Refuses("function_call is not supported. Use tool_choice.", frozenset({b'"none"', b'"auto"'})),
    "audio": Refuses(NO_MEDIA),
    "modalities": Refuses(NO_MEDIA, frozenset({b'["text"]'})),
    "web_search_options": Refuses("Built-in tools are not enabled on this deployment. Leave web_search_options out."),
}


def texts(*types: str) -> Mapping[str, Shape]:
    return {name: Shape(frozenset({"type", "text"}), text="text") for name in types}


def parts(shapes: Mapping[str, Shape]) -> Opens:
    """Parts of these shapes, or one text in their place; media are refused."""
    return Opens(tag="type", shapes=shapes, or_text=True, refused=MEDIA, signs=MEDIA_MEMBERS)


ONLY_IMAGES: Final = (
    "Of media only images are enabled on this deployment: parts of type image_url with a data: URL, and nothing beside."
)


def with_images(text_parts: Opens, image: DataImage) -> Opens:
    """Those parts, and images that the request itself brings. A part's own `uuid` is left out like any other member."""
    shape = Shape(frozenset({"type", IMAGE}), image=(IMAGE, image))
    return replace(
        text_parts, shapes={**text_parts.shapes, IMAGE: shape}, refused=dict.fromkeys(text_parts.refused, ONLY_IMAGES)
    )


# Chat.

# The part types that vLLM reads as text (vllm/renderers/chat_utils.py, TEXT_PART_TYPES).
VLLM_CHAT_PARTS: Final = parts(
    {
        **texts("text", "input_text", "output_text"),
        "refusal": Shape(frozenset({"type", "refusal"}), text="refusal"),
        "thinking": Shape(frozenset({"type", "thinking", "closed"}), text="thinking", flags=frozenset({"closed"})),
        "tool_reference": Shape(frozenset({"type", "name"}), text="name"),
    }
)
# OpenAI's own.
CHAT_PARTS: Final = parts({**texts("text"), "refusal": Shape(frozenset({"type", "refusal"}), text="refusal")})
# Arguments are a string, or at some engines an object; they are the caller's own and not looked into.
_CALLED: Final = Shape(frozenset({"name", "arguments"}), texts=frozenset({"name"}))
_TOOL_CALLS: Final = Opens(
    tag="type",
    shapes={
        "function": Shape(frozenset({"id", "type", "function"}), texts=frozenset({"id"}), inner={"function": _CALLED})
    },
    untagged="function",
)


def chat_messages(content: Opens, *more: str) -> Opens:
    """Messages of chat with these parts; `more` members pass beside OpenAI's."""
    message = Shape(
        frozenset({"role", "content", "name", "tool_calls", "tool_call_id", *more}),
        texts=frozenset({"name", "tool_call_id", *more}),
        opens={"content": content, "tool_calls": _TOOL_CALLS},
    )
    return Opens(
        tag="role",
        shapes=dict.fromkeys(("system", "developer", "user", "assistant", "tool"), message),
        # Engines read them from a developer's message, and nobody would have bounded them.
        refused={"tools": "Send tools beside messages, not in one."},
        signs=frozenset({"tools"}),
    )


def chat_tools(limits: EngineLimits, *flags: str) -> Opens:
    """Functions; `flags` pass beside OpenAI's own members, at the tool and at its function."""
    function = Shape(
        frozenset({"name", "description", "parameters", "strict", *flags}),
        texts=frozenset({"name", "description"}),
        flags=frozenset({"strict", *flags}),
    )
    tool = Shape(frozenset({"type", "function", *flags}), flags=frozenset(flags), inner={"function": function})
    return Opens(
        tag="type",
        shapes={"function": tool},
        untagged="function",
        extent=tools_extent(limits),
    )


# Responses.

NO_STORE: Final = "This deployment keeps no responses. Send the earlier items in input."
_OUTPUT: Final = parts(texts("input_text"))


def _texts_only(*members: str, **opens: Opens) -> Shape:
    return Shape(frozenset({"type", *members, *opens}), texts=frozenset(members), opens=opens)


_ITEMS: Final[Mapping[str, Shape]] = {
    "message": Shape(
        frozenset({"type", "id", "role", "content", "status"}),
        texts=frozenset({"id", "status"}),
        one_of={"role": frozenset({"system", "developer", "user", "assistant"})},
        opens={
            "content": parts(
                {
                    **texts("input_text", "output_text"),
                    "refusal": Shape(frozenset({"type", "refusal"}), text="refusal"),
                }
            )
        },
    ),
    "reasoning": Shape(
        frozenset({"type", "id", "summary", "content", "encrypted_content", "status"}),
        texts=frozenset({"id", "encrypted_content", "status"}),
        opens={
            "summary": Opens(tag="type", shapes=texts("summary_text")),
            "content": Opens(tag="type", shapes=texts("reasoning_text")),
        },
    ),
    "function_call": _texts_only("id", "call_id", "name", "arguments", "status"),
    "function_call_output": _texts_only("id", "call_id", "status", output=_OUTPUT),
    "custom_tool_call": _texts_only("id", "call_id", "name", "input"),
    "custom_tool_call_output": _texts_only("id", "call_id", output=_OUTPUT),
}


def responses_input(*types: str) -> Opens:
    """Items of these types, or one text in their place."""
    return Opens(
        tag="type",
        shapes={name: _ITEMS[name] for name in types or _ITEMS},
        untagged="message",
        or_text=True,
        refused={**MEDIA, "item_reference": NO_STORE},
        signs=MEDIA_MEMBERS,
    )


def _tool(schema: str) -> Shape:
    """A tool whose arguments have the schema under this name."""
    return Shape(
        frozenset({"type", "name", "description", schema, "strict", "defer_loading"}),
        texts=frozenset({"name", "description"}),
        flags=frozenset({"strict", "defer_loading"}),
    )


def responses_tools(limits: EngineLimits, *types: str) -> Opens:
    """Tools of these types, all run by the caller: others would run in the engine's network
    (vllm/entrypoints/mcp/tool_server.py).
    """
    shapes = {
        "function": _tool("parameters"),
        "custom": Shape(
            frozenset({"type", "name", "description", "format"}),
            texts=frozenset({"name", "description"}),
            inner={"format": _texts_only("syntax", "definition")},
        ),
    }
    return Opens(tag="type", shapes={name: shapes[name] for name in types}, extent=tools_extent(limits))


# Messages. vLLM turns blocks into chat parts (vllm/entrypoints/anthropic/serving.py).

_RESULTS: Final = parts({**texts("text"), "tool_reference": _texts_only("tool_name", "name")})
_BLOCKS: Final = parts(
    {
        **texts("text"),
        "thinking": Shape(
            frozenset({"type", "thinking", "signature"}), text="thinking", texts=frozenset({"signature"})
        ),
        "redacted_thinking": _texts_only("data"),
        "tool_use": Shape(frozenset({"type", "id", "name", "input"}), texts=frozenset({"id", "name"})),
        "tool_result": Shape(
            frozenset({"type", "tool_use_id", "content", "is_error"}),
            texts=frozenset({"tool_use_id"}),
            flags=frozenset({"is_error"}),
            opens={"content": _RESULTS},
        ),
        "tool_reference": _texts_only("tool_name", "name"),
    }
)
MESSAGES: Final = Opens(
    tag="role",
    shapes=dict.fromkeys(
        ("user", "assistant", "system"), Shape(frozenset({"role", "content"}), opens={"content": _BLOCKS})
    ),
)
MESSAGES_SYSTEM: Final = parts(texts("text"))


def messages_tools(limits: EngineLimits) -> Opens:
    """A tool with a type of its own is one of Anthropic's, which vLLM has not."""
    return Opens(
        tag="type",
        shapes={"custom": _tool("input_schema")},
        untagged="custom",
        extent=tools_extent(limits),
    )
