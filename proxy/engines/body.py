"""From a client's body to a `ClientRequest`: only what the endpoint's table lets pass, and nothing of it altered.

In two steps, because the model in the body tells which engine's table it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from msgspec import Raw, Struct
from msgspec.structs import replace

from proxy.engines.at_once import open_at_once
from proxy.engines.media import count_images, data_url, remote_images, with_data
from proxy.engines.members import FALSE, NULL, STRING, TRUE, Opened, kind, read_object, read_text
from proxy.engines.profile import MAX_MODEL_CHARACTERS, Endpoint, MediaPlace, Operation
from proxy.engines.remote import Address, Remote
from proxy.engines.rules import Opens
from proxy.refusals import InvalidRequest

# A few bytes of JSON become a whole object in memory, so a large body has bounds beside the one on bytes: more objects,
# members or values than any context window can hold. What is in texts counts too, so that counting is all there is to
# do, and even that costs as much as decoding: small bodies are spared it.
LARGE_BODY_BYTES: Final = 2**20
MAX_OBJECTS: Final = 2**18
MAX_LISTS: Final = 2**18
MAX_COLONS: Final = 2**18
MAX_VALUES: Final = 2**21
_TRUE: Final = Raw(b"true")


class OpenBody(Struct, frozen=True):
    """A body as far as it must be known to find the engine: one JSON object, its members, and the model it names.

    `opened` is its messages, where they were opened in the same pass: those whose `raw` is still among the members.
    """

    model: str
    members: Mapping[str, Raw]
    opened: Opened | None = None

    def __repr__(self) -> str:
        return f"OpenBody(model={self.model!r})"

    @property
    def asks_for_stream(self) -> bool:
        """Whether its `stream` is true, before anything is checked, so also where its endpoint has no such field."""
        return self.members.get("stream") == _TRUE


class ClientRequest(Struct, frozen=True):
    """What a client asks for, checked field by field, without a salt. Only `read_request` makes one.

    `wants_usage` and `continuous_usage` are the client's own `stream_options`; both are False on endpoints that have
    none. `fields` are the admitted fields as the client wrote them, `stream_options` not among them. `images` is how
    many of them are in it.
    """

    endpoint: Endpoint
    model: str
    stream: bool
    wants_usage: bool
    continuous_usage: bool
    fields: Mapping[str, Raw]
    images: int = 0

    def __repr__(self) -> str:
        return f"ClientRequest(path={self.endpoint.path!r}, model={self.model!r}, stream={self.stream})"

    @property
    def size_bytes(self) -> int:
        """Of its fields' values, as they are written."""
        return sum(map(len, self.fields.values()))


@dataclass(frozen=True, slots=True)
class UnfetchedRequest:
    """A checked request with images that are elsewhere: no step that leads to an engine takes it. Only `read_request`
    makes one, and only `with_images` makes a `ClientRequest` of it.

    `remote` is never empty; an address that is named twice is in it twice. Each image may have `most_bytes`.
    """

    endpoint: Endpoint
    remote: tuple[Remote, ...] = field(repr=False)
    most_bytes: int
    opened: OpenBody = field(repr=False)

    @property
    def model(self) -> str:
        return self.opened.model

    @property
    def images(self) -> int:
        """How many of its images are elsewhere: at least one."""
        return len(self.remote)

    @property
    def size_bytes(self) -> int:
        """How much JSON it is without its images."""
        return sum(map(len, self.opened.members.values()))


def open_body(body: bytes) -> OpenBody:
    """The members of `body`, a JSON object in UTF-8 (RFC 8259 section 8.1). Raises InvalidRequest."""
    if not body.isascii():
        _check_encoding(body)
    if len(body) > LARGE_BODY_BYTES:
        _check_size(body)
    found = open_at_once(body)
    if found is not None:
        members, opened = found
        return OpenBody(_model(members), members, opened)
    members = read_object(body, None)
    return OpenBody(_model(members), members)


def read_body(endpoint: Endpoint, body: bytes) -> ClientRequest:
    """Both steps at once, where the endpoint is known beforehand. Raises InvalidRequest, also for images that are
    elsewhere: here nobody fetches them.
    """
    request = read_request(endpoint, open_body(body))
    if isinstance(request, UnfetchedRequest):
        raise InvalidRequest("Images must be in the request itself.", param=request.remote[0].where)
    return request


def with_images(request: UnfetchedRequest, images: Mapping[Address, bytes]) -> ClientRequest:
    """The request as if the client had sent the images itself: it is read again, with their data in the place of their
    addresses, and every rule for such images holds. Raises InvalidRequest, and ValueError where an image is missing.
    """
    place = request.endpoint.media
    if place is None:
        raise ValueError(f"{request.endpoint.path} takes no images")
    for remote in request.remote:
        _check_image(remote, images)
    members = dict(request.opened.members)
    members[place.field] = with_data(members[place.field], {one.url: data for one, data in images.items()})
    whole = read_request(request.endpoint, replace(request.opened, members=members))
    if isinstance(whole, UnfetchedRequest):
        raise ValueError("an image is still elsewhere")  # noqa: TRY004 - a fault of whoever fetched
    return whole


def read_request(endpoint: Endpoint, opened: OpenBody) -> ClientRequest | UnfetchedRequest:
    """The request in a body. Raises InvalidRequest.

    Names are compared decoded. A member named twice is refused at every level that is opened: the body, messages,
    parts, tools. Below those levels (schemas, arguments, texts) nothing is looked at and nothing changed.
    """
    members = opened.members
    stream = endpoint.streams and _boolean(members, "stream", "stream")
    wants_usage, continuous_usage = _usage_options(endpoint, members, stream=stream)
    already = opened.opened
    fields = {}
    for name, raw in members.items():
        line = endpoint.fields.get(name)
        if line is None:
            continue
        if already is not None and already.raw is raw and isinstance(line.rule, Opens):
            admitted: Raw | None = line.rule.admit_opened(name, already)
        else:
            admitted = line.rule.admit(name, raw)
        if admitted is not None:
            fields[name] = admitted
    if endpoint.operation is _ECHOES:
        _check_echo(fields)
    images = 0 if endpoint.media is None else _count_images(endpoint.media, fields)
    remote = _remote_images(endpoint, fields) if images else ()
    if remote and endpoint.media is not None:
        checked = replace(opened, members={**members, endpoint.media.field: fields[endpoint.media.field]})
        return UnfetchedRequest(endpoint, remote, endpoint.media.most_bytes, checked)
    fields["model"] = members["model"]
    if stream:
        fields["stream"] = members["stream"]
    return ClientRequest(endpoint, opened.model, stream, wants_usage, continuous_usage, fields, images)


# Looked up once: an Enum's own members are found by a function of Python's.
_ECHOES: Final = Operation.COMPLETIONS


def _check_encoding(body: bytes) -> None:
    # Once for the whole body: the JSON decoder does not look into values that it skips.
    try:
        str(body, "utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest("The body must be UTF-8.", reason="not_utf8") from error


def _check_size(body: bytes) -> None:
    bounds = ((b"{", MAX_OBJECTS), (b"[", MAX_LISTS), (b":", MAX_COLONS), (b",", MAX_VALUES))
    if any(body.count(mark) > most for mark, most in bounds):
        raise InvalidRequest("The body holds more objects or values than can be answered.", reason="too_many_values")


def _model(members: Mapping[str, Raw]) -> str:
    raw = members.get("model")
    model = read_text(raw, "model") if raw is not None and memoryview(raw)[0] == STRING else ""
    if not 1 <= len(model) <= MAX_MODEL_CHARACTERS:
        raise InvalidRequest("model must name the model to ask. GET /v1/models lists yours.", param="model")
    return model


def _usage_options(endpoint: Endpoint, members: Mapping[str, Raw], *, stream: bool) -> tuple[bool, bool]:
    """The client's `include_usage` and `continuous_usage_stats`; the second counts only with the first, as in vLLM."""
    raw = members.get("stream_options")
    if raw is None or not endpoint.usage_on_demand or kind(raw) == NULL:
        return False, False
    options = read_object(raw, "stream_options")
    if not stream:
        raise InvalidRequest("stream_options needs stream to be true.", param="stream_options")
    include = _boolean(options, "include_usage", "stream_options.include_usage")
    continuous = _boolean(options, "continuous_usage_stats", "stream_options.continuous_usage_stats")
    return include, include and continuous


def _boolean(members: Mapping[str, Raw], name: str, where: str) -> bool:
    """A JSON boolean, absent and null being false. vLLM would take "yes" and 1 for true as well: what the gate relays
    as a whole answer and the engine sends as a stream must not differ."""
    raw = members.get(name)
    if raw is None:
        return False
    first = kind(raw)
    if first not in (TRUE, FALSE, NULL):
        raise InvalidRequest(f"{where} must be true or false.", param=where)
    return first == TRUE


def _count_images(place: MediaPlace, fields: Mapping[str, Raw]) -> int:
    if place.field not in fields:
        return 0
    images = count_images(fields[place.field])
    if images > place.most:
        raise InvalidRequest(f"{place.field} must hold at most {place.most} images.", param=place.field)
    return images


def _remote_images(endpoint: Endpoint, fields: Mapping[str, Raw]) -> tuple[Remote, ...]:
    place = endpoint.media
    if place is None or place.elsewhere is None:
        return ()
    return remote_images(place.field, fields[place.field], place.elsewhere)


def _check_image(remote: Remote, images: Mapping[Address, bytes]) -> None:
    data = images.get(remote.address)
    if data is None:
        raise ValueError("an image was not fetched")
    try:
        data_url(data[:16])
    except ValueError as error:
        raise InvalidRequest(
            f"{remote.where} must be the address of an image: {error}.", param=remote.where, reason="media_type"
        ) from error


def _check_echo(fields: Mapping[str, Raw]) -> None:
    # Together they are prompt logprobs by another name (vllm/entrypoints/openai/completion/protocol.py).
    if not _boolean(fields, "echo", "echo"):
        return
    logprobs = fields.get("logprobs")
    if logprobs is not None and kind(logprobs) != NULL:
        raise InvalidRequest("echo with logprobs is not enabled on this deployment. Send one of them.", param="echo")
