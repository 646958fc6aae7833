"""What is read out of an engine's own pages, and what is not believed."""

from __future__ import annotations

import json

import pytest

from proxy.assurance.about import About, Declared, read_about
from proxy.demo.simulator import Endpoint, EngineShape, Flaws
from proxy.demo.simulator.pages import openapi_page

PATH = "/v1/chat/completions"


def schema(request: object, **schemas: object) -> bytes:
    operation = {"requestBody": {"content": {"application/json": {"schema": request}}}}
    return json.dumps({"paths": {PATH: {"post": operation}}, "components": {"schemas": schemas}}).encode()


SALTED = {"type": "object", "properties": {"model": {}, "cache_salt": {}}}
BARE = {"type": "object", "properties": {"model": {}}}


@pytest.mark.parametrize("endpoint", Endpoint, ids=lambda endpoint: endpoint.name)
def test_each_endpoint_of_a_vllm_is_read_as_its_schema_has_it(endpoint: Endpoint) -> None:
    assert read_about(None, openapi_page(EngineShape())).declared(endpoint.value) is Declared.SALTED
    undeclared = EngineShape(flaws=Flaws(undeclared_salt=frozenset({endpoint})))
    assert read_about(None, openapi_page(undeclared)).declared(endpoint.value) is Declared.UNSALTED
    lacking = EngineShape(endpoints=frozenset(Endpoint) - {endpoint})
    assert read_about(None, openapi_page(lacking)).declared(endpoint.value) is Declared.ABSENT


@pytest.mark.parametrize(
    ("page", "declared"),
    [
        (schema(SALTED), Declared.SALTED),
        (schema({"$ref": "#/components/schemas/A"}, A={"$ref": "#/components/schemas/B"}, B=SALTED), Declared.SALTED),
        (schema({"anyOf": [BARE, {"oneOf": [BARE, SALTED]}]}), Declared.SALTED),
        (schema({"allOf": [BARE, BARE]}), Declared.UNSALTED),
        (schema({"properties": {"nested": SALTED}}), Declared.UNSALTED),
        # what describes no members says nothing
        (schema({"type": "object"}), None),
        (schema({"$ref": "#/components/schemas/A"}, A={"$ref": "#/components/schemas/A"}), None),
        (schema({"$ref": "elsewhere.json#/A"}), None),
        (schema({"$ref": 7, "anyOf": 7, "properties": []}), None),
        (schema(None), None),
        # a schema of other things than an engine's
        (json.dumps({"paths": {"/users": {"get": {}}}}).encode(), None),
        (b"{}", None),
        (b"[]", None),
        (b"no JSON", None),
        (b"\xff\xfe", None),
        (b"[" * 100_000, None),
        (b'{"paths":[],"components":7}', None),
        (b'{"paths":{"/v1/chat/completions":7}}', None),
        (None, None),
    ],
)
def test_what_a_schema_says_of_an_endpoint(page: bytes | None, declared: Declared | None) -> None:
    assert read_about(None, page).declared(PATH) is declared


@pytest.mark.parametrize(
    ("page", "version", "tested"),
    [
        (b'{"version":"0.32.0"}', "0.32.0", True),
        (b'{"version":"0.32.1.dev3+g1a2b3c"}', "0.32.1.dev3+g1a2b3c", True),
        (b'{"version":"0.32"}', "0.32", True),
        (b'{"version":"0.320.0"}', "0.320.0", False),
        (b'{"version":"0.3"}', "0.3", False),
        (b'{"version":"1.32.0"}', "1.32.0", False),
        (b'{"version":""}', None, False),
        (b'{"version":"0.32.0\\n"}', None, False),
        (b'{"version":"\\"} 1"}', None, False),
        (b'{"version":"' + b"1" * 65 + b'"}', None, False),
        (b'{"version":32}', None, False),
        (b"0.32.0", None, False),
        (None, None, False),
    ],
)
def test_a_version_is_shown_only_where_it_looks_like_one(page: bytes | None, version: str | None, tested: bool) -> None:
    about = read_about(page, None)
    assert (about.version, about.is_tested) == (version, tested)


def test_an_engine_that_tells_nothing_is_about_nothing() -> None:
    assert read_about(None, None) == About()
