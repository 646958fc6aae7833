"""vLLM 0.32: embeddings, and the profile as a whole.

Read from vllm/entrypoints/…/protocol.py and serving.py of each endpoint. An endpoint is listed only because its request
model has `cache_salt` and hands it to the engine, or because it computes no prompt; many others accept the field and
ignore it. A field that is in no table is dropped: vLLM ignores fields that it does not know
(vllm/entrypoints/serve/engine/protocol.py, `extra="allow"`), so the answer is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal

from config.settings import EngineLimits
from proxy.engines.forbidden import FORBIDDEN
from proxy.engines.forms import BOOLEAN, SAMPLING, TRUNCATION, passes, whole
from proxy.engines.kinds.vllm_generation import (
    OWN,
    chat_fields,
    completions_fields,
    further_sampling,
    messages_with_images,
    template,
)
from proxy.engines.kinds.vllm_messages import count_tokens_fields, messages_fields
from proxy.engines.kinds.vllm_responses import responses_fields
from proxy.engines.media import DataImage
from proxy.engines.profile import Endpoint, Line, MediaPlace, Operation, Profile, SaltPlaces, lines
from proxy.engines.remote import Elsewhere
from proxy.engines.rules import Prompts, Refuses
from proxy.refusals import Dialect

_CHAT: Final = "vllm/entrypoints/openai/chat_completion/protocol.py"
_COMPLETION: Final = "vllm/entrypoints/openai/completion/protocol.py"
_POOLING: Final = "vllm/entrypoints/pooling/embed/protocol.py"
_SAMPLING_PARAMS: Final = "vllm/sampling_params.py"


def _embeddings_fields(limits: EngineLimits) -> dict[str, Line]:
    """The form with `input`; the chat forms would be a second door for messages."""
    return {
        **FORBIDDEN,
        **lines("each text is a request of its own to the scheduler", _POOLING, {"input": Prompts(limits.inputs)}),
        **lines(
            OWN,
            _POOLING,
            {
                "encoding_format": passes(Literal["float", "base64"], '"float" or "base64"'),
                "dimensions": whole(1, 1_000_000),
                **TRUNCATION,
                "padding": passes(Literal["max_length", "do_not_pad"], '"max_length" or "do_not_pad"'),
                "add_special_tokens": BOOLEAN,
                "use_activation": BOOLEAN,
                "embed_dtype": passes(
                    Literal["float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2"],
                    "a type such as float32 or float16",
                ),
                "endianness": passes(Literal["native", "big", "little"], '"native", "big" or "little"'),
            },
        ),
        **lines(
            "vLLM would answer in another form, or not at all",
            _POOLING,
            {
                "messages": Refuses("messages is not enabled for embeddings. Use input."),
                "normalize": Refuses("vLLM removed normalize. Use use_activation."),
                "task": Refuses("task is not supported. Leave it out.", frozenset({b'"embed"'})),
            },
        ),
    }


_HIDES: Final[Mapping[str, str]] = {
    "kv_transfer_params": "hosts and cache blocks of the engine's network",
    "ec_transfer_params": "hosts of the engine's network",
    "metrics": "the engine's own timing and queue (--enable-per-request-metrics)",
    "prompt_token_ids": "the prompt as the engine renders it",
    "prompt_text": "the prompt as the engine renders it",
    "prompt_logprobs": "the prompt as the engine renders it",
    "input_messages": "the prompt as the engine renders it",
    "output_messages": "the answer as the engine renders it",
}
_FALSE: Final = b"false"


def _salt(source: str) -> SaltPlaces:
    return SaltPlaces((("cache_salt",),), source)


def vllm(limits: EngineLimits) -> Profile:
    """The profile of a vLLM under these limits."""
    endpoints = (
        Endpoint(
            Operation.CHAT,
            "POST",
            "/v1/chat/completions",
            Dialect.OPENAI,
            chat_fields(limits),
            _salt(_CHAT),
            usage_on_demand=True,
            id_prefix="",
            hides=_HIDES,
        ),
        Endpoint(
            Operation.COMPLETIONS,
            "POST",
            "/v1/completions",
            Dialect.OPENAI,
            completions_fields(limits),
            _salt(_COMPLETION),
            usage_on_demand=True,
            id_prefix="",
            hides=_HIDES,
        ),
        Endpoint(
            Operation.RESPONSES,
            "POST",
            "/v1/responses",
            Dialect.OPENAI,
            {**FORBIDDEN, **further_sampling(limits), **template(), **responses_fields(limits)},
            _salt("vllm/entrypoints/openai/responses/protocol.py"),
            constants={"store": _FALSE, "background": _FALSE},
            id_prefix="resp_",
            hides=_HIDES,
        ),
        Endpoint(
            Operation.MESSAGES,
            "POST",
            "/v1/messages",
            Dialect.ANTHROPIC,
            {**FORBIDDEN, **lines(OWN, _SAMPLING_PARAMS, SAMPLING), **template(), **messages_fields(limits)},
            _salt("vllm/entrypoints/anthropic/protocol.py"),
            hides=_HIDES,
        ),
        Endpoint(
            Operation.COUNT_TOKENS,
            "POST",
            "/v1/messages/count_tokens",
            Dialect.ANTHROPIC,
            {**FORBIDDEN, **template(), **count_tokens_fields(limits)},
            None,
            streams=False,
            hides=_HIDES,
        ),
        Endpoint(
            Operation.EMBEDDINGS,
            "POST",
            "/v1/embeddings",
            Dialect.OPENAI,
            _embeddings_fields(limits),
            _salt("vllm/entrypoints/pooling/base/protocol.py"),
            streams=False,
            id_prefix="",
            hides=_HIDES,
        ),
    )
    return Profile(
        kind="vllm",
        title="vLLM",
        version="0.32.0, the released wheel",
        endpoints=endpoints,
        reports_reuse="start vLLM with --enable-prompt-tokens-details",
        reuses_prefixes="is prefix caching on (--enable-prefix-caching), is the cache large enough?",
        counts_in_metrics=True,
    )


def vllm_with_images(limits: EngineLimits, elsewhere: Elsewhere | None = None) -> Profile:
    """The profile of a vLLM that is configured with `media`: images at chat, at all other endpoints text as ever.

    The parts of /v1/messages have no place for an identity, and counting tokens would fill a cache before the engine
    has seen the image.
    """
    profile = vllm(limits)
    endpoints = tuple(_with_images(endpoint, limits, elsewhere) for endpoint in profile.endpoints)
    return replace(profile, endpoints=endpoints)


def _with_images(endpoint: Endpoint, limits: EngineLimits, elsewhere: Elsewhere | None) -> Endpoint:
    if endpoint.operation is not Operation.CHAT:
        return endpoint
    fields = {**endpoint.fields, **messages_with_images(DataImage(limits.media_bytes, elsewhere))}
    place = MediaPlace("messages", limits.media_parts, limits.media_bytes, elsewhere)
    return replace(endpoint, fields=fields, media=place)
