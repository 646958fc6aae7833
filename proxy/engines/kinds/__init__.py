"""The engine kinds, one file each, and the profile of an engine as it is configured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Final

from msgspec import Meta

from config.faults import Fault
from config.media_hosts import MediaHost, media_host, media_private_host
from config.settings import AddedField, Engine, EngineLimits, Settings
from proxy.engines.additions import why_not_added
from proxy.engines.forms import BOOLEAN, passes
from proxy.engines.kinds.dynamo import dynamo
from proxy.engines.kinds.sglang import sglang
from proxy.engines.kinds.tensorrt_llm import tensorrt_llm
from proxy.engines.kinds.vllm import vllm, vllm_with_images
from proxy.engines.profile import Line, Profile
from proxy.engines.remote import Elsewhere, elsewhere
from proxy.engines.rules import Drops, Passes, Refuses

_KINDS: Final[Mapping[str, Callable[[EngineLimits], Profile]]] = {
    "vllm": vllm,
    "sglang": sglang,
    "tensorrt-llm": tensorrt_llm,
    "dynamo": dynamo,
}
# What the kinds are where an operator says nothing.
PROFILES: Final[Mapping[str, Profile]] = {kind: make(EngineLimits()) for kind, make in _KINDS.items()}
VLLM: Final = PROFILES["vllm"]


def profile_of(engine: Engine) -> Profile:
    """The profile of an engine with its own limits and added fields, none of which `faulty_fields` may have found."""
    profile = (
        vllm_with_images(engine.limits, image_origins(engine))
        if _takes_images(engine)
        else _KINDS[engine.kind](engine.limits)
    )
    added = {field.name: _line(field) for field in engine.limits.fields}
    # The profile's own word comes last: an addition never takes its place.
    endpoints = tuple(
        # Where nothing is computed they would say nothing, and the barrier inside the engine lets no more be counted.
        endpoint if endpoint.salt is None else replace(endpoint, fields={**added, **endpoint.fields})
        for endpoint in profile.endpoints
    )
    return replace(profile, endpoints=endpoints) if added else profile


def _takes_images(engine: Engine) -> bool:
    return engine.media and engine.kind == "vllm"


def image_hosts(engine: Engine) -> tuple[MediaHost, ...]:
    """The hosts that images are fetched from for this engine."""
    return (
        *map(media_host, engine.media_hosts or ()),
        *map(media_private_host, engine.media_private_hosts or ()),
    )


def image_origins(engine: Engine) -> Elsewhere | None:
    """Where images may be that saltgate fetches for this engine; None where it fetches none."""
    return elsewhere(image_hosts(engine), private_ca=engine.media_private_ca)


def faulty_fields(settings: Settings) -> Iterator[Fault]:
    """The fields that an operator wants to add and must not, each with the reason."""
    for number, engine in enumerate(settings.engines):
        names: set[str] = set()
        for position, field in enumerate(engine.limits.fields):
            key = f"engines.{number}.limits.fields.{position}.name"
            why = (
                why_not_added(field.name) or _decided(field.name) or _passes_already(PROFILES[engine.kind], field.name)
            )
            if why is None and field.name in names:
                why = "is there twice; write each field once"
            if why is not None:
                yield Fault(key, why)
            names.add(field.name)


def _decided(name: str) -> str | None:
    """What some profile says of the name already: what one engine would do with it, the next version of another may."""
    if name in ("model", "stream", "stream_options"):
        return "is decided by saltgate itself; leave it out"
    for profile in PROFILES.values():
        for endpoint in profile.endpoints:
            line = endpoint.fields.get(name)
            if line is None:
                continue
            if isinstance(line.rule, Drops | Refuses):
                return f"can never pass ({profile.title}): {line.reason}"
            if not isinstance(line.rule, Passes):
                return f"has a rule of its own ({profile.title}) and cannot be added as a plain value; leave it out"
    return None


def _passes_already(profile: Profile, name: str) -> str | None:
    if all(name in endpoint.fields for endpoint in profile.endpoints):
        return "passes already; leave it out"
    return None


def _line(field: AddedField) -> Line:
    return Line(_PLAIN[field.type], "the operator lets it pass", "[[engines.limits.fields]]")


_PLAIN: Final[Mapping[str, Passes]] = {
    "boolean": BOOLEAN,
    "integer": passes(Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)], "a 64-bit whole number"),
    "number": passes(float, "a number"),
    "string": passes(Annotated[str, Meta(max_length=1024)], "a string of at most 1024 characters"),
}
