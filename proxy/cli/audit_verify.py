"""`saltgate audit verify`: the verdict, told."""

from __future__ import annotations

import argparse
import re
import sys
from typing import Final

import msgspec

from config.faults import printable
from observability.audit.facts import Finding
from observability.audit.verifying import Verdict, verify
from proxy.cli.audit_place import Place, WrongPlace

_MAC: Final = re.compile("[0-9a-f]{64}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--head",
        action="append",
        default=[],
        metavar="MAC",
        help="a `mac` of an audit.head or audit.sealed line of the log; there must be a line with it",
    )


def run(arguments: argparse.Namespace, place: Place) -> int:
    """Raises WrongPlace, and OSError where the directory cannot be read."""
    if not all(map(_MAC.fullmatch, arguments.head)):
        raise WrongPlace("--head is 64 hexadecimal digits, as the log has them under `mac`")
    verdict = verify(place.directory, place.keys, arguments.head)
    if arguments.json:
        sys.stdout.write(msgspec.json.encode(verdict).decode("utf-8") + "\n")
    else:
        sys.stdout.write("".join(f"{line}\n" for line in told(verdict)))
    return 0 if verdict.intact else 1


def told(verdict: Verdict) -> list[str]:
    """What a person reads, a finding a line, the verdict last."""
    counted = f"{verdict.records} records in {verdict.segments} files of {verdict.chains} chains"
    last = f"intact: {counted}" if verdict.intact else f"NOT intact: {len(verdict.faults)} faults in {counted}"
    return [*map(_line, verdict.notes), *map(_line, verdict.faults), last]


def _line(finding: Finding) -> str:
    where = "" if finding.file is None else finding.file + ("" if finding.line is None else f":{finding.line}") + ": "
    return printable(f"{finding.level:<5}  {where}{finding.message}")
