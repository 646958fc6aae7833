"""What must hold of `[tokens]` and of `[[admin.administrators]]`. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

from config.faults import Fault
from config.settings import Administrator, Tokens

LONGEST_LIFETIME: Final = 365 * 24 * 3600.0
MOST_PER_OWNER: Final = 1000
SHORTEST_LIFETIME: Final = 60.0

_MEMBER: Final = re.compile(r"(?:user|group):[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,255}")


def faults_of_tokens(tokens: Tokens) -> Iterator[Fault]:
    if tokens.max_lifetime > LONGEST_LIFETIME:
        yield Fault("tokens.max_lifetime", 'write "8760h" (a year) at most: what nobody renews, nobody misses')
    if tokens.max_lifetime < SHORTEST_LIFETIME:
        yield Fault("tokens.max_lifetime", 'write "1m" at least')
    if tokens.default_lifetime > tokens.max_lifetime:
        yield Fault("tokens.default_lifetime", "is longer than `max_lifetime`; shorten it, or lengthen that")
    if tokens.per_owner > MOST_PER_OWNER:
        yield Fault("tokens.per_owner", f"write {MOST_PER_OWNER} at most; one person's programs need no more")


def faults_of_administrators(administrators: Collection[Administrator], issuers: Collection[str]) -> Iterator[Fault]:
    """`issuers` are the known ones; empty where none could be read."""
    for number, administrator in enumerate(administrators):
        key = f"admin.administrators.{number}"
        if issuers and administrator.issuer not in issuers:
            yield Fault(f"{key}.issuer", "is none of [[issuers]]; write it as it stands there")
        for position, member in enumerate(administrator.members):
            if not _MEMBER.fullmatch(member):
                yield Fault(f"{key}.members.{position}", "write user:SUBJECT or group:NAME")
