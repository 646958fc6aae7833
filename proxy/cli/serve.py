"""`saltgate serve`: run the gate until it is told to stop."""

from __future__ import annotations

import argparse
import sys

from proxy.cli.configuration import add_configuration, configured
from proxy.server import CannotListen, serve


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_configuration(parser)


def run(arguments: argparse.Namespace) -> int:
    settings = configured(arguments)
    if settings is None:
        return 2
    try:
        serve(settings)
    except CannotListen as error:
        sys.stderr.write(f"saltgate: {error}. Free the address or choose another.\n")
        return 2
    return 0
