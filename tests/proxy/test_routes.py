"""Contract section 5, endpoints, scope and own paths: exact paths, and what path and headers name together. Pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.directory.membership import Named
from proxy.engines.kinds import VLLM
from proxy.isolation.unit import Level
from proxy.refusals import Dialect, EndpointNotAllowed, InvalidRequest
from proxy.routes import (
    COLLECTION,
    METADATA_PATH,
    ORGANIZATION,
    PROJECT,
    UNIT,
    Generate,
    ListModels,
    ResourceMetadata,
    Route,
    dialect_of,
    find_route,
    named_scope,
)

PATHS = [endpoint.path for endpoint in VLLM.endpoints]
CHAT = "/v1/chat/completions"


@pytest.mark.parametrize("path", PATHS)
def test_each_endpoint_is_found_at_its_path_and_under_a_scope(path: str) -> None:
    plain, scoped = find_route("POST", path), find_route("POST", "/w/acme/p/apollo" + path)
    assert isinstance(plain.wanted, Generate)
    assert plain.wanted == scoped.wanted
    assert plain.wanted.path == path
    assert (plain.workspace, plain.project) == (None, None)
    assert (scoped.workspace, scoped.project) == ("acme", "apollo")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "post", "Post", "POST "]
)
def test_an_endpoint_has_one_method(path: str, method: str) -> None:
    with pytest.raises(EndpointNotAllowed):
        find_route(method, path)


@pytest.mark.parametrize(
    "target",
    [
        "",
        "*",
        "/",
        "//v1/chat/completions",
        "/v1",
        "/v1/",
        "/v1//chat/completions",
        "/v1/chat",
        "/v1/chat/completions/",
        "/v1/chat/completions/.",
        "/v1/./chat/completions",
        "/v1/chat/../chat/completions",
        "/V1/chat/completions",
        "/v1/Chat/completions",
        "/v1/chat%2Fcompletions",
        "/v1/chat%2fcompletions",
        "/%761/chat/completions",
        "/v1/chat/completions%00",
        "/v1/chat/completions%20",
        "/v1/chat/completions;x=1",
        "/v1/chat/completions#x",
        "/v1/chat/completions\\",
        "/v1\\chat\\completions",
        "/v1/chat/completions\t",
        "/v1/chat\uff0fcompletions",
        "v1/chat/completions",
        "http://llm.example.com/v1/chat/completions",
        "/w/acme/v1/chat/completions",
        "/w/acme/p/v1/chat/completions",
        "/w//p/apollo/v1/chat/completions",
        "/w/acme/p//v1/chat/completions",
        "/w/acme/p/apollo",
        "/w/acme/p/apollo/",
        "/w/acme/p/apollo//v1/chat/completions",
        "/w/acme/P/apollo/v1/chat/completions",
        "/W/acme/p/apollo/v1/chat/completions",
        "/w/acme/x/apollo/v1/chat/completions",
        "/w/acme/p/apollo/w/acme/p/apollo/v1/chat/completions",
        "/w/a/b/p/apollo/v1/chat/completions",
        "/w/acme/p/apollo" + METADATA_PATH,
        "/v1/models/",
        "/metrics",
        "/health",
        "/version",
        "/openapi.json",
        "/docs",
        "/tokenize",
        "/v1/load_lora_adapter",
        "/invocations",
        "/generate",
        "/inference/v1/generate",
        "/v1/audio/transcriptions",
        "/v1/responses/resp_1",
        "/v1/responses/resp_1/cancel",
        "/v1/chat/completions/batch",
        "/pooling",
        "/score",
        "/readyz",
        "/admin",
        "/auth/callback/",
        "/auth/callback/acme/",
        "/auth/callback/acme/x",
        "/auth/callback/Acme",
        "/auth/callback/..",
        "/auth/callback/a%2fb",
        "/auth/callbackacme",
    ],
)
@pytest.mark.parametrize("method", ["POST", "GET"])
def test_everything_else_does_not_exist(method: str, target: str) -> None:
    with pytest.raises(EndpointNotAllowed):
        find_route(method, target)


@given(st.text(st.characters(codec="ascii"), max_size=40), st.sampled_from(["POST", "GET", "OPTIONS"]))
def test_no_path_that_was_made_up_is_routed(text: str, method: str) -> None:
    for target in ("/" + text, "/v1/" + text, "/v1/chat/completions" + text, text + "/v1/embeddings"):
        try:
            route = find_route(method, target)
        except EndpointNotAllowed:
            continue
        assert target.partition("?")[0].startswith(("/w/", "/v1/models/", *PATHS))
        assert route.name.isascii()
        if isinstance(route.wanted, Generate):
            assert target.partition("?")[0].endswith(route.wanted.path)


def test_a_query_changes_nothing() -> None:
    assert find_route("POST", CHAT + "?api-version=1&cache_salt=x") == find_route("POST", CHAT)
    with pytest.raises(EndpointNotAllowed):
        find_route("POST", "/x?/v1/chat/completions")


def test_a_models_name_may_hold_slashes_and_escapes() -> None:
    assert find_route("GET", "/v1/models").wanted == ListModels(None)
    assert find_route("GET", "/v1/models/tiny").wanted == ListModels("tiny")
    assert find_route("GET", "/v1/models/org/tiny").wanted == ListModels("org/tiny")
    assert find_route("GET", "/v1/models/org%2Ftiny%3Aq4").wanted == ListModels("org/tiny:q4")
    assert find_route("GET", "/w/acme/p/apollo/v1/models/org/tiny").wanted == ListModels("org/tiny")


@pytest.mark.parametrize(
    ("target", "resource"),
    [
        (METADATA_PATH, ""),
        (METADATA_PATH + "/v1", "/v1"),
        (METADATA_PATH + "/w/acme/p/apollo/v1", "/w/acme/p/apollo/v1"),
    ],
)
def test_the_resource_metadata_are_those_of_a_base_url_of_ours(target: str, resource: str) -> None:
    assert find_route("GET", target).wanted == ResourceMetadata(resource)


@pytest.mark.parametrize(
    "suffix", ["/", "/v2", "/v1/", "/w/acme/p/apollo", "/w/Acme/p/apollo/v1", '/w/a"b/p/c/v1', "/w/a%22/p/c/v1", "x"]
)
def test_the_resource_metadata_never_repeat_what_is_no_base_url(suffix: str) -> None:
    with pytest.raises(EndpointNotAllowed):
        find_route("GET", METADATA_PATH + suffix)


def test_a_routes_name_holds_no_byte_of_the_client() -> None:
    targets = [("POST", "/w/secret-w/p/secret-p" + CHAT), ("GET", "/w/secret-w/p/secret-p/v1/models/secret-m")]
    for method, target in targets:
        assert "secret" not in find_route(method, target).name


@pytest.mark.parametrize(
    ("target", "dialect"),
    [
        ("/v1/messages", Dialect.ANTHROPIC),
        ("/w/acme/p/apollo/v1/messages?beta=true", Dialect.ANTHROPIC),
        ("/v1/messages/count_tokens", Dialect.ANTHROPIC),
        ("/x/v1/messages", Dialect.ANTHROPIC),
        (CHAT, Dialect.OPENAI),
        ("/x?/v1/messages", Dialect.OPENAI),
        ("", Dialect.OPENAI),
    ],
)
def test_a_refusal_speaks_the_form_of_the_path_that_was_asked(target: str, dialect: Dialect) -> None:
    assert dialect_of(target) is dialect


def route(workspace: str | None = None, project: str | None = None) -> Route:
    return Route(find_route("POST", CHAT).wanted, CHAT, workspace, project)


def test_headers_name_the_scope_in_any_case() -> None:
    headers = [("openai-organization", "acme"), ("OPENAI-PROJECT", "apollo"), ("X-SALTGATE-collection", "handbook")]
    assert named_scope(route(), headers) == Named("acme", "apollo", "handbook", None)


def test_the_path_names_the_scope() -> None:
    assert named_scope(route("acme", "apollo"), []) == Named("acme", "apollo", None, None)


def test_path_and_headers_may_say_the_same() -> None:
    headers = [(ORGANIZATION, "acme"), (PROJECT, "apollo")]
    assert named_scope(route("acme", "apollo"), headers) == Named("acme", "apollo", None, None)


@pytest.mark.parametrize("headers", [[(ORGANIZATION, "globex")], [(PROJECT, "ares")], [(PROJECT, "Apollo")]])
def test_path_and_headers_that_disagree_are_refused(headers: list[tuple[str, str]]) -> None:
    with pytest.raises(InvalidRequest):
        named_scope(route("acme", "apollo"), headers)


@pytest.mark.parametrize("name", [ORGANIZATION, PROJECT, COLLECTION, UNIT])
def test_a_scope_header_sent_twice_with_different_values_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        named_scope(route(), [(name, "project"), (name.lower(), "user")])
    assert refused.value.param == name


def test_a_scope_header_sent_twice_with_one_value_counts_once() -> None:
    assert named_scope(route(), [(PROJECT, "apollo"), (PROJECT, "apollo")]).project == "apollo"


def test_an_empty_scope_header_names_nothing() -> None:
    """The OpenAI SDKs send none, but templates in chat clients send them empty."""
    empty = [(ORGANIZATION, ""), (PROJECT, ""), (COLLECTION, ""), (UNIT, "")]
    assert named_scope(route(), empty) == Named(None, None, None, None)


@pytest.mark.parametrize("value", ["deployment", "workspace", "team", "project", "user"])
def test_a_narrower_border_is_named_by_its_word(value: str) -> None:
    assert named_scope(route(), [(UNIT, value)]).narrower is Level(value)


@pytest.mark.parametrize("value", ["collection", "User", "probe", "user:acme/apollo/u-alice-0001", "0", "user, team"])
def test_what_is_no_rung_of_the_ladder_is_refused(value: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        named_scope(route(), [(UNIT, value)])
    assert refused.value.param == UNIT
