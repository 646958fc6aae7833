"""Files that are none, or too much."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from config.faults import ConfigurationFaults, Fault
from config.files import read_regular
from config.load import load


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    assert read_regular(file, maximum_bytes=5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_regular(file, maximum_bytes=4)


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError):
            read_regular(path, maximum_bytes=10)


@pytest.mark.parametrize(
    "text", ["workers = " + "1" * 5000, "a = " + "[" * 5000 + "]" * 5000, "[" + "a." * 5000 + "b]", "a = 1\0"]
)
def test_what_the_toml_reader_cannot_take_is_a_fault(tmp_path: Path, text: str) -> None:
    file = tmp_path / "saltgate.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationFaults):
        load(file, {})


def test_an_override_of_too_many_digits_is_a_text(tmp_path: Path) -> None:
    file = tmp_path / "saltgate.toml"
    file.write_text("")
    with pytest.raises(ConfigurationFaults):
        load(file, {"SALTGATE_WORKERS": "1" * 5000})


def test_a_fault_is_one_line_that_no_terminal_obeys() -> None:
    told = str(Fault("a\x1b[31m\nsaltgate: x\u202e", "is wrong\r"))
    assert told == "a\\x1b[31m\\nsaltgate: x\\u202e: is wrong\\r"


def test_a_bad_key_id_and_a_missing_secret_are_told_together(tmp_path: Path) -> None:
    file = tmp_path / "saltgate.toml"
    file.write_text('[[isolation.keys]]\nid = "a b"\nsecret = { file = "missing" }\n')
    with pytest.raises(ConfigurationFaults) as caught:
        load(file, {})
    assert {"isolation.keys.0.id", "isolation.keys.0.secret"} <= {fault.key for fault in caught.value.faults}


def test_a_missing_key_hides_no_other_fault_of_its_table(tmp_path: Path) -> None:
    (tmp_path / "short").write_text("12345")
    file = tmp_path / "saltgate.toml"
    file.write_text(
        '[[issuers]]\nissuer = "http://x"\nalgorithms = ["HS256"]\n'
        '[[issuers]]\naudiences = ["a"]\n[[issuers]]\naudiences = ["a"]\n'
        '[[engines]]\nurls = ["ftp://x"]\n'
        '[directory]\nredis = "redis://127.0.0.1:6379/0"\n'
        '[[isolation.keys]]\nid = "a b"\nsecret = { file = "short" }\n'
    )
    with pytest.raises(ConfigurationFaults) as caught:
        load(file, {})
    told = {fault.key for fault in caught.value.faults}
    assert told == {
        "issuers.0.audiences",
        "issuers.0.issuer",
        "issuers.0.algorithms.0",
        "issuers.1.issuer",
        "issuers.2.issuer",
        "engines.0.name",
        "engines.0.urls.0",
        "isolation.keys.0.id",
        "isolation.keys.0.secret",
    }
    assert "invalid" not in "".join(map(str, caught.value.faults))
