"""The cookies: what they are called, and that nobody else's value is taken for ours."""

from __future__ import annotations

import pytest

from config.addresses import origin_of
from proxy.account.cookies import Cookie, cookies_of, fresh_value

VALUE = "v" * 43


def test_over_https_no_other_host_path_or_plain_page_can_set_them() -> None:
    cookies = cookies_of("https://llm.example.com")
    for cookie in (cookies.session, cookies.sign_in):
        name, line = cookie.set_to(VALUE)
        assert name == "Set-Cookie"
        assert line.startswith("__Host-saltgate")
        assert line.partition("; ")[2] == "Path=/; HttpOnly; SameSite=Lax; Secure"
    assert cookies.session.name == "__Host-saltgate"


def test_over_http_on_loopback_the_port_keeps_two_gates_apart() -> None:
    one, other = cookies_of("http://127.0.0.1:8080").session, cookies_of("http://127.0.0.1:8081").session
    assert one.name != other.name
    assert "Secure" not in one.set_to(VALUE)[1]
    assert "HttpOnly; SameSite=Lax" in one.set_to(VALUE)[1]


def test_a_value_has_256_random_bits() -> None:
    values = {fresh_value() for _ in range(100)}
    assert len(values) == 100
    assert {len(value) for value in values} == {43}


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("Cookie", "other=1")],
        [("Cookie", f"a={VALUE}; xs={VALUE}; s2={VALUE}")],
        [("Cookie", f"S={VALUE}")],
        [("Cookie", f"s={VALUE}x")],
        [("Cookie", f"s={VALUE[:-1]}")],
        [("Cookie", f's="{VALUE}"')],
        [("Cookie", f"s={VALUE[:-1]}é")],
        [("Cookie", f"s={VALUE[:-1]}\udcff")],
        [("Cookie", f"s={VALUE}; s={'w' * 43}")],
        [("Cookie", f"s={VALUE}"), ("cookie", f"s={'w' * 43}")],
        [("Cookie", f"s={VALUE}"), ("Cookie", "s=")],
        [("X-Cookie", f"s={VALUE}")],
        [("Cookie", f"s ={VALUE}")],
    ],
)
def test_what_is_not_exactly_one_value_of_ours_is_none(headers: list[tuple[str, str]]) -> None:
    assert Cookie("s", secure=True).value(headers) is None


def test_the_value_is_found_among_others() -> None:
    headers = [("Host", "x"), ("COOKIE", f"a=b; s={VALUE};c"), ("Cookie", f"s={VALUE}")]
    assert Cookie("s", secure=True).value(headers) == VALUE


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://llm.example.com", "https://llm.example.com"),
        ("https://LLM.example.com:443", "https://llm.example.com"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("http://localhost:80", "http://localhost"),
    ],
)
def test_an_origin_is_written_as_browsers_write_it(url: str, origin: str) -> None:
    assert origin_of(url) == origin
