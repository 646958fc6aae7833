"""The lines that the demo prints call the saltgate that printed them, from where it was started."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.demo.called import words_for


@pytest.mark.parametrize(
    ("called", "found", "words"),
    [
        (".venv/bin/saltgate", None, ".venv/bin/saltgate"),
        (".venv/bin/saltgate", "/opt/saltgate/bin/saltgate", ".venv/bin/saltgate"),
        # As under `make`, whose PATH is not that of the terminal.
        (".venv/bin/saltgate", "/work/clone/.venv/bin/saltgate", ".venv/bin/saltgate"),
        ("/opt/saltgate/bin/saltgate", "/opt/saltgate/bin/saltgate", "saltgate"),
        ("/opt/saltgate/bin/saltgate", "/usr/bin/saltgate", "/opt/saltgate/bin/saltgate"),
        ("/home/a b/saltgate", None, "'/home/a b/saltgate'"),
    ],
)
def test_it_is_called_as_it_was(called: str, found: str | None, words: str) -> None:
    assert words_for(called, found=found, python="/usr/bin/python3") == words


@pytest.mark.parametrize("called", ["-c", "-m", "", "/usr/lib/python3/site-packages/pytest/__main__.py"])
def test_without_the_script_python_calls_it(called: str) -> None:
    words = words_for(called, found="/usr/bin/saltgate", python=sys.executable)
    said = subprocess.run(["sh", "-c", f"{words} whoami --help"], check=True, capture_output=True, text=True)
    assert "usage: saltgate whoami" in said.stdout


SCRIPT = f"""#!{sys.executable}
from proxy.demo.called import called_again
print(called_again())
"""


def test_from_the_folder_where_it_was_started_and_by_its_name_alone(tmp_path: Path) -> None:
    script = tmp_path / "my env" / "saltgate"
    script.parent.mkdir()
    script.write_text(SCRIPT)
    script.chmod(0o755)
    shell = shutil.which("sh")
    assert shell is not None

    def said(words: str, path: str) -> str:
        environment = os.environ | {"PATH": path}
        ran = subprocess.run([shell, "-c", words], check=True, capture_output=True, cwd=tmp_path, env=environment)
        return ran.stdout.decode().strip()

    typed = shlex.quote("my env/saltgate")
    assert said(typed, "/nowhere") == typed
    assert said(typed, str(script.parent)) == typed
    assert said("saltgate", str(script.parent)) == "saltgate"
