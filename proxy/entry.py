"""The way to a place at an engine: the border that a request's content gives it, and its turn where others wait.

Between two steps time may pass, and the directory may change: what was found before counts as of now, or is found anew.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from msgspec import Struct

from observability.record import Record
from proxy.admission import Admission, Admissions
from proxy.capacity.places import Capacity, Place
from proxy.capacity.waiting import Waiting, end_revoked
from proxy.engines.body import ClientRequest, UnfetchedRequest
from proxy.engines.profile import Endpoint, Operation
from proxy.isolation.narrowing import Narrowed
from proxy.isolation.scope import Scope
from proxy.isolation.unit import Level
from proxy.relay.destination import Destination
from proxy.relay.request import Request


class Engines(Protocol):
    """Which engines serve what, and what is proven of them."""

    def models(self, scope: Scope) -> Sequence[str]:
        """What this scope may use. Raises EngineUnavailable where that is not known."""
        ...

    def model(self, scope: Scope, model: str) -> None:
        """Raises ModelNotAllowed, ModelNotFound or EngineUnavailable for what is not among them."""
        ...

    def endpoint(self, scope: Scope, model: str, operation: Operation) -> Endpoint:
        """The endpoint, with its table of fields, of the engine that serves the model. Raises ModelNotAllowed,
        ModelNotFound, EngineUnavailable, and EndpointNotAllowed where the engine's kind has no such endpoint.
        """
        ...

    def destination(self, scope: Scope, model: str, endpoint: Endpoint, *, with_images: bool = False) -> Destination:
        """Where this request may go, which was read by the endpoint's table. Raises as `endpoint` does, and
        EngineUnavailable where that is not the model's any more.
        """
        ...


class Rules(Protocol):
    """What in a request gives it a narrower border."""

    def hold_in(self, workspace: str) -> bool: ...

    async def narrowed(self, workspace: str, asked: ClientRequest) -> Narrowed: ...


class Asked(Struct, frozen=True):
    """What a caller asks for; and where he is another saltgate, the salt that he stamped."""

    request: ClientRequest
    presented: str | None

    def __repr__(self) -> str:
        return f"Asked({self.request!r})"  # a salt is in no repr


class Entry(Struct, frozen=True):
    """A request that may go to its engine now: the place there, where that is, and what its salt rests on. `content` is
    the border that its content gives it.
    """

    place: Place
    destination: Destination
    asked: Asked
    content: Level | None
    admission: Admission


@dataclass(slots=True, kw_only=True)
class Entries:
    """See the module."""

    admissions: Admissions
    rules: Rules
    engines: Engines
    capacity: Capacity

    def at_once(self, asked: Asked, admission: Admission) -> Entry | None:
        """Where no rule looks at it and its engine has room now; None where `in_turn` is the way."""
        if self._is_scanned(asked, admission):
            return None
        return self._now(asked, None, admission)

    async def in_turn(
        self, asked: Asked, admission: Admission, body_bytes: int, client: Request, record: Record
    ) -> Entry:
        """As soon as it is its turn at its engine, and as of then. Raises EngineBusy, ClientGone, and what takes the
        caller out.

        Nothing of it is stamped before: a salt may be old when its turn comes.
        """
        content, admission = await self._scan(asked, admission, record)
        entry = self._now(asked, content, admission)
        if entry is not None:
            return entry
        place = await self._place(asked.request, admission, body_bytes, client, record)
        try:
            return await self._turn(place, asked, content, admission, record)
        except BaseException:
            place.give_back()
            raise

    def destination(self, request: ClientRequest | UnfetchedRequest, scope: Scope) -> Destination:
        """Where the request may go: to the engine by whose table it was read, also where images, a scan or its turn
        took their time.
        """
        return self.engines.destination(scope, request.model, request.endpoint, with_images=request.images > 0)

    async def end_revoked(self) -> None:
        """Whoever waits and may have it no more waits no more."""
        await end_revoked(self.capacity)

    def _now(self, asked: Asked, content: Level | None, admission: Admission) -> Entry | None:
        """Where its engine has room now; None where it has to wait for a place."""
        destination = self.destination(asked.request, admission.scope)
        place = self.capacity.at(destination.engine).place()
        return None if place is None else Entry(place, destination, asked, content, admission)

    def _is_scanned(self, asked: Asked, admission: Admission) -> bool:
        """Whether a rule of its workspace looks at it: what has no salt has no border."""
        return asked.request.endpoint.salt is not None and self.rules.hold_in(admission.scope.workspace)

    async def _scan(self, asked: Asked, admission: Admission, record: Record) -> tuple[Level | None, Admission]:
        """The border that the rules of the workspace give to what is asked, and the admission as of then."""
        while self._is_scanned(asked, admission):
            workspace = admission.scope.workspace
            began = time.monotonic_ns()
            narrowed = await self.rules.narrowed(workspace, asked.request)
            record.stage("scan", began)
            admission = self.admissions.as_of_now(admission)
            # Who named no scope may be in another workspace by now: other rules.
            if admission.scope.workspace == workspace:
                record.narrowed(narrowed.by)
                return narrowed.level, admission
        return None, admission

    async def _place(
        self, request: ClientRequest, admission: Admission, body_bytes: int, client: Request, record: Record
    ) -> Place:
        began = time.monotonic_ns()
        waiting = Waiting(
            self.capacity.at(self.destination(request, admission.scope).engine),
            workspace=admission.scope.workspace,
            project=admission.scope.project,
            size=max(body_bytes, request.size_bytes),
            standing=partial(self.admissions.standing, admission),
        )
        try:
            return await waiting.place(client.connection)
        finally:
            if waiting.end.done():  # else it was turned away at once, and waited for nothing
                record.stage("queue", began)

    async def _turn(
        self, place: Place, asked: Asked, content: Level | None, admission: Admission, record: Record
    ) -> Entry:
        """Its turn has come: what was found before it waited must still hold, or is found anew."""
        now = self.admissions.as_of_now(admission)
        if now.scope.workspace != admission.scope.workspace:  # as in `_scan`: other rules
            content, now = await self._scan(asked, now, record)
        return Entry(place, self.destination(asked.request, now.scope), asked, content, now)
