"""The probe pair: ask an endpoint the same text under two salts of saltgate's own, and judge what it reports."""

from __future__ import annotations

import json
import re
import secrets
from typing import Final

from proxy.assurance.verdict import NOT_PROBED, Finding, ProbePair, Verdict, judge
from proxy.engines.body import read_body
from proxy.engines.profile import Endpoint, Operation
from proxy.engines.stamp import StampedRequest, stamp
from proxy.engines.usage import read_usage
from proxy.isolation.salt import Salt, SaltKey, salt_for
from proxy.isolation.unit import ProbeUnit
from proxy.relay.exchange import WholeAnswer
from proxy.relay.leg import Question
from proxy.relay.pool import Pool
from proxy.relay.question import ask

PROBE_SECONDS: Final = 120.0
# Only whole blocks are reused: 16 tokens on vLLM's GPUs, 128 on its CPU build, more for hybrid models. A probe grows
# until its text is certain to hold two of them.
_WORDS: Final = (120, 600, 2400)
# One replica may hold several caches (data parallel ranks), and a request lands on any of them.
_TRIES: Final = 3

_CACHING: Final = re.compile(rb'^vllm:cache_config_info\{[^}]*enable_prefix_caching="(True|False)"', re.MULTILINE)
_HITS: Final = re.compile(rb"^vllm:prefix_cache_hits_total(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE)


async def prove(pool: Pool, endpoint: Endpoint, model: str, key: SaltKey) -> Finding:
    """What the endpoint does with a salt. Raises EngineUnreachable where there is no engine to ask."""
    prefix_caching = await _prefix_caching(pool)
    finding = NOT_PROBED
    for words in _WORDS:
        for _ in range(_TRIES):
            pair = await _probe_pair(pool, endpoint, model, key, words)
            if isinstance(pair, Finding):
                return pair
            finding = judge(pair, prefix_caching=prefix_caching)
            if finding.verdict is not Verdict.UNKNOWN or pair.same_salt != 0:
                return finding
    return finding


async def _probe_pair(pool: Pool, endpoint: Endpoint, model: str, key: SaltKey, words: int) -> ProbePair | Finding:
    text = " ".join(secrets.token_hex(2) for _ in range(words))
    own, other = (_probe_salt(key) for _ in range(2))
    reused: list[int | None] = []
    for salt in (own, own, other):
        before = await _hits(pool) if endpoint.operation is Operation.EMBEDDINGS else None
        answer = await ask(pool, _probe(endpoint, model, text, salt), seconds=PROBE_SECONDS)
        if answer.status != 200:
            return Finding(
                Verdict.UNKNOWN, f"the engine answered the probe of {endpoint.path} with status {answer.status}"
            )
        reused.append(await _reused(pool, endpoint, answer, before))
    return ProbePair(*reused)


async def _reused(pool: Pool, endpoint: Endpoint, answer: WholeAnswer, hits_before: float | None) -> int | None:
    """The reused tokens: from the answer, or, since embeddings report none, from the engine's own counter.

    The counter counts everybody's requests. Others' hits make a probe fail or stay unknown, never pass: it is repeated.
    """
    if endpoint.operation is Operation.EMBEDDINGS:
        after = await _hits(pool)
        return None if hits_before is None or after is None else round(after - hits_before)
    usage = read_usage(endpoint.operation, answer.body)
    return usage.reused if usage is not None else None


def _probe_salt(key: SaltKey) -> Salt:
    return salt_for(ProbeUnit(secrets.token_hex(16)), epoch=0, key=key)


def _probe(endpoint: Endpoint, model: str, text: str, salt: Salt) -> StampedRequest:
    body = json.dumps({"model": model} | _question(endpoint.operation, text)).encode()
    return stamp(read_body(endpoint, body), salt, request_id=f"probe_{secrets.token_hex(8)}", show_reuse=True)


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


async def _prefix_caching(pool: Pool) -> bool | None:
    found = _CACHING.search(await _metrics(pool))
    return None if found is None else found[1] == b"True"


async def _hits(pool: Pool) -> float | None:
    found = _HITS.findall(await _metrics(pool))
    return sum(float(value) for value in found) if found else None


async def _metrics(pool: Pool) -> bytes:
    answer = await ask(pool, Question.METRICS, seconds=PROBE_SECONDS)
    return answer.body if answer.status == 200 else b""
