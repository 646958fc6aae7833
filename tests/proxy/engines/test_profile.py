"""The profiles as a whole: every field that an engine reads is decided, and every line can be audited."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from proxy.engines.generate_fields import FIELDS, page
from proxy.engines.kinds import PROFILES, VLLM
from proxy.engines.profile import Endpoint, Operation
from proxy.engines.rules import Drops, Opens, Refuses, Shape

Fields = Mapping[Operation, str]

# The fields of vLLM 0.32's request models, as vllm/entrypoints/…/protocol.py lists them.
VLLM_FIELDS: Fields = {
    Operation.CHAT: """
        messages model frequency_penalty logit_bias logprobs top_logprobs max_tokens max_completion_tokens n
        presence_penalty response_format seed stop stream stream_options temperature top_p tools tool_choice
        reasoning_effort thinking_token_budget include_reasoning parallel_tool_calls user use_beam_search top_k
        min_p repetition_penalty watermarking length_penalty stop_token_ids include_stop_str_in_output ignore_eos
        min_tokens skip_special_tokens spaces_between_special_tokens truncate_prompt_tokens truncation_side
        prompt_logprobs logprob_token_ids allowed_token_ids bad_words echo add_generation_prompt
        continue_final_message add_special_tokens documents chat_template chat_template_kwargs media_io_kwargs
        mm_processor_kwargs structured_outputs priority request_id session_id return_tokens_as_token_ids
        return_token_ids routed_experts_prompt_start return_token_offsets return_prompt_text mm_payload
        return_mm_kwargs cache_salt kv_transfer_params ec_transfer_params vllm_xargs repetition_detection
        stream_interval
    """,
    Operation.COMPLETIONS: """
        model prompt echo frequency_penalty logit_bias logprobs max_tokens n presence_penalty seed stop stream
        stream_options suffix temperature top_p user use_beam_search top_k min_p repetition_penalty watermarking
        length_penalty stop_token_ids include_stop_str_in_output ignore_eos min_tokens skip_special_tokens
        spaces_between_special_tokens truncate_prompt_tokens truncation_side allowed_token_ids prompt_logprobs
        logprob_token_ids bad_words prompt_embeds add_special_tokens response_format structured_outputs priority
        request_id session_id return_tokens_as_token_ids return_token_ids routed_experts_prompt_start
        return_token_offsets mm_payload return_mm_kwargs cache_salt kv_transfer_params ec_transfer_params vllm_xargs
        repetition_detection thinking_token_budget stream_interval
    """,
    Operation.RESPONSES: """
        background include input instructions max_output_tokens max_tool_calls metadata model logit_bias
        parallel_tool_calls previous_response_id prompt reasoning include_reasoning service_tier store stream
        temperature text tool_choice tools top_logprobs top_p top_k min_p truncation user skip_special_tokens
        include_stop_str_in_output presence_penalty frequency_penalty prompt_cache_key watermarking request_id
        session_id media_io_kwargs mm_processor_kwargs priority mm_payload return_mm_kwargs cache_salt
        enable_response_messages previous_input_messages structured_outputs repetition_penalty seed stop
        stop_token_ids ignore_eos vllm_xargs kv_transfer_params ec_transfer_params chat_template_kwargs
    """,
    Operation.MESSAGES: """
        model messages max_tokens metadata output_config thinking stop_sequences stream system temperature
        tool_choice tools top_k top_p mm_payload return_mm_kwargs cache_salt watermarking kv_transfer_params
        ec_transfer_params vllm_xargs chat_template_kwargs
    """,
    Operation.COUNT_TOKENS: """
        model messages output_config system thinking tool_choice tools chat_template_kwargs
    """,
    Operation.EMBEDDINGS: """
        model user truncate_prompt_tokens padding truncation_side request_id priority mm_processor_kwargs cache_salt
        input add_special_tokens encoding_format embed_dtype endianness dimensions use_activation
    """,
}
# sglang/srt/entrypoints/openai/protocol.py at commit 004c82e, and `reasoning`, which a validator reads.
SGLANG_FIELDS: Fields = {
    Operation.CHAT: """
        messages model frequency_penalty logit_bias logprobs top_logprobs max_tokens max_completion_tokens n
        presence_penalty response_format seed stop stream stream_options temperature top_p user tools tool_choice
        parallel_tool_calls return_hidden_states return_routed_experts routed_experts_start_len
        return_cached_tokens_details return_prompt_token_ids return_token_ids return_meta_info reasoning_effort
        reasoning task top_k min_p min_tokens regex ebnf repetition_penalty stop_token_ids stop_regex no_stop_trim
        ignore_eos continue_final_message skip_special_tokens lora_path session_id session_params
        separate_reasoning stream_reasoning chat_template_kwargs max_dynamic_patch min_dynamic_patch
        use_audio_in_video images_config custom_logit_processor custom_params input_ids rid extra_key cache_salt
        ngram_corpus_id priority bootstrap_host bootstrap_port bootstrap_room routed_dp_rank
        disagg_prefill_dp_rank data_parallel_rank
    """,
    Operation.COMPLETIONS: """
        model prompt best_of echo frequency_penalty logit_bias logprobs max_tokens n presence_penalty seed stop
        stream stream_options suffix temperature top_p user return_hidden_states return_routed_experts
        routed_experts_start_len return_cached_tokens_details return_token_ids top_k min_p min_tokens json_schema
        regex ebnf repetition_penalty stop_token_ids stop_regex no_stop_trim ignore_eos skip_special_tokens
        lora_path session_id session_params response_format custom_params custom_logit_processor images_config
        bootstrap_host bootstrap_port bootstrap_room routed_dp_rank disagg_prefill_dp_rank data_parallel_rank rid
        extra_key cache_salt ngram_corpus_id priority custom_labels
    """,
}
# tensorrt_llm/serve/openai_protocol.py at commit 0076e93; `max_tokens` is an alias of `max_completion_tokens`.
TENSORRT_FIELDS: Fields = {
    Operation.CHAT: """
        messages prompt_token_ids prompt_token_ids_b64 model frequency_penalty logit_bias logprobs top_logprobs
        max_completion_tokens max_tokens n presence_penalty response_format seed stop stream stream_options
        temperature top_p tools tool_choice parallel_tool_calls user reasoning_effort thinking
        thinking_token_budget prompt_ignore_length best_of use_beam_search top_k top_p_min min_p
        repetition_penalty length_penalty early_stopping stop_token_ids include_stop_str_in_output ignore_eos
        min_tokens skip_special_tokens spaces_between_special_tokens truncate_prompt_tokens lora_request echo
        add_generation_prompt add_special_tokens documents chat_template chat_template_kwargs
        injected_chat_template_kwargs media_io_kwargs disaggregated_params conversation_params cache_salt priority
        agent_hierarchy mm_processor_kwargs
    """,
}
# dynamo lib/llm/src/protocols/openai/ (OpenAI's own, common_ext.rs, validate.rs PASSTHROUGH_EXTRA_FIELDS).
_DYNAMO_COMMON = """
    ignore_eos min_tokens top_k min_p repetition_penalty include_stop_str_in_output skip_special_tokens guided_json
    guided_regex guided_grammar guided_choice guided_decoding_backend guided_whitespace_pattern nvext cache_salt
    stop_token_ids detokenize allowed_token_ids bad_words_token_ids
"""
DYNAMO_FIELDS: Fields = {
    Operation.CHAT: f"""
        messages model store reasoning_effort metadata frequency_penalty logit_bias logprobs top_logprobs max_tokens
        max_completion_tokens n modalities prediction audio presence_penalty response_format seed service_tier stop
        stream stream_options temperature top_p tools tool_choice parallel_tool_calls user web_search_options
        function_call functions mm_processor_kwargs chat_template_args chat_template_kwargs thinking media_io_kwargs
        return_tokens_as_token_ids {_DYNAMO_COMMON}
    """,
    Operation.COMPLETIONS: f"""
        model prompt prompt_embeds suffix max_tokens temperature top_p n stream stream_options logprobs echo stop
        presence_penalty frequency_penalty best_of logit_bias user seed {_DYNAMO_COMMON}
    """,
    Operation.RESPONSES: """
        background conversation include input instructions max_output_tokens max_tool_calls metadata model
        parallel_tool_calls previous_response_id prompt prompt_cache_key prompt_cache_retention reasoning
        safety_identifier service_tier store stream stream_options temperature text tool_choice tools top_logprobs
        top_p truncation nvext
    """,
    Operation.EMBEDDINGS: "input model encoding_format dimensions user nvext",
}
READ: Mapping[str, Fields] = {
    "vllm": VLLM_FIELDS,
    "sglang": SGLANG_FIELDS,
    "tensorrt-llm": TENSORRT_FIELDS,
    "dynamo": DYNAMO_FIELDS,
}
# What `read_request` and `stamp` decide by themselves.
BY_THE_GATE = {"model", "stream", "stream_options"}
EVERY = [
    pytest.param(kind, endpoint, id=f"{kind} {endpoint.operation.value}")
    for kind, profile in PROFILES.items()
    for endpoint in profile.endpoints
]


@pytest.mark.parametrize(("kind", "endpoint"), EVERY)
def test_every_field_that_an_engine_reads_is_decided(kind: str, endpoint: Endpoint) -> None:
    assert not set(READ[kind][endpoint.operation].split()) - endpoint.fields.keys() - BY_THE_GATE


@pytest.mark.parametrize("kind", ["tensorrt-llm", "dynamo"])
def test_nothing_is_sent_to_an_engine_that_refuses_what_it_does_not_know(kind: str) -> None:
    for endpoint in PROFILES[kind].endpoints:
        passing = {name for name, line in endpoint.fields.items() if not isinstance(line.rule, Drops | Refuses)}
        assert passing <= set(READ[kind][endpoint.operation].split())
        assert endpoint.id_prefix is None


def test_each_kind_has_the_endpoints_of_the_contract_and_no_other() -> None:
    chat, completions, responses = "/v1/chat/completions", "/v1/completions", "/v1/responses"
    embeddings, messages, counting = "/v1/embeddings", "/v1/messages", "/v1/messages/count_tokens"
    assert {kind: {endpoint.path for endpoint in profile.endpoints} for kind, profile in PROFILES.items()} == {
        "vllm": {chat, completions, responses, messages, counting, embeddings},
        "sglang": {chat, completions},
        "tensorrt-llm": {chat},
        "dynamo": {chat, completions, responses, embeddings},
    }


def test_each_operation_has_one_method_path_and_dialect_whatever_the_kind() -> None:
    for profile in PROFILES.values():
        assert len({endpoint.operation for endpoint in profile.endpoints}) == len(profile.endpoints)
        for endpoint in profile.endpoints:
            same = VLLM.endpoint(endpoint.operation)
            assert same is not None
            assert (endpoint.method, endpoint.path, endpoint.dialect) == (same.method, same.path, same.dialect)


def test_only_counting_is_done_without_a_salt() -> None:
    unsalted = [endpoint for profile in PROFILES.values() for endpoint in profile.endpoints if endpoint.salt is None]
    assert [endpoint.operation for endpoint in unsalted] == [Operation.COUNT_TOKENS]
    assert not any(endpoint.streams for endpoint in unsalted)


def test_every_line_says_why_and_where_it_was_read() -> None:
    for profile in PROFILES.values():
        for endpoint in profile.endpoints:
            for name, line in endpoint.fields.items():
                assert line.reason, name
                assert line.source, name
                assert "|" not in line.reason + line.source, name


def members(rule: Opens) -> set[str]:
    def of(shape: Shape) -> set[str]:
        return set(shape.members).union(*(members(inner) for inner in shape.opens.values()))

    return set().union(*(of(shape) for shape in rule.shapes.values()))


@pytest.mark.parametrize(("kind", "endpoint"), EVERY)
def test_no_object_that_is_opened_lets_an_identity_a_salt_or_a_medium_pass(kind: str, endpoint: Endpoint) -> None:
    passing = {"uuid", "cache_salt", "extra_key", "nvext", "content_hash", "kv_transfer_params", "image_url", "source"}
    for line in endpoint.fields.values():
        if isinstance(line.rule, Opens):
            assert members(line.rule).isdisjoint(passing)


def test_the_auditors_page_is_fresh() -> None:
    assert FIELDS.read_text(encoding="utf-8") == page(), "run: make reference"


def test_the_auditors_page_has_every_line_of_every_endpoint() -> None:
    text = page()
    for profile in PROFILES.values():
        for endpoint in profile.endpoints:
            part = text.split(f"### {profile.title}: `POST {endpoint.path}`\n")[1].split("\n### ")[0]
            forbidden = text.split("## What no engine gets from a client")[1].split("\n## ")[0]
            for name in endpoint.fields:
                assert f"| `{name}` | " in part or f"| `{name}` | dropped" in forbidden, name
