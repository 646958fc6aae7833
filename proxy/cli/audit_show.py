"""`saltgate audit show`: the lines that are asked for, or the sums of their tokens."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from config.faults import printable
from observability.audit.files import listed
from observability.audit.reading import Doubtful, lines
from observability.audit.subjects import pseudonym
from observability.audit.verifying import NO_AUDIT
from observability.names import OPERATIONS_WITHOUT_USAGE
from proxy.cli.audit_place import Place, WrongPlace
from proxy.cli.directory_show import table

_AGO: Final = re.compile(r"([0-9]{1,6})([mhd])", re.ASCII)
_COUNT: Final = re.compile("[1-9][0-9]{0,8}", re.ASCII)
_MINUTES: Final = {"m": 1, "h": 60, "d": 24 * 60}


class Shown(msgspec.Struct, frozen=True):
    """What of a line may be asked for or is shown to a person."""

    ts: str
    event: str
    outcome: str | None = None
    status: int | None = None
    code: str | None = None
    request_id: str | None = None
    issuer: str | None = None
    subject: str | None = None
    group: str | None = None
    actor: str | None = None
    by: str | None = None
    workspace: str | None = None
    project: str | None = None
    unit: str | None = None
    model: str | None = None
    operation: str | None = None
    state: str | None = None
    key_id: str | None = None
    token_id: str | None = None
    command: str | None = None
    account: str | None = None
    host: str | None = None
    prompt_tokens: int | None = None
    reused_tokens: int | None = None
    output_tokens: int | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--since", metavar="TIME", help="from then on")
    parser.add_argument("--until", metavar="TIME", help="before then")
    for name in ("workspace", "project", "model", "outcome"):
        parser.add_argument(f"--{name}", metavar="NAME")
    parser.add_argument("--event", metavar="EVENT", help="for example request.refused; request. is all of requests")
    parser.add_argument("--request-id", metavar="ID", help="the one of X-Request-Id")
    parser.add_argument(
        "--subject", metavar="SUBJECT", help="a person, as the issuer names him: what he did or had done"
    )
    parser.add_argument("--issuer", metavar="ISSUER", help="whose people he belongs to; by default all of [[issuers]]")
    parser.add_argument("--limit", type=_count, metavar="NUMBER", help="only the last so many")
    parser.add_argument("--sum", action="store_true", help="the tokens of each workspace, project and model together")


def run(arguments: argparse.Namespace, place: Place) -> int:
    """Raises WrongPlace, and OSError where the directory cannot be read."""
    asked = _asked(arguments, place)
    if not listed(place.directory).chains:
        sys.stderr.write(f"saltgate: {printable(str(place.directory))}: {NO_AUDIT}\n")
        return 1
    doubtful = Doubtful()
    read = lines(place.directory, place.keys, doubtful, since=asked.since, until=asked.until)
    found: Iterator[tuple[Shown, bytes]] = (
        (one, written) for written in read if asked.fits(one := msgspec.json.decode(written, type=Shown))
    )
    if arguments.limit is not None:
        found = iter(deque(found, maxlen=arguments.limit))
    if arguments.sum:
        _sum(found, as_json=arguments.json)
    else:
        for one, written in found:
            sys.stdout.write(written.decode("utf-8") if arguments.json else printable(_row(one)) + "\n")
    if doubtful.lines:
        sys.stderr.write(
            f"saltgate: {doubtful.lines} lines are left out, for nobody with these keys has written them as they are; "
            "`saltgate audit verify` names them\n"
        )
        return 1
    return 0


def _count(written: str) -> int:
    """Raises ArgumentTypeError."""
    if _COUNT.fullmatch(written) is None:
        raise argparse.ArgumentTypeError("write a number of lines, 1 at least")
    return int(written)


@dataclass(frozen=True, slots=True)
class Asked:
    """Which lines are asked for. `names` are all that a person may be called in them."""

    since: datetime | None
    until: datetime | None
    equal: dict[str, str]
    event: str | None
    names: frozenset[str] | None

    def fits(self, one: Shown) -> bool:
        if not self._is_event(one.event):
            return False
        if any(getattr(one, name) != value for name, value in self.equal.items()):
            return False
        if self.names is not None and self.names.isdisjoint((one.subject, one.actor, one.by)):
            return False
        return self._is_in_time(one)

    def _is_event(self, event: str) -> bool:
        if self.event is None or event == self.event:
            return True
        return self.event.endswith(".") and event.startswith(self.event)

    def _is_in_time(self, one: Shown) -> bool:
        if self.since is None and self.until is None:
            return True
        moment = datetime.fromisoformat(one.ts)
        return (self.since is None or moment >= self.since) and (self.until is None or moment < self.until)


def _asked(arguments: argparse.Namespace, place: Place) -> Asked:
    equal = {name: getattr(arguments, name) for name in ("workspace", "project", "model", "outcome", "request_id")}
    return Asked(
        since=_moment("--since", arguments.since),
        until=_moment("--until", arguments.until),
        equal={name: value for name, value in equal.items() if value is not None},
        event=arguments.event,
        names=None if arguments.subject is None else _names(arguments, place),
    )


def _names(arguments: argparse.Namespace, place: Place) -> frozenset[str]:
    issuers = place.issuers if arguments.issuer is None else (arguments.issuer,)
    if not issuers:
        raise WrongPlace("name the issuer of the subject with --issuer")
    hidden = {pseudonym(key, issuer, arguments.subject) for key in place.keys.values() for issuer in issuers}
    return frozenset({arguments.subject, *hidden})


def _moment(option: str, written: str | None) -> datetime | None:
    if written is None:
        return None
    ago = _AGO.fullmatch(written)
    if ago is not None:
        now = datetime.fromtimestamp(time.time(), UTC)  # noqa: TID251 - "ago" is from now
        return now - timedelta(minutes=int(ago[1]) * _MINUTES[ago[2]])
    try:
        moment = datetime.fromisoformat(written)
    except ValueError as error:
        raise WrongPlace(f'{option}: write 2026-11-30, 2026-11-30T17:00:00Z, "90m", "24h" or "7d"') from error
    return moment.replace(tzinfo=moment.tzinfo or UTC)


def _row(one: Shown) -> str:
    scope = "/".join(name for name in (one.workspace, one.project) if name)
    words = (
        one.ts,
        one.event,
        one.outcome or one.state,
        one.code,
        scope,
        one.unit,
        one.model,
        _tokens(one),
        one.subject or one.by,
        one.group and f"group:{one.group}",
        one.key_id,
        one.token_id,
        one.command,
        one.account and f"{one.account}@{one.host}",
        one.request_id,
    )
    return "  ".join(word for word in words if word)


def _tokens(one: Shown) -> str:
    """Of the prompt, reused of them, of the answer; a dash is unknown."""
    if one.prompt_tokens is None:
        return ""
    numbers = (one.prompt_tokens, one.reused_tokens, one.output_tokens)
    return f"{'/'.join('-' if number is None else str(number) for number in numbers)} tokens"


@dataclass(slots=True)
class _Sum:
    requests: int = 0
    granted: int = 0
    refused: int = 0
    prompt_tokens: int = 0
    reuse_known_prompt_tokens: int = 0
    reused_tokens: int = 0
    output_tokens: int = 0
    unknown: int = 0
    by: tuple[str, str, str] = field(default=("", "", ""))


def _sum(found: Iterable[tuple[Shown, bytes]], *, as_json: bool) -> None:
    sums = sorted(_sums(one for one, _ in found), key=lambda one: one.by)
    if as_json:
        documents = [
            {"workspace": one.by[0] or None, "project": one.by[1] or None, "model": one.by[2] or None} | _numbers(one)
            for one in sums
        ]
        sys.stdout.write(msgspec.json.encode({"sums": documents}).decode("utf-8") + "\n")
        return
    head = ("WORKSPACE", "PROJECT", "MODEL", *(name.upper().replace("_", " ") for name in _numbers(_Sum())))
    rows = [(*one.by, *map(str, _numbers(one).values())) for one in sums]
    sys.stdout.write(table((head, *rows)))


def _numbers(one: _Sum) -> dict[str, int]:
    return {
        "requests": one.requests,
        "granted": one.granted,
        "refused": one.refused,
        "prompt_tokens": one.prompt_tokens,
        "reuse_known_prompt_tokens": one.reuse_known_prompt_tokens,
        "reused_tokens": one.reused_tokens,
        "output_tokens": one.output_tokens,
        "unknown": one.unknown,
    }


def _sums(found: Iterable[Shown]) -> Iterator[_Sum]:
    """Of each workspace, project and model. `unknown` counts those whose tokens the engine did not tell."""
    sums: dict[tuple[str, str, str], _Sum] = {}
    for one in found:
        if one.event.startswith("request."):
            by = (one.workspace or "", one.project or "", one.model or "")
            _add(sums.setdefault(by, _Sum(by=by)), one)
    yield from sums.values()


def _add(total: _Sum, one: Shown) -> None:
    total.requests += 1
    total.granted += one.event == "request.granted"
    total.refused += one.event == "request.refused"
    if one.model is None or one.event != "request.granted" or one.operation in OPERATIONS_WITHOUT_USAGE:
        return
    total.unknown += one.prompt_tokens is None
    total.prompt_tokens += one.prompt_tokens or 0
    total.reuse_known_prompt_tokens += 0 if one.reused_tokens is None else one.prompt_tokens or 0
    total.reused_tokens += one.reused_tokens or 0
    total.output_tokens += one.output_tokens or 0
