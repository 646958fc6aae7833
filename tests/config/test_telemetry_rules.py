"""`[telemetry]`: where spans go, which are kept, and whose traces go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.config.configuration import faults, good_table, loaded

ISSUER = "https://sso.example.com"


def table(**telemetry: object) -> dict[str, object]:
    return good_table() | {"telemetry": telemetry}


def test_all_of_it_loads_as_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "pseudonyms").write_bytes(b"k" * 32)
    written = table(
        otlp_endpoint="http://127.0.0.1:4318",
        user_hash_key={"file": "pseudonyms"},
        scopes=[{"workspace": "acme", "trace_ratio": 0.5}, {"workspace": "acme", "project": "a", "trace_ratio": 1}],
        slow_first_token="2s",
        slow_request="0s",
        trusted_callers=[{"issuer": ISSUER, "client": "rag"}, {"issuer": ISSUER, "subject": "svc"}],
        trusted_proxies=True,
        genai_conventions="dev",
    ) | {"proxies": {"trusted": ["10.0.0.0/8"]}}
    found = loaded(tmp_path, written).settings.telemetry
    assert (found.slow_first_token, found.slow_request) == (2.0, 0.0)
    assert [(one.workspace, one.project, one.trace_ratio) for one in found.scopes] == [
        ("acme", None, 0.5),
        ("acme", "a", 1.0),
    ]
    assert [(one.issuer, one.client, one.subject) for one in found.trusted_callers] == [
        (ISSUER, "rag", None),
        (ISSUER, None, "svc"),
    ]


def test_by_default_no_trace_of_anybody_goes_on_and_nobody_has_a_pseudonym(tmp_path: Path) -> None:
    found = loaded(tmp_path, good_table()).settings.telemetry
    assert (found.trusted_callers, found.trusted_proxies, found.user_hash_key) == ((), False, None)


@pytest.mark.parametrize(
    ("telemetry", "key", "said"),
    [
        ({"trusted_callers": [{"issuer": ISSUER}]}, "telemetry.trusted_callers.0", "exactly one"),
        (
            {"trusted_callers": [{"issuer": ISSUER, "client": "x", "subject": "y"}]},
            "telemetry.trusted_callers.0",
            "exactly one",
        ),
        (
            {"trusted_callers": [{"issuer": ISSUER + "/", "client": "x"}]},
            "telemetry.trusted_callers.0.issuer",
            "[[issuers]]",
        ),
        ({"trusted_callers": [{"client": "x"}]}, "telemetry.trusted_callers.0.issuer", "required"),
        ({"trusted_proxies": True}, "telemetry.trusted_proxies", "proxies.trusted"),
        ({"scopes": [{"workspace": "Acme", "trace_ratio": 1}]}, "telemetry.scopes.0.workspace", "workspace's name"),
        (
            {"scopes": [{"workspace": "a", "project": "b/c", "trace_ratio": 1}]},
            "telemetry.scopes.0.project",
            "project's name",
        ),
        ({"scopes": [{"workspace": "a"}]}, "telemetry.scopes.0.trace_ratio", "required"),
        ({"scopes": [{"workspace": "a", "trace_ratio": 2}]}, "telemetry.scopes.0.trace_ratio", "0 to 1"),
        ({"scopes": [{"workspace": "a", "trace_ratio": 1}] * 2}, "telemetry.scopes.1", "telemetry.scopes.0"),
        ({"genai_conventions": "1.42"}, "telemetry.genai_conventions", "1.41"),
        ({"slow_first_token": 5}, "telemetry.slow_first_token", "unit"),
        ({"user_hash_key": {"file": "short"}}, "telemetry.user_hash_key", "32"),
        ({"user_hash_key": "hunter2"}, "telemetry.user_hash_key", "never in the file"),
        ({"otlp_endpoint": "http://c:4318", "otlp_ca": "short"}, "telemetry.otlp_ca", "https"),
        (
            {"otlp_endpoint": "http://c:4318", "otlp_client_cert": {"certificate": "short", "key": {"file": "short"}}},
            "telemetry.otlp_client_cert",
            "https",
        ),
    ],
)
def test_what_would_do_nothing_or_not_what_was_meant_is_a_fault(
    tmp_path: Path, telemetry: dict[str, object], key: str, said: str
) -> None:
    (tmp_path / "short").write_bytes(b"short")
    found = faults(tmp_path, table(**telemetry))
    assert list(found) == [key]
    assert said in found[key]
