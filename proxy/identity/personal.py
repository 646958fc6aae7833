"""The form of a personal access token: `sgp_` + 8 characters of id + 43 of secret + 6 of checksum, joined by `_`.

The prefix and the checksum let secret scanners find a token that leaked, and let anybody see without asking that a
token was cut or mistyped. Neither makes a token good: only the record of its id does (`personal_records`).
"""

from __future__ import annotations

import re
import secrets
import zlib
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from proxy.identity.credential import PERSONAL_PREFIX
from proxy.identity.reasons import Reason, invalid_token
from proxy.identity.token import base64url

ID: Final = re.compile(r"[0-9A-Za-z]{8}")
SECRET_BYTES: Final = 32

_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_FORM: Final = re.compile(
    rf"{PERSONAL_PREFIX}(?P<id>{ID.pattern})_(?P<secret>[A-Za-z0-9_-]{{43}})_(?P<checksum>[0-9A-Za-z]{{6}})"
)


@dataclass(frozen=True, slots=True)
class PersonalToken:
    """A well-formed token, and no more: whether it was ever issued is not known yet. `id` is no secret."""

    id: str
    secret: bytes = field(repr=False)

    @property
    def digest(self) -> bytes:
        """What is kept of the secret: its SHA-256. It has 256 random bits, so nobody can try them all."""
        return sha256(self.secret).digest()

    def text(self) -> str:
        """The whole token, which is for its owner's eyes, once."""
        body = f"{self.id}_{urlsafe_b64encode(self.secret).rstrip(b'=').decode('ascii')}"
        return f"{PERSONAL_PREFIX}{body}_{_checksum(body)}"


def new_personal_token() -> PersonalToken:
    """A token that there never was."""
    return PersonalToken("".join(secrets.choice(_DIGITS) for _ in range(8)), secrets.token_bytes(SECRET_BYTES))


def personal_token(text: str) -> PersonalToken:
    """The token's parts. Raises InvalidToken for what cannot be one, without asking anybody."""
    match = _FORM.fullmatch(text)
    if match is None or match["checksum"] != _checksum(f"{match['id']}_{match['secret']}"):
        raise invalid_token(Reason.PERSONAL_FORM)
    try:
        return PersonalToken(match["id"], base64url(match["secret"]))
    except ValueError as error:
        raise invalid_token(Reason.PERSONAL_FORM) from error


def _checksum(body: str) -> str:
    """CRC-32 in six digits to the base 62."""
    rest = zlib.crc32(body.encode("ascii"))
    digits = ""
    for _ in range(6):
        rest, digit = divmod(rest, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits
