"""One session of a person at a browser, and its record: what Redis holds of it can be read only with its cookie. Pure.

The store knows a session by the hash of the cookie's value. Who the person is and his ID token are sealed under a key
made of that value, which nobody but the browser has: neither a copy of Redis nor its administrator can read them.
"""

from __future__ import annotations

import hmac
import json
import secrets
from base64 import b64decode, b64encode, urlsafe_b64encode
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from proxy.identity import Identity
from proxy.identity.kept import identity_from_json, identity_to_json

_NONCE_BYTES: Final = 12  # of AES-GCM, NIST SP 800-38D section 8.2
_HANDLE_CHARACTERS: Final = 16
MAXIMUM_HINT_CHARACTERS: Final = 6000
"""A longer ID token is not kept: it only serves as a hint in an address, and no server takes such an address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """`identity.expires_at` is when the session ends at the latest, `started_at` when it began: Unix seconds. `subject`
    is the `sub` of the ID token, `id_token` that token where it can be a hint for signing out, `browser` a word for it.
    """

    identity: Identity
    subject: str
    name: str | None = field(repr=False)
    browser: str
    started_at: float
    id_token: str | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A session as its record tells it without its cookie. `member` is what the directory calls the person; `is_named`:
    it belongs to a session of the issuer that has a name (`sid`).
    """

    key: str = field(repr=False)
    member: str
    is_named: bool
    browser: str
    started_at: float

    @property
    def handle(self) -> str:
        """Names the session on a page; too short to find anything by it but the person's own."""
        return self.key[:_HANDLE_CHARACTERS]


def session_key(cookie: str) -> str:
    """Under what the store keeps the session of this cookie: hex digits."""
    return sha256(b"saltgate session\0" + cookie.encode("ascii")).hexdigest()


def form_token(cookie: str) -> str:
    """What each form of this session carries: a page elsewhere cannot know it."""
    return urlsafe_b64encode(_derived(cookie, b"saltgate form")).rstrip(b"=").decode("ascii")


def sealed_record(session: Session, cookie: str) -> bytes:
    """What the store keeps."""
    identity = identity_to_json(session.identity)
    private = json.dumps([identity, session.subject, session.name, session.id_token]).encode()
    nonce = secrets.token_bytes(_NONCE_BYTES)
    sealed = AESGCM(_derived(cookie, b"saltgate session")).encrypt(nonce, private, session_key(cookie).encode())
    record = {
        "member": session.identity.subject,
        "is_named": session.identity.session is not None,
        "browser": session.browser,
        "started_at": session.started_at,
        "sealed": b64encode(nonce + sealed).decode("ascii"),
    }
    return json.dumps(record).encode()


def opened_record(record: bytes, cookie: str) -> Session | None:
    """The session, or None where the record is not this cookie's or was tampered with."""
    try:
        plain = json.loads(record)
        data = b64decode(plain["sealed"], validate=True)
        cipher = AESGCM(_derived(cookie, b"saltgate session"))
        private = cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], session_key(cookie).encode())
        identity, subject, name, id_token = json.loads(private)
        return Session(
            identity=identity_from_json(identity),
            subject=subject,
            name=name,
            browser=plain["browser"],
            started_at=plain["started_at"],
            id_token=id_token,
        )
    except (InvalidTag, ValueError, KeyError, TypeError):
        return None


def listed(key: str, record: bytes) -> Listed | None:
    """What the record tells to whoever has no cookie of it; None where it cannot be read."""
    try:
        plain = json.loads(record)
        return Listed(
            key=key,
            member=str(plain["member"]),
            is_named=plain["is_named"] is True,
            browser=str(plain["browser"]),
            started_at=float(plain["started_at"]),
        )
    except (ValueError, KeyError, TypeError):
        return None


def _derived(cookie: str, purpose: bytes) -> bytes:
    # The value has 256 random bits, so one HMAC makes a key of it.
    return hmac.new(cookie.encode("ascii"), purpose, sha256).digest()
