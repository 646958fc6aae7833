"""`saltgate token`: a fresh access token on standard output and nothing else, for clients that run a command for it."""

# ruff: noqa: A005 - the command's name; imports are absolute, so nothing is shadowed

from __future__ import annotations

import argparse
import sys

from proxy.cli.signed_in import MIN_VALIDITY, NotSignedIn, fresh_sign_in, kept_token


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gate", metavar="URL", help="the gate; by default SALTGATE_GATE, else the last one")
    parser.add_argument(
        "--min-validity",
        type=_seconds,
        default=MIN_VALIDITY,
        metavar="SECONDS",
        help="refresh a token that has less left; at most half of its life counts (default: 60)",
    )


def run(arguments: argparse.Namespace) -> int:
    try:
        token = kept_token(arguments.gate, min_validity=arguments.min_validity) or _refreshed(arguments)
    except NotSignedIn as error:
        sys.stderr.write(f"saltgate: {error}\n")
        return 1
    sys.stdout.write(token + "\n")
    return 0


def _refreshed(arguments: argparse.Namespace) -> str:
    import asyncio  # takes as long as all the rest, and is seldom needed

    return asyncio.run(fresh_sign_in(arguments.gate, min_validity=arguments.min_validity)).access_token


def _seconds(text: str) -> float:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise argparse.ArgumentTypeError("write a whole number of seconds")
    return float(text)
