"""`saltgate audit`: was anything of the audit changed, and what does it tell?"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from config.faults import printable
from proxy.cli import audit_show, audit_verify
from proxy.cli.audit_place import Place, WrongPlace, place


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
    verifying = _action(
        actions,
        "verify",
        "is every line as it was written, and is none missing?",
        "Exit status 0: intact; 1: not. It may run while saltgate writes.",
    )
    audit_verify.add_arguments(verifying)
    showing = _action(
        actions,
        "show",
        "the lines, oldest first: who was let in to what",
        'A time is 2026-11-30, 2026-11-30T17:00:00Z, or how long ago: "90m", "24h", "7d".',
    )
    audit_show.add_arguments(showing)


def run(arguments: argparse.Namespace) -> int:
    try:
        found = place(arguments)
        if found is None:
            return 2
        return _acted(arguments, found)
    except WrongPlace as error:
        _tell(str(error))
        return 2
    except OSError as error:
        if error.filename is None:  # standard output takes nothing; the caller knows what that means
            raise
        _tell(f"{error.filename}: {error.strerror}")
        return 2


def _acted(arguments: argparse.Namespace, found: Place) -> int:
    return audit_verify.run(arguments, found) if arguments.action == "verify" else audit_show.run(arguments, found)


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str, more: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=summary, description=summary[0].upper() + summary[1:], epilog=more
    )
    parser.add_argument("-c", "--configuration", type=Path, metavar="saltgate.toml", help="where [audit] is")
    parser.add_argument("--directory", type=Path, metavar="DIRECTORY", help="other files than those of [audit]: a copy")
    parser.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="ID=FILE",
        help="a key of the audit, in a file of its own: for who has no configuration",
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    return parser


def _tell(message: str) -> None:
    sys.stderr.write(f"saltgate: {printable(message)}\n")
