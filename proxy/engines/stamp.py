"""What may go to an engine: a checked request under a salt of ours, or one that computes no prompt and has none.

A `StampedRequest` is made from a `ClientRequest` and a `Salt` and in no other way, and its bytes are made here, so
whoever holds one knows that the salt stands in every place where its engine reads one, and no other value does, and
that every image in it carries the identity that it has under this salt, and no other. A `CountRequest` is of another
type, so that this stays true of every `StampedRequest`; the endpoint's table says which of the two a request becomes,
and neither can be made of the other's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn, final

import msgspec
from msgspec import Raw

from proxy.engines.body import ClientRequest
from proxy.engines.media import identified
from proxy.engines.profile import Endpoint, MediaPlace, Operation
from proxy.isolation.salt import Salt

_ENCODER: Final = msgspec.json.Encoder()
_USAGE: Final = Raw(b'{"include_usage":true,"continuous_usage_stats":false}')
_CONTINUOUS_USAGE: Final = Raw(b'{"include_usage":true,"continuous_usage_stats":true}')


@final
@dataclass(frozen=True, slots=True, init=False, eq=False)
class StampedRequest:
    """What the upstream leg takes. Only `stamp` is meant to make one, and it cannot be made without a salt.

    `path` is the endpoint's constant, `headers` are the lines that its engine reads a salt from, each with its CRLF.
    `hide_usage`: usage was asked for on the gate's own account, so the event that tells it is not the client's.
    `show_reuse`: the client may see how much of its prompt was reused.
    """

    endpoint: Endpoint
    operation: Operation
    path: bytes
    headers: bytes = field(repr=False)
    body: bytes = field(repr=False)
    model: str
    stream: bool
    hide_usage: bool
    show_reuse: bool
    request_id: str
    salt: Salt

    def __init__(self, request: ClientRequest, salt: Salt, *, request_id: str, show_reuse: bool) -> None:
        endpoint = request.endpoint
        if endpoint.salt is None:
            raise ValueError(f"{endpoint.path} has no place for a salt")
        put = object.__setattr__
        put(self, "endpoint", endpoint)
        put(self, "operation", endpoint.operation)
        put(self, "path", endpoint.path_bytes)
        put(self, "headers", b"" if endpoint.salt.header is None else _salt_header(endpoint.salt.header, salt))
        document = _document(request, request_id)
        if endpoint.media is not None:
            _identify(document, endpoint.media, salt)
        for first, *inner in endpoint.salt.members:
            document[first] = salt.value if not inner else _nested(inner, salt.value)
        put(self, "body", _ENCODER.encode(document))
        put(self, "model", request.model)
        put(self, "stream", request.stream)
        put(self, "hide_usage", endpoint.usage_on_demand and request.stream and not request.wants_usage)
        put(self, "show_reuse", show_reuse)
        put(self, "request_id", request_id)
        put(self, "salt", salt)

    def __init_subclass__(cls) -> NoReturn:
        raise TypeError("a StampedRequest is what it says; it has no variants")


@final
@dataclass(frozen=True, slots=True, init=False, eq=False)
class CountRequest:
    """A request that the engine answers without computing a prompt. It has no salt, and is answered whole."""

    endpoint: Endpoint
    operation: Operation
    path: bytes
    body: bytes = field(repr=False)
    model: str
    request_id: str

    def __init__(self, request: ClientRequest, *, request_id: str) -> None:
        endpoint = request.endpoint
        if endpoint.salt is not None or endpoint.streams or endpoint.media is not None:
            raise ValueError(f"{endpoint.path} computes a prompt, or takes images: it needs a salt")
        put = object.__setattr__
        put(self, "endpoint", endpoint)
        put(self, "operation", endpoint.operation)
        put(self, "path", endpoint.path_bytes)
        put(self, "body", _ENCODER.encode(_document(request, request_id)))
        put(self, "model", request.model)
        put(self, "request_id", request_id)

    def __init_subclass__(cls) -> NoReturn:
        raise TypeError("a CountRequest is what it says; it has no variants")


def stamp(request: ClientRequest, salt: Salt, *, request_id: str, show_reuse: bool) -> StampedRequest:
    """The request as the engine gets it: the admitted fields, the endpoint's constants, our id, and our salt last.

    Raises ValueError for an endpoint that has no place for a salt.
    """
    return StampedRequest(request, salt, request_id=request_id, show_reuse=show_reuse)


def count(request: ClientRequest, *, request_id: str) -> CountRequest:
    """The request without a salt. Raises ValueError for an endpoint that computes a prompt."""
    return CountRequest(request, request_id=request_id)


def _document(request: ClientRequest, request_id: str) -> dict[str, object]:
    """What goes up, without a salt and without anything under the names where one is read, so that it stands last."""
    endpoint = request.endpoint
    ours = endpoint.salted_names
    document: dict[str, object] = {name: raw for name, raw in request.fields.items() if name not in ours}
    for name, constant in endpoint.constants.items():
        document[name] = Raw(constant)
    if endpoint.usage_on_demand and request.stream:
        document["stream_options"] = _CONTINUOUS_USAGE if request.continuous_usage else _USAGE
    if endpoint.id_prefix is not None:
        document["request_id"] = endpoint.id_prefix + request_id
    return document


def _identify(document: dict[str, object], place: MediaPlace, salt: Salt) -> None:
    """Put an identity of ours into every image."""
    raw = document.get(place.field)
    if isinstance(raw, Raw):
        document[place.field] = identified(raw, salt)


def _nested(names: Sequence[str], salt: str) -> object:
    value: object = salt
    for name in reversed(names):
        value = {name: value}
    return value


def _salt_header(name: str, salt: Salt) -> bytes:
    return f"{name}: {salt.value}\r\n".encode("ascii")
