"""`saltgate whoami`: whom the gate takes the signed-in person for, and what he may act for."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Final

from proxy.cli.ask_gate import ask_gate
from proxy.cli.sign_in import SignInFailed
from proxy.cli.sign_in.web import open_web, shown
from proxy.cli.signed_in import fresh_sign_in
from proxy.identity.claims import LATEST_TIME
from proxy.identity.token import Json

ACCOUNT_PATH: Final = "/account"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gate", metavar="URL", help="the gate; by default SALTGATE_GATE, else the last one")
    parser.add_argument("--json", action="store_true", help="for programs")


def run(arguments: argparse.Namespace) -> int:
    try:
        gate, account = asyncio.run(_account(arguments.gate))
    except SignInFailed as error:
        sys.stderr.write(f"saltgate: {error}\n")
        return 1
    if arguments.json:
        sys.stdout.write(json.dumps({"gate": gate, **account}, indent=2) + "\n")
        return 0
    now = time.time()  # noqa: TID251 - for a person, who reads how long he has left
    for name, value in account_lines(gate, account, now):
        sys.stdout.write(f"{name:<12} {value}\n")
    return 0


async def _account(gate: str | None) -> tuple[str, Mapping[str, Json]]:
    signed_in = await fresh_sign_in(gate)
    async with open_web() as web:
        return signed_in.gate, await ask_gate(web, signed_in.gate, signed_in.access_token, ACCOUNT_PATH)


def account_lines(gate: str, account: Mapping[str, Json], now: float) -> Iterator[tuple[str, str]]:
    """What a person reads: names with their values. Nothing in them can draw on the terminal."""
    yield "gate", gate
    identity = account.get("identity")
    if isinstance(identity, dict):
        yield "subject", _text(identity.get("subject"))
        yield "issuer", _text(identity.get("issuer"))
        yield "client", _text(identity.get("client"))
        yield "groups", _groups(identity)
        expires_at = identity.get("expires_at")
        if isinstance(expires_at, int | float) and 0 <= expires_at <= LATEST_TIME:
            yield "token", f"good for {max(0, round((expires_at - now) / 60))} more minutes"
    yield from _memberships(account)


def _groups(identity: Mapping[str, Json]) -> str:
    groups = identity.get("groups")
    names = ", ".join(_text(group) for group in groups) if isinstance(groups, list) else ""
    return (names or "none") + ("" if identity.get("groups_complete") is True else " (the token does not list all)")


def _memberships(account: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    memberships = account.get("memberships")
    if not isinstance(memberships, list) or not memberships:
        yield "projects", "none; your administrator grants memberships"
        return
    for number, each in enumerate(memberships):
        if isinstance(each, dict):
            place = f"{_text(each.get('workspace'))}/{_text(each.get('project'))}"
            yield "" if number else "projects", f"{place} (shares its cache within: {_text(each.get('unit'))})"
    if account.get("more") is True:
        yield "", "and more"


def _text(value: Json) -> str:
    return shown(value) if isinstance(value, str) else "not told"
