"""`saltgate pat`: personal access tokens, for programs that take only a fixed key.

Either at a gate where one is signed in, or with the configuration in hand: then straight where tokens are kept.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Final

from config.faults import printable
from observability.audit.acts import Unaccountable
from proxy.account.token_pages import LONGEST_NAME
from proxy.cli.configuration import configured
from proxy.cli.pat_at_gate import open_gate_tokens
from proxy.cli.pat_in_store import open_stored_tokens
from proxy.cli.pat_shown import MadeToken, PatRefused, ShownToken, Tokens, Whose, WrongUse, listed, until
from proxy.cli.sign_in import SignInFailed
from proxy.directory.changes import ChangeRefused
from proxy.directory.store import StoreUnavailable
from proxy.identity.credential import PERSONAL_PREFIX
from proxy.identity.personal import ID
from proxy.refusals import Refusal

_SECONDS: Final = {"m": 60, "h": 3600, "d": 24 * 3600}
_DURATION: Final = re.compile(r"([1-9][0-9]{0,5})([mhd])", re.ASCII)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
    creating = _action(actions, "create", "make a token; it is shown this once, on standard output")
    creating.add_argument("--name", help="what it is for, for the list; by default this machine's name")
    creating.add_argument("--expires", metavar="TIME", help='how long it is good for, for example "30d" or "12h"')
    creating.add_argument(
        "--project",
        action="append",
        dest="projects",
        metavar="WORKSPACE/PROJECT",
        help="what it is for alone, as often as need be; by default all that you may act for",
    )
    creating.add_argument("--issuer", metavar="ISSUER", help="the local issuer, where the configuration has several")
    listing = _action(
        actions, "list", "your tokens, never their secrets", "The last use is noted a minute later at most."
    )
    revoking = _action(actions, "revoke", "make a token over, everywhere within a second")
    which = revoking.add_mutually_exclusive_group(required=True)
    which.add_argument("id", nargs="?", metavar="ID", help=f"the 8 characters behind {PERSONAL_PREFIX}")
    which.add_argument("--all", action="store_true", help="all that there are")
    for administering in (listing, revoking):
        administering.add_argument("--subject", metavar="SUBJECT", help="whose, for administrators")
        administering.add_argument("--issuer", metavar="ISSUER", help="whose people the subject belongs to")


def run(arguments: argparse.Namespace) -> int:
    try:
        return asyncio.run(_run(arguments))
    except WrongUse as error:
        _tell(str(error))
        return 2
    except (SignInFailed, PatRefused, ChangeRefused, StoreUnavailable, Unaccountable, Refusal) as error:
        _tell(str(error))
        return 1


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str, more: str | None = None
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=summary, description=summary[0].upper() + summary[1:], epilog=more
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--gate", metavar="URL", help="the gate; by default SALTGATE_GATE, else the last one")
    where.add_argument("-c", "--configuration", type=Path, metavar="saltgate.toml", help="where the tokens are kept")
    parser.add_argument("--json", action="store_true", help="for programs")
    return parser


async def _run(arguments: argparse.Namespace) -> int:
    async with _open(arguments) as tokens:
        match arguments.action:
            case "create":
                return await _create(arguments, tokens)
            case "list":
                return await _list(arguments, tokens)
            case _:
                return await _revoke(arguments, tokens)


@asynccontextmanager
async def _open(arguments: argparse.Namespace) -> AsyncIterator[Tokens]:
    whose = _whose(arguments)
    if arguments.configuration is None:
        async with open_gate_tokens(arguments.gate, whose) as tokens:
            yield tokens
        return
    settings = configured(arguments)
    if settings is None:
        raise WrongUse("the configuration has faults; `saltgate check` tells more")
    async with open_stored_tokens(settings, arguments.configuration, whose) as stored:
        yield stored


def _whose(arguments: argparse.Namespace) -> Whose:
    return Whose(arguments.issuer, None if arguments.action == "create" else arguments.subject)


async def _create(arguments: argparse.Namespace, tokens: Tokens) -> int:
    name = arguments.name if arguments.name is not None else platform.node()[:LONGEST_NAME].strip() or "unnamed"
    made = await tokens.create(name, _lifetime(arguments.expires), arguments.projects)
    if arguments.json:
        sys.stdout.write(json.dumps({"token": made.secret, **asdict(made.shown)}) + "\n")
    else:
        sys.stdout.write(made.secret + "\n")
    sys.stdout.flush()
    _advise(made, arguments.configuration)
    return 0


async def _list(arguments: argparse.Namespace, tokens: Tokens) -> int:
    found = await tokens.owned()
    if arguments.json:
        documents: list[dict[str, object]] = [asdict(token) for token in found]
        sys.stdout.write(json.dumps({"tokens": documents}) + "\n")
        return 0
    sys.stdout.write(listed(found))
    if not found:
        _tell(_none(arguments.subject))
    return 0


def _none(subject: str | None) -> str:
    """Nobody makes a token for somebody else."""
    return "there are none; `saltgate pat create` makes one" if subject is None else f"{subject} has none"


async def _revoke(arguments: argparse.Namespace, tokens: Tokens) -> int:
    if arguments.all:
        count = await tokens.revoke_all()
    else:
        await tokens.revoke(_id(arguments.id))
        count = 1
    if arguments.json:
        sys.stdout.write(json.dumps({"revoked": count}) + "\n")
    _tell(f"revoked: {count}. In force on every worker within a second")
    return 0


def _id(written: str) -> str:
    if ID.fullmatch(written):
        return written
    # Not repeated: it may be a whole token, which others on this machine have seen by now.
    raise WrongUse(
        f"a token's id is the 8 characters behind {PERSONAL_PREFIX}, as `saltgate pat list` shows it, never the token"
    )


def _lifetime(written: str | None) -> int | None:
    if written is None:
        return None
    match = _DURATION.fullmatch(written)
    if match is None:
        raise WrongUse('write --expires with its unit, for example "30d", "12h" or "90m"')
    return int(match[1]) * _SECONDS[match[2]]


def _advise(made: MadeToken, configuration: Path | None) -> None:
    shown: ShownToken = made.shown
    limit = "all that you may act for" if shown.projects is None else ", ".join(shown.projects)
    _tell(f"the token {shown.id} ({shown.name}) is good until {until(shown)}, for {limit}; it is shown this once")
    place = "" if configuration is None else f" -c {quote(str(configuration))}"
    _tell(f"use it as API key with the base URL {made.gate}/v1; `saltgate pat revoke {shown.id}{place}` ends it")


def _tell(message: str) -> None:
    sys.stderr.write(f"saltgate: {printable(message)}\n")
    sys.stderr.flush()
