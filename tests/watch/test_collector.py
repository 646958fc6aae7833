"""The collector's configuration: whole, and nothing gets through it that saltgate's spans do not have."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest
import re2
import yaml

from observability import genai, names
from proxy.identity.personal import new_personal_token
from tests.watch.queries import COMPOSE, allowed_keys

COLLECTOR: Final[dict[str, Any]] = yaml.safe_load((COMPOSE / "collector" / "collector.yaml").read_text())
REDACTION: Final = COLLECTOR["processors"]["redaction"]

# vLLM 0.32, vllm/tracing/utils.py: what its span says that ours does not.
OF_VLLM: Final = frozenset(
    {
        "gen_ai.request.id",
        "gen_ai.request.n",
        "gen_ai.request.max_tokens",
        "gen_ai.request.temperature",
        "gen_ai.request.top_p",
        "gen_ai.response.model",
        "gen_ai.usage.prompt_tokens",
        "gen_ai.usage.completion_tokens",
        "gen_ai.usage.num_sequences",
        "gen_ai.latency.time_in_queue",
        "gen_ai.latency.time_to_first_token",
        "gen_ai.latency.e2e",
        "gen_ai.latency.time_in_scheduler",
        "gen_ai.latency.time_in_model_forward",
        "gen_ai.latency.time_in_model_execute",
        "gen_ai.latency.time_in_model_prefill",
        "gen_ai.latency.time_in_model_decode",
        "gen_ai.latency.time_in_model_inference",
    }
)


def attributes() -> set[str]:
    """The attributes that spans and their resource can have: all of names.py and genai.py."""
    constants = {**vars(names), **vars(genai)}
    found = {value for key, value in constants.items() if isinstance(value, str) and not key.startswith("__")}
    found |= {one.usage_cache_write_input_tokens for one in genai.NAMES.values()}
    found |= {names.STAGE_PREFIX + stage for stage in names.STAGES}
    return {name for name in found if re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", name)} - {names.REQUEST_COMPLETED}


def test_what_may_pass_is_what_spans_have_and_nothing_else() -> None:
    assert set(allowed_keys()) == attributes() | OF_VLLM
    assert len(set(allowed_keys())) == len(allowed_keys())
    assert REDACTION["allow_all_keys"] is False
    assert REDACTION["summary"] == "silent"
    assert set(REDACTION) == {"allow_all_keys", "allowed_keys", "blocked_values", "summary"}


def masked(value: str) -> bool:
    """Whether a value is masked. The collector's expressions are RE2's, as these."""
    return any(re2.search(pattern, value) for pattern in REDACTION["blocked_values"])


@pytest.mark.parametrize(
    "secret",
    [
        "sg1-k1-vGNDhPk7IIs2LU95llaQxLA6r8VYZztZihOV2DlSM4M",
        "refused: cache_salt sg1-2026-11-11bG5V1GVNZPQxAQikL8iTcxqZu6VJ070xp7KDdr7tM is not ours",
        "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJodHRwczovL3NzbyJ9.c2ln",
        "Bearer 0123456789abcdef",
        "authorization: basic dXNlcjpwYXNzd29yZA==",
    ],
)
def test_a_secret_in_a_value_is_masked(secret: str) -> None:
    assert masked(secret)


def test_a_personal_access_token_is_masked() -> None:
    assert masked(new_personal_token().text())


@pytest.mark.parametrize(
    "value",
    [
        "baa6d2677094",
        "meta-llama/Llama-3.1-8B-Instruct",
        "/w/acme/p/apollo/v1/chat/completions",
        "https://sso.example.com/realms/acme",
        "chatcmpl-8f4a2c1e9b7d4e6f",
        "project:acme/apollo",
        "invalid_token",
        "bearer",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    ],
)
def test_what_spans_say_passes_as_it_is(value: str) -> None:
    assert not masked(value)


def test_every_pipeline_bounds_memory_first_redacts_and_batches_last() -> None:
    for pipeline in COLLECTOR["service"]["pipelines"].values():
        assert pipeline["processors"] == ["memory_limiter", "redaction", "batch"]
        for kind in ("receivers", "processors", "exporters"):
            assert set(pipeline[kind]) <= set(COLLECTOR[kind])


def test_it_lets_in_only_what_saltgate_speaks_and_sends_where_the_composition_has_somebody() -> None:
    composition = yaml.safe_load((COMPOSE / "compose.observability.yaml").read_text())
    assert COLLECTOR["receivers"] == {"otlp": {"protocols": {"http": {"endpoint": "0.0.0.0:4318"}}}}
    endpoint = composition["services"]["gateway"]["environment"]["SALTGATE_TELEMETRY__OTLP_ENDPOINT"]
    assert endpoint == "http://collector:4318"
    (exporter,) = COLLECTOR["service"]["pipelines"]["traces"]["exporters"]
    host, _, port = COLLECTOR["exporters"][exporter]["endpoint"].partition(":")
    assert host in composition["services"]
    assert port == "4317"
    # The redaction processor is in the contrib distribution alone.
    assert composition["services"]["collector"]["image"].startswith("otel/opentelemetry-collector-contrib:")
