"""What a probe says about one endpoint of one replica, decided from what the engine reported. Pure.

A salt separates only where the engine honours it, and an engine that drops the field answers 200 all the same (vLLM's
request models accept unknown fields). So nothing is believed but behaviour: the same salt must reuse, another must
not. The first half is the positive control: without it, "no reuse" proves nothing (vLLM pull request 53347).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from proxy.assurance.about import Declared
from proxy.engines.kinds import VLLM
from proxy.engines.profile import Profile


class Verdict(Enum):
    """Contract section 5, proof."""

    PROVEN = "proven"
    NO_CACHE = "no cache"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict and the check behind it, in words for an operator. `is_served`: the engine has such an endpoint.
    `is_provable`: some setting of the engine could lead to a proof.
    """

    verdict: Verdict
    check: str
    is_served: bool = True
    is_provable: bool = True

    def allows(self, proof: Literal["strict", "warn", "off"]) -> bool:
        """Whether a request may go to this endpoint under the engine's `proof` setting."""
        return proof != "strict" or self.verdict in _HOLDS


# Looked up once: an Enum's own members are found by a function of Python's.
_HOLDS: Final = (Verdict.PROVEN, Verdict.NO_CACHE)
NOT_PROBED = Finding(Verdict.UNKNOWN, "the endpoint has not been probed yet")
DISTURBED = Finding(Verdict.UNKNOWN, "other requests came between, so the engine's counters say nothing; tried again")


@dataclass(frozen=True, slots=True)
class Reuse:
    """The tokens reused by requests with one text: a salt's first, the same salt again, then each other salt's first.

    None where the engine did not report the number. `told_by` is where it reports it.
    """

    first: int | None
    same_salt: int | None
    other_salts: tuple[int | None, ...]
    told_by: Literal["answer", "metrics"] = "answer"


NOT_IN_SCHEMA: Final = Finding(Verdict.UNKNOWN, "the engine's schema lists no such endpoint", is_served=False)


def judge(
    reuse: Reuse, *, prefix_caching: bool | None, hash_algorithm: str | None = None, profile: Profile = VLLM
) -> Finding:
    """`profile` has the words for what an operator can do. `prefix_caching` and `hash_algorithm` are what the engine's
    own metrics say of its configuration, None where they say nothing.
    """
    for tokens, who in ((reuse.first, "a fresh salt"), *((other, "another salt") for other in reuse.other_salts)):
        if tokens is not None and tokens > 0:
            return Finding(
                Verdict.FAILED, f"{who} reused {tokens} prompt tokens: the engine does not separate by cache_salt"
            )
    if not reuse.same_salt and prefix_caching is False:
        return Finding(Verdict.NO_CACHE, "the engine's metrics say that prefix caching is off")
    if not reuse.other_salts or None in (reuse.first, reuse.same_salt, *reuse.other_salts):
        return _not_told(reuse, profile)
    if reuse.same_salt == 0:
        return Finding(
            Verdict.UNKNOWN,
            f"the same salt reused nothing: {profile.reuses_prefixes}",
        )
    if hash_algorithm is not None and not hash_algorithm.startswith("sha256"):
        return Finding(
            Verdict.UNKNOWN,
            f"the cache's hash {hash_algorithm} can be made to collide, and a collision ignores salts: start vLLM with "
            "--prefix-caching-hash-algo sha256",
        )
    return Finding(Verdict.PROVEN, f"the same salt reused {reuse.same_salt} prompt tokens, another salt none")


def weighed(finding: Finding, declared: Declared | None) -> Finding:
    """The finding, and what the engine's schema says of the endpoint: it can take a proof away, and gives none."""
    if finding.verdict is Verdict.PROVEN and declared is Declared.UNSALTED:
        return Finding(
            Verdict.UNKNOWN,
            "the probes were separated, but the engine's schema (/openapi.json) has no cache_salt on this endpoint: "
            "such a field is dropped as soon as nobody happens to carry it. Use a version of the engine that has it",
        )
    return finding


def _not_told(reuse: Reuse, profile: Profile) -> Finding:
    if reuse.told_by == "answer":
        return Finding(Verdict.UNKNOWN, f"the engine does not report reused tokens: {profile.reports_reuse}")
    if profile.counts_in_metrics:
        return Finding(
            Verdict.UNKNOWN,
            "the engine's /metrics do not count this endpoint's prompts (vllm:prefix_cache_queries_total)",
        )
    return Finding(
        Verdict.UNKNOWN,
        f"{profile.title} reports no reuse on this endpoint, so nobody can tell whether it separates",
        is_provable=False,
    )
