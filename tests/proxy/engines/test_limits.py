"""What an operator may set for an engine: bounds and further fields, and never what is forbidden."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest

from config.settings import AddedField, Directory, Engine, EngineLimits, Isolation, Settings
from proxy.engines.additions import MEANINGS
from proxy.engines.body import read_body
from proxy.engines.forbidden import FORBIDDEN
from proxy.engines.kinds import PROFILES, faulty_fields, profile_of
from proxy.engines.profile import Operation
from proxy.engines.rules import Drops, Refuses
from proxy.engines.stamp import stamp
from proxy.refusals import InvalidRequest
from tests.proxy.engines.asking import SALT, body_of

Plain = Literal["boolean", "integer", "number", "string"]


def engine(kind: str = "vllm", *fields: AddedField, **limits: Any) -> Engine:
    return Engine(name="main", kind=kind, urls=("http://h",), limits=EngineLimits(fields=fields, **limits))  # type: ignore[arg-type]


def asked(configured: Engine, operation: Operation = Operation.CHAT, **fields: Any) -> Any:
    endpoint = profile_of(configured).endpoint(operation)
    assert endpoint is not None
    request = read_body(endpoint, body_of(operation, **fields))
    return json.loads(stamp(request, SALT, request_id="r", show_reuse=True).body)


def param_of(configured: Engine, operation: Operation = Operation.CHAT, **fields: Any) -> str | None:
    with pytest.raises(InvalidRequest) as refused:
        asked(configured, operation, **fields)
    return refused.value.param


def added(*names: str, kind: str = "vllm", type: Plain = "boolean") -> list[str]:  # noqa: A002 - the key's name
    fields = tuple(AddedField(name=name, type=type) for name in names)
    settings = Settings(
        engines=(engine(), engine(kind, *fields)), issuers=(), directory=Directory(), isolation=Isolation(keys=())
    )
    return [f"{fault.key} {fault.message}" for fault in faulty_fields(settings)]


SCHEMA = {"type": "json_schema", "json_schema": {"schema": {"a": {"b": {"c": {}}}}}}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"a": {"b": {"c": {}}}}}}]


@pytest.mark.parametrize(
    ("bound", "operation", "name", "fits", "over"),
    [
        ({"n": 1}, Operation.CHAT, "n", 1, 2),
        ({"n": 100}, Operation.CHAT, "n", 100, 101),
        ({"logprobs": 2}, Operation.CHAT, "top_logprobs", 2, 3),
        ({"logprobs": 2}, Operation.COMPLETIONS, "logprobs", 2, 3),
        ({"logprobs": 0}, Operation.RESPONSES, "top_logprobs", 0, 1),
        ({"prompts": 2}, Operation.COMPLETIONS, "prompt", ["a", "b"], ["a", "b", "c"]),
        ({"inputs": 1}, Operation.EMBEDDINGS, "input", ["a"], ["a", "b"]),
        ({"stop": 1}, Operation.CHAT, "stop", ["a"], ["a", "b"]),
        ({"stop": 1}, Operation.MESSAGES, "stop_sequences", ["a"], ["a", "b"]),
        ({"max_tokens": 9}, Operation.CHAT, "max_tokens", 9, 10),
        ({"max_tokens": 9}, Operation.CHAT, "max_completion_tokens", 9, 10),
        ({"max_tokens": 9}, Operation.COMPLETIONS, "max_tokens", 9, 10),
        ({"max_tokens": 9}, Operation.RESPONSES, "max_output_tokens", 9, 10),
        ({"max_tokens": 9}, Operation.MESSAGES, "max_tokens", 9, 10),
        ({"schema_bytes": 80}, Operation.CHAT, "response_format", {"type": "text"}, SCHEMA | {"x": "y" * 80}),
        ({"schema_depth": 5}, Operation.CHAT, "response_format", {"type": "text"}, SCHEMA),
        ({"schema_depth": 5}, Operation.CHAT, "tools", TOOLS[:0], TOOLS),
        ({"tools_bytes": 40}, Operation.CHAT, "tools", TOOLS[:0], TOOLS),
    ],
)
def test_a_bound_that_an_operator_sets_holds(
    bound: dict[str, Any], operation: Operation, name: str, fits: Any, over: Any
) -> None:
    assert asked(engine(**bound), operation, **{name: fits})[name] == fits
    assert param_of(engine(**bound), operation, **{name: over}) == name


@pytest.mark.parametrize("kind", PROFILES)
def test_bounds_hold_for_every_kind_and_for_one_engine_only(kind: str) -> None:
    assert param_of(engine(kind, n=2), n=3) == "n"
    assert asked(engine(kind), n=3)["n"] == 3
    assert param_of(engine(kind, max_tokens=2), max_tokens=3) == "max_tokens"
    for line in PROFILES[kind].endpoints[0].fields.values():
        assert line.reason  # the table's own lines are no other for it


@pytest.mark.parametrize(
    ("type_", "good", "bad"),
    [
        ("boolean", True, 1),
        ("integer", -5, 1.5),
        ("integer", 2**62, 2**70),
        ("number", 1.5, "1.5"),
        ("string", "a", ["a"]),
        ("string", "a" * 1024, "a" * 1025),
        ("boolean", None, {"cache_salt": "theirs"}),
        ("string", None, {"cache_salt": "theirs"}),
    ],
)
@pytest.mark.parametrize("kind", PROFILES)
def test_a_field_that_an_operator_adds_passes_in_its_form_and_no_other(
    kind: str, type_: Plain, good: object, bad: object
) -> None:
    configured = engine(kind, AddedField(name="fast_mode", type=type_))
    assert asked(configured, fast_mode=good)["fast_mode"] == good
    assert param_of(configured, fast_mode=bad) == "fast_mode"
    assert "fast_mode" not in asked(engine(kind), fast_mode=good)


def test_an_added_field_has_its_reason_and_source_like_every_other() -> None:
    (line,) = (
        endpoint.fields["fast_mode"]
        for endpoint in profile_of(engine("tensorrt-llm", AddedField(name="fast_mode", type="boolean"))).endpoints
    )
    assert (line.reason, line.source) == ("the operator lets it pass", "[[engines.limits.fields]]")


@pytest.mark.parametrize("name", sorted(FORBIDDEN))
@pytest.mark.parametrize("kind", PROFILES)
def test_what_is_forbidden_cannot_be_added_and_the_fault_says_why(kind: str, name: str) -> None:
    for spelled in (name, name.upper()):
        (fault,) = added(spelled, kind=kind)
        assert fault == f"engines.1.limits.fields.0.name can never pass: {FORBIDDEN[name].reason}"
    # And it would not pass either where nobody had looked for the fault.
    for endpoint in profile_of(engine(kind, AddedField(name=name, type="string"))).endpoints:
        assert isinstance(endpoint.fields[name].rule, Drops)


def test_whatever_any_profile_drops_or_refuses_cannot_be_added_to_another() -> None:
    names = {
        name
        for profile in PROFILES.values()
        for endpoint in profile.endpoints
        for name, line in endpoint.fields.items()
        if isinstance(line.rule, Drops | Refuses)
    }
    for kind in PROFILES:
        assert len(added(*sorted(names), kind=kind)) == len(names)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("kv_cache_mode", "border"),
        ("prefix_salt", "border"),
        ("tenant", "border"),
        ("mm_uuid", "media"),
        ("kv_transfer_config", "border"),
        ("kvMode", "border"),
        ("shared_prefix_tokens", "border"),
        ("prefixId", "border"),
        ("cacheSalt", "border"),
        ("CACHE__SALT", "border"),
        ("s_a_l_t", "border"),
        ("cache_sal_t", "border"),
        ("do_remote_prefill", "host"),
        ("remote_engine", "host"),
        ("ec_config", "host"),
        ("peer_port", "host"),
        ("bootstrapRoom", "host"),
        ("callback_url", "host"),
        ("mm_hash", "border"),
        ("mm_data", "media"),
        ("mmItems", "media"),
        ("imagesUrl", "can never pass"),
        ("input_pixels", "media"),
        ("prompt_embedding", "media"),
        ("media_type", "media"),
        ("loraName", "adapter"),
        ("active_adapters", "adapter"),
        ("weight_version", "adapter"),
        ("session", "which cache is asked"),
        ("dp_rank", "can never pass"),
        ("target_replica", "which cache is asked"),
        ("priority_boost", "which cache is asked"),
        ("prompt_token_ids", "can never pass"),
        ("stop_ids", "not in the body"),
        ("requestId", "can never pass"),
        ("previous_turn", "not in the body"),
        ("chat_template_name", "inside the engine"),
        ("hidden_states_path", "inside the engine"),
        ("logits_processors", "inside the engine"),
        ("return_hidden_state", "model's inside"),
        ("speculative_prefill", "host"),
        ("use_draft", "model's inside"),
        ("Cache-Salt", "no name of a field"),
        ("cache salt", "no name of a field"),
        ("cache_sаlt", "no name of a field"),  # noqa: RUF001 - a Cyrillic letter
        ("", "no name of a field"),
        ("model", "saltgate itself"),
        ("stream", "saltgate itself"),
        ("stream_options", "saltgate itself"),
        ("messages", "a rule of its own"),
        ("tools", "a rule of its own"),
        ("response_format", "a rule of its own"),
        ("prompt", "a rule of its own"),
    ],
)
def test_names_that_no_operator_may_add(name: str, word: str) -> None:
    (fault,) = added(name)
    assert word in fault


def test_every_meaning_tells_names_that_engines_have_and_forbids_them_itself() -> None:
    for meaning in MEANINGS:
        for name in meaning.source.split(", "):
            joined, parts = name.lower().replace("_", ""), name.lower().split("_")
            assert (
                any(
                    any(word in joined or word in name for word in other.anywhere) or set(other.parts) & set(parts)
                    for other in MEANINGS
                )
                or name.lower() in FORBIDDEN
            ), name


def test_a_field_is_added_once_and_only_where_it_does_not_pass_already() -> None:
    assert added("fast_mode", "other") == []
    assert added("separate_reasoning") == []  # SGLang's own, harmless, for a vLLM
    harmless = ("typical_p", "mirostat_tau", "dryMultiplier", "flat_logprobs", "transport", "comment", "shape", "ghost")
    assert added(*harmless) == []
    assert "there twice" in added("fast_mode", "fast_mode")[0]
    assert "passes already" in added("temperature", kind="tensorrt-llm")[0]
