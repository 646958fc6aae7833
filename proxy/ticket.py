"""A ticket to the administrators' pages: one use, one minute, one admin listener.

Who holds the isolation keys can make one: a worker, for an administrator who is signed in, and `saltgate admin ticket`,
for whoever may read the configuration. It is signed by a key that is made of the current isolation key for this purpose
alone, and names the address of the admin listener that it is for. That each is used once, and none after a restart, the
listener sees to.
"""

from __future__ import annotations

import binascii
import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

import msgspec

TICKET_SECONDS: Final = 60.0
# Clocks of two machines, where one makes it and the other takes it.
LEEWAY_SECONDS: Final = 5.0
LONGEST: Final = 64 * 1024
_MAC_BYTES: Final = 32


class Holder(msgspec.Struct, frozen=True):
    """Who may come in with it. An operator of the machine has neither `identity` nor `session`; of a person they are
    what `proxy.questions.MayLook` asks about.
    """

    name: str
    identity: bytes = b""
    session: str = ""

    def __repr__(self) -> str:
        return "Holder()"


class Ticket(msgspec.Struct, frozen=True):
    """`audience` is the origin of the admin listener, `made_at` Unix seconds, `number` 128 random bits."""

    audience: str
    made_at: float
    holder: Holder
    number: str


def ticket_key(isolation_secret: bytes) -> bytes:
    """What signs tickets, of the secret of an isolation key."""
    return hmac.digest(isolation_secret, b"saltgate admin ticket", "sha256")


def new_ticket(key: bytes, holder: Holder, *, audience: str, now: float) -> str:
    """As it stands in an address: letters, digits, `-` and `_`."""
    body = msgspec.msgpack.encode(Ticket(audience, now, holder, secrets.token_hex(16)))
    return urlsafe_b64encode(hmac.digest(key, body, sha256) + body).rstrip(b"=").decode("ascii")


def opened(text: str, keys: Iterable[bytes], *, audience: str, now: float) -> Ticket | None:
    """The ticket, or None for one that is not good here and now, whatever is wrong with it."""
    if len(text) > LONGEST or not text.isascii():
        return None
    try:
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        return None
    mac, body = data[:_MAC_BYTES], data[_MAC_BYTES:]
    if not any(hmac.compare_digest(hmac.digest(key, body, sha256), mac) for key in keys):
        return None
    try:
        ticket = msgspec.msgpack.decode(body, type=Ticket)
    except ValueError:
        return None
    is_now = -LEEWAY_SECONDS <= now - ticket.made_at <= TICKET_SECONDS
    return ticket if is_now and ticket.audience == audience else None
