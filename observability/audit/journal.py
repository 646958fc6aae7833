"""What is running now, in a file mapped into memory: it outlives its process, and to write there calls no kernel.

A slot is taken before a request goes up to its engine, told how the request ended, and given back once its line is in
the chain. Whoever finds the journal of a process that was killed knows what had no line yet. Slots are also the bound
on how many requests may be without a line: with none left, no request is let in. The place of the file is allocated
when it is made, so that a full disk is found then and never by a write to memory.

What is found there becomes lines under the chain's key, so a slot has MACs, too: over the chain's name with what is
known of the request, and over that with how it ended. Who can write the file can take slots out, but put none in.
"""

from __future__ import annotations

import hmac
import mmap
import os
import stat
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec

from observability.audit.entries import Ending, opening
from observability.audit.subjects import Names
from observability.names import OUTCOMES
from observability.record import Record

SLOT_BYTES: Final = 1024
"""Of one request: an issuer, a client, a scope and a model of usual length fit in half of it."""
_ENDING: Final = struct.Struct("=BBHqqqq")  # state, outcome, status; prompt, reused and output tokens; ended at
_LENGTH: Final = struct.Struct("=I")
_MOST_SLOTS: Final = 1024 * 1024
_MAC_BYTES: Final = 16
_OPENING_MAC_AT: Final = _ENDING.size + _LENGTH.size
_ENDING_MAC_AT: Final = _OPENING_MAC_AT + _MAC_BYTES
_CONTENT_AT: Final = _ENDING_MAC_AT + _MAC_BYTES
_FREE, _OPEN, _ENDED = 0, 1, 2
_ROOM: Final = SLOT_BYTES - _CONTENT_AT
_UNKNOWN: Final = -1
_OUTCOME_NUMBERS: Final = {outcome: number for number, outcome in enumerate(OUTCOMES)}


class NoSlot(Exception):  # noqa: N818 - a full house
    """As many requests wait for their line as may."""


class _Seal:
    """The MACs of one chain's slots under one key. BLAKE2b, keyed (RFC 7693 section 2.9): half the time of HMAC."""

    def __init__(self, key: bytes, chain: str) -> None:
        self._opens = blake2b(f"open {chain}".encode(), digest_size=_MAC_BYTES, key=key)
        self._ends = blake2b(f"ended {chain}".encode(), digest_size=_MAC_BYTES, key=key)

    def of_opening(self, packed: bytes) -> bytes:
        mac = self._opens.copy()
        mac.update(packed)
        return mac.digest()

    def of_ending(self, opening_mac: bytes, ending: bytes) -> bytes:
        """`ending` is without its state."""
        mac = self._ends.copy()
        mac.update(opening_mac + ending)
        return mac.digest()


class Journal:
    """The journal of one process. `take` and `ended` are for the loop, `give_back` for the thread that writes."""

    def __init__(self, path: Path, slots: int, *, key: bytes, chain: str) -> None:
        """`key` is that of `ChainKey.journals`. Raises OSError, also where there is no room for it."""
        self.path = path
        self._seal = _Seal(key, chain)
        self.slots = slots
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, slots * SLOT_BYTES)
            self._map = mmap.mmap(descriptor, slots * SLOT_BYTES)
        except BaseException:
            path.unlink()
            raise
        finally:
            os.close(descriptor)
        # The last one given back is taken next: few pages are ever touched.
        self._free = list(range(slots - 1, -1, -1))

    @property
    def taken(self) -> int:
        return self.slots - len(self._free)

    def take(self, record: Record, names: Names) -> int:
        """A slot that holds what is known of the request. Raises NoSlot."""
        try:
            slot = self._free.pop()
        except IndexError:
            raise NoSlot from None
        packed = opening(record, names)
        if len(packed) > _ROOM:
            packed = _shortened(packed)
        at = slot * SLOT_BYTES
        begin = at + _CONTENT_AT
        self._map[begin : begin + len(packed)] = packed
        _LENGTH.pack_into(self._map, at + _ENDING.size, len(packed))
        self._map[at + _OPENING_MAC_AT : at + _ENDING_MAC_AT] = self._seal.of_opening(packed)
        self._map[at] = _OPEN  # last: what is open is whole
        return slot

    def ended(self, slot: int, record: Record) -> None:
        """The request has ended, and has no line yet."""
        prompt, reused, output = record.prompt_tokens, record.reused_tokens, record.output_tokens
        at = slot * SLOT_BYTES
        _ENDING.pack_into(
            self._map,
            at,
            _OPEN,
            _OUTCOME_NUMBERS[record.outcome or "gate_error"],
            record.status or 0,
            _UNKNOWN if prompt is None else prompt,
            _UNKNOWN if reused is None else reused,
            _UNKNOWN if output is None else output,
            record.wall_ns(record.ended_ns),
        )
        opening_mac = self._map[at + _OPENING_MAC_AT : at + _ENDING_MAC_AT]
        mac = self._seal.of_ending(opening_mac, self._map[at + 1 : at + _ENDING.size])
        self._map[at + _ENDING_MAC_AT : at + _CONTENT_AT] = mac
        self._map[at] = _ENDED

    def give_back(self, slot: int) -> None:
        """The request's line is written."""
        self._map[slot * SLOT_BYTES] = _FREE
        self._free.append(slot)

    def close(self) -> None:
        """Ends it; without anything open it is no file any more."""
        if self._map.closed:
            return
        if not self.taken:
            with suppress(FileNotFoundError):
                self.path.unlink()
        self._map.close()


def left_open(path: Path, chain: str, keys: Iterable[bytes]) -> Iterator[tuple[bytes, Ending | None]]:
    """What the journal of an ended process holds: the packed opening of each request, and how it ended where that was
    noted. Raises OSError; and ValueError, behind all that is genuine under one of the keys, where anything is not.
    """
    if not stat.S_ISREG(path.stat().st_mode):  # to open a pipe is to wait for ever
        raise ValueError("no file")
    seals = [_Seal(key, chain) for key in keys]
    is_whole = True
    for slot in _slots(path):
        if slot[0] == _FREE:
            continue
        packed = _genuine_opening(slot, seals)
        ending = None if packed is None or slot[0] == _OPEN else _genuine_ending(slot, seals)
        is_whole = is_whole and packed is not None and (slot[0] == _OPEN or ending is not None)
        if packed is not None:
            yield packed, ending
    if not is_whole:
        raise ValueError("not all of it was written by who had the key")


def _slots(path: Path) -> Iterator[bytes]:
    """One in memory at a time, and no more than any process has: anybody may have put a file of any size there."""
    with path.open("rb") as file:
        for _ in range(_MOST_SLOTS):
            slot = file.read(SLOT_BYTES)
            if len(slot) < SLOT_BYTES:
                return
            yield slot


def _genuine_opening(slot: bytes, seals: Iterable[_Seal]) -> bytes | None:
    (length,) = _LENGTH.unpack_from(slot, _ENDING.size)
    packed, mac = slot[_CONTENT_AT : _CONTENT_AT + length], slot[_OPENING_MAC_AT:_ENDING_MAC_AT]
    return packed if any(hmac.compare_digest(mac, seal.of_opening(packed)) for seal in seals) else None


def _genuine_ending(slot: bytes, seals: Iterable[_Seal]) -> Ending | None:
    opening_mac, mac = slot[_OPENING_MAC_AT:_ENDING_MAC_AT], slot[_ENDING_MAC_AT:_CONTENT_AT]
    if not any(hmac.compare_digest(mac, seal.of_ending(opening_mac, slot[1 : _ENDING.size])) for seal in seals):
        return None
    _, outcome, status, prompt, reused, output, ended_ns = _ENDING.unpack_from(slot)
    if outcome >= len(OUTCOMES):  # of another version
        return None
    return Ending(OUTCOMES[outcome], ended_ns, status or None, *(_known(count) for count in (prompt, reused, output)))


def _known(count: int) -> int | None:
    return None if count == _UNKNOWN else count


def _shortened(packed: bytes) -> bytes:
    """With every text cut, so that twenty of them fit: what a killed worker leaves of such a request says less."""
    return msgspec.msgpack.encode([_short(one) for one in msgspec.msgpack.decode(packed)])


_SHORT_BYTES: Final = 40


def _short(one: object) -> object:
    if isinstance(one, str):
        return one.encode("utf-8")[:_SHORT_BYTES].decode("utf-8", "ignore")
    return [] if isinstance(one, list) else one
