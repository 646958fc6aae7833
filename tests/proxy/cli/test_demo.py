"""`saltgate demo` as people start it: the real command, its whole process group, and what it leaves behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import Request, urlopen
from xml.etree import ElementTree as ET

import pytest

pytestmark = pytest.mark.process

SECONDS = 120.0  # far beyond what anything here takes, also on a busy machine
SIMULATOR, GATE, REDIS = "proxy.demo.simulator", "proxy.cli", "redis-server"


class Demo:
    """The command in a session of its own, as in a terminal of its own, with a folder for its temporary files."""

    def __init__(self, folder: Path, *arguments: str, path: str | None = None) -> None:
        self.temporary = folder / "temporary files"
        self.temporary.mkdir()
        self.output = folder / "output"
        environment = os.environ | {"TMPDIR": str(self.temporary), "COLUMNS": "80"}
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", "from proxy.cli import main; main()", "demo", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment if path is None else environment | {"PATH": path},
                start_new_session=True,
            )

    @property
    def text(self) -> str:
        return self.output.read_text()

    def until(self, holds: Callable[[], object]) -> None:
        """Waits until it holds; fails where the command ends before."""
        deadline = time.monotonic() + SECONDS
        while not holds():
            assert self.process.poll() is None, self.text
            assert time.monotonic() < deadline, self.text
            time.sleep(0.02)

    def until_said(self, text: str) -> None:
        self.until(lambda: text in self.text)

    def signal_group(self, number: signal.Signals) -> None:
        """What a terminal does at Ctrl-C."""
        os.killpg(self.process.pid, number)

    def code(self) -> int:
        return self.process.wait(SECONDS)

    def processes(self) -> dict[int, str]:
        """All processes of its session, by id, with their command lines."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                except OSError:
                    continue  # it has ended
                if int(session) == self.process.pid and state != "Z":
                    found[int(entry.name)] = command
        return found

    def one(self, what: str) -> int:
        """The process whose command line holds `what`, and that is not the demo itself."""
        return next(
            number for number, command in self.processes().items() if what in command and " demo" not in command
        )

    def leaves_nothing(self) -> bool:
        return not self.processes() and not list(self.temporary.iterdir())


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    started: list[Demo] = []

    def start(*arguments: str, path: str | None = None) -> Demo:
        started.append(Demo(tmp_path, *arguments, path=path))
        return started[-1]

    yield start
    for each in started:
        for number in each.processes():
            os.kill(number, signal.SIGKILL)
        each.process.wait()


def test_the_scene_is_played_and_drawn_and_then_everything_is_gone(demo: Callable[..., Demo], tmp_path: Path) -> None:
    running = demo("--once", "--picture", str(tmp_path / "scene.svg"))
    assert running.code() == 0, running.text
    rows = re.findall(r"^  (medium|long) +(\S.*?) +([\d,.]+) ms +([\d,]+) / ([\d,]+)$", running.text, re.MULTILINE)
    assert [(prompt, who.split()[0]) for prompt, who, *_ in rows] == [
        (prompt, who) for prompt in ("medium", "long") for who in ("Alice", "Carol,", "Bob", "Bob")
    ]
    reused = [int(tokens.replace(",", "")) for *_, tokens, _ in rows]
    prompts = [int(tokens.replace(",", "")) for *_, tokens in rows]
    for row, (tokens, of) in enumerate(zip(reused, prompts, strict=True)):
        shared = row % 4 in (1, 3)  # the colleague, and the stranger's own second time
        assert (tokens > 0.95 * of) if shared else tokens == 0
    assert max(len(line) for line in running.text.splitlines() if "picture" not in line and "/" not in line) <= 80
    drawing = " ".join(ET.parse(tmp_path / "scene.svg").getroot().itertext())
    assert all(f"{tokens} of {of} tokens reused" in drawing for *_, tokens, of in rows)
    assert "engine simulator, 1 trial, 20" in drawing
    assert running.leaves_nothing()


def _see_pages(running: Demo) -> None:
    """By the link, and by the next one: they show the scene, and what the stranger was refused."""
    link = re.search(r"^(http://127\.0\.0\.1:\d+)/sign-in#(\S+)$", running.text, re.MULTILINE)
    another = re.search(r"^.+ admin ticket -c \S.*$", running.text, re.MULTILINE)
    assert link is not None
    assert another is not None
    printed = subprocess.run(["sh", "-c", another[0]], capture_output=True, check=True, timeout=SECONDS, text=True)
    admin = link[1]
    for ticket in (link[2], printed.stdout.strip().partition("#")[2]):
        sent = {"Origin": admin, "Content-Type": "application/json"}
        asked = Request(f"{admin}/sign-in", json.dumps({"ticket": ticket}).encode(), sent)
        with urlopen(asked, timeout=SECONDS) as entered:
            cookie, key = entered.headers["Set-Cookie"].partition(";")[0], json.loads(entered.read())["key"]
        shown = Request(f"{admin}/api/overview", headers={"Cookie": cookie, "X-Saltgate-Key": key})
        with urlopen(shown, timeout=SECONDS) as answered:
            view = json.loads(answered.read())
        assert {one["workspace"] for one in view["workspaces"]} == {"acme", "globex"}
        assert view["total"]["requests"] >= 10


def test_what_it_prints_to_be_pasted_works_and_ctrl_c_ends_it_cleanly(demo: Callable[..., Demo]) -> None:
    running = demo()
    running.until_said("Ctrl-C ends everything.")
    curl = re.search(r"^curl .*?[^\\]$", running.text, re.MULTILINE | re.DOTALL)
    assert curl is not None
    answered = subprocess.run(["sh", "-c", curl[0]], capture_output=True, check=True, timeout=SECONDS)
    assert json.loads(answered.stdout)["usage"]["completion_tokens"] > 0
    snippet = re.search(r"^from openai .*?^print\(.*?$", running.text, re.MULTILINE | re.DOTALL)
    assert snippet is not None
    printed = subprocess.run([sys.executable, "-c", snippet[0]], capture_output=True, check=True, timeout=SECONDS)
    assert printed.stdout.startswith(b"You said ")
    sign_in = re.search(r"^(.+) login --gate http://127\.0\.0\.1:\d+$", running.text, re.MULTILINE)
    assert sign_in is not None
    assert f"$({sign_in[1]} token)" in running.text
    subprocess.run(["sh", "-c", f"{sign_in[1]} login --help"], capture_output=True, check=True, timeout=SECONDS)
    token = re.search(r"^eyJ\S+$", running.text, re.MULTILINE)
    assert token is not None
    stranger = re.sub(
        r"Bearer [^']+'", f"Bearer {token[0]}' -H 'OpenAI-Organization: acme' -H 'OpenAI-Project: apollo'", curl[0]
    )
    refused = subprocess.run(["sh", "-c", stranger], capture_output=True, check=True, timeout=SECONDS)
    assert json.loads(refused.stdout)["error"]["code"] == "not_a_member"
    _see_pages(running)
    running.signal_group(signal.SIGINT)
    running.signal_group(signal.SIGINT)  # as the impatient do
    assert running.code() == 0, running.text
    assert running.leaves_nothing()
    assert running.text.endswith("Ctrl-C ends everything.\n\n")


@pytest.mark.parametrize(
    ("processes", "number"),
    [
        (2, signal.SIGINT),  # the folder's sweeper runs
        (3, signal.SIGINT),  # the directory
        (4, signal.SIGTERM),  # the engine
        (5, signal.SIGHUP),  # the gate
        (6, signal.SIGINT),  # its worker
    ],
)
def test_a_signal_during_the_start_leaves_nothing(
    demo: Callable[..., Demo], processes: int, number: signal.Signals
) -> None:
    running = demo()
    running.until(lambda: len(running.processes()) >= processes)
    running.process.send_signal(number)
    assert running.code() == 0, running.text
    assert running.leaves_nothing()


def test_a_signal_to_the_whole_group_ends_it_without_a_complaint(demo: Callable[..., Demo]) -> None:
    running = demo()
    running.until_said("four times")
    running.signal_group(signal.SIGTERM)
    assert running.code() == 0
    assert "has ended" not in running.text
    assert running.leaves_nothing()


def test_killed_it_takes_everything_with_it(demo: Callable[..., Demo]) -> None:
    running = demo()
    running.until_said("four times")
    assert {REDIS, SIMULATOR, GATE} == {
        part for part in (REDIS, SIMULATOR, GATE) if any(part in command for command in running.processes().values())
    }
    running.process.kill()
    running.process.wait()
    deadline = time.monotonic() + SECONDS
    while not running.leaves_nothing():
        assert time.monotonic() < deadline, running.processes()
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("part", "told"), [(REDIS, "redis-server"), (SIMULATOR, "engine simulator"), (GATE, "saltgate")]
)
def test_a_part_that_dies_is_told_and_ends_the_demo(demo: Callable[..., Demo], part: str, told: str) -> None:
    running = demo()
    running.until_said("four times")
    os.kill(running.one(part), signal.SIGKILL)
    assert running.code() == 1
    assert f"saltgate demo: {told} has ended (exit status -9)" in running.text
    assert running.leaves_nothing()


@pytest.mark.parametrize("url", ["http://10.0.0.1:8000", "https://127.0.0.1:8000", "http://127.0.0.1:8000/v2", "tiny"])
def test_an_engine_elsewhere_is_wrong_usage(demo: Callable[..., Demo], url: str) -> None:
    running = demo("--engine-url", url)
    assert running.code() == 2
    assert "argument --engine-url" in running.text


def test_an_engine_that_is_not_there_is_told(demo: Callable[..., Demo]) -> None:
    running = demo("--engine-url", "http://127.0.0.1:1")
    assert running.code() == 1
    assert running.text.splitlines()[-1].startswith("saltgate demo: the engine at http://127.0.0.1:1 does not list")
    assert running.leaves_nothing()
