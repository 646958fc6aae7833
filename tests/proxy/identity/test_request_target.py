"""Whether a proof's URL is the one that was asked: other spellings of it are, other resources are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.identity.request_target import same_target

ASKED = "https://llm.example.com/v1/models/a%2Fb"


@pytest.mark.parametrize(
    "named",
    [
        ASKED,
        "HTTPS://LLM.EXAMPLE.COM/v1/models/a%2Fb",
        "https://llm.example.com:443/v1/models/a%2Fb",
        "https://llm.example.com:/v1/models/a%2Fb",
        "https://llm.example.com/v1/models/a%2fb",
        "https://llm.example.com/v1/%6dodels/a%2Fb",
        "https://llm.example.com/v1/./models/a%2Fb",
        "https://llm.example.com/v2/../v1/models/a%2Fb",
        "https://llm.example.com/%2e%2e/v1/models/a%2Fb",
        "https://llm.example.com/v1/models/a%2Fb?query=1&more",
        "https://llm.example.com/v1/models/a%2Fb#fragment",
        "https://llm.example.com/v1/models/a%2Fb?",
    ],
)
def test_other_spellings_are_the_same(named: str) -> None:
    assert same_target(named, ASKED)


@pytest.mark.parametrize(
    "named",
    [
        "",
        "/v1/models/a%2Fb",
        "//llm.example.com/v1/models/a%2Fb",
        "llm.example.com/v1/models/a%2Fb",
        "http://llm.example.com/v1/models/a%2Fb",
        "http://llm.example.com:443/v1/models/a%2Fb",
        "wss://llm.example.com/v1/models/a%2Fb",
        "https://llm.example.com:8443/v1/models/a%2Fb",
        "https://llm.example.com:99999/v1/models/a%2Fb",
        "https://llm.example.com:x/v1/models/a%2Fb",
        "https://llm.example.com./v1/models/a%2Fb",
        "https://evil.example/v1/models/a%2Fb",
        "https://llm.example.com@evil.example/v1/models/a%2Fb",
        "https://evil.example@llm.example.com/v1/models/a%2Fb",
        "https://@llm.example.com/v1/models/a%2Fb",
        "https://llm.example.com\\@evil.example/v1/models/a%2Fb",
        "https://llm.example.com/v1/models/a/b",
        "https://llm.example.com/v1/models/a%252Fb",
        "https://llm.example.com/v1/models/a%2Fb/",
        "https://llm.example.com//v1/models/a%2Fb",
        "https://llm.example.com/V1/models/a%2Fb",
        "https://llm.example.com/v1/models/a%2Fb/..",
        "https://llm.example.com/v1/models/a%2Fb/../..",
        "https://llm.example.com/v1/models/a%2Fb;x",
        "https://llm.example.com/v1/models/a%2",
        "https://llm.example.com/v1/models/a%zzb",
        " https://llm.example.com/v1/models/a%2Fb",
        "https://llm.example.com/v1/models/a%2Fb\n",
        "https://llm.example.com/v1/mod\tels/a%2Fb",
        "https://llm.example.com/v1/models/a%2Fb\udc80",
        "https://llm.exampl\u0435.com/v1/models/a%2Fb",
        "https://[llm.example.com]/v1/models/a%2Fb",
        "https://[/v1/models/a%2Fb",
        "https:///v1/models/a%2Fb",
        "https:v1",
    ],
)
def test_another_resource_or_no_url_is_not_the_same(named: str) -> None:
    assert not same_target(named, ASKED)


@pytest.mark.parametrize("path", ["/v1/models/..", "/v1/models/.", "/v1/models/%2e%2e", "/v1/../account"])
def test_who_asks_with_dot_segments_has_no_proof_for_it(path: str) -> None:
    """A proof for `/v1/` is not one for whatever a path with dots may come to mean behind us."""
    asked = "https://llm.example.com" + path
    assert not any(same_target("https://llm.example.com" + named, asked) for named in (path, "/v1/", "/v1", "/account"))


def test_the_root_may_lack_its_slash() -> None:
    assert same_target("https://llm.example.com", "https://llm.example.com/")
    assert same_target("https://llm.example.com/", "https://llm.example.com")


@given(st.text(max_size=60) | st.from_regex(r"https?://[a-z.\[\]:@%0-9]{0,20}(/[!-~]{0,9}){0,4}", fullmatch=True))
def test_any_text_is_answered_and_nothing_else_is_ours(text: str) -> None:
    assert not same_target(text, ASKED)
