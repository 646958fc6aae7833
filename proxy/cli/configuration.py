"""The configuration that a command was given: read, or every fault told."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from config.faults import ConfigurationFaults, Fault
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
        tell_faults(path, faults.faults)
        return None
    for warning in loaded.warnings:
        sys.stderr.write(f"saltgate: warning: {warning}\n")
    return loaded.settings


def tell_faults(path: Path, faults: Iterable[Fault]) -> None:
    """Every fault with the configuration that has it, one line each: there may be several files."""
    for fault in faults:
        sys.stderr.write(f"saltgate: {in_file(path, fault)}\n")


def in_file(path: Path, fault: Fault) -> Fault:
    """The fault with its file before its key; where the file itself is the fault, that is its key already."""
    return fault if fault.key == str(path) else Fault(f"{path}: {fault.key}", fault.message)
