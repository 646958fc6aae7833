"""Images in a request: which may come, and the identity by which an engine shall know each of them.

An engine's caches of media (the processor's, the encoder's) know no salt: they go by a part's `uuid`, which vLLM takes
as it comes (vllm/multimodal/processing/inputs.py), or else by the content alone, the same for everybody. So each image
gets a `uuid` that is made of the salt and the image: two units never have one in common, and inside a unit no other
image has it. What the identity says of an image must be all that the engine sees of it, so base64 is strict: the gate
and the engine decode the same bytes.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Raw

from proxy.engines.members import ARRAY, STRING, kind, read_object, read_text, write
from proxy.engines.remote import Elsewhere, Remote
from proxy.isolation.salt import Salt
from proxy.refusals import InvalidRequest

IMAGE: Final = "image_url"
IDENTITY: Final = "uuid"

# What each type's data begins with, so that nothing else comes under its name: engines go by the data alone, and the
# decoders of rare formats are where the holes are.
_BEGINNINGS: Final[Mapping[str, re.Pattern[bytes]]] = {
    "gif": re.compile(rb"GIF8[79]a"),
    "jpeg": re.compile(rb"\xff\xd8\xff"),
    "png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "webp": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
}
TYPES: Final = tuple(f"image/{name}" for name in _BEGINNINGS)
# RFC 2397 would take parameters, capitals and percent-encoding, too, and decoders differ in what they make of them.
_HEAD: Final = re.compile(rf"data:image/({'|'.join(_BEGINNINGS)});base64,")
_MAX_HEAD_CHARACTERS: Final = 32
_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_DETAILS: Final = ("auto", "low", "high")


@dataclass(frozen=True, slots=True)
class DataImage:
    """An image that the request itself brings: `{"url": "data:image/png;base64,…"}`, with OpenAI's `detail` or without.

    It goes to the engine written anew, those two members and no escapes. `most_bytes` bounds the decoded image. Where
    there is an `elsewhere`, the address of one may stand in its place, until it is fetched (`remote_images`).
    """

    most_bytes: int
    elsewhere: Elsewhere | None = None

    def admit(self, where: str, raw: Raw) -> Raw:
        """Raises InvalidRequest for null, for a URL of another kind, and for what is no such image."""
        members = read_object(raw, where)
        kept = {"url": self._admit_url(f"{where}.url", members.get("url"))}
        if "detail" in members:
            kept["detail"] = _admit_detail(f"{where}.detail", members["detail"])
        return write(kept)

    def _admit_url(self, where: str, raw: Raw | None) -> Raw:
        url = read_text(raw, where) if raw is not None and kind(raw) == STRING else ""
        head = _HEAD.match(url[:_MAX_HEAD_CHARACTERS])
        if head is None and self.elsewhere is not None:
            return self.elsewhere.admit(where, url)
        if head is None:
            raise InvalidRequest(
                f"{where} must be an image in the request itself, written data:image/png;base64,… (or "
                f"{', '.join(TYPES)}); no other address is fetched.",
                param=where,
                reason="media_refused",
            )
        data = _base64(url[head.end() :])
        if data is None:
            raise InvalidRequest(
                f"{where} must be base64 as RFC 4648 section 4 has it: padded, without line breaks.",
                param=where,
                reason="media_refused",
            )
        if len(data) // 4 * 3 - data[-2:].count(b"=") > self.most_bytes:
            raise InvalidRequest(f"{where} must be an image of at most {self.most_bytes} bytes.", param=where)
        if _BEGINNINGS[head[1]].match(binascii.a2b_base64(data[:16])) is None:
            raise InvalidRequest(f"{where} must be what it says: its data is no image/{head[1]}.", param=where)
        # Joined, because formatting copies megabytes several times.
        return Raw(b"".join((b'"', head[0].encode("ascii"), data, b'"')))


def _base64(text: str) -> bytes | None:
    """The text as bytes; None where it is not the one base64 spelling of its data."""
    try:
        data = text.encode("ascii")
    except UnicodeEncodeError:
        return None
    padding = data.translate(None, _ALPHABET)
    if len(data) % 4 or padding not in (b"", b"=", b"==") or not data.endswith(padding):
        return None
    last = data[-4:]
    return data if binascii.b2a_base64(binascii.a2b_base64(last), newline=False) == last else None


def _admit_detail(where: str, raw: Raw) -> Raw:
    if kind(raw) != STRING or read_text(raw, where) not in _DETAILS:
        raise InvalidRequest(f"{where} must be one of: {', '.join(_DETAILS)}.", param=where)
    return raw


def identity(media: bytes, salt: Salt) -> str:
    """The identity of a medium inside the salt's unit: 64 hex digits, as long as a hash of the engine's own.

    Of the decoded bytes, so that spelling does not matter. Hex, because connectors read it as a number
    (LMCacheConnectorV1).
    """
    return hmac.digest(salt.value.encode("ascii"), hashlib.sha256(media).digest(), "sha256").hex()


def count_images(messages: Raw) -> int:
    """How many images admitted messages hold."""
    return sum(IMAGE in part for message in _messages(messages) for part in _parts(message))


def identified(messages: Raw, salt: Salt) -> Raw:
    """Admitted messages with the identity of each image in its part, whatever stood in its place before.

    Raises ValueError for an image that `DataImage` did not admit.
    """
    opened = _messages(messages)
    changed = False
    for message in opened:
        parts = _parts(message)
        images = [part for part in parts if IMAGE in part]
        for part in images:
            part[IDENTITY] = Raw(f'"{identity(_media(part[IMAGE]), salt)}"'.encode("ascii"))
        if images:
            message["content"] = write(parts)
            changed = True
    return write(opened) if changed else messages


def remote_images(field: str, messages: Raw, elsewhere: Elsewhere) -> tuple[Remote, ...]:
    """The images of admitted messages that are elsewhere, in their order, each with its place in the field."""
    return tuple(
        Remote(f"{field}[{number}].content[{position}].{IMAGE}.url", address)
        for number, message in enumerate(_messages(messages))
        for position, part in enumerate(_parts(message))
        if IMAGE in part and (address := elsewhere.address(_url(part[IMAGE]))) is not None
    )


def with_data(messages: Raw, images: Mapping[str, bytes]) -> Raw:
    """Admitted messages with the data of each image, by its URL, in the place of the URL.

    Raises ValueError for data that `TYPES` do not have, by the URL.
    """
    opened = _messages(messages)
    for message in opened:
        parts = _parts(message)
        for part in parts:
            if IMAGE in part and (url := _url(part[IMAGE])) in images:
                members = _OBJECT.decode(part[IMAGE])
                part[IMAGE] = write(members | {"url": Raw(b'"%b"' % data_url(images[url]))})
        if parts:
            message["content"] = write(parts)
    return write(opened)


def data_url(media: bytes) -> bytes:
    """The one way to write an image as a `data:` URL. Raises ValueError for data that none of `TYPES` has."""
    for name, beginning in _BEGINNINGS.items():
        if beginning.match(media) is not None:
            return b"data:image/%b;base64,%b" % (name.encode("ascii"), binascii.b2a_base64(media, newline=False))
    raise ValueError(f"it is none of {', '.join(TYPES)}")


class _Image(msgspec.Struct):
    url: str


_OBJECTS: Final = msgspec.json.Decoder(list[dict[str, Raw]])
_OBJECT: Final = msgspec.json.Decoder(dict[str, Raw])
_IMAGE: Final = msgspec.json.Decoder(_Image)
# `DataImage` writes an image so: there is no need to decode megabytes in order to see that it is no address.
_DATA: Final = b'{"url":"data:'


def _messages(messages: Raw) -> list[dict[str, Raw]]:
    return _OBJECTS.decode(messages) if kind(messages) == ARRAY else []


def _parts(message: Mapping[str, Raw]) -> list[dict[str, Raw]]:
    content = message.get("content")
    return _OBJECTS.decode(content) if content is not None and kind(content) == ARRAY else []


def _url(image: Raw) -> str:
    """The URL of an admitted image; empty where the image is in the request."""
    return "" if bytes(memoryview(image)[: len(_DATA)]) == _DATA else _IMAGE.decode(image).url


def _media(image: Raw) -> bytes:
    url = _IMAGE.decode(image).url
    head = _HEAD.match(url[:_MAX_HEAD_CHARACTERS])
    if head is None:
        raise ValueError("an image that is not in the request has no identity, and must not go up")
    return binascii.a2b_base64(url[head.end() :], strict_mode=True)
