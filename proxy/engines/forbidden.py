"""What no client sets on any engine, under whatever name an engine may read it. No configuration can add one of these
(`additions.py`).

Each endpoint of each kind drops them, whether its engine knows the name or not: what a later version would make of it
stays out, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.engines.profile import Line, drops

_VLLM = "vllm/entrypoints/openai/chat_completion/protocol.py"
_SGLANG = "sglang/srt/entrypoints/openai/protocol.py"
_TENSORRT = "tensorrt_llm/serve/openai_protocol.py"
_DYNAMO = "dynamo lib/llm/src/protocols/common/extensions.rs"

FORBIDDEN: Final[Mapping[str, Line]] = {
    **drops(
        _VLLM,
        {
            "cache_salt": "the border of the cache; saltgate stamps its own",
            "request_id": "names a request of the engine, or a stored response; saltgate stamps its own where there is "
            "such a field",
            "priority": "whose turn it is, not the caller's to say",
            "session_id": "routes by affinity and tags cache events; not an identity",
            "kv_transfer_params": "names hosts and cache blocks that the engine would fetch",
            "ec_transfer_params": "names hosts that the engine would fetch encoder outputs from",
            "vllm_xargs": "a second door to kv_transfer_params and to the scheduler (SamplingParams.extra_args)",
            "extra_args": "the same under the scheduler's own name",
            "watermarking": "whether answers are watermarked is the operator's decision",
            "media_io_kwargs": "how media are read is the operator's decision",
            "mm_processor_kwargs": "how media are read is the operator's decision",
            "mm_payload": "acts on render endpoints only",
            "return_mm_kwargs": "acts on render endpoints only",
            "return_token_offsets": "acts on render endpoints only",
            "routed_experts_prompt_start": "acts only where the operator returns routed experts",
            "skip_reading_prefix_cache": "whether the cache is read is not the caller's to say",
        },
    ),
    **drops(
        _SGLANG,
        {
            "extra_key": "a cache namespace; with it a client would choose its border",
            "rid": "names a request of the engine",
            "bootstrap_host": "names a host that the engine would fetch a cache from",
            "bootstrap_port": "names a host that the engine would fetch a cache from",
            "bootstrap_room": "names another request's cache",
            "routed_dp_rank": "chooses the cache that is asked",
            "disagg_prefill_dp_rank": "chooses the cache that is asked",
            "data_parallel_rank": "chooses the cache that is asked",
            "ngram_corpus_id": "drafts from texts that others filed; a hint for speed",
            "custom_params": "goes to code that the operator loaded",
            "custom_labels": "labels of the engine's metrics",
            "return_cached_tokens_details": "tells the engine's cache levels",
            "routed_experts_start_len": "acts only where the operator returns routed experts",
            "images_config": "acts on media only, and media are refused",
            "max_dynamic_patch": "acts on media only, and media are refused",
            "min_dynamic_patch": "acts on media only, and media are refused",
            "use_audio_in_video": "acts on media only, and media are refused",
        },
    ),
    **drops(
        _TENSORRT,
        {
            "disaggregated_params": "names a host and another request's cache (ctx_info_endpoint)",
            "conversation_params": "routes by affinity; not an identity",
            "agent_hierarchy": "routes by affinity; not an identity",
            "injected_chat_template_kwargs": "the server's own note to its workers",
        },
    ),
    **drops(
        _DYNAMO,
        {
            "nvext": "chooses workers and caches and holds a salt; saltgate writes its own where it is read",
            "backend_instance_id": "chooses the cache that is asked",
            "agent_hints": "whose turn it is, and prefill ahead at everybody's cost",
        },
    ),
    **drops(
        "facts of all kinds",
        {
            "extra_body": "an SDK's parameter, not a field",
            "user": "ignored, or routed by; who calls is what the credential says",
            "safety_identifier": "ignored; who calls is what the credential says",
            "metadata": "kept nowhere but in the answer's echo",
            "prompt_cache_key": "vLLM ignores it; other engines route by it",
            "prompt_cache_retention": "ignored",
            "prompt_cache_options": "ignored",
            "service_tier": "only echoed",
        },
    ),
}
