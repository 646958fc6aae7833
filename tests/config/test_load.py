"""A file becomes settings, or every fault of it at once (contract section 3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.faults import ConfigurationFaults
from config.load import load
from config.secret import Secret
from config.settings import AddedField, Drain, Logs, Public, Timeouts
from tests.config.configuration import SALT_SECRET, changed, faults, good_table, loaded

EXAMPLE = Path(__file__).parents[2] / "config" / "saltgate.example.toml"


def test_the_least_configuration_loads_with_the_documented_defaults(tmp_path: Path) -> None:
    settings = loaded(tmp_path, good_table()).settings
    assert settings.workers == 1
    assert settings.public == Public(listen="127.0.0.1:8080", url=None, max_body=33_554_432, tls=None)
    assert settings.admin.listen == "127.0.0.1:9080"
    assert settings.engines[0].proof == "strict"
    assert settings.directory.max_stale == 300.0
    assert settings.isolation.unit == "project"
    assert settings.isolation.show_reuse is True
    assert (settings.drain, settings.timeouts, settings.logs) == (Drain(), Timeouts(), Logs())


def test_the_example_file_loads_once_its_secrets_are_there(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "salt-2026-11").write_bytes(SALT_SECRET)
    path = tmp_path / "saltgate.toml"
    path.write_bytes(EXAMPLE.read_bytes())
    found = load(path, {"VLLM_API_KEY": "engine-key"})
    assert found.warnings == ()
    assert found.settings.public.url == "https://llm.example.com"
    assert found.settings.issuers[0].payload_type == "Bearer"


def test_every_fault_is_told_in_one_run_types_and_rules_together(tmp_path: Path) -> None:
    table = changed("public.listen", "0.0.0.0:80") | {
        "workers": "many",
        "engines": [{"name": "e", "urls": ["http://10.0.0.1:8000"], "proof": "off", "modles": ["m"]}],
        "issuers": [{"issuer": "http://sso.example.com", "audiences": ["a"], "algorithms": ["HS256"], "leeway": 5}],
        "directory": {},
        "isolation": {"show_reuse": "yes", "keys": []},
    }
    assert set(faults(tmp_path, table, {"SALTGATE_LOGS__COLOUR": "red"})) == {
        "logs.colour",
        "workers",
        "engines.0.modles",
        "issuers.0.leeway",
        "isolation.show_reuse",
        "isolation.keys",
        "public.url",
        "engines.0.proof",
        "issuers.0.issuer",
        "issuers.0.algorithms.0",
        "directory",
    }


def test_a_faulty_item_of_a_list_hides_nothing_about_its_neighbours(tmp_path: Path) -> None:
    table = good_table() | {"engines": [{"urls": ["http://e:1"]}, {"name": "b", "urls": ["ftp://e"]}, 3]}
    assert set(faults(tmp_path, table)) == {"engines.0.name", "engines.2"} | {"engines.1.urls.0"}


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("publik", "public"),
        ("public.lisen", "listen"),
        ("engines.0.url", "urls"),
        ("isolation.keys.0.sekret", "secret"),
    ],
)
def test_an_unknown_key_is_a_fault_that_names_the_nearest_known_one(tmp_path: Path, key: str, near: str) -> None:
    assert f"did you mean `{near}`?" in faults(tmp_path, changed(key, "x"))[key]


def test_an_unknown_key_like_no_other_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    assert "format, level" in faults(tmp_path, changed("logs.zzzz", 1))["logs.zzzz"]


def test_an_empty_list_is_to_be_left_out_only_where_it_may_be_absent(tmp_path: Path) -> None:
    optional = faults(tmp_path, changed("engines.0.media_hosts", []))["engines.0.media_hosts"]
    assert optional == "is empty; write at least one item, or leave the key out"
    required = faults(tmp_path, changed("engines.0.model_timeouts", [{"models": []}]))
    assert required["engines.0.model_timeouts.0.models"] == "is empty; write at least one item"


def test_a_syntax_error_names_the_file_and_the_line(tmp_path: Path) -> None:
    path = tmp_path / "saltgate.toml"
    path.write_text("workers = 1\n[public\n")
    with pytest.raises(ConfigurationFaults) as raised:
        load(path, {})
    (fault,) = raised.value.faults
    assert fault.key == str(path)
    assert "line 2" in fault.message


def test_a_file_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationFaults, match="cannot read it"):
        load(tmp_path / "absent.toml", {})


def test_a_file_that_is_not_utf_8_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b'workers = "\xe4"')
    with pytest.raises(ConfigurationFaults, match="not UTF-8"):
        load(tmp_path / "latin.toml", {})


@pytest.mark.parametrize(
    ("written", "seconds"), [("500ms", 0.5), ("30s", 30.0), ("5m", 300.0), ("24h", 86_400.0), ("1.5s", 1.5)]
)
def test_a_duration_has_a_unit(tmp_path: Path, written: str, seconds: float) -> None:
    assert loaded(tmp_path, changed("timeouts.connect", written)).settings.timeouts.connect == seconds


@pytest.mark.parametrize(
    "written", [30, 1.5, True, "30", "30 s", "s", "-1s", "1d", "1e9s", "٣s", "1s\n", "0s", "", ["30s"]]
)
def test_anything_else_is_no_duration(tmp_path: Path, written: object) -> None:
    assert "duration" in faults(tmp_path, changed("timeouts.connect", written))["timeouts.connect"]


def test_a_leeway_and_a_drain_may_be_zero(tmp_path: Path) -> None:
    assert loaded(tmp_path, changed("issuers.0.leeway", "0s")).settings.issuers[0].leeway == 0
    assert loaded(tmp_path, changed("drain.limit", "0s")).settings.drain.limit == 0


@pytest.mark.parametrize(
    ("written", "size"),
    [("32MiB", 33_554_432), ("1GiB", 1_073_741_824), ("64KiB", 65_536), ("9B", 9), (7, 7), ("7", 7)],
)
def test_a_size_is_in_bytes_or_has_a_unit(tmp_path: Path, written: object, size: int) -> None:
    assert loaded(tmp_path, changed("public.max_body", written)).settings.public.max_body == size


@pytest.mark.parametrize("written", [0, -1, True, 1.0, "32MB", "32 MiB", "MiB", "1.5GiB", "0KiB", "٣", ""])
def test_anything_else_is_no_size(tmp_path: Path, written: object) -> None:
    assert "size" in faults(tmp_path, changed("public.max_body", written))["public.max_body"]


@pytest.mark.parametrize("written", ["true", "yes", 1, 0, "off"])
def test_only_true_and_false_are_booleans(tmp_path: Path, written: object) -> None:
    assert faults(tmp_path, changed("isolation.show_reuse", written)) == {"isolation.show_reuse": "write true or false"}


@pytest.mark.parametrize("written", ["2", 1.0, True, -1])
def test_workers_are_a_whole_number_that_is_not_negative(tmp_path: Path, written: object) -> None:
    assert "whole number" in faults(tmp_path, changed("workers", written))["workers"]


@pytest.mark.parametrize("written", [-0.1, 1.1, float("nan"), "1", True])
def test_a_ratio_is_a_number_from_0_to_1(tmp_path: Path, written: object) -> None:
    assert "0 to 1" in faults(tmp_path, changed("telemetry.trace_ratio", written))["telemetry.trace_ratio"]


def test_a_secret_is_the_bytes_of_its_file_less_one_trailing_newline(tmp_path: Path) -> None:
    (tmp_path / "odd").write_bytes(b"\xff" * 32 + b"\n\n")
    settings = loaded(tmp_path, changed("isolation.keys.0.secret", {"file": "odd"})).settings
    assert settings.isolation.keys[0].secret == Secret(b"\xff" * 32 + b"\n", f"file {tmp_path / 'odd'}")


def test_a_secret_may_be_in_an_environment_variable_undecoded(tmp_path: Path) -> None:
    table = changed("isolation.keys.0.secret", {"env": "SALT"})
    secret = loaded(tmp_path, table, {"SALT": "\udcff" * 32 + "\n"}).settings.isolation.keys[0].secret
    assert secret == Secret(b"\xff" * 32, "environment variable SALT")


def test_a_secret_shows_its_place_and_never_itself(tmp_path: Path) -> None:
    settings = loaded(tmp_path, good_table()).settings
    assert SALT_SECRET.decode() not in repr(settings)
    assert str(tmp_path / "salt") in repr(settings)


def test_a_secret_written_into_the_file_is_a_fault_that_does_not_repeat_it(tmp_path: Path) -> None:
    found = faults(tmp_path, changed("engines.0.api_key", "sk-very-secret"))
    assert "{ file" in found["engines.0.api_key"]
    assert "sk-very-secret" not in str(found)


@pytest.mark.parametrize(
    "written",
    [{}, {"file": "salt", "env": "SALT"}, {"file": 3}, {"file": "salt", "mode": "x"}, ["salt"], 3, {"value": "x"}],
)
def test_a_secret_has_exactly_one_place(tmp_path: Path, written: object) -> None:
    assert "one of the two" in faults(tmp_path, changed("engines.0.api_key", written))["engines.0.api_key"]


@pytest.mark.parametrize(
    ("written", "remedy"),
    [
        ({"file": "absent"}, "put the secret there"),
        ({"file": "."}, "put the secret there"),
        ({"file": ""}, "write a path"),
        ({"env": "UNSET"}, "is not set"),
        ({"env": "EMPTY"}, "is empty"),
    ],
)
def test_a_secret_that_cannot_be_read_is_a_fault(tmp_path: Path, written: object, remedy: str) -> None:
    assert remedy in faults(tmp_path, changed("engines.0.api_key", written), {"EMPTY": "\n"})["engines.0.api_key"]


def test_paths_begin_at_the_folder_of_the_file(tmp_path: Path) -> None:
    table = good_table() | {"directory": {"file": "people/directory.toml", "state": "/var/lib/saltgate"}}
    directory = loaded(tmp_path, table).settings.directory
    assert (directory.file, directory.state) == (tmp_path / "people" / "directory.toml", Path("/var/lib/saltgate"))


def test_a_relative_name_of_the_file_still_gives_absolute_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded(tmp_path, good_table() | {"directory": {"file": "d.toml", "state": "s"}})
    monkeypatch.chdir(tmp_path)
    assert load(Path("saltgate.toml"), {}).settings.directory.file == tmp_path / "d.toml"


@pytest.mark.parametrize("key", ["engines.0.ca", "issuers.0.ca", "directory.ca"])
def test_a_certificate_file_must_be_there(tmp_path: Path, key: str) -> None:
    assert "no readable file" in faults(tmp_path, changed(key, "absent.pem"))[key]
    (tmp_path / "there.pem").touch()
    assert faults(tmp_path, changed(key, "there.pem")) == {}


def test_without_an_environment_that_of_the_process_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded(tmp_path, good_table())
    monkeypatch.setenv("SALTGATE_WORKERS__X", "1")
    with pytest.raises(ConfigurationFaults, match="SALTGATE_WORKERS__X"):
        load(tmp_path / "saltgate.toml")


def test_limits_of_an_engine_are_read_with_their_defaults(tmp_path: Path) -> None:
    table = changed("engines.0.limits", {"n": 2, "schema_bytes": "64KiB", "fields": [{"name": "x", "type": "number"}]})
    limits = loaded(tmp_path, table).settings.engines[0].limits
    assert (limits.n, limits.schema_bytes, limits.prompts, limits.max_tokens) == (2, 64 * 1024, 64, None)
    assert limits.fields == (AddedField(name="x", type="number"),)
    variables = {"SALTGATE_ENGINES__0__LIMITS__N": "3", "SALTGATE_ENGINES__0__LIMITS__FIELDS__0__NAME": "y"}
    limits = loaded(tmp_path, table, variables).settings.engines[0].limits
    assert (limits.n, limits.fields[0].name) == (3, "y")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("engines.0.kind", "ollama", "sglang"),
        ("engines.0.limits.n", 0, "1 or more"),
        ("engines.0.limits.n", "8", "whole number"),
        ("engines.0.limits.logprobs", -1, "0 or more"),
        ("engines.0.limits.max_token", 5, "did you mean `max_tokens`"),
        ("engines.0.limits.schema_bytes", "big", "size"),
    ],
)
def test_limits_that_cannot_be_are_faults(tmp_path: Path, key: str, value: object, words: str) -> None:
    (found,) = faults(tmp_path, changed(key, value)).items()
    assert found[0] == key
    assert words in found[1]


def test_an_added_field_of_no_plain_type_is_a_fault(tmp_path: Path) -> None:
    fields = [{"name": "x", "type": "object"}, {"name": "y"}]
    found = faults(tmp_path, changed("engines.0.limits", {"fields": fields}))
    assert set(found) == {"engines.0.limits.fields.0.type", "engines.0.limits.fields.1.type"}
