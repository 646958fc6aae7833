"""Fields that choose another cache, another engine's blocks, another model, or a stored answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.parts.hostile.writing import EVIL, chat, request

_FIELDS: Final[Mapping[str, object]] = {
    "kv_transfer_params": {
        "remote_block_ids": [1],
        "remote_host": "10.0.0.1",
        "remote_port": 1,
        "remote_engine_id": "x",
    },
    "ec_transfer_params": {"peer_host": "10.0.0.1", "peer_port": 1},
    "vllm_xargs": {"kv_transfer_params": 0},
    "vllm_xargs ": {"kv_cache_report_mode": "full"},
    "request_id": EVIL,
    "priority": -999,
    "data_parallel_rank": 0,
    "skip_reading_prefix_cache": True,
    "prompt_logprobs": 1,
    "logprob_token_ids": [1],
    "use_beam_search": True,
    "best_of": 100_000,
    "n": 100_000,
    "top_logprobs": -1,
    "logprobs": 10**9,
    "max_tokens": -1,
    "stop": ["x"] * 10_000,
    "logit_bias": {str(number): 1 for number in range(100_000)},
    "bad_words": ["x" * 100_000],
    "chat_template": "{{ cache_salt }}",
    "chat_template_kwargs": {"chat_template": EVIL, "cache_salt": EVIL},
    "documents": [{"title": "x", "text": EVIL}],
    "mm_processor_kwargs": {"cache_salt": EVIL},
    "media_io_kwargs": {"image": {"cache_salt": EVIL}},
    "lora_request": {"lora_name": "x", "lora_int_id": 1, "lora_path": "/etc/passwd"},
    "lora_path": "/etc/passwd",
    "structured_outputs": {"regex": "(" * 1000},
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"$ref": "file:///etc/passwd"}}},
    "logits_processors": ["os.system"],
    "custom_logit_processor": EVIL,
    "input_ids": [1, 2, 3],
    "prompt_embeds": "AAAA",
    "prompt_token_ids": [1, 2, 3],
    "extra_key": EVIL,
    "rid": EVIL,
    "session_params": {"id": EVIL},
    "bootstrap_host": "10.0.0.1",
    "bootstrap_room": 1,
    "routed_dp_rank": 0,
    "return_hidden_states": True,
    "disaggregated_params": {"ctx_info_endpoint": "http://10.0.0.1"},
    "nvext": {"cache_salt": EVIL, "agent_hints": {"cache_salt": EVIL}, "backend_instance_id": 1},
    "agent_hierarchy": [EVIL],
    "store": True,
    "background": True,
    "previous_response_id": "resp_1",
    "previous_input_messages": [{"role": "user", "content": "x"}],
    "stream": "yes",
    "stream ": True,
    "model": "other",
    "models": ["other"],
    "route": "fallback",
    "provider": {"order": [EVIL]},
    "api_key": EVIL,
    "api_base": "http://10.0.0.1",
    "base_url": "http://10.0.0.1",
    "extra_headers": {"X-Cache-Salt": EVIL},
    "user": EVIL,
    "safety_identifier": EVIL,
    "prompt_cache_key": EVIL,
    "service_tier": EVIL,
    "metadata": {"cache_salt": EVIL},
}
_ELSEWHERE: Final[Mapping[str, tuple[str, dict[str, object]]]] = {
    "completions": ("/v1/completions", {"prompt": "Hello"}),
    "completions, many prompts": ("/v1/completions", {"prompt": ["Hello", "You"], "extra_key": EVIL}),
    "completions, tokens": ("/v1/completions", {"prompt": [1, 2, 3]}),
    "completions, embeddings for a prompt": ("/v1/completions", {"prompt": "x", "prompt_embeds": "AAAA"}),
    "completions, echo with logprobs": ("/v1/completions", {"prompt": "x", "echo": True, "logprobs": 1}),
    "responses": ("/v1/responses", {"input": "Hello"}),
    "responses, in an item": ("/v1/responses", {"input": [{"role": "user", "content": "Hello", "cache_salt": EVIL}]}),
    "responses, of another": ("/v1/responses", {"input": "Hello", "previous_response_id": "resp_1"}),
    "responses, by reference": ("/v1/responses", {"input": [{"type": "item_reference", "id": "msg_1"}]}),
    "responses, background": ("/v1/responses", {"input": "Hello", "background": True, "store": True}),
    "responses, a server's tool": (
        "/v1/responses",
        {"input": "Hello", "tools": [{"type": "mcp", "server_url": "http://x"}]},
    ),
    "messages": ("/v1/messages", {"max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]}),
    "messages, in the system's part": (
        "/v1/messages",
        {
            "max_tokens": 4,
            "messages": [{"role": "user", "content": "Hello"}],
            "system": [{"type": "text", "text": "x", "cache_salt": EVIL}],
        },
    ),
    "messages, kv_transfer_params": (
        "/v1/messages",
        {"max_tokens": 4, "messages": [{"role": "user", "content": "x"}], "kv_transfer_params": {"cache_salt": EVIL}},
    ),
    "embeddings": ("/v1/embeddings", {"input": "Hello"}),
    "embeddings of messages": ("/v1/embeddings", {"messages": [{"role": "user", "content": "Hello"}]}),
}
CASES: Final[Mapping[str, bytes]] = {
    **{f"the field {name}": request(chat(cache_salt=EVIL) | {name.strip(): value}) for name, value in _FIELDS.items()},
    **{
        name: request({"model": "tiny", "cache_salt": EVIL} | body, path=path)
        for name, (path, body) in _ELSEWHERE.items()
    },
}
