"""What was granted before and is over: sign-ins that were logged out, people whom an issuer ended, revoked tokens.

A token that proves somebody for minutes or hours cannot be taken back by itself. An ending says that it is over, and
each worker's view of the directory knows it within a second (contract section 4). Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from proxy.identity import Identity

Of = Literal["session", "unnamed", "subject", "issuer", "token"]

LONGEST_SECONDS: Final = 366 * 24 * 3600
"""No credential lives longer, so no ending needs to."""

MOST_OF_ISSUER: Final = 5000
"""Each worker reads all endings at each change: no issuer may have so many that others' callers feel it."""


EVERYBODY: Final = "everybody"


@dataclass(frozen=True, slots=True)
class Ending:
    """`of` a session of the issuer (`sid`), of all that an issuer gave a subject until then ("unnamed": as far as that
    names no session), of all that the issuer gave anybody (its `name` is EVERYBODY), or of a personal access token,
    whose issuer is "". `at` and `until` are Unix seconds: from when it holds, and until when it must be known.
    """

    of: Of
    issuer: str
    name: str
    at: int
    until: int


@dataclass(frozen=True, slots=True)
class Endings:
    """All that is over, by the record's name."""

    records: Mapping[str, Ending] = field(default_factory=dict)

    def has_ended(self, identity: Identity) -> bool:
        """Whether what the identity rests on is over.

        An ending ends what was issued in its very second, too, and what does not tell when it was issued; what was
        issued later, an issuer meant to give, also where it gives a new session the name of an ended one. An ending
        does not end the subject's personal access tokens, which have endings of their own.
        """
        if not self.records:
            return False
        if identity.token_id is not None:
            return record_name("token", "", identity.token_id) in self.records
        issuer, session = identity.issuer, identity.session
        narrow = record_name("unnamed", issuer, identity.subject)
        if session is not None:
            narrow = record_name("session", issuer, session)
        wide = record_name("subject", issuer, identity.subject), record_name("issuer", issuer, EVERYBODY)
        found = (self.records.get(name) for name in (narrow, *wide))
        return any(ending is not None and _was_issued_before(identity, ending) for ending in found)


NOTHING_ENDED: Final = Endings()


def _was_issued_before(identity: Identity, ending: Ending) -> bool:
    return identity.issued_at is None or identity.issued_at < ending.at + 1


def record_name(of: Of, issuer: str, name: str) -> str:
    """The record of an ending. Neither the kind nor an issuer has spaces, so the first two end them."""
    return f"{of} {issuer} {name}"


def record_value(ending: Ending) -> str:
    """What the record holds."""
    return f"{ending.at} {ending.until}"


def over(endings: Endings, now: float) -> tuple[str, ...]:
    """The records that nobody needs any more, at `now` in Unix seconds."""
    return tuple(name for name, ending in endings.records.items() if ending.until < now)


def folded(endings: Iterable[Ending]) -> tuple[tuple[Ending, ...], tuple[str, ...]]:
    """For each issuer that has more than MOST_OF_ISSUER, one ending in place of the oldest, and the records that it
    stands for: whoever signed in before that signs in anew, and nobody whose sign-in was ended comes back.
    """
    by_issuer: defaultdict[str, list[Ending]] = defaultdict(list)
    for ending in endings:
        if ending.of != "token":
            by_issuer[ending.issuer].append(ending)
    wide: list[Ending] = []
    gone: list[str] = []
    for issuer, its in by_issuer.items():
        if len(its) > MOST_OF_ISSUER:
            # By a quarter more than need be, so that not each further ending is folded by itself.
            old = sorted(its, key=lambda ending: ending.at)[: -(MOST_OF_ISSUER * 3 // 4)]
            at, until = old[-1].at, max(ending.until for ending in old)
            wide.append(Ending("issuer", issuer, EVERYBODY, at, until))
            gone += [record_name(ending.of, issuer, ending.name) for ending in old if ending.of != "issuer"]
    return tuple(wide), tuple(gone)


def parse_endings(records: Iterable[tuple[str, str]]) -> tuple[Endings, tuple[str, ...]]:
    """The endings, and the names of the records that are none.

    Where only the value cannot be read, the ending holds for ever: it was meant to end something.
    """
    found: dict[str, Ending] = {}
    faulty: list[str] = []
    for name, value in records:
        ending = _ending(name, value)
        if ending is not None:
            found[name] = ending
        if ending is None or ending.until == _FOR_EVER:
            faulty.append(name)
    return Endings(found), tuple(faulty)


_FOR_EVER: Final = 10**15
_KINDS: Final[Mapping[str, Of]] = {
    "session": "session",
    "unnamed": "unnamed",
    "subject": "subject",
    "issuer": "issuer",
    "token": "token",
}


def _ending(name: str, value: str) -> Ending | None:
    kind, _, rest = name.partition(" ")
    issuer, separator, named = rest.partition(" ")
    of = _KINDS.get(kind)
    if of is None or not separator or not named or (of == "token") != (issuer == ""):
        return None
    at, _, until = value.partition(" ")
    if _is_time(at) and _is_time(until):
        return Ending(of, issuer, named, int(at), int(until))
    return Ending(of, issuer, named, _FOR_EVER, _FOR_EVER)


def _is_time(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 12
