"""What the end of an exchange says of the replica that it was sent to."""

from __future__ import annotations

from enum import Enum
from typing import Final

from proxy.engines.grammar import grammar_fields
from proxy.engines.stamp import StampedRequest
from proxy.relay.exchange import End, Exchange

_BUSY: Final = frozenset({429, 503})


class Finding(Enum):
    """See `outliers.py` for what each is worth."""

    GOOD = "good"
    UNREACHABLE = "unreachable"
    FAILED = "failed"
    NOTHING = "nothing"


def finding(end: End, exchange: Exchange) -> Finding:
    """Nothing where it is not the engine's doing, and for what broke off after it had begun to answer: then either the
    leash broke as well, or the request did it.
    """
    match end:
        case End.UNREACHABLE:
            return Finding.UNREACHABLE
        case End.UNSENT | End.SILENT | End.UNANSWERED | End.BAD_ANSWER | End.CONTENT_CODING:
            return Finding.FAILED
        case End.TIMEOUT if not exchange.begun:
            return Finding.FAILED
        case End.COMPLETE:
            return _finding_of_status(exchange)
        case _:
            return Finding.NOTHING


def _finding_of_status(exchange: Exchange) -> Finding:
    status, stamped = exchange.status, exchange.stamped
    if status in _BUSY:
        return Finding.NOTHING
    # vLLM answers 500 where it cannot use a grammar that a client wrote.
    if status == 500 and isinstance(stamped, StampedRequest) and any(grammar_fields(stamped)):
        return Finding.NOTHING
    return Finding.FAILED if status >= 500 else Finding.GOOD
