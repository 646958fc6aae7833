"""The records of personal access tokens and logins as JSON, in the form of `redis-layout.md`. Pure."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from proxy.identity.personal_records import Login, Owner, TokenRecord
from proxy.isolation.unit import is_name

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class RecordDamaged(ValueError):  # noqa: N818 - said of a record
    """A record is none that this version knows as a whole. What a field means that it does not know may be a limit."""


class _Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    secret_sha256: str
    issuer: str
    subject: str
    name: str
    created: int
    expires: int
    projects: tuple[str, ...] | None = None


class _Login(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    groups: tuple[str, ...]
    groups_complete: bool
    at: int


def token_document(record: TokenRecord) -> bytes:
    """The token's record, without its id, which is in its key."""
    return msgspec.json.encode(
        _Token(
            secret_sha256=record.digest.hex(),
            issuer=record.owner.issuer,
            subject=record.owner.subject,
            name=record.name,
            created=record.created,
            expires=record.expires,
            projects=None if record.projects is None else tuple("/".join(project) for project in record.projects),
        )
    )


def token_record(token_id: str, document: bytes) -> TokenRecord:
    """What `token_document` wrote. Raises RecordDamaged."""
    try:
        token = msgspec.json.decode(document, type=_Token)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RecordDamaged(f"the record of token {token_id} cannot be read; delete it") from error
    projects = None if token.projects is None else tuple(_project(token_id, written) for written in token.projects)
    if not _SHA256.fullmatch(token.secret_sha256):
        raise RecordDamaged(f"the record of token {token_id} holds no SHA-256; delete it")
    return TokenRecord(
        id=token_id,
        digest=bytes.fromhex(token.secret_sha256),
        owner=Owner(token.issuer, token.subject),
        name=token.name,
        projects=projects,
        created=token.created,
        expires=token.expires,
    )


def login_document(login: Login) -> bytes:
    return msgspec.json.encode(_Login(tuple(sorted(login.groups)), login.groups_complete, int(login.at)))


def login_record(document: bytes) -> Login | None:
    """What `login_document` wrote; None where it cannot be read: then nothing is known of the groups."""
    try:
        login = msgspec.json.decode(document, type=_Login)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return Login(frozenset(login.groups), login.groups_complete, float(login.at))


def owner_name(owner: Owner) -> str:
    """The owner in a key: an issuer has no spaces, so the first one ends it."""
    return f"{owner.issuer} {owner.subject}"


def _project(token_id: str, written: str) -> tuple[str, str]:
    workspace, _, project = written.partition("/")
    if not (is_name(workspace) and is_name(project)):
        raise RecordDamaged(f"the record of token {token_id} names no project; delete it")
    return workspace, project
