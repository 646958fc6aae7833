"""The console script as a whole: what a terminal or a pipe gets, and the exit status."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SALTGATE = (sys.executable, "-c", "from proxy.cli import main; main()")


def test_a_reader_that_leaves_ends_a_command_quietly() -> None:
    running = subprocess.Popen([*SALTGATE, "keys", "new"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stdout is not None
    running.stdout.close()
    assert running.stderr is not None
    told = running.stderr.read()
    running.stderr.close()
    assert b"Traceback" not in told
    assert running.wait() in (1, 2)


@pytest.mark.parametrize("words", [("keys", "new"), ("directory", "show"), ("check",)])
def test_a_full_disk_is_told_in_one_line(tmp_path: Path, words: tuple[str, ...]) -> None:
    """The commands that find something to say say so in vain."""
    (tmp_path / "salt").write_text("x" * 43)
    (tmp_path / "directory.toml").write_text("")
    configuration = tmp_path / "saltgate.toml"
    configuration.write_text(
        '[[engines]]\nname = "main"\nurls = ["http://127.0.0.1:9"]\n'
        '[[issuers]]\nissuer = "http://127.0.0.1:9"\naudiences = ["saltgate"]\n'
        '[directory]\nfile = "directory.toml"\nstate = "state"\n'
        '[[isolation.keys]]\nid = "k1"\nsecret = { file = "salt" }\n'
    )
    options = [] if words[0] == "keys" else ["-c", str(configuration)]
    with Path("/dev/full").open("wb") as full:
        told = subprocess.run([*SALTGATE, *words, *options], stdout=full, stderr=subprocess.PIPE, check=False)
    assert told.returncode in (1, 2)
    assert b"Traceback" not in told.stderr
    assert b"No space left" in told.stderr
