"""The command line: one file per command, each with `add_arguments` and `run`.

Exit status: 0 done, 1 the answer is no, 2 wrong usage or configuration. Errors go to stderr, one line each, with the
remedy.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final, Protocol, cast

# The command's module is imported when the command is used: `saltgate --help` need not wait for a server's imports.
COMMANDS: Final = {
    "demo": "everything embedded: engine, identity provider, directory, gate",
    "serve": "run the gate",
    "check": "is the configuration right, are issuer, Redis and engine reachable and safe?",
    "explain": "a token on standard input: who that is, and which border his request would have",
    "admin": "the pages of the admin listener: a link to them, for whoever may read the configuration",
    "directory": "who is a member of what: import, export, show, grant, revoke, block, unblock",
    "keys": "the salt keys and epochs: new, list, rotate",
    "audit": "who was let in to what: verify, show",
    "login": "sign in at a gate",
    "logout": "give the sign-in back",
    "whoami": "whom the gate takes you for, and what you may act for",
    "pat": "personal access tokens, for programs that take only a fixed key: create, list, revoke",
    "token": "a fresh access token on standard output, and nothing else",
}


class Command(Protocol):
    """What a command's module has."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script. Ends the process with the command's exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    name = next((word for word in given if word in COMMANDS), None)
    try:
        # Also the imports in here take a moment, in which Ctrl-C may come.
        parser, command = _parser(name)
        parsed, unknown = parser.parse_known_args(given)
        if unknown:
            # argparse would repeat them, and somebody may have put a token there.
            parser.error(f"arguments that are not known: {len(unknown)}; see --help. Secrets are never arguments")
        if command is None:
            parser.print_help(sys.stderr)
            sys.exit(2)
        status = command.run(parsed)
        sys.stdout.flush()
        sys.exit(status)
    except KeyboardInterrupt:
        sys.exit(130)
    except (OSError, BaseExceptionGroup) as error:
        why = _output_lost(error)
        if why is None:
            raise
        if why != errno.EPIPE:  # then the reader has left, and there is nobody to tell
            sys.stderr.write(f"saltgate: the answer cannot be written: {os.strerror(why)}\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left in the buffer goes there
        sys.exit(1)


def _output_lost(error: OSError | BaseExceptionGroup) -> int | None:
    """The errno where all that went wrong is that standard output takes nothing."""
    if isinstance(error, OSError):
        return error.errno if error.errno in (errno.EPIPE, errno.ENOSPC) else None
    found = [
        _output_lost(each) if isinstance(each, OSError | BaseExceptionGroup) else None for each in error.exceptions
    ]
    return found[0] if None not in found else None


def _parser(name: str | None) -> tuple[argparse.ArgumentParser, Command | None]:
    parser = argparse.ArgumentParser(
        prog="saltgate", description="The gate in front of self-hosted LLM engines: who must be apart is apart."
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show program's version number and exit")
    subparsers = parser.add_subparsers(metavar="COMMAND", dest="command")
    command: Command | None = None
    for known, summary in COMMANDS.items():
        subparser = subparsers.add_parser(known, help=summary, description=summary[0].upper() + summary[1:])
        if known == name:
            command = cast("Command", importlib.import_module(f"proxy.cli.{known}"))
            command.add_arguments(subparser)
    return parser, command


class _Version(argparse.Action):
    """Looked up only where it is asked for: it takes as long as all of `saltgate token`."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        sys.stdout.write(version("saltgate") + "\n")
        parser.exit()
