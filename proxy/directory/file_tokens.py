"""Personal access tokens and logins without Redis: in the state folder's one file, beside the directory's records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from proxy.directory.state_file import State, StateFile, in_thread
from proxy.directory.store import StoreUnavailable, unix_now
from proxy.directory.token_records import (
    RecordDamaged,
    login_document,
    login_record,
    owner_name,
    token_document,
    token_record,
)
from proxy.directory.token_store import EXPIRED_KEPT_SECONDS, OwnedToken, TooManyTokens
from proxy.identity.personal_records import NOBODYS, Kept, Login, Owner, TokenRecord


class FileTokens:
    """`folder` is `[directory].state`. Many may read, one at a time writes."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = unix_now) -> None:
        self._state = StateFile(folder)
        self._clock = clock

    async def find(self, token_id: str) -> Kept | None:
        return await in_thread(lambda: _find(self._state.load(), token_id))

    async def owned(self, owner: Owner) -> tuple[OwnedToken, ...]:
        return await in_thread(lambda: _owned(self._state.load(), owner))

    async def create(self, record: TokenRecord, *, limit: int) -> None:
        await in_thread(lambda: self._create(record, limit))

    async def used(self, uses: Mapping[str, int]) -> None:
        await in_thread(lambda: self._used(uses))

    async def log_in(self, owner: Owner, login: Login, *, keep_seconds: float) -> None:
        await in_thread(lambda: self._log_in(owner_name(owner), login, keep_seconds))

    async def close(self) -> None:
        """There is nothing to close: no file stays open."""

    def _create(self, record: TokenRecord, limit: int) -> None:
        now = self._clock()
        with self._state.locked():
            state = self._state.load()
            if record.id in state.tokens:
                raise StoreUnavailable("the new token's id is taken; try again")
            own = [token.record for token in _owned(state, record.owner)]
            if sum(each.expires > now for each in own) >= limit:
                raise TooManyTokens
            gone = {each.id for each in own if each.expires <= now} | _forgotten(state, now)
            tokens = {name: document for name, document in state.tokens.items() if name not in gone}
            uses = {name: at for name, at in state.tokens_used.items() if name not in gone}
            tokens[record.id] = msgspec.Raw(token_document(record))
            self._state.save(msgspec.structs.replace(state, tokens=tokens, tokens_used=uses))

    def _used(self, uses: Mapping[str, int]) -> None:
        with self._state.locked():
            state = self._state.load()
            known = {name: at for name, at in uses.items() if name in state.tokens}
            later = state.tokens_used | {name: at for name, at in known.items() if at > state.tokens_used.get(name, 0)}
            if later != state.tokens_used:
                self._state.save(msgspec.structs.replace(state, tokens_used=later))

    def _log_in(self, name: str, login: Login, keep_seconds: float) -> None:
        oldest = self._clock() - keep_seconds
        with self._state.locked():
            state = self._state.load()
            logins = {other: document for other, document in state.logins.items() if _is_after(document, oldest)}
            if name in logins and _is_after(logins[name], int(login.at)):
                return
            logins[name] = msgspec.Raw(login_document(login))
            self._state.save(msgspec.structs.replace(state, logins=logins))


def _find(state: State, token_id: str) -> Kept | None:
    document = state.tokens.get(token_id)
    record = NOBODYS if document is None else _readable(token_id, bytes(document))
    login = state.logins.get(owner_name(record.owner))
    return None if record is NOBODYS else Kept(record, None if login is None else login_record(bytes(login)))


def _owned(state: State, owner: Owner) -> tuple[OwnedToken, ...]:
    records = (_readable(token_id, bytes(document)) for token_id, document in state.tokens.items())
    found = [OwnedToken(record, state.tokens_used.get(record.id)) for record in records if record.owner == owner]
    return tuple(sorted(found, key=lambda token: (token.record.created, token.record.id)))


def _forgotten(state: State, now: float) -> set[str]:
    """Whoever's tokens they are: they expired long ago."""
    records = (_readable(token_id, bytes(document)) for token_id, document in state.tokens.items())
    return {record.id for record in records if record.expires + EXPIRED_KEPT_SECONDS <= now}


def _is_after(document: msgspec.Raw, at: float) -> bool:
    login = login_record(bytes(document))
    return login is not None and login.at >= at


def _readable(token_id: str, document: bytes) -> TokenRecord:
    """A record that cannot be read says nothing against its owner: it is our trouble."""
    try:
        return token_record(token_id, document)
    except RecordDamaged as error:
        raise StoreUnavailable(str(error)) from error
