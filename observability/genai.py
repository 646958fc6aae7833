"""OpenTelemetry's names for a model call, the GenAI semantic conventions: all of status Development, and being renamed.

Spelled here instead of imported, so that a rename is a decision of ours, in one place: `[telemetry] genai_conventions`
chooses. "1.41" is the last version of open-telemetry/semantic-conventions that has them all; "dev" is the repository
that they moved to, open-telemetry/semantic-conventions-genai (docs/gen-ai/non-normative/migration.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Conventions = Literal["1.41", "dev"]

# What both call alike. On the CLIENT span only: on both spans, a backend that sums tokens would count them twice.
OPERATION_NAME: Final = "gen_ai.operation.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
RESPONSE_TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
USAGE_CACHE_READ_INPUT_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
USAGE_REASONING_OUTPUT_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"


@dataclass(frozen=True, slots=True)
class Names:
    """What they call differently: attributes of spans, and metrics of the client."""

    usage_cache_write_input_tokens: str
    client_operation_duration: str
    client_time_to_first_chunk: str
    client_time_per_output_chunk: str


NAMES: Final[Mapping[Conventions, Names]] = {
    "1.41": Names(
        usage_cache_write_input_tokens="gen_ai.usage.cache_creation.input_tokens",
        client_operation_duration="gen_ai.client.operation.duration",
        client_time_to_first_chunk="gen_ai.client.operation.time_to_first_chunk",
        client_time_per_output_chunk="gen_ai.client.operation.time_per_output_chunk",
    ),
    "dev": Names(
        usage_cache_write_input_tokens="gen_ai.usage.cache_write.input_tokens",
        client_operation_duration="gen_ai.client.inference.duration",
        client_time_to_first_chunk="gen_ai.client.inference.time_to_first_chunk",
        client_time_per_output_chunk="gen_ai.client.inference.time_per_output_chunk",
    ),
}

# Their word for what an endpoint does; Responses and Messages are chats with another form.
OPERATIONS: Final = {
    "chat": "chat",
    "completions": "text_completion",
    "responses": "chat",
    "messages": "chat",
    "embeddings": "embeddings",
}
# Not among the well-known values; a custom one is allowed.
PROVIDER: Final = "vllm"
