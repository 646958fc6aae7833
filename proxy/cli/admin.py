"""`saltgate admin ticket`: the way to the administrators' pages for an operator of the machine."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from config.settings import Settings
from observability.audit.acts import Unaccountable
from observability.audit.entries import Act
from proxy.cli.command_audit import command_audit
from proxy.cli.configuration import add_configuration, configured
from proxy.plan import admin_origin
from proxy.ticket import Holder, new_ticket, ticket_key

OPERATOR = Holder("operator")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(metavar="COMMAND", dest="deed", required=True)
    ticket = commands.add_parser(
        "ticket",
        help="print a link to the pages, good once, for a minute",
        description="Print a link to the pages of the admin listener. It is good once, for a minute: open it at once.",
    )
    add_configuration(ticket)


def run(arguments: argparse.Namespace) -> int:
    settings = configured(arguments)
    if settings is None:
        return 2
    if admin_origin(settings.admin) is None:
        sys.stderr.write(
            "saltgate: admin.url: is required off loopback; write the address at which you open the pages\n"
        )
        return 2
    try:
        link = asyncio.run(_made(settings))
    except Unaccountable as error:
        sys.stderr.write(f"saltgate: {error}\n")
        return 1
    sys.stdout.write(f"{link}\n")
    return 0


async def _made(settings: Settings) -> str | None:
    """The link. Where there is an audit, it tells of it first."""
    with command_audit(settings, ("admin", "ticket")) as acts:
        async with acts.acting(Act(event="admin.ticket_made")):
            return pages_link(settings, now=time.time())  # noqa: TID251 - the clock is handed out here


def pages_link(settings: Settings, *, now: float) -> str | None:
    """The way in for an operator, good once, for a minute from `now` on, in Unix seconds. None: there are no pages."""
    origin = admin_origin(settings.admin)
    if origin is None:
        return None
    key = ticket_key(settings.isolation.keys[0].secret.value)
    return f"{origin}/sign-in#{new_ticket(key, OPERATOR, audience=origin, now=now)}"
