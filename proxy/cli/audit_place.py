"""Which files an auditor looks at, and with which keys: the configuration's, or those that he names."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from observability.audit.chain import ChainKey, chain_key
from observability.audit.start import keys_of
from proxy.cli.configuration import configured

_LONGEST_KEY_BYTES: Final = 64 * 1024
_SHORTEST_KEY_BYTES: Final = 32


class WrongPlace(Exception):  # noqa: N818 - not an error of the program
    """What was written on the command line cannot be meant. The message is the remedy."""


@dataclass(frozen=True, slots=True)
class Place:
    """`issuers` are those whose people may be asked for by their subject alone."""

    directory: Path
    keys: Mapping[str, ChainKey]
    issuers: Sequence[str]


def place(arguments: argparse.Namespace) -> Place | None:
    """None where the configuration has faults, which were told. Raises WrongPlace."""
    named = dict(_named_key(written) for written in arguments.key)
    if arguments.configuration is None:
        if arguments.directory is None or not named:
            raise WrongPlace("name the configuration with -c, or the files with --directory and their keys with --key")
        return Place(arguments.directory, named, ())
    settings = configured(arguments)
    if settings is None:
        return None
    directory = arguments.directory or settings.audit.directory
    if directory is None:
        raise WrongPlace("there is no audit: [audit] has no `directory`")
    issuers = tuple(issuer.issuer for issuer in settings.issuers)
    return Place(directory, {**keys_of(settings.audit), **named}, issuers)


def _named_key(written: str) -> tuple[str, ChainKey]:
    key_id, equals, file = written.partition("=")
    if not equals or not key_id.isascii() or not file:
        raise WrongPlace("write --key ID=FILE, the id as the lines have it")
    try:
        secret = Path(file).read_bytes()[:_LONGEST_KEY_BYTES].removesuffix(b"\n")
    except OSError as error:
        raise WrongPlace(f"{file} cannot be read: {error.strerror}") from error
    if len(secret) < _SHORTEST_KEY_BYTES:
        raise WrongPlace(f"{file} holds {len(secret)} bytes, and no key has less than {_SHORTEST_KEY_BYTES}")
    return key_id, chain_key(key_id, secret)
