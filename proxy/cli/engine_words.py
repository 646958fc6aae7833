"""What was seen of an engine from outside, in words that an operator can act on. Pure, but for a look at a socket."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from config.addresses import UnixAddress, is_loopback_host, upstream_address
from proxy.assurance.about import TESTED
from proxy.assurance.metrics_page import MetricsPage
from proxy.assurance.outside import Outside, Stranger
from proxy.cli.lines import Level, Line
from proxy.relay.leg import Question

_BARRIER: Final = "put saltgate's barrier into it (compose/engine/saltgate_barrier.py, --middleware)"


def engine_words(part: str, url: str, outside: Outside) -> Iterator[Line]:
    """Its version, who reaches it without saltgate, its other doors, and its caches."""
    yield from _version(part, outside)
    yield from _reach(part, url, outside)
    yield from _doors(part, outside)
    yield from _cache(part, outside.page)


def _version(part: str, outside: Outside) -> Iterator[Line]:
    about, tested = outside.about, ", ".join(TESTED)
    if outside.is_saltgate:
        yield Line(Level.OK, part, "version", "it is another saltgate, which stamps anew what this one stamped")
    elif about.version is None:
        yield Line(Level.NOTE, part, "version", f"it tells none (/version), so only the probes speak for it; {TRIED}")
    elif about.is_tested:
        yield Line(Level.OK, part, "version", f"{about.version}, which this release is tested with")
    else:
        yield Line(
            Level.WARNING,
            part,
            "version",
            f"{about.version} is none that this release is tested with ({tested}): the probes decide what may be used. "
            "Older ones drop the salt on some endpoints without a word",
        )


TRIED: Final = f"this release is tested with vLLM {', '.join(TESTED)}"


def _reach(part: str, url: str, outside: Outside) -> Iterator[Line]:
    """Who can ask the engine without saltgate, and so with a salt of his own or none."""
    address = upstream_address(url)
    if isinstance(address, UnixAddress):
        yield _socket(part, Path(address.path))
        return
    local = is_loopback_host(address.hostname)
    if outside.stranger is Stranger.SHUT_OUT:
        yield Line(Level.OK, part, "without saltgate", "it lets nobody in who has not saltgate's certificate")
    elif outside.stranger is Stranger.ASKED_FOR_A_KEY:
        yield _keyed(part, outside, local=local)
    elif outside.barrier:
        yield Line(
            Level.NOTE if local else Level.WARNING,
            part,
            "without saltgate",
            "it answers without a key. Its barrier refuses what has no salt, but whoever reaches it can use it: let "
            "the barrier ask for a key (SALTGATE_BARRIER_KEY_FILE, and the same as `api_key` here)",
        )
    else:
        yield Line(
            Level.NOTE if local else Level.WARNING,
            part,
            "without saltgate",
            ("whoever has an account on this machine" if local else "whoever reaches this address")
            + " is answered without a key, with a salt of his own or in the cache that all unsalted requests share. "
            "Use a Unix socket or mutual TLS, or " + _BARRIER,
        )


def _keyed(part: str, outside: Outside, *, local: bool) -> Line:
    if outside.barrier_key or outside.is_saltgate:
        return Line(Level.OK, part, "without saltgate", "it asks for a key on every path")
    return Line(
        Level.OK if local else Level.WARNING,
        part,
        "without saltgate",
        "it asks for a key under /v1. vLLM's key leaves other paths open, /invocations among them, which computes "
        "without a salt: use a Unix socket or mutual TLS, or " + _BARRIER,
    )


def _socket(part: str, path: Path) -> Line:
    """vLLM makes its socket with the process's umask and never looks at who may use it."""
    try:
        others = path.stat().st_mode & stat.S_IWOTH and path.parent.stat().st_mode & stat.S_IXOTH
    except OSError as error:
        return Line(Level.WARNING, part, "without saltgate", f"its socket cannot be looked at: {error.strerror}")
    if others:
        return Line(
            Level.WARNING,
            part,
            "without saltgate",
            f"every user of this machine can use its socket: give {path.parent} to saltgate and the engine alone",
        )
    return Line(Level.OK, part, "without saltgate", "its socket is not open to every user of this machine")


def _doors(part: str, outside: Outside) -> Iterator[Line]:
    """Endpoints beside those that saltgate uses. It never passes them on; whoever reaches the engine has them."""
    if outside.barrier:
        yield Line(Level.OK, part, "other doors", "saltgate's barrier inside it shuts them")
        return
    for doors, remedy in _DANGERS:
        found = [path for path, question in doors.items() if _has(outside, path, question)]
        if found:
            yield Line(Level.WARNING, part, "other doors", f"{', '.join(found)}: {remedy}")
    if outside.about.paths:
        others = outside.about.paths & _UNSALTED
        if others:
            yield Line(
                Level.NOTE,
                part,
                "other doors",
                f"vLLM always has {', '.join(sorted(others))}, which know no salt or no owner: whoever reaches it has "
                f"them. To shut them, {_BARRIER}",
            )


def _has(outside: Outside, path: str, question: Question | None) -> bool:
    return path in outside.about.paths or (question is not None and question in outside.doors)


# vLLM 0.32, build_app. What each is enabled by is what to turn off.
_DANGERS: Final = (
    (
        {
            "/reset_prefix_cache": Question.RESET_CACHE,
            "/collective_rpc": None,
            "/server_info": None,
            "/sleep": None,
        },
        "development mode: anybody's cache can be emptied, and code be called. Start vLLM without VLLM_SERVER_DEV_MODE",
    ),
    (
        {"/v1/load_lora_adapter": Question.LOAD_ADAPTER},
        "adapters can be loaded from any path. Start vLLM without VLLM_ALLOW_RUNTIME_LORA_UPDATING",
    ),
    (
        {"/inference/v1/generate": None, "/v1/chat/completions/render": None},
        "tokens in and out, with the salt in an answer. Start vLLM without --enable-scale-out and --tokens-only",
    ),
)
_UNSALTED: Final = frozenset(
    {
        "/invocations",
        "/v1/responses/{response_id}",
        "/scale_elastic_ep",
        "/tokenize",
        "/v2/embed",
        "/v1/audio/transcriptions",
    }
)


def _cache(part: str, page: MetricsPage) -> Iterator[Line]:
    if page.prefix_caching is False:
        yield Line(
            Level.NOTE,
            part,
            "prefix cache",
            "it is off: there is nothing to keep apart, and nothing is reused. --enable-prefix-caching turns it on",
        )
    elif page.prefix_caching:
        yield Line(Level.OK, part, "prefix cache", f"on, hashed by {page.hash_algorithm or 'what it does not tell'}")
    else:
        yield Line(
            Level.NOTE, part, "prefix cache", "its /metrics do not say whether it is on, nor by what it is hashed"
        )
    for store in page.stores:
        level, message = _STORES[store]
        yield Line(level, part, "external cache", message)
    if not page.stores:
        yield Line(
            Level.NOTE,
            part,
            "external cache",
            "none was used so far. One that has not been used yet, and suffix decoding, cannot be told from here: see "
            "that --kv-transfer-config names none that ignores salts (LMCacheConnectorV1, HF3FSKVConnector, "
            "ExampleConnector, FlexKVConnectorV1) and --speculative-config no suffix",
        )


_LMCACHE: Final = (
    "LMCache. LMCacheConnectorV1 has blocks by their tokens alone and gives them across salts; LMCacheMPConnector "
    "knows the salt. See that --kv-transfer-config names the second"
)
_UNNAMED: Final = (
    "prompts are looked up in one that has no name here. LMCacheConnectorV1, HF3FSKVConnector, ExampleConnector and "
    "FlexKVConnectorV1 give blocks across salts: see that --kv-transfer-config names none of them"
)
# What keys a connector of vLLM 0.32 uses, counted in its source.
_STORES: Final = {
    "kv_offload": (Level.OK, "blocks go to the host's memory under their salted hashes"),
    "mooncake_store": (Level.OK, "Mooncake's store has blocks under their salted hashes"),
    "nixl": (Level.NOTE, "NIXL fetches blocks that a scheduler names; saltgate drops what a client names"),
    "lmcache": (Level.WARNING, _LMCACHE),
    "unnamed": (Level.WARNING, _UNNAMED),
}
