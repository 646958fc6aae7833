"""`[metrics]`: bounds of series, and pseudonyms of scopes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.config.configuration import SALT_SECRET, changed, faults, good_table, loaded

OTHER_SECRET = b"another secret of thirty-two bytes"


def test_without_the_section_a_thousand_scopes_go_by_their_names(tmp_path: Path) -> None:
    metrics = loaded(tmp_path, good_table()).settings.metrics
    assert (metrics.max_scopes, metrics.max_models, metrics.idle) == (1000, 100, 3600)
    assert (metrics.scope_labels, metrics.pseudonym_key) == ("plain", None)


@pytest.mark.parametrize(
    ("key", "value"),
    [("max_scopes", 0), ("max_scopes", 100_001), ("max_models", 0), ("max_models", 10_001), ("idle", "0s")],
)
def test_bounds_that_nobody_can_bear_are_faults(tmp_path: Path, key: str, value: object) -> None:
    assert list(faults(tmp_path, changed(f"metrics.{key}", value))) == [f"metrics.{key}"]


def test_metrics_are_sent_where_a_collector_is(tmp_path: Path) -> None:
    assert list(faults(tmp_path, changed("metrics.otlp", True))) == ["metrics.otlp"]
    assert list(faults(tmp_path, changed("metrics.otlp_interval", "999ms"))) == ["metrics.otlp_interval"]
    table = changed("metrics.otlp", True) | {"telemetry": {"otlp_endpoint": "http://127.0.0.1:4318"}}
    assert faults(tmp_path, table) == {}


def test_pseudonyms_need_a_key_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "pseudonyms").write_bytes(OTHER_SECRET)
    (tmp_path / "short").write_bytes(OTHER_SECRET[:31])
    (tmp_path / "same").write_bytes(SALT_SECRET)

    def found(**metrics: object) -> dict[str, str]:
        return faults(tmp_path, good_table() | {"metrics": metrics})

    assert found(scope_labels="pseudonymous", pseudonym_key={"file": "pseudonyms"}) == {}
    for wrong in (
        {"scope_labels": "pseudonymous"},
        {"pseudonym_key": {"file": "pseudonyms"}},
        {"scope_labels": "pseudonymous", "pseudonym_key": {"file": "short"}},
        {"scope_labels": "pseudonymous", "pseudonym_key": {"file": "same"}},
    ):
        assert list(found(**wrong)) == ["metrics.pseudonym_key"]
