"""`[history]`, and where the pages that show it are opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.settings import Admin
from proxy.plan import admin_origin
from tests.config.configuration import changed, faults, loaded


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("admin.url", "http://admin.example.com", "must be https"),
        ("admin.url", "https://admin.example.com/pages", "without a path"),
        ("admin.url", "https://admin.example.com?x", "without a path"),
        ("admin.url", "admin.example.com", "write"),
        ("history.scopes", 0, "1"),
        ("history.scopes", 10_001, "10000 at most"),
        ("history.recent", 100_001, "100000 at most"),
        ("history.days", 3, ""),
    ],
)
def test_what_cannot_be_is_a_fault(tmp_path: Path, key: str, value: object, said: str) -> None:
    found = faults(tmp_path, changed(key, value))
    assert said in found[key]


def test_what_can_be_loads(tmp_path: Path) -> None:
    for url in ("https://admin.example.com", "https://admin.example.com:8443", "http://localhost:9080"):
        assert loaded(tmp_path, changed("admin.url", url)).settings.admin.url == url
    settings = loaded(tmp_path, changed("history.scopes", 10_000)).settings
    assert (settings.history.scopes, settings.history.recent) == (10_000, 10_000)


@pytest.mark.parametrize(
    ("admin", "origin"),
    [
        (Admin(), "http://127.0.0.1:9080"),
        (Admin(listen="[::1]:9080"), "http://[::1]:9080"),
        (Admin(listen="0.0.0.0:9080"), None),
        (Admin(listen="0.0.0.0:9080", url="https://Admin.Example.com:443"), "https://admin.example.com"),
        (Admin(listen="10.0.0.7:9080", url="http://localhost:9080"), "http://localhost:9080"),
    ],
)
def test_pages_are_at_the_address_that_is_written_or_on_this_machine(admin: Admin, origin: str | None) -> None:
    assert admin_origin(admin) == origin
