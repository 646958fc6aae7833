"""What the environment replaces in the file (contract section 3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.config.configuration import SALT_SECRET, changed, faults, good_table, loaded


def test_a_variable_replaces_a_key_by_its_section_and_name(tmp_path: Path) -> None:
    settings = loaded(tmp_path, good_table(), {"SALTGATE_PUBLIC__LISTEN": "127.0.0.1:81"}).settings
    assert settings.public.listen == "127.0.0.1:81"


def test_an_item_of_a_list_is_addressed_by_its_index(tmp_path: Path) -> None:
    environment = {
        "SALTGATE_ENGINES__0__URLS": '["http://a:1", "unix:/run/b.sock"]',
        "SALTGATE_ENGINES__0__URLS__1": "http://c:2",
    }
    assert loaded(tmp_path, good_table(), environment).settings.engines[0].urls == ("http://a:1", "http://c:2")


def test_the_index_after_the_last_adds_an_item(tmp_path: Path) -> None:
    environment = {"SALTGATE_ENGINES__1__NAME": "second", "SALTGATE_ENGINES__1__URLS": "http://b:1"}
    engines = loaded(tmp_path, good_table(), environment).settings.engines
    assert [(engine.name, engine.urls) for engine in engines][1:] == [("second", ("http://b:1",))]


def test_more_than_ten_items_are_taken_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    environment = {f"SALTGATE_ISSUERS__0__CLIENTS__{number}": f"client-{number}" for number in range(12)}
    clients = loaded(tmp_path, good_table(), environment).settings.issuers[0].clients
    assert clients == tuple(f"client-{number}" for number in range(12))


def test_a_section_that_the_file_lacks_is_made(tmp_path: Path) -> None:
    table = good_table()
    del table["directory"], table["engines"]
    environment = {
        "SALTGATE_DIRECTORY__REDIS": "redis://r:6379",
        "SALTGATE_ENGINES__0__NAME": "only",
        "SALTGATE_ENGINES__0__URLS__0": "http://a:1",
    }
    settings = loaded(tmp_path, table, environment).settings
    assert (settings.directory.redis, settings.engines[0].name) == ("redis://r:6379", "only")


@pytest.mark.parametrize(("text", "stale"), [("30s", 30.0), ('"30s"', 30.0), ("'30s'", 30.0)])
def test_a_value_is_toml_or_bare_text(tmp_path: Path, text: str, stale: float) -> None:
    assert loaded(tmp_path, good_table(), {"SALTGATE_DIRECTORY__MAX_STALE": text}).settings.directory.max_stale == stale


@pytest.mark.parametrize("text", ["2026", "true", "1979-05-27", "-1"])
def test_text_stays_text_where_it_looks_like_something_else(tmp_path: Path, text: str) -> None:
    environment = {"SALTGATE_ISOLATION__KEYS__0__ID": text}
    assert loaded(tmp_path, good_table(), environment).settings.isolation.keys[0].id == text


def test_other_values_keep_their_toml_type(tmp_path: Path) -> None:
    environment = {
        "SALTGATE_ISOLATION__SHOW_REUSE": "false",
        "SALTGATE_TELEMETRY__TRACE_RATIO": "0.5",
        "SALTGATE_PUBLIC__MAX_BODY": "1024",
    }
    settings = loaded(tmp_path, good_table(), environment).settings
    assert settings.isolation.show_reuse is False
    assert settings.telemetry.trace_ratio == 0.5
    assert settings.public.max_body == 1024


def test_a_boolean_stays_strict_in_the_environment(tmp_path: Path) -> None:
    assert (
        "true or false"
        in faults(tmp_path, good_table(), {"SALTGATE_ISOLATION__SHOW_REUSE": "1"})["isolation.show_reuse"]
    )


def test_a_line_break_cannot_bring_in_a_second_key(tmp_path: Path) -> None:
    environment = {"SALTGATE_ENGINES__0__NAME": '"main"\nproof = "off"'}
    settings = loaded(tmp_path, good_table(), environment).settings
    assert settings.engines[0].proof == "strict"
    assert settings.engines[0].name == '"main"\nproof = "off"'


def test_a_secret_is_moved_as_a_whole(tmp_path: Path) -> None:
    environment = {
        "SALTGATE_ISOLATION__KEYS__0__SECRET": '{ env = "SALTGATE_SALT" }',
        "SALTGATE_SALT": SALT_SECRET.decode(),
    }
    found = loaded(tmp_path, good_table(), environment)
    assert found.settings.isolation.keys[0].secret.source == "environment variable SALTGATE_SALT"
    assert found.warnings == (), "a variable that a secret names is in use"


def test_a_second_place_for_a_secret_is_a_fault(tmp_path: Path) -> None:
    found = faults(tmp_path, good_table(), {"SALTGATE_ISOLATION__KEYS__0__SECRET__ENV": "SALT", "SALT": "x" * 40})
    assert "one of the two" in found["isolation.keys.0.secret"]


def test_a_secret_given_as_a_value_is_a_fault_that_does_not_repeat_it(tmp_path: Path) -> None:
    found = faults(tmp_path, good_table(), {"SALTGATE_ENGINES__0__API_KEY": "sk-very-secret"})
    assert "{ file" in found["engines.0.api_key"]
    assert "sk-very-secret" not in str(found)


@pytest.mark.parametrize(
    ("variable", "key", "remedy"),
    [
        ("SALTGATE_ENGINES__2__NAME", "engines.2.name", "without a gap"),
        ("SALTGATE_ENGINES__00__NAME", "engines.00.name", "without a gap"),
        ("SALTGATE_ENGINES__FIRST__NAME", "engines.first.name", "no index"),
        ("SALTGATE_PUBLIC__LISTEN__PORT", "public.listen.port", "single value"),
        ("SALTGATE_PUBLIC__LISTN", "public.listn", "did you mean `listen`?"),
        ("SALTGATE_PUBLICK__LISTEN", "publick.listen", "did you mean `public`?"),
    ],
)
def test_an_override_that_leads_nowhere_is_a_fault_that_names_the_variable(
    tmp_path: Path, variable: str, key: str, remedy: str
) -> None:
    message = faults(tmp_path, good_table(), {variable: "x"})[key]
    assert remedy in message
    assert variable in message


@pytest.mark.parametrize(
    ("variable", "value", "key"),
    [
        ("SALTGATE_TIMEOUTS__FIRST_BYTE", "0s", "timeouts.first_byte"),
        ("SALTGATE_ENGINES__0__CAPACITY__WAIT", "11m", "engines.0.capacity.wait"),
        ("SALTGATE_ENGINES__0__CAPACITY", "{ requests = 0 }", "engines.0.capacity.requests"),
        ("SALTGATE_PUBLIC__TLS", "{ certificate = 'no' }", "public.tls.certificate"),
    ],
)
def test_a_faulty_value_names_the_variable_that_brought_it(tmp_path: Path, variable: str, value: str, key: str) -> None:
    assert faults(tmp_path, good_table(), {variable: value})[key].endswith(f" (from {variable})")


def test_a_faulty_value_of_the_file_names_no_variable(tmp_path: Path) -> None:
    environment = {"SALTGATE_TIMEOUTS__IDLE": "1s", "SALTGATE_TIMEOUTS__FIRST": "1s"}
    message = faults(tmp_path, changed("timeouts.first_byte", "0s"), environment)["timeouts.first_byte"]
    assert message == "write a duration above zero"


def test_an_override_below_a_value_of_the_wrong_kind_is_a_fault(tmp_path: Path) -> None:
    found = faults(tmp_path, good_table() | {"public": 3}, {"SALTGATE_PUBLIC__LISTEN": "127.0.0.1:1"})
    assert set(found) == {"public", "public.listen"}


def test_any_other_variable_of_ours_is_ignored_with_one_warning(tmp_path: Path) -> None:
    environment = {
        "SALTGATE_WORKERS": "7",
        "SALTGATE_PORT_8080_TCP": "tcp://10.0.0.1",
        "SALTGATE_public__listen": "x",
        "PATH": "/",
    }
    found = loaded(tmp_path, good_table(), environment)
    assert found.settings.workers == 1
    (warning,) = found.warnings
    assert all(name in warning for name in environment if name != "PATH")
    assert "PATH," not in warning
    assert "tcp://10.0.0.1" not in warning
