"""The salt of a unit: what the engine mixes into the first block's hash (contract section 7).

The message is length-prefixed field by field, so no two (unit, epoch) pairs give the same bytes; the HMAC makes the
salt useless to who knows the unit but not the key. Unpadded base64url, because vLLM refuses `/` in a salt and more than
128 characters (vllm/entrypoints/generate/base/protocol.py).
"""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from typing import Final

from proxy.isolation.unit import ProbeUnit, Unit, fields

SALT_PREFIX: Final = "sg1-"
MINIMUM_SECRET_BYTES: Final = 32
# 43 characters hold 32 bytes, so the last of them has only four of its six bits.
_FORM: Final = re.compile(r"sg1-[A-Za-z0-9_-]{1,32}-[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]")


@dataclass(frozen=True, slots=True)
class SaltKey:
    """One key of the ring: its id is public, its secret never shows."""

    id: str
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) < MINIMUM_SECRET_BYTES:
            raise ValueError(
                f"salt key {self.id!r} has {len(self.secret)} bytes; it needs {MINIMUM_SECRET_BYTES} or more"
            )


@dataclass(frozen=True, slots=True)
class Salt:
    """The one value that may be stamped as `cache_salt`, and what may be told about it.

    `value` is a secret of the unit: whoever holds it can probe the unit's cache. Logs, spans and audit name the
    fingerprint only.
    """

    value: str = field(repr=False)
    unit: Unit | ProbeUnit
    epoch: int
    key_id: str
    fingerprint: str
    marks: tuple[bytes, bytes] = field(init=False, repr=False, compare=False)
    """Its beginning and its end: whoever repeats the salt repeats one of them, also where he cuts it.

    60 bits of the digest in each, so that no other text has one by chance.
    """

    def __post_init__(self) -> None:
        value = self.value.encode("ascii")
        marks = value[: len(SALT_PREFIX) + len(self.key_id) + 1 + _MARK], value[-_MARK:]
        object.__setattr__(self, "marks", marks)


_MARK: Final = 10


def salt_for(unit: Unit | ProbeUnit, *, epoch: int, key: SaltKey) -> Salt:
    """The unit's salt. The same unit, epoch and key give the same salt on every machine; others never do."""
    tag = hmac.digest(key.secret, _message(unit, epoch), "sha256")
    value = _value(tag, key)
    return Salt(value=value, unit=unit, epoch=epoch, key_id=key.id, fingerprint=_fingerprint(value, key))


def length_prefixed(*texts: str) -> bytes:
    """The texts in one, so that no other texts give the same bytes."""
    parts = [text.encode("utf-8") for text in texts]
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def is_salt(text: str) -> bool:
    """Whether the text has a salt's form; whose it is, only its key can tell."""
    return _FORM.fullmatch(text) is not None


def salt_within(salt: Salt, other: str, key: SaltKey) -> Salt:
    """A salt for what another saltgate keeps apart inside this salt's unit: `other` is the salt that it stamped.

    Two borders in one: it differs where either of the two salts does, so it is never shared with another unit, nor
    with this unit's own requests. `other` is taken for nothing but a name, so nobody need trust who chose it: whoever
    makes one up narrows his own unit and reaches nobody else's.
    """
    tag = hmac.digest(key.secret, length_prefixed("sg1", "gate", salt.value, other), "sha256")
    value = _value(tag, key)
    return Salt(value=value, unit=salt.unit, epoch=salt.epoch, key_id=key.id, fingerprint=_fingerprint(value, key))


def _value(tag: bytes, key: SaltKey) -> str:
    return f"{SALT_PREFIX}{key.id}-{urlsafe_b64encode(tag).rstrip(b'=').decode('ascii')}"


def _message(unit: Unit | ProbeUnit, epoch: int) -> bytes:
    return length_prefixed("sg1", *fields(unit), str(epoch))


def _fingerprint(value: str, key: SaltKey) -> str:
    fingerprint_key = hmac.digest(key.secret, b"saltgate fingerprint", "sha256")
    return hmac.digest(fingerprint_key, value.encode("ascii"), "sha256").hex()[:12]
