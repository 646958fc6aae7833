"""`[cors]`: an origin as a browser sends it, or a fault that says how."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.config.configuration import changed, faults, loaded

GOOD = (
    "https://chat.example.com",
    "https://chat.example.com:8443",
    "https://xn--bcher-kva.example",
    "https://intranet",
    "https://10.0.0.7",
    "https://[2001:db8::1]:8443",
    "http://localhost:3000",
    "http://127.0.0.1",
    "http://[::1]:5173",
    "chrome-extension://abcdefghijklmnop",
    "tauri://localhost",
)


def test_origins_load_as_they_are_written(tmp_path: Path) -> None:
    assert loaded(tmp_path, changed("cors.origins", list(GOOD))).settings.cors.origins == GOOD
    assert loaded(tmp_path, changed("cors.origins", [])).settings.cors.origins == ()
    assert loaded(tmp_path, changed("workers", 1)).settings.cors.origins == ()


@pytest.mark.parametrize(
    ("origin", "said"),
    [
        ("*", "every page"),
        ("null", "hides"),
        ("https://*.example.com", "as a browser sends it"),
        ("https://chat.example.com/", "without a path"),
        ("https://chat.example.com/app", "without a path"),
        ("https://chat.example.com?x", "without a path"),
        ("https://Chat.example.com", "lower case"),
        ("HTTPS://chat.example.com", "lower case"),
        ("https://chat.example.com.", "as a browser sends it"),
        ("https://user@chat.example.com", "as a browser sends it"),
        ("https://b\u00fccher.example", "as a browser sends it"),
        ("https://chat.example.com\n", "as a browser sends it"),
        ("https://chat.example.com\r\nX: y", "as a browser sends it"),
        (" https://chat.example.com", "as a browser sends it"),
        ("chat.example.com", "as a browser sends it"),
        ("https://", "as a browser sends it"),
        ("https://chat.example.com:", "as a browser sends it"),
        ("https://chat.example.com:443", "leave out the port"),
        ("http://localhost:80", "leave out the port"),
        ("https://chat.example.com:99999", "leave out the port"),
        ("http://chat.example.com", "must be https"),
        ("http://10.0.0.7:3000", "must be https"),
        ("", "not empty"),
    ],
)
def test_what_no_browser_sends_is_a_fault(tmp_path: Path, origin: str, said: str) -> None:
    found = faults(tmp_path, changed("cors.origins", ["https://chat.example.com", origin]))
    assert list(found) == ["cors.origins.1"]
    assert said in found["cors.origins.1"]


def test_a_key_that_would_widen_it_does_not_exist(tmp_path: Path) -> None:
    for key in ("credentials", "methods", "headers", "origin"):
        assert list(faults(tmp_path, changed(f"cors.{key}", True))) == [f"cors.{key}"]
