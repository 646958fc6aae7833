"""The one thing that may go to an engine: a checked request under a salt of ours.

A `StampedRequest` is made from a `ClientRequest` and a `Salt` and in no other way, and its bytes are made here, so
whoever holds one knows that its body carries exactly one `cache_salt`, that of its `salt`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NoReturn, final

import msgspec
from msgspec import Raw

from proxy.engines.body import ClientRequest
from proxy.engines.profile import Operation
from proxy.isolation.salt import Salt

SALT_FIELD: Final = "cache_salt"

_ENCODER: Final = msgspec.json.Encoder()
_USAGE: Final = Raw(b'{"include_usage":true,"continuous_usage_stats":false}')
_CONTINUOUS_USAGE: Final = Raw(b'{"include_usage":true,"continuous_usage_stats":true}')


@final
@dataclass(frozen=True, slots=True, init=False, eq=False)
class StampedRequest:
    """What the upstream leg takes. Only `stamp` is meant to make one, and it cannot be made without a salt.

    `method` and `path` are the endpoint's constants. `hide_usage`: usage was asked for on the gate's own account, so
    the event that tells it is not the client's. `show_reuse`: the client may see how much of its prompt was reused.
    """

    operation: Operation
    method: bytes
    path: bytes
    body: bytes = field(repr=False)
    model: str
    stream: bool
    hide_usage: bool
    show_reuse: bool
    request_id: str
    salt: Salt

    def __init__(self, request: ClientRequest, salt: Salt, *, request_id: str, show_reuse: bool) -> None:
        endpoint = request.endpoint
        put = object.__setattr__
        put(self, "operation", endpoint.operation)
        put(self, "method", endpoint.method.encode("ascii"))
        put(self, "path", endpoint.path.encode("ascii"))
        put(self, "body", _stamped_body(request, salt, request_id))
        put(self, "model", request.model)
        put(self, "stream", request.stream)
        put(self, "hide_usage", endpoint.usage_on_demand and request.stream and not request.wants_usage)
        put(self, "show_reuse", show_reuse)
        put(self, "request_id", request_id)
        put(self, "salt", salt)

    def __init_subclass__(cls) -> NoReturn:
        raise TypeError("a StampedRequest is what it says; it has no variants")


def stamp(request: ClientRequest, salt: Salt, *, request_id: str, show_reuse: bool) -> StampedRequest:
    """The request as the engine gets it: the admitted fields, the endpoint's constants, our id, and our salt last."""
    return StampedRequest(request, salt, request_id=request_id, show_reuse=show_reuse)


def _stamped_body(request: ClientRequest, salt: Salt, request_id: str) -> bytes:
    endpoint = request.endpoint
    document: dict[str, Raw | str] = {name: raw for name, raw in request.fields.items() if name != SALT_FIELD}
    for name, constant in endpoint.constants.items():
        document[name] = Raw(constant)
    if endpoint.usage_on_demand and request.stream:
        document["stream_options"] = _CONTINUOUS_USAGE if request.continuous_usage else _USAGE
    if endpoint.id_prefix is not None:
        document["request_id"] = endpoint.id_prefix + request_id
    document[SALT_FIELD] = salt.value
    return _ENCODER.encode(document)
