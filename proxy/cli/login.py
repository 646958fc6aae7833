"""`saltgate login`: a person signs in at a gate. Where and how, the gate says itself."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import threading
import time
import webbrowser
from dataclasses import dataclass, field

from config.person import person
from proxy.cli.ask_gate import GateRefused, ask_gate
from proxy.cli.sign_in import SignInFailed
from proxy.cli.sign_in.device import DeviceCode, sign_in_by_device
from proxy.cli.sign_in.gate import sign_in_of
from proxy.cli.sign_in.id_tokens import signed_in_person
from proxy.cli.sign_in.issuer import Endpoints, Tokens, discover
from proxy.cli.sign_in.kept import KeptSignIn
from proxy.cli.sign_in.loopback import sign_in_by_browser
from proxy.cli.sign_in.revocation import revoke
from proxy.cli.sign_in.timekeeper import RealTime
from proxy.cli.sign_in.web import Unreachable, Web, open_web
from proxy.cli.signed_in import alone_with, chosen_gate, sign_ins
from proxy.cli.whoami import ACCOUNT_PATH
from proxy.identity.native_sign_in import NativeSignIn


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gate", metavar="URL", help="the gate; by default SALTGATE_GATE, else the last one")
    parser.add_argument("--issuer", metavar="URL", help="the identity provider, where the gate has several")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--device", action="store_true", help="with a code to type on any device")
    way.add_argument("--browser", action="store_true", help="with a browser on this machine")
    parser.add_argument("--json", action="store_true", help="for programs")


def run(arguments: argparse.Namespace) -> int:
    try:
        gate = chosen_gate(arguments.gate)
        if gate is None:
            _tell("name the gate: saltgate login --gate https://YOUR.GATE")
            return 2
        kept = asyncio.run(_sign_in(arguments, gate))
    except SignInFailed as error:
        _tell(str(error))
        return 1
    if arguments.json:
        sys.stdout.write(json.dumps(_public(kept)) + "\n")
    _tell(f"signed in at {gate}" + ("" if kept.subject is None else f" as {kept.subject}"))
    return 0


def _public(kept: KeptSignIn) -> dict[str, object]:
    return {
        "gate": kept.gate,
        "issuer": kept.issuer,
        "subject": kept.subject,
        "expires_at": kept.expires_at,
        "refreshes": kept.refresh_token is not None,
    }


async def _sign_in(arguments: argparse.Namespace, gate: str) -> KeptSignIn:
    async with open_web() as web:
        sign_in = await sign_in_of(web, gate, arguments.issuer)
        if arguments.issuer is None:
            _refuse_anothers(sign_in, gate)
        endpoints = await discover(web, sign_in.issuer)
        _tell(f"signing in for {gate} at {sign_in.issuer}")
        brought = await _brought(web, endpoints, sign_in, _by_browser(arguments, endpoints))
        kept = await _kept(web, endpoints, sign_in, gate, brought)
        await _refuse_unless_taken(web, kept)
        # What was kept before is not given back: some issuers would end the new sign-in with it.
        async with alone_with(gate):
            sign_ins().keep(kept, as_last=True)
    return kept


def _refuse_anothers(sign_in: NativeSignIn, gate: str) -> None:
    """A gate that nobody knows could name the identity provider of another one, and would get a token that is good
    there. So whoever signs in at both says himself that they belong together.
    """
    for kept in sign_ins().elsewhere(gate):
        if (kept.issuer, kept.client_id) == (sign_in.issuer, sign_in.client_id):
            raise SignInFailed(
                f"{gate} wants a sign-in that may also be good at {kept.gate}, where you are signed in at the same "
                f"identity provider; if both are of the same owner, say so with: --issuer {sign_in.issuer}"
            )


@dataclass(frozen=True, slots=True)
class _Brought:
    """Tokens as they came, and the nonce that their ID token must carry; None where none was sent."""

    tokens: Tokens
    nonce: str | None = field(repr=False)


def _by_browser(arguments: argparse.Namespace, endpoints: Endpoints) -> bool:
    """What was asked for; else the browser where one is at hand, and what the issuer has."""
    if arguments.browser or arguments.device:
        return bool(arguments.browser)
    return endpoints.device is None or (person().has_browser and endpoints.authorization is not None)


async def _brought(web: Web, endpoints: Endpoints, sign_in: NativeSignIn, by_browser: bool) -> _Brought:
    if by_browser:
        brought = await sign_in_by_browser(web, endpoints, sign_in, _open)
        return _Brought(brought.tokens, brought.nonce)
    return _Brought(await sign_in_by_device(web, endpoints, sign_in, _show, RealTime()), None)


async def _kept(web: Web, endpoints: Endpoints, sign_in: NativeSignIn, gate: str, brought: _Brought) -> KeptSignIn:
    now = time.time()  # noqa: TID251 - a token's end is told in the time of this machine
    tokens = brought.tokens
    who = await signed_in_person(web, endpoints, sign_in.client_id, tokens, nonce=brought.nonce, now=now)
    return KeptSignIn(
        gate=gate,
        issuer=sign_in.issuer,
        client_id=sign_in.client_id,
        resource=sign_in.resource,
        subject=None if who is None else who.subject,
        access_token=tokens.access_token,
        refresh_token=tokens.refresh_token,
        expires_at=now + tokens.lifetime,
        lifetime=tokens.lifetime,
    )


async def _refuse_unless_taken(web: Web, kept: KeptSignIn) -> None:
    """A token that the gate does not take is not kept; a gate that is busy, or says no to the person, is told of."""
    try:
        await ask_gate(web, kept.gate, kept.access_token, ACCOUNT_PATH)
    except GateRefused as refused:
        if refused.status == 401:
            await _give_back(web, kept)
            raise
        _tell(f"warning: {refused}")
    except Unreachable as error:
        _tell(f"warning: {error}")


async def _give_back(web: Web, kept: KeptSignIn) -> None:
    try:
        await revoke(web, kept)
    except SignInFailed as error:
        _tell(f"warning: the tokens could not be given back: {error}")


def _open(address: str) -> None:
    _tell(f"a browser opens; if not, open this page on this machine:\n\n  {address}\n")
    if person().has_browser:
        # Some browsers hold the caller until they are closed.
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


def _show(code: DeviceCode) -> None:
    _tell(f"open this page on any device, and type the code:\n\n  {code.address}\n  {code.user_code}\n")
    if code.complete is not None:
        _tell(f"or open this page, and compare the code:\n\n  {code.complete}\n")


def _tell(message: str) -> None:
    sys.stderr.write(f"saltgate: {message}\n")
    sys.stderr.flush()
