"""`saltgate logout`: the tokens are given back to the identity provider, and forgotten here."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from proxy.cli.sign_in import SignInFailed
from proxy.cli.sign_in.kept import KeptSignIn
from proxy.cli.sign_in.revocation import revoke
from proxy.cli.sign_in.web import open_web
from proxy.cli.signed_in import alone_with, chosen_gate, sign_ins


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gate", metavar="URL", help="the gate; by default SALTGATE_GATE, else the last one")


def run(arguments: argparse.Namespace) -> int:
    try:
        gate = chosen_gate(arguments.gate)
        return 0 if gate is None else asyncio.run(_sign_out(gate))
    except SignInFailed as error:
        sys.stderr.write(f"saltgate: {error}\n")
        return 1


async def _sign_out(gate: str) -> int:
    """Nothing is kept afterwards, also where the identity provider is away: that is told, with what is still good."""
    async with alone_with(gate):
        kept = sign_ins().find(gate)
        if kept is None:
            sys.stderr.write(f"saltgate: you were not signed in at {gate}\n")
            return 0
        try:
            async with open_web() as web:
                await revoke(web, kept)
        except SignInFailed as error:
            sys.stderr.write(f"saltgate: signed out here, but not everything was taken back: {error}{_left(kept)}\n")
            return 1
        finally:
            sign_ins().forget(gate)
    sys.stderr.write(f"saltgate: signed out at {gate}{_left(kept)}\n")
    return 0


def _left(kept: KeptSignIn) -> str:
    """A gate that reads tokens by itself does not hear of it."""
    seconds = kept.expires_at - time.time()  # noqa: TID251 - for a person, who reads how long that is
    return "" if seconds <= 0 else f"; an access token that was handed out ends by itself in {round(seconds)} s"
