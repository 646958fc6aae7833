"""The configuration that a command was given: read, or every fault told."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from config.faults import ConfigurationFaults
from config.load import load
from config.settings import Settings


def add_configuration(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    parser.add_argument("-c", "--configuration", type=Path, required=required, metavar="saltgate.toml")


def configured(arguments: argparse.Namespace) -> Settings | None:
    """The settings, after telling every warning; None after telling every fault, one line each."""
    path: Path = arguments.configuration
    try:
        loaded = load(path)
    except ConfigurationFaults as faults:
        for fault in faults.faults:
            sys.stderr.write(f"saltgate: {fault}\n")
        return None
    for warning in loaded.warnings:
        sys.stderr.write(f"saltgate: warning: {warning}\n")
    return loaded.settings
