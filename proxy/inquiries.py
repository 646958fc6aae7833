"""What a worker answers to its supervisor's questions: who may see the administrators' pages."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from config.settings import Settings
from proxy.account.administrators import Administrators
from proxy.account.store import SessionStore
from proxy.directory.membership import admit
from proxy.directory.redis_connection import connection_pool
from proxy.directory.snapshot import Snapshot
from proxy.identity import Identity
from proxy.identity.kept import identity_from_json
from proxy.identity.shown import Shown
from proxy.questions import Judged, MayLook, WhoLooks
from proxy.refusals import Forbidden, InvalidRequest, RateLimited, Unauthenticated, Unavailable


class Identities(Protocol):
    """Who is calling. Raises a 401 Refusal, or IssuerUnavailable where saltgate cannot know."""

    async def identify(self, shown: Shown) -> Identity: ...


class Directory(Protocol):
    """What people may act for, as of now. Raises DirectoryUnavailable where that is not known any more."""

    def current(self) -> Snapshot: ...


class Sessions(Protocol):
    """The sessions of the public listener. Raises DirectoryUnavailable."""

    async def is_open(self, key: str) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiries:
    """`sessions` None: nobody signs in with a browser. `issuers` are those that are configured."""

    identities: Identities
    directory: Directory
    sessions: Sessions | None
    administrators: Administrators
    issuers: Collection[str]

    async def judged(self, asked: MayLook | WhoLooks) -> Judged:
        try:
            return await (self._may_look(asked) if isinstance(asked, MayLook) else self._who_looks(asked))
        except (Unauthenticated, InvalidRequest):
            return Judged("nobody")
        except Forbidden:
            return Judged("no")
        except (Unavailable, RateLimited):
            return Judged("unknown")

    async def _may_look(self, asked: MayLook) -> Judged:
        identity = identity_from_json(json.loads(asked.identity))
        if identity.issuer not in self.issuers or self.sessions is None:
            return Judged("nobody")
        judged = self._judge(identity)
        if judged.verdict == "yes" and not await self.sessions.is_open(asked.session):
            return Judged("nobody")
        return judged

    async def _who_looks(self, asked: WhoLooks) -> Judged:
        identity = await self.identities.identify(
            Shown(headers=asked.headers, method="GET", path=asked.path, workspace=None)
        )
        # Who is limited to some projects, or spoken for by a front end, is not here as himself.
        if identity.projects is not None or identity.actor is not None:
            return Judged("no")
        return self._judge(identity)

    def _judge(self, identity: Identity) -> Judged:
        members = admit(self.directory.current(), identity)
        allowed = self.administrators.include(identity.issuer, members)
        return Judged("yes" if allowed else "no", identity.subject)


@asynccontextmanager
async def open_inquiries(settings: Settings, identities: Identities, directory: Directory) -> AsyncIterator[Inquiries]:
    sessions = _sessions(settings)
    try:
        yield Inquiries(
            identities=identities,
            directory=directory,
            sessions=sessions,
            administrators=Administrators.of(settings.admin.administrators),
            issuers=frozenset(issuer.issuer for issuer in settings.issuers),
        )
    finally:
        if sessions is not None:
            await sessions.close()


def _sessions(settings: Settings) -> SessionStore | None:
    signs_in = any(issuer.login is not None and issuer.login.client_id is not None for issuer in settings.issuers)
    if not signs_in:
        return None
    return SessionStore(
        connection_pool(settings.directory),
        clock=time.time,
        idle=settings.sessions.idle,
        absolute=settings.sessions.absolute,
    )
