"""Which fields an operator may let pass beyond a profile's: none whose name says a salt, a cache, a transfer or media.

A profile decides each name that its engine is known to read. This is for the names that no profile knows: what a fork,
a plugin or the next version would make of them can only be told by how they are called.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from proxy.engines.forbidden import FORBIDDEN

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a name may mean by these words: `anywhere` in it, whatever its underscores and capitals, or as one of its
    whole `parts`. `why` completes "can never pass: with … in its name it"; `source` is what engines call such fields.
    """

    anywhere: tuple[str, ...]
    parts: tuple[str, ...]
    why: str
    source: str


MEANINGS: Final = (
    Meaning(
        ("salt", "cache", "prefix", "namespace", "partition", "isolation", "tenant", "hash", "extrakey", "radix", "kv"),
        ("apc",),
        "may choose the border of a cache",
        "cache_salt, extra_key, nvext, shared_prefix_tokens, kv_cache_report_mode",
    ),
    Meaning(
        ("transfer", "remote", "bootstrap", "disagg", "prefill", "connector", "offload", "peer", "endpoint", "address"),
        ("ec", "host", "port", "url", "uri", "dp", "pd", "nixl"),
        "may name a host or cache blocks that the engine would fetch",
        "kv_transfer_params, ec_transfer_params, bootstrap_room, disaggregated_params, do_remote_prefill",
    ),
    Meaning(
        (
            "uuid", "image", "audio", "video", "media", "multimodal", "modalit", "embed", "pixel", "frames", "vision",
            "tensor",
        ),
        ("mm", "document", "documents"),
        "may bring media, whose caches know no salt",
        "uuid, mm_hashes, mm_processor_kwargs, media_io_kwargs, prompt_embeds, images_config",
    ),
    Meaning(
        ("lora", "adapter", "weight", "checkpoint"),
        ("peft",),
        "may choose an adapter, which is a model of its own that a project must be allowed to use",
        "lora_path, lora_request, X-Amzn-SageMaker-Adapter-Identifier",
    ),
    Meaning(
        (
            "session", "affinity", "routing", "routed", "worker", "rank", "instance", "replica", "priorit",
            "conversation",
        ),
        (),
        "may say whose turn it is or which cache is asked",
        "session_id, data_parallel_rank, backend_instance_id, priority, conversation_params",
    ),
    Meaning(
        ("tokenids", "inputids", "_ids", "tokendata", "requestid", "responseid", "previous", "store"),
        ("rid", "ids"),
        "may name a prompt, a request or a response that is not in the body",
        "input_ids, prompt_token_ids, rid, request_id, previous_response_id, token_data",
    ),
    Meaning(
        ("template", "kwargs", "xargs", "extraargs", "extrabody", "customparam", "processor", "plugin", "script"),
        ("path", "file", "dir", "code"),
        "may be run or opened inside the engine",
        "chat_template, vllm_xargs, custom_logit_processor, hidden_states_path",
    ),
    Meaning(
        ("hiddenstate", "promptlogprob", "speculat", "draft", "corpus", "expert", "skipreading"),
        ("ngram", "spec"),
        "may tell the model's inside, or use what others wrote",
        "return_hidden_states, prompt_logprobs, ngram_corpus_id, speculative_prefill, return_routed_experts",
    ),
)  # fmt: skip


def why_not_added(name: str) -> str | None:
    """Why a field of this name can never be let pass by an operator; None where it could."""
    if not _NAME.fullmatch(name):
        return "is no name of a field: write 1 to 64 letters, digits and underscores, a letter first"
    line = FORBIDDEN.get(name.lower())
    if line is not None:
        return f"can never pass: {line.reason}"
    joined = name.lower().replace("_", "")
    parts = {part.lower() for part in _PART.findall(name)} | set(name.lower().split("_"))
    for meaning in MEANINGS:
        word = next((word for word in meaning.anywhere if word in joined or word in name.lower()), None)
        word = word or next((part for part in meaning.parts if part in parts), None)
        if word is not None:
            return f'can never pass: with "{word}" in its name it {meaning.why} (engines know {meaning.source})'
    return None
