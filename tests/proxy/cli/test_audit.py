"""`saltgate audit`: the verdict and the lines, as an auditor has them."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from observability.recorder import Recorder
from proxy.cli import audit as command
from tests.observability.audit.writing import audit, begin, files, go_up, lines_of, request, settled, verdict

KEY_BYTES = b"0123456789abcdef0123456789abcdef"


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    out: str
    err: str


class Auditor:
    """Who has the files, and the key in a file of its own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = folder / "audit"
        self.key = folder / "key"
        self.key.write_bytes(KEY_BYTES + b"\n")
        self._capsys = capsys

    def runs(self, *words: str, plain: bool = False) -> Answer:
        place = [] if plain else ["--directory", str(self.directory), "--key", f"a1={self.key}"]
        parser = argparse.ArgumentParser()
        command.add_arguments(parser)
        self._capsys.readouterr()
        code = command.run(parser.parse_args([words[0], *place, *words[1:]]))
        told = self._capsys.readouterr()
        return Answer(code, told.out, told.err)

    def shows(self, *words: str) -> list[dict[str, object]]:
        answer = self.runs("show", "--json", *words)
        assert (answer.code, answer.err) == (0, "")
        return [json.loads(line) for line in answer.out.splitlines()]


@pytest.fixture
def auditor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Auditor:
    made = Auditor(tmp_path, capsys)
    with audit(made.directory, segment_bytes=2000) as one, audit(made.directory, subjects="plain") as other:
        for number in range(4):
            request(one, subject=f"u-{number}", tokens=100 + number)
            settled(one)
        request(other, subject="u-1", tokens=1000)
        settled(other)
        request(one, sent=False, subject="u-1")
    return made


def test_an_intact_directory_is_exit_0_and_a_changed_one_is_exit_1_with_file_and_line(auditor: Auditor) -> None:
    answer = auditor.runs("verify")
    assert answer.code == 0
    assert re.fullmatch(r"intact: \d+ records in \d+ files of 2 chains", answer.out.splitlines()[-1])
    path = files(auditor.directory)[0]
    lines = lines_of(path)
    path.write_bytes(b"".join([*lines[:1], *lines[2:]]))
    answer = auditor.runs("verify")
    assert answer.code == 1
    assert f"fault  {path.name}:2: before it line 2 is missing" in answer.out
    assert answer.out.splitlines()[-1].startswith("NOT intact: 2 faults")


def test_the_verdict_is_one_document_for_programs(auditor: Auditor) -> None:
    document = json.loads(auditor.runs("verify", "--json").out)
    assert (document["intact"], document["chains"], document["faults"]) == (True, 2, [])
    assert [head["mac"] for head in document["heads"]] == [head.mac for head in verdict(auditor.directory).heads]


def test_a_mac_of_the_log_is_looked_for(auditor: Auditor) -> None:
    known = verdict(auditor.directory).heads[0].mac
    assert auditor.runs("verify", "--head", known).code == 0
    answer = auditor.runs("verify", "--head", known, "--head", "0" * 64)
    assert (answer.code, f"no line has the MAC {'0' * 64}" in answer.out) == (1, True)
    assert auditor.runs("verify", "--head", "abc").code == 2


def test_the_lines_are_shown_in_the_order_of_time_over_all_chains(auditor: Auditor) -> None:
    lines = auditor.shows()
    assert len(lines) == sum(len(lines_of(path)) for path in files(auditor.directory))
    times = [str(line["ts"]) for line in lines if str(line["event"]).startswith("request.")]
    assert times == sorted(times)
    assert len({line["chain"] for line in lines}) == 2


def test_a_person_is_found_under_his_pseudonym_and_his_name(auditor: Auditor) -> None:
    found = auditor.shows("--subject", "u-1", "--issuer", "https://sso.test")
    assert [line["event"] for line in found] == ["request.granted", "request.granted", "request.refused"]
    assert len({line["subject"] for line in found}) == 2
    assert auditor.shows("--subject", "u-1", "--issuer", "https://other.test") == found[1:2]  # his plain name
    assert auditor.runs("show", "--subject", "u-1").code == 2  # whose people?


@pytest.mark.parametrize(
    ("words", "number"),
    [
        (["--event", "request."], 6),
        (["--event", "request.refused"], 1),
        (["--outcome", "refused"], 1),
        (["--workspace", "acme"], 6),
        (["--workspace", "acme", "--project", "ares"], 0),
        (["--model", "tiny"], 5),
        (["--event", "request.", "--limit", "2"], 2),
        (["--event", "request.", "--since", "1h"], 6),
        (["--event", "request.", "--until", "1h"], 0),
        (["--since", "2040-01-01"], 0),
        (["--event", "request.", "--since", "2020-01-01T00:00:00Z"], 6),
    ],
)
def test_lines_are_filtered(auditor: Auditor, words: list[str], number: int) -> None:
    assert len(auditor.shows(*words)) == number


def test_one_request_is_found_by_its_id(auditor: Auditor) -> None:
    wanted = auditor.shows("--event", "request.")[2]
    assert auditor.shows("--request-id", str(wanted["request_id"])) == [wanted]


def test_what_is_shown_for_programs_are_the_lines_themselves(auditor: Auditor) -> None:
    written = {line.decode() for path in files(auditor.directory) for line in lines_of(path)}
    assert set(auditor.runs("show", "--json").out.splitlines(keepends=True)) == written


def test_tokens_are_summed_by_scope(auditor: Auditor) -> None:
    document = json.loads(auditor.runs("show", "--sum", "--json").out)
    by_model = {one["model"]: one for one in document["sums"]}
    assert by_model["tiny"] == {
        "workspace": "acme",
        "project": "apollo",
        "model": "tiny",
        "requests": 5,
        "granted": 5,
        "refused": 0,
        "prompt_tokens": 100 + 101 + 102 + 103 + 1000,
        "reuse_known_prompt_tokens": 100 + 101 + 102 + 103 + 1000,
        "reused_tokens": 50 + 50 + 51 + 51 + 500,
        "output_tokens": 35,
        "unknown": 0,
    }
    assert (by_model[None]["refused"], by_model[None]["prompt_tokens"]) == (1, 0)
    assert "REUSE KNOWN PROMPT TOKENS" in auditor.runs("show", "--sum").out


def test_a_prompt_whose_reuse_nobody_told_is_not_among_those_of_which_it_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    auditor = Auditor(tmp_path, capsys)
    with audit(auditor.directory) as one:
        request(one, tokens=100)
        request(one, tokens=1000, tells_reuse=False)
    (summed,) = json.loads(auditor.runs("show", "--sum", "--json").out)["sums"]
    numbers = [summed[name] for name in ("prompt_tokens", "reuse_known_prompt_tokens", "reused_tokens", "unknown")]
    assert numbers == [1100, 100, 50, 0]


def test_a_line_that_nobody_with_the_key_wrote_is_not_shown(auditor: Auditor) -> None:
    path = next(path for path in files(auditor.directory) if b'"prompt_tokens":101' in path.read_bytes())
    path.write_bytes(path.read_bytes().replace(b'"prompt_tokens":101', b'"prompt_tokens":999', 1))
    answer = auditor.runs("show", "--json")
    assert answer.code == 1
    assert '"prompt_tokens":999' not in answer.out
    assert "1 lines are left out" in answer.err


def test_a_person_reads_a_line_a_record_and_no_terminal_obeys_it(auditor: Auditor, tmp_path: Path) -> None:
    with audit(auditor.directory, subjects="plain") as one:
        request(one, subject="u-\x1b[31m")
    shown = auditor.runs("show").out
    assert "\x1b" not in shown
    assert "request.refused  refused  blocked  acme/apollo" in shown


def test_a_person_reads_what_is_unknown_as_a_dash(auditor: Auditor) -> None:
    with (
        audit(auditor.directory, subjects="plain") as one,
        Recorder((one,), monotonic_ns=time.monotonic_ns, wall_ns=time.time_ns).request(
            method="POST", route="/x"
        ) as record,
    ):
        begin(record)
        go_up(one, record)
        record.used(11, None, 7)
        record.answered(200)
    shown = auditor.runs("show").out
    assert "  100/50/7 tokens  " in shown
    assert "  11/-/7 tokens  " in shown


@pytest.mark.parametrize("words", [["verify"], ["show"], ["verify", "--directory", "x"], ["verify", "--key", "a1=k"]])
def test_without_files_or_keys_it_is_wrong_usage(auditor: Auditor, words: list[str]) -> None:
    answer = auditor.runs(*words, plain=True)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("saltgate: ")


def test_a_directory_that_is_not_there_is_told(auditor: Auditor) -> None:
    auditor.directory = auditor.directory / "none"
    for action in ("verify", "show"):
        answer = auditor.runs(action)
        assert (answer.code, "No such file" in answer.err) == (2, True)


def test_the_program_of_the_page_verifies_and_finds_what_is_changed(auditor: Auditor) -> None:
    page = Path(__file__).parents[3] / "observability" / "audit.md"
    (program,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    command = [sys.executable, "-c", program, str(auditor.directory), f"a1={auditor.key}"]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "intact: 2 chains\n"
    path = next(path for path in files(auditor.directory) if lines_of(path)[-1].count(b"segment.sealed"))
    whole = path.read_bytes()
    for changed in (whole.replace(b"event", b"Event", 1), b"".join(lines_of(path)[:-1])):
        path.write_bytes(changed)
        assert subprocess.run(command, check=False, capture_output=True).returncode == 1


@pytest.mark.parametrize("action", ["verify", "show"])
def test_where_there_is_no_audit_nothing_is_called_good(auditor: Auditor, action: str) -> None:
    for path in auditor.directory.iterdir():
        path.unlink()
    for more in ((), ("--json",), ("--sum",) if action == "show" else ("--head", "0" * 64)):
        answer = auditor.runs(action, *more)
        assert answer.code == 1
        assert "there is no audit here" in answer.out + answer.err
    document = json.loads(auditor.runs("verify", "--json").out)
    assert (document["intact"], document["chains"]) == (False, 0)


@pytest.mark.parametrize("number", ["-1", "0", "1.5", "", "\u0661", "1_0", "+1"])
def test_a_limit_that_is_no_number_of_lines_is_refused(auditor: Auditor, number: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        auditor.runs("show", f"--limit={number}")
    assert stopped.value.code == 2
