"""Who may go on, and for what: from a request's head to an `Admission`, and whether that still holds.

Most requests are some of many that one caller sends for one scope. What was found for the first of them is found again
by the lines of the head that decide, for as long as all holds that it rests on: the token is not over, its issuer's
keys are those that verified it, and the directory says the same. That is so for bearer tokens that were verified here,
and for nothing else: whoever has to show more than a token, for whom a front end speaks, or whom somebody else must be
asked about, is looked at each time anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Protocol

from msgspec import Struct

from observability.record import Caller, Record
from proxy.certificates import ClientCertificates
from proxy.directory.membership import Named
from proxy.directory.remembered import GROUPS, RememberedScopes
from proxy.directory.snapshot import Snapshot
from proxy.identity import Identity
from proxy.identity.credential import API_KEY_HEADERS
from proxy.identity.issuers import Warrant
from proxy.identity.shown import Shown
from proxy.isolation.scope import Scope
from proxy.kept import Kept
from proxy.refusals import Forbidden, Refusal, Unauthenticated
from proxy.relay.request import Request
from proxy.routes import NAMING_HEADERS, Route, named_scope

CAPACITY: Final = 128 * 1024
"""Of callers and scopes: what one takes is 500 bytes, so all of them 64 MB, in a deployment that has so many."""

_DECIDES: Final = frozenset(
    name.lower().encode("ascii") for name in ("Authorization", *API_KEY_HEADERS, *NAMING_HEADERS)
)


class Identities(Protocol):
    """Who is calling."""

    async def identify(self, shown: Shown) -> Identity:
        """Raises a 401 Refusal, or IssuerUnavailable where saltgate cannot know."""
        ...


class Warrants(Protocol):
    """What callers rest on who need not be identified anew."""

    def warrant(self, shown: Shown, identity: Identity) -> Warrant | None:
        """What it rests on that the head which has shown this identity just now shows it again; None where the head
        has to be looked at anew.
        """
        ...


class Directory(Protocol):
    """What callers may act for, as of now. Raises DirectoryUnavailable where that is not known any more."""

    def current(self) -> Snapshot: ...

    async def next_after(self, snapshot: Snapshot | None) -> Snapshot:
        """What the directory says, as soon as that is not `snapshot` any more."""
        ...


class Admission(Struct, frozen=True):
    """A caller who may go on, and what that rests on."""

    identity: Identity
    named: Named
    snapshot: Snapshot
    scope: Scope


class _Kept(Admission, frozen=True):
    """What was found for a head, in one object."""

    warrant: Warrant
    caller: Caller


@dataclass(slots=True, kw_only=True)
class Admissions:
    """See the module. `wall_clock` is Unix seconds. `hits` is how often something was found again."""

    identities: Identities
    warrants: Warrants
    directory: Directory
    scopes: RememberedScopes
    certificates: ClientCertificates
    wall_clock: Callable[[], float]
    _kept: Kept[bytes, _Kept] = field(default_factory=lambda: Kept(CAPACITY))
    _snapshot: Snapshot | None = None
    _groups: int = 0
    hits: int = 0

    def known(self, request: Request, route: Route, record: Record) -> Admission | None:
        """What was found for such a head a moment ago and still holds. Raises as `found` does."""
        began = time.monotonic_ns()
        self.certificates.of(request)  # for its refusals: nothing that is remembered rests on one
        kept = self._kept.find(_key(route, request))
        if kept is None:
            return None
        if not kept.warrant.holds(self.wall_clock()) or self.directory.current() is not kept.snapshot:
            return None
        scope = kept.scope
        record.called_by(kept.caller)
        record.scoped(scope.workspace, scope.project, scope.collection)
        record.stage("directory", record.stage("auth", began))
        self.hits += 1
        return kept

    async def found(self, request: Request, route: Route, record: Record) -> Admission:
        """Who is calling, and for what: before a byte of the body is read. Raises what `identify` and `select_scope`
        do, InvalidRequest for a head that contradicts itself, and DirectoryUnavailable.
        """
        began = time.monotonic_ns()
        headers = tuple(request.headers.items())
        named = named_scope(route, headers)
        shown = Shown(
            headers=headers,
            method=request.method,
            path=request.target.partition("?")[0],
            workspace=named.workspace,
            certificate=self.certificates.of(request),
        )
        identity = await self.identities.identify(shown)
        _tell_identity(identity, record)
        authenticated = record.stage("auth", began)
        snapshot = self.directory.current()
        admission = Admission(identity, named, snapshot, self.scopes.scope(snapshot, identity, named))
        record.scoped(admission.scope.workspace, admission.scope.project, admission.scope.collection)
        record.stage("directory", authenticated)
        warrant = self.warrants.warrant(shown, identity)
        if warrant is not None:
            kept = _Kept(identity, named, snapshot, admission.scope, warrant, record.caller)
            self._keep(_key(route, request), kept)
        return admission

    def as_of_now(self, admission: Admission) -> Admission:
        """An upload, images and a scan take their time: what the directory says now counts, not what it said before."""
        snapshot = self.directory.current()
        if snapshot is admission.snapshot:
            return admission
        scope = self.scopes.scope(snapshot, admission.identity, admission.named)
        return Admission(admission.identity, admission.named, snapshot, scope)

    def same_scope_now(self, admission: Admission) -> Admission | Refusal:
        """The admission to the same scope as of now, or why there is none: whom no scope was named for may be a member
        of several by now, and still has this one. Raises nothing.
        """
        try:
            snapshot = self.directory.current()
            if snapshot is admission.snapshot:
                return admission
            scope = admission.scope
            named = admission.named._replace(workspace=scope.workspace, project=scope.project)
            now = self.scopes.scope(snapshot, admission.identity, named)
        except Refusal as refusal:
            return refusal
        return Admission(admission.identity, named, snapshot, now)

    def standing(self, admission: Admission) -> Refusal | None:
        """Why the caller would not be let in for the same scope any more, where that is the directory's word. One that
        cannot be read says nothing.
        """
        now = self.same_scope_now(admission)
        return now if isinstance(now, Forbidden | Unauthenticated) else None

    def _keep(self, key: bytes, kept: _Kept) -> None:
        # What an earlier snapshot allowed counts no more, and would keep that snapshot in memory: a whole directory.
        if kept.snapshot is not self._snapshot:
            self._snapshot = kept.snapshot
            self._forget()
        # As many groups as remembered scopes may have: a token may name a thousand.
        groups = len(kept.identity.groups)
        if self._groups + groups > GROUPS:
            self._forget()
        lost = self._kept.keep(key, kept)
        self._groups += groups - (0 if lost is None else len(lost.identity.groups))

    def _forget(self) -> None:
        self._kept.forget()
        self._groups = 0


def _key(route: Route, request: Request) -> bytes:
    """What stands for all that decides: a digest, so that no token stays in memory. No line of a head, and no name in
    a path, has a line end in it.
    """
    lines = [b"%b\n%b" % line for line in request.raw_headers if line[0].lower() in _DECIDES]
    named = f"{route.workspace or ''}\n{route.project or ''}\n".encode("utf-8", "surrogateescape")
    return sha256(named + b"\n".join(lines)).digest()


def _tell_identity(identity: Identity, record: Record) -> None:
    """Who it is; and by which token, and through whom, where the credential is no login of the person's own."""
    record.identified(identity.issuer, identity.subject, identity.client, identity.method)
    if identity.token_id is not None:
        record.token_id = identity.token_id
    if identity.actor is not None:
        record.spoke_for(identity.actor.issuer, identity.actor.subject)
