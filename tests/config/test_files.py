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
