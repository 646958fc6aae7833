"""What an engine's /metrics tell of its caches: vLLM's names (vllm/v1/metrics/loggers.py)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from proxy.relay.leg import Question
from proxy.relay.pool import Pool
from proxy.relay.question import ask

METRICS_SECONDS: Final = 120.0

_CACHING: Final = re.compile(rb'^vllm:cache_config_info\{[^}]*enable_prefix_caching="(True|False)"', re.MULTILINE)
_HASH: Final = re.compile(rb'^vllm:cache_config_info\{[^}]*prefix_caching_hash_algo="([a-z0-9_]{1,32})"', re.MULTILINE)
_QUERIES: Final = re.compile(rb"^vllm:prefix_cache_queries_total(?:\{([^}]*)\})? ([0-9.e+]+)$", re.MULTILINE)
_HITS: Final = re.compile(rb"^vllm:prefix_cache_hits_total(?:\{([^}]*)\})? ([0-9.e+]+)$", re.MULTILINE)
_MEDIA_QUERIES: Final = re.compile(rb"^vllm:mm_cache_queries_total(?:\{([^}]*)\})? ([0-9.e+]+)$", re.MULTILINE)
_MEDIA_HITS: Final = re.compile(rb"^vllm:mm_cache_hits_total(?:\{([^}]*)\})? ([0-9.e+]+)$", re.MULTILINE)
_EXTERNAL: Final = re.compile(rb"^vllm:external_prefix_cache_queries_total(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE)
_STORES: Final = re.compile(rb"^# TYPE (?:vllm:)?(lmcache|mooncake_store|nixl|kv_offload)[_:]", re.MULTILINE)
_BORN: Final = re.compile(rb"^process_start_time_seconds ([0-9.e+]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """The engine's /metrics at one moment, empty where it shows none."""

    text: bytes

    @property
    def prefix_caching(self) -> bool | None:
        """None where it does not say. One cache that is on is enough to need a proof."""
        found = set(_CACHING.findall(self.text))
        return b"True" in found if found else None

    @property
    def caches(self) -> int:
        """How many caches are behind this address: vLLM labels its counters with the engine's number."""
        return max(1, len({labels for labels, _ in _QUERIES.findall(self.text)}))

    @property
    def hash_algorithm(self) -> str | None:
        """By what the cache is looked up, None where it does not say; of several, one that is no SHA-256."""
        found = sorted(_HASH.findall(self.text), key=lambda name: name.startswith(b"sha256"))
        return found[0].decode("ascii") if found else None

    @property
    def stores(self) -> tuple[str, ...]:
        """The caches beyond the engine's own that it counts for, sorted: vLLM's connectors have counters of their own.
        "unnamed": prompts were looked up in one that has none.
        """
        named = {name.decode("ascii") for name in _STORES.findall(self.text)}
        asked = any(float(value) > 0 for value in _EXTERNAL.findall(self.text))
        return tuple(sorted(named)) or (("unnamed",) if asked else ())

    @property
    def process_start(self) -> bytes | None:
        """In the engine's own spelling."""
        found = _BORN.search(self.text)
        return None if found is None else found[1]

    @property
    def queries(self) -> float | None:
        """The tokens looked up so far."""
        return _sum(_QUERIES, self.text)

    @property
    def hits(self) -> float | None:
        return _sum(_HITS, self.text)

    @property
    def media_queries(self) -> float | None:
        """The images and other media looked up so far in the processor's cache."""
        return _sum(_MEDIA_QUERIES, self.text)

    @property
    def media_hits(self) -> float | None:
        return _sum(_MEDIA_HITS, self.text)


def _sum(pattern: re.Pattern[bytes], text: bytes) -> float | None:
    found = pattern.findall(text)
    return sum(float(value) for _, value in found) if found else None


async def metrics_page(pool: Pool) -> MetricsPage:
    answer = await ask(pool, Question.METRICS, seconds=METRICS_SECONDS)
    return MetricsPage(answer.body if answer.status == 200 else b"")
