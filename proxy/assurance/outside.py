"""What can be told of an engine from outside, with questions that change nothing: for `saltgate check`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Final

from proxy.assurance.about import About
from proxy.assurance.metrics_page import MetricsPage, metrics_page
from proxy.assurance.proof import look
from proxy.relay.exchange import WholeAnswer
from proxy.relay.leg import Question
from proxy.relay.pool import Pool
from proxy.relay.question import EngineUnreachable, ask

ASK_SECONDS: Final = 10.0


class Stranger(Enum):
    """What the engine answers who has neither saltgate's key nor its certificate."""

    SERVED = "as it answers saltgate"
    ASKED_FOR_A_KEY = "with 401 or 403"
    SHUT_OUT = "not at all"


@dataclass(frozen=True, slots=True)
class Outside:
    """`doors` are those of `Question`'s that it has. `barrier`: saltgate's barrier is inside. `barrier_key`: and it
    wants a key. `is_saltgate`: it is no engine but another saltgate.
    """

    about: About
    page: MetricsPage
    stranger: Stranger
    barrier: bool
    barrier_key: bool
    doors: frozenset[Question]
    is_saltgate: bool


async def seen_from_outside(pool: Pool, stranger: Pool) -> Outside:
    """`stranger` leads to the same address without key and certificate. Raises EngineUnreachable for `pool` alone."""
    page = await metrics_page(pool)
    answers = {door: await ask(pool, door, seconds=ASK_SECONDS) for door in _DOORS}
    unknown = await _strangers_answer(stranger)
    return Outside(
        about=await look(pool),
        page=page,
        stranger=_as_stranger(unknown),
        barrier=_error_code(answers[Question.INVOCATIONS]) == "saltgate_barrier",
        barrier_key=unknown is not None and _error_code(unknown) == "saltgate_barrier",
        doors=frozenset(door for door, answer in answers.items() if answer.status in _THERE),
        is_saltgate=_error_code(answers[Question.INVOCATIONS]) == "endpoint_not_allowed",
    )


_DOORS = (Question.INVOCATIONS, Question.RESET_CACHE, Question.LOAD_ADAPTER)
# 405: it is there, with another method.
_THERE = frozenset({200, 405})


async def _strangers_answer(stranger: Pool) -> WholeAnswer | None:
    try:
        return await ask(stranger, Question.MODELS, seconds=ASK_SECONDS)
    except EngineUnreachable:
        return None


def _as_stranger(answer: WholeAnswer | None) -> Stranger:
    if answer is None:
        return Stranger.SHUT_OUT
    return Stranger.ASKED_FOR_A_KEY if answer.status in (401, 403) else Stranger.SERVED


def _error_code(answer: WholeAnswer) -> object:
    """The `code` of an error in OpenAI's form, None of anything else."""
    try:
        error = json.loads(answer.body)["error"]
        return error["code"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
