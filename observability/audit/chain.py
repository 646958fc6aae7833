"""The rule of the chain: each line carries a MAC over itself and over the MAC of the line before it. Pure.

    line = {"v":1,"chain":…,"seq":…,"key":…,…,"mac":"…"}
    mac  = HMAC-SHA-256(chain key, MAC of the line before (32 bytes; zeros before the first) || line up to `,"mac":`)

What is signed are the bytes as they are in the file, so that nobody has to agree on a canonical form of JSON. A chain
is what one process writes, over all its segments; its name is in each line, so that a line fits in no other chain.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

import msgspec

VERSION: Final = 1
NOTHING: Final = bytes(32)
"""The MAC before the first line."""

_MAC: Final = b',"mac":"'
_TAIL_BYTES: Final = len(_MAC) + 64 + len(b'"}')
_Word = Annotated[str, msgspec.Meta(max_length=256)]
_NAME: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z-[a-z]{3,8}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class ChainKey:
    """One key of the audit, by its id. What it is used for has a key of its own, derived from it."""

    id: str
    seals: bytes = field(repr=False)
    names: bytes = field(repr=False)
    journals: bytes = field(repr=False)


def chain_key(key_id: str, secret: bytes) -> ChainKey:
    """`secret` is that of `[[audit.keys]]`."""
    return ChainKey(
        key_id,
        seals=hmac.digest(secret, b"saltgate audit chain", "sha256"),
        names=hmac.digest(secret, b"saltgate audit subject", "sha256"),
        journals=hmac.digest(secret, b"saltgate audit journal", "sha256"),
    )


class Head(msgspec.Struct, frozen=True):
    """Where a chain is: the number of its last line, and that line's MAC in hex. `seq` 0: nothing was written."""

    chain: str
    seq: int
    mac: str


class Line(msgspec.Struct, frozen=True):
    """What every line says of its place. Bounded, because what is no line of ours is quoted in what is found."""

    v: int
    chain: _Word
    seq: int
    key: _Word
    ts: _Word
    event: _Word


@dataclass(frozen=True, slots=True)
class Sealed:
    """A line as it is in a file: `signed` is what its MAC is over, less the MAC before; `mac_text` is `mac` as text."""

    line: Line
    signed: bytes
    mac: bytes
    mac_text: bytes

    @property
    def head(self) -> Head:
        return Head(self.line.chain, self.line.seq, self.mac.hex())


class BadLine(Exception):  # noqa: N818 - what an auditor reads
    """What stands in a file is no line of an audit."""


def is_chain_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def sealed(key: ChainKey, before: bytes, chain: str, seq: int, content: bytes) -> tuple[bytes, bytes]:
    """The line with its newline, and its MAC. `content` is a JSON object of at least one member, in UTF-8."""
    signed = b'{"v":%d,"chain":"%b","seq":%d,"key":"%b",%b' % (
        VERSION,
        chain.encode("ascii"),
        seq,
        key.id.encode("ascii"),
        content[1:-1],
    )
    mac = hmac.digest(key.seals, before + signed, "sha256")
    return b'%b,"mac":"%b"}\n' % (signed, mac.hex().encode("ascii")), mac


def read_line(written: bytes) -> Sealed:
    """What a line with its newline says; its MAC is not checked. Raises BadLine."""
    if not written.endswith(b'"}\n'):
        raise BadLine("it is cut off")
    at = len(written) - 1 - _TAIL_BYTES
    if at <= 0 or not written.startswith(_MAC, at):
        raise BadLine("it ends without a MAC")
    mac_text = written[at + len(_MAC) : -3]
    try:
        mac = bytes.fromhex(mac_text.decode("ascii"))
        line = msgspec.json.decode(written, type=Line)
    except ValueError as error:
        raise BadLine("it is no record of an audit") from error
    if line.v != VERSION:
        raise BadLine(f"it has version {line.v}, which this saltgate does not know")
    return Sealed(line, written[:at], mac, mac_text)


def is_genuine(one: Sealed, before: bytes, keys: Mapping[str, ChainKey]) -> bool:
    """Whether the line was sealed with one of the keys, behind the line whose MAC is `before`, and is as it was then:
    other digits for the same MAC are another line.
    """
    key = keys.get(one.line.key)
    if key is None:
        return False
    mac = hmac.digest(key.seals, before + one.signed, "sha256")
    return hmac.compare_digest(one.mac_text, mac.hex().encode("ascii"))
