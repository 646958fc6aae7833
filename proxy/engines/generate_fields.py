"""Writes `fields.md`, the auditors' table, from the profiles: `python -m proxy.engines.generate_fields`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from config.settings import EngineLimits
from proxy.engines.forbidden import FORBIDDEN
from proxy.engines.kinds import PROFILES
from proxy.engines.kinds.vllm import vllm_with_images
from proxy.engines.media import TYPES
from proxy.engines.profile import Endpoint, Line, Profile
from proxy.engines.remote import MAX_ADDRESS_CHARACTERS
from proxy.engines.rules import Drops, Opens, Passes, Prompts, Refuses, Rule, Schema, Shape

FIELDS: Final = Path(__file__).with_name("fields.md")

_PREFACE: Final = """# What reaches an engine, field by field

This page is made from `proxy/engines/` by `python -m proxy.engines.generate_fields`; a test compares it. The bounds are
those of `[engines.limits]` where the configuration says nothing.

- **passes**: sent as the client wrote it, byte for byte, where it has the form that is told; null says "not given". An
  object that has another member, or one twice, is refused with that member's name.
- **opened**: an array whose objects are looked into. Only the listed members of them pass, the others are left out,
  and what is of no listed kind is refused. Below them (schemas, arguments, texts) nothing is read or changed.
- **dropped**: left out, and the client's answer stays the same.
- **refused**: 400 with the field's name, because leaving it out would change the answer. Null, false, `[]` and `{}`
  ask for nothing and are left out.
- **forced**: sent by saltgate, whatever the client says.

A field that is in no table is dropped. A member that is named twice is 400 at every level that is opened, and anywhere
in an object that passes or is bounded. Names are compared decoded, so no escape of a name escapes its rule. The source
is the engine's file that says what it does with the field. To the engine go these header lines and no other: `Host`,
`Accept`, `Accept-Encoding: identity`, `Authorization` (the engine's own key, where one is configured), `X-Request-Id`
and `traceparent` (saltgate's own),
`Content-Type`, `Content-Length`, and the salt's header where the kind reads one.

`[[engines.limits.fields]]` adds fields that stand on none of these pages; nothing that is dropped or refused here can
be added.
"""
_ALWAYS: Final[Mapping[str, str]] = {
    "model": "passes: 1 to 256 characters, one that the project may use | it tells which engine serves",
    "stream": 'passes: true or false and nothing else | engines take `1` and `"yes"` for true, and then the answer '
    "would have another form",
    "stream_options": "forced in a stream: usage is asked for | saltgate counts it, and withholds the event from "
    "who did not ask; `continuous_usage_stats` passes with `include_usage`",
    "request_id": "forced: saltgate's own id | names the request, so no client chooses it",
}


def page() -> str:
    """The whole page."""
    profiles = (row for profile in PROFILES.values() for row in _profile(profile))
    return "\n".join([_PREFACE, *_forbidden(), *profiles, *_images()])


def _forbidden() -> Iterator[str]:
    yield "## What no engine gets from a client\n"
    yield "Dropped at every endpoint of every kind, whether its engine knows the name or not.\n"
    yield from _table(FORBIDDEN)


def _images() -> Iterator[str]:
    yield "## With `media = true`\n"
    yield (
        "Then these fields of these endpoints are as follows, and all else stays as it is. An image part goes up as "
        "`type`, `image_url` and a `uuid` of saltgate's own, the identity of the image under the request's salt; what "
        "a client wrote under that name is left out.\n"
    )
    yield (
        "With `media_hosts` or `media_private_hosts` the URL may also be an address at one of these hosts, compared as "
        "it is written: `https://host/path?query`, `http://` on loopback only, no user, no fragment, at most "
        f"{MAX_ADDRESS_CHARACTERS} characters. saltgate fetches the image and sends it in the request, so the engine "
        "never gets an address. Audio and video stay refused, by address and otherwise.\n"
    )
    for endpoint in vllm_with_images(EngineLimits()).endpoints:
        if endpoint.media is not None:
            yield f"### vLLM: `{endpoint.method} {endpoint.path}`, at most {endpoint.media.most} images\n"
            yield from _table({endpoint.media.field: endpoint.fields[endpoint.media.field]})


def _profile(profile: Profile) -> Iterator[str]:
    yield f"## {profile.title} (`{profile.kind}`)\n"
    yield f"Read: {profile.version}.\n"
    for endpoint in profile.endpoints:
        yield from _endpoint(profile, endpoint)


def _endpoint(profile: Profile, endpoint: Endpoint) -> Iterator[str]:
    yield f"### {profile.title}: `{endpoint.method} {endpoint.path}`\n"
    yield f"{_salt(endpoint)}\n"
    yield from _table(
        {name: line for name, line in endpoint.fields.items() if line is not FORBIDDEN.get(name)},
        (*_always(endpoint), *_constants(endpoint)),
        endpoint.constants,
    )
    hidden = [(name, why) for name, why in endpoint.hides.items()]
    hidden += [(f"choices[].{name}", why) for name, why in endpoint.hides_in_choices.items()]
    if hidden:
        yield "Hidden in whole answers: " + "; ".join(f"`{name}` ({why})" for name, why in hidden) + ".\n"


def _salt(endpoint: Endpoint) -> str:
    if endpoint.salt is None:
        return "No salt: it computes no prompt and keeps nothing, so there is nothing to prove."
    places = [f"`{'.'.join(path)}`" for path in endpoint.salt.members]
    if endpoint.salt.header is not None:
        places.append(f"the header `{endpoint.salt.header}`")
    return f"The salt goes to {' and '.join(places)} ({endpoint.salt.source})."


def _always(endpoint: Endpoint) -> Iterator[str]:
    names = ["model"]
    if endpoint.streams:
        names.append("stream")
    if endpoint.usage_on_demand:
        names.append("stream_options")
    if endpoint.id_prefix is not None:
        names.append("request_id")
    for name in names:
        what, _, why = _ALWAYS[name].partition(" | ")
        yield _row(f"`{name}`", what, why, "saltgate")


def _constants(endpoint: Endpoint) -> Iterator[str]:
    for name, value in endpoint.constants.items():
        line = endpoint.fields[name]
        refused = "; true is refused" if isinstance(line.rule, Refuses) else ""
        yield _row(f"`{name}`", f"forced: `{value.decode()}`{refused}", line.reason, line.source)


def _table(
    table: Mapping[str, Line], first: tuple[str, ...] = (), but: Mapping[str, bytes] | None = None
) -> Iterator[str]:
    yield "| field | what happens | why | source |\n| --- | --- | --- | --- |"
    yield from first
    for name, line in table.items():
        if name not in (but or {}):
            yield _row(f"`{name}`", _what(line.rule), line.reason, line.source)
    yield ""


def _what(rule: Rule) -> str:
    match rule:
        case Passes():
            return f"passes: {rule.must_be}"
        case Drops():
            return "dropped"
        case Refuses():
            allowed = ", ".join(f"`{value.decode()}`" for value in sorted(rule.harmless))
            return f"refused{f', but for {allowed}' if allowed else ''}: {rule.remedy}"
        case Schema():
            extent = rule.extent
            return f"bounded: {rule.must_be}, at most {extent.most_bytes} bytes and {extent.most_levels} levels"
        case Prompts():
            return f"bounded: a string, token ids, or up to {rule.most} of either"
        case Opens():
            return _opens(rule)


def _opens(rule: Opens) -> str:
    bound = f", at most {rule.extent.most_bytes} bytes and {rule.extent.most_levels} levels" if rule.extent else ""
    text = "a string, or " if rule.or_text else ""
    by_shape: dict[str, list[str]] = {}
    for tag, shape in rule.shapes.items():
        by_shape.setdefault(_shape(shape), []).append(tag)
    kinds = "; ".join(f"{rule.tag} {', '.join(tags)}: {members}" for members, tags in by_shape.items())
    images = any(shape.image for shape in rule.shapes.values())
    media = f"; {'other ' * images}media are refused, also where null" if "image_url" in rule.signs else ""
    return f"opened{bound}: {text}objects of {kinds}{media}"


def _shape(shape: Shape) -> str:
    return ", ".join(_member(shape, name) for name in sorted(shape.members))


def _member(shape: Shape, name: str) -> str:
    if shape.image is not None and name == shape.image[0]:
        types = ", ".join(TYPES)
        return f"{name} (a data: URL in base64 of {types}, at most {shape.image[1].most_bytes} bytes; detail)"
    if name in shape.inner:
        return f"{name} ({_shape(shape.inner[name])})"
    return f"{name} ({_opens(shape.opens[name])})" if name in shape.opens else name


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    FIELDS.write_text(page(), encoding="utf-8")
