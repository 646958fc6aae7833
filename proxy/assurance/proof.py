"""The probe: ask an endpoint the same text under salts of saltgate's own, and judge what it reports.

One address may hold several caches (vLLM's data-parallel ranks), and each request lands on any of them. So a text is
sent often enough that some cache must have seen it twice: the same salt once more than there are caches at most, and as
many other salts. An engine that ignores the salt then has nowhere left to hide a hit.
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from proxy.assurance.about import About, Declared, read_about
from proxy.assurance.metrics_page import MetricsPage, metrics_page
from proxy.assurance.verdict import DISTURBED, NOT_IN_SCHEMA, NOT_PROBED, Finding, Reuse, Verdict, judge, weighed
from proxy.engines.body import read_body
from proxy.engines.kinds import VLLM
from proxy.engines.profile import Endpoint, Operation, Profile
from proxy.engines.stamp import StampedRequest, stamp
from proxy.engines.usage import Usage, read_usage
from proxy.isolation.salt import Salt, SaltKey, salt_for
from proxy.isolation.unit import ProbeUnit
from proxy.relay.leg import Question
from proxy.relay.pool import Pool
from proxy.relay.question import EngineUnreachable, ask

PROBE_SECONDS: Final = 120.0
PAGE_SECONDS: Final = 10.0
# Only whole blocks are reused: 16 tokens on vLLM's GPUs, 128 on its CPU build, more for hybrid models. A probe grows
# until its text is certain to hold two of them.
_WORDS: Final = (60, 300, 2400)
_FEWEST_OTHER_SALTS: Final = 2
# Each of them costs two probes. The engine itself says how many it has.
_MOST_CACHES: Final = 64
# Where an engine does not tell how many caches are behind its address: as many as the GPUs of one machine.
_UNTOLD_CACHES: Final = 8
_NOT_SERVED: Final = frozenset({404, 405, 501})


@dataclass(frozen=True, slots=True, kw_only=True)
class Counting:
    """How patiently the engine's counters are read, where only they tell of reuse.

    vLLM counts a request a moment after its answer, so that is waited for. Where others' requests come between, it is
    tried again, after a pause that doubles each time.
    """

    within_seconds: float = 3.0
    tries: int = 8
    pause_seconds: float = 0.1


PATIENT: Final = Counting()


class Prover:
    """Proves the endpoints of one replica, and remembers for each how long a text must be there.

    `spent` is told of each probe that was sent: the tokens of its prompt, 0 where the engine did not say.
    """

    def __init__(
        self,
        pool: Pool,
        key: SaltKey,
        *,
        profile: Profile,
        spent: Callable[[int], None],
        counting: Counting = PATIENT,
    ) -> None:
        self._pool = pool
        self._key = key
        self._profile = profile
        self._spent = spent
        self._counting = counting
        self._began: dict[Operation, int] = {}

    async def prove(self, endpoint: Endpoint, model: str, declared: Declared | None = None) -> Finding:
        """What the endpoint does with a salt, `declared` being what the engine's schema says of it. Raises
        EngineUnreachable where there is no engine to ask.
        """
        if not self._profile.counts_in_metrics:
            declared = None  # what another kind's schema lists was not audited
        if declared is Declared.ABSENT:
            return NOT_IN_SCHEMA
        return weighed(await self._found(endpoint, model), declared)

    async def _found(self, endpoint: Endpoint, model: str) -> Finding:
        # Only a kind that counts in its metrics is asked for them; what another writes there means something else.
        counted = self._profile.counts_in_metrics
        page = await metrics_page(self._pool) if counted else MetricsPage(b"")
        caches = page.caches if counted else _UNTOLD_CACHES
        if caches > _MOST_CACHES:
            return Finding(Verdict.UNKNOWN, f"the engine says that it has {caches} caches: too many to probe")
        finding = NOT_PROBED
        for number in range(self._began.get(endpoint.operation, 0), len(_WORDS)):
            probe = _Probe(
                self._pool, endpoint, model, self._key, self._counting, _WORDS[number], self._spent, self._profile
            )
            measured = await _measured(probe, caches=caches)
            if isinstance(measured, Finding):
                # A longer text may be too long for the model; what the shorter one said is then the better word.
                return measured if finding is NOT_PROBED else finding
            finding = judge(
                measured,
                prefix_caching=page.prefix_caching,
                hash_algorithm=page.hash_algorithm,
                profile=self._profile,
            )
            if measured.same_salt != 0:
                self._began[endpoint.operation] = number
            if finding.verdict is not Verdict.UNKNOWN or measured.same_salt != 0:
                return finding
        return finding


async def prove(
    pool: Pool,
    endpoint: Endpoint,
    model: str,
    key: SaltKey,
    *,
    profile: Profile = VLLM,
    counting: Counting = PATIENT,
) -> Finding:
    """One endpoint, once, by behaviour alone. Raises EngineUnreachable where there is no engine to ask."""
    prover = Prover(pool, key, profile=profile, spent=lambda _: None, counting=counting)
    return await prover.prove(endpoint, model)


async def look(pool: Pool) -> About:
    """What the engine tells of itself. A page that cannot be had says nothing; the probes will tell why."""
    return read_about(await _told(pool, Question.VERSION), await _told(pool, Question.SCHEMA))


async def _told(pool: Pool, page: Question) -> bytes | None:
    try:
        answer = await ask(pool, page, seconds=PAGE_SECONDS)
    except EngineUnreachable:
        return None
    return answer.body if answer.status == 200 else None


async def process_start(pool: Pool) -> bytes | None:
    """When the engine's process says that it began, in its own spelling; None where it does not say."""
    return (await metrics_page(pool)).process_start


class _Disturbed(Exception):  # noqa: N818 - a finding about the moment
    """Somebody else's request was counted together with the probe's."""


class _NoAnswer(Exception):  # noqa: N818 - a finding about the endpoint
    def __init__(self, status: int) -> None:
        self.status = status


@dataclass(frozen=True, slots=True)
class _Probe:
    pool: Pool
    endpoint: Endpoint
    model: str
    key: SaltKey
    counting: Counting
    words: int
    spent: Callable[[int], None]
    profile: Profile


async def _measured(probe: _Probe, *, caches: int) -> Reuse | Finding:
    counting = probe.counting
    for tried in range(counting.tries):
        try:
            return await _reuse(probe, caches=caches)
        except _NoAnswer as error:
            path = probe.endpoint.path
            return Finding(
                Verdict.UNKNOWN,
                f"the engine answered the probe of {path} with status {error.status}",
                is_served=error.status not in _NOT_SERVED,
            )
        except _Disturbed:
            # Several workers may be proving at once; they must not stay in step.
            await asyncio.sleep(random.uniform(0, counting.pause_seconds * 2**tried))  # noqa: S311 - no secret
    return DISTURBED


async def _reuse(probe: _Probe, *, caches: int) -> Reuse:
    # Of a random length: should two workers' probes cross, their counts differ.
    text = " ".join(secrets.token_hex(2) for _ in range(probe.words + secrets.randbelow(probe.words // 4)))
    own = probe_salt(probe.key)
    told_by: Literal["answer", "metrics"] = "metrics" if _is_counted(probe.endpoint) else "answer"
    first = await _reused(probe, text, own)
    if first is None:
        return Reuse(None, None, (), told_by)
    same: int | None = 0
    for _ in range(caches):
        same = await _reused(probe, text, own)
        if same != 0:
            break
    others: list[int | None] = []
    for _ in range(max(_FEWEST_OTHER_SALTS, caches)):
        others.append(await _reused(probe, text, probe_salt(probe.key)))
        if others[-1] != 0:
            break
    return Reuse(first, same, tuple(others), told_by)


async def _reused(probe: _Probe, text: str, salt: Salt) -> int | None:
    if _is_counted(probe.endpoint) and probe.profile.counts_in_metrics:
        return await _counted(probe, text, salt)
    usage = await _used(probe, text, salt)
    return usage.reused if usage is not None else None


def _is_counted(endpoint: Endpoint) -> bool:
    """Embeddings report no reuse in their answers; only the engine's counters tell it."""
    return endpoint.operation is Operation.EMBEDDINGS


async def _counted(probe: _Probe, text: str, salt: Salt) -> int | None:
    """The hits that the engine counted for this request and for no other.

    The counters are everybody's. They are believed only where the tokens that were looked up meanwhile are exactly this
    prompt's: then the hits are its own, too. Raises _Disturbed where they are more.
    """
    before = await metrics_page(probe.pool)
    usage = await _used(probe, text, salt)
    if usage is None or before.queries is None:
        return None
    after = await _counted_page(probe, before.queries + usage.prompt)
    if after.queries is None or after.hits is None or before.hits is None:
        return None
    if after.queries > before.queries + usage.prompt:
        raise _Disturbed
    return round(after.hits - before.hits) if after.queries == before.queries + usage.prompt else None


async def _counted_page(probe: _Probe, queries: float) -> MetricsPage:
    """The metrics once so many lookups are counted, or after a while. Read once more: hits are counted last."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + probe.counting.within_seconds
    while True:
        page = await metrics_page(probe.pool)
        if page.queries is None or page.queries >= queries:
            return await metrics_page(probe.pool)
        if loop.time() >= deadline:
            return page
        await asyncio.sleep(0.05)


async def _used(probe: _Probe, text: str, salt: Salt) -> Usage | None:
    answer = await ask(probe.pool, _stamped(probe, text, salt), seconds=PROBE_SECONDS)
    usage = read_usage(probe.endpoint.operation, answer.body) if answer.status == 200 else None
    probe.spent(0 if usage is None else usage.prompt)
    if answer.status != 200:
        raise _NoAnswer(answer.status)
    return usage


def probe_salt(key: SaltKey) -> Salt:
    """A salt that nobody has had or will have."""
    return salt_for(ProbeUnit(secrets.token_hex(16)), epoch=0, key=key)


def _stamped(probe: _Probe, text: str, salt: Salt) -> StampedRequest:
    body = json.dumps({"model": probe.model} | _question(probe.endpoint.operation, text)).encode()
    return stamp(read_body(probe.endpoint, body), salt, request_id=f"probe_{secrets.token_hex(8)}", show_reuse=True)


def _question(operation: Operation, text: str) -> dict[str, object]:
    """The least that each endpoint answers with a usage."""
    match operation:
        case Operation.CHAT | Operation.MESSAGES:
            return {"messages": [{"role": "user", "content": text}], "max_tokens": 1}
        case Operation.COMPLETIONS:
            return {"prompt": text, "max_tokens": 1}
        case Operation.RESPONSES:
            return {"input": text, "max_output_tokens": 1}
        case Operation.EMBEDDINGS:
            return {"input": text}
        case Operation.COUNT_TOKENS:
            raise ValueError("it computes no prompt, so there is nothing to prove")
