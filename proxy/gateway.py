"""THE WAY OF ONE REQUEST, on one screen, and the Protocols of what it needs.

    credential → Identity → Scope → Place → Salt → StampedRequest → Accounted → relay → record

Each step takes a proof and returns the next one, or raises a `Refusal`: then nothing was sent to an engine. There is no
step that could be skipped, because the next one needs what it returns.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from observability.record import Record
from proxy.accounting import Accounted, Accounting
from proxy.admission import Admission, Admissions
from proxy.answers import (
    model_list,
    one_model,
)
from proxy.capacity.places import Place
from proxy.certificates import ClientCertificates
from proxy.directory.membership import Named, select_scope
from proxy.directory.snapshot import Snapshot
from proxy.engines.beginning import beginning
from proxy.engines.body import ClientRequest, UnfetchedRequest, open_body, read_request
from proxy.engines.presented import presented_salt
from proxy.engines.stamp import CountRequest, StampedRequest, count, stamp
from proxy.entry import Asked, Engines, Entries, Entry
from proxy.identity import Identity
from proxy.isolation.remembered import RememberedSalts
from proxy.isolation.salt import Salt
from proxy.isolation.scope import Scope
from proxy.isolation.sharing import Decision
from proxy.isolation.unit import Level
from proxy.refusals import EngineUnavailable, Refusal
from proxy.relay.answer import Answer
from proxy.relay.departure import unless_gone
from proxy.relay.destination import Destination
from proxy.relay.relay import Relay, Standing
from proxy.relay.request import Request
from proxy.routes import (
    Generate,
    ListModels,
    Route,
)
from proxy.tracing import Tracing
from proxy.uploads import arrived_upload, awaited_upload


class Images(Protocol):
    """The images that requests name by their addresses."""

    async def completed(self, request: UnfetchedRequest, *, workspace: str, most_bytes: int) -> ClientRequest:
        """The request of the workspace's with its images in it, as `with_images` makes it. Raises InvalidRequest,
        BodyTooLarge, also where it would be larger than `most_bytes`, and EngineBusy.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The deployment's own word where the directory says nothing, and the limits of what is read.

    `gates` are the callers, by issuer and subject, that are saltgates themselves: what they keep apart stays apart.
    """

    unit: Level
    show_reuse: bool
    maximum_body_bytes: int
    request_seconds: float
    certificates: ClientCertificates = field(default_factory=ClientCertificates)
    gates: frozenset[tuple[str, str]] = frozenset()

    def is_gate(self, identity: Identity) -> bool:
        """Whether the caller is a saltgate itself: what it keeps apart stays apart."""
        return (identity.issuer, identity.subject) in self.gates

    def scope(self, snapshot: Snapshot, identity: Identity, named: Named) -> Scope:
        """What the caller may act under. Raises as `select_scope` does."""
        return select_scope(snapshot, identity, named, default_unit=self.unit, default_show_reuse=self.show_reuse)


class Unfetched(Struct, frozen=True):
    """What a caller asks for, before the images that are elsewhere are in it; and the salt, as in `Asked`."""

    request: UnfetchedRequest
    presented: str | None

    def __repr__(self) -> str:
        return f"Unfetched({self.request!r})"  # a salt is in no repr


class Ready(Struct, frozen=True):
    """What the relay needs of a request, and the place that it has at its engine."""

    place: Place
    stamped: StampedRequest | CountRequest
    destination: Destination
    standing: Standing
    sendable: Standing
    accounted: Accounted

    def __repr__(self) -> str:
        return f"Ready({self.destination!r})"  # what `sendable` goes by is in the repr of it, and may be a salt


@dataclass(slots=True, kw_only=True)
class Gateway:
    """What one worker needs to serve those who ask for a model. `entrance` hands it whatever asks for one.

    `wall_clock` is Unix seconds: the same moment on every machine, as far as their clocks agree.
    """

    admissions: Admissions
    salts: RememberedSalts
    entries: Entries
    engines: Engines
    images: Images
    accounting: Accounting
    relay: Relay
    policy: Policy
    wall_clock: Callable[[], float]
    tracing: Tracing = field(default_factory=Tracing)

    async def serve(self, request: Request, route: Route, wanted: Generate | ListModels, record: Record) -> Answer:
        """One request, written already. Raises a Refusal while nothing was written, or ClientGone.

        `wanted` is what the route wants.
        """
        if traceparents := request.headers.getall("traceparent", ()):
            record.link(traceparents)
        admission = self.admissions.known(request, route, record) or await self.admissions.found(request, route, record)
        if record.linked is not None and self.tracing.goes_on(admission.identity, request.connection.peer):
            record.continue_trace(request.headers.getall("tracestate", ()))
        if isinstance(wanted, ListModels):
            self.accounting.check()
            return self._list_models(request, wanted, admission.scope, record)
        ready = await self._ready(request, wanted, admission, record)
        try:
            return await self.relay.relay(
                ready.accounted, ready.stamped, ready.destination, request, record, ready.standing, ready.sendable
            )
        finally:
            ready.place.give_back()

    async def follow_revocations(self) -> None:
        """End what is running for callers who may have it no more, as soon as the directory says so. Endless."""
        snapshot: Snapshot | None = None
        while True:
            snapshot = await self.admissions.directory.next_after(snapshot)
            await self.entries.end_revoked()
            await self.relay.end_revoked()

    async def _ready(self, request: Request, wanted: Generate, admission: Admission, record: Record) -> Ready:
        """Read, checked, stamped, and in possession of a place. What was read ends with this: a stream may be long."""
        began = time.monotonic_ns()
        body = arrived_upload(request, maximum_bytes=self.policy.maximum_body_bytes)
        if body is None:
            body = await awaited_upload(
                request, maximum_bytes=self.policy.maximum_body_bytes, seconds=self.policy.request_seconds
            )
            admission = self.admissions.as_of_now(admission)
        record.stage("body", began)
        record.bytes_received = len(body)
        read = self._read(wanted, body, admission, record)
        if isinstance(read, Asked):
            asked = read
        else:
            asked, admission = await self._fetch(read, request, admission, record)
        presented = asked.presented
        entry = self.entries.at_once(asked, admission) or await self.entries.in_turn(
            asked, admission, len(body), request, record
        )
        try:
            stamped, destination = self._stamp(entry, record)
            accounted = self.accounting.accounted(record)
        except BaseException:
            entry.place.give_back()
            raise
        standing = partial(self.admissions.standing, entry.admission)
        sendable = standing
        if isinstance(stamped, StampedRequest):
            sendable = partial(self._sendable, stamped.salt, entry.admission, stamped.model, entry.content, presented)
        return Ready(entry.place, stamped, destination, standing, sendable, accounted)

    def _sendable(
        self, salt: Salt, admission: Admission, model: str, content: Level | None, presented: str | None
    ) -> Refusal | None:
        """Why the request may not be sent any more as it was stamped: its caller, or the salt of its border."""
        now = self.admissions.same_scope_now(admission)
        if now is admission or isinstance(now, Refusal):
            return now if isinstance(now, Refusal) else None
        try:
            salt_now = self._salt(now.scope.decision(model, content), now.snapshot, presented)
        except Refusal as refusal:
            return refusal
        if salt_now.value == salt.value:
            return None
        return EngineUnavailable(
            "The border of this request has changed a moment ago. Send it again.", reason="salt_changed"
        )

    def _read(self, wanted: Generate, body: bytes, admission: Admission, record: Record) -> Asked | Unfetched:
        """What is asked, by the table of the engine that serves its model."""
        began = time.monotonic_ns()
        opened = open_body(body)
        record.asked(wanted.operation_name, opened.model, opened.asks_for_stream)
        endpoint = self.engines.endpoint(admission.scope, opened.model, wanted.operation)
        record.served(streams=endpoint.streams)
        request = read_request(endpoint, opened)
        in_front = self.policy.gates and endpoint.salt is not None and self.policy.is_gate(admission.identity)
        presented = presented_salt(opened) if in_front else None
        record.stage("stamp", began)
        if isinstance(request, ClientRequest):
            return Asked(request, presented)
        return Unfetched(request, presented)

    async def _fetch(
        self, read: Unfetched, client: Request, admission: Admission, record: Record
    ) -> tuple[Asked, Admission]:
        """What is asked, with the images in it that were elsewhere, and the admission as of then."""
        began = time.monotonic_ns()
        self.entries.destination(
            read.request, admission.scope
        )  # for an engine that would not get it, nothing is fetched
        work = self.images.completed(
            read.request, workspace=admission.scope.workspace, most_bytes=self.policy.maximum_body_bytes
        )
        request = await unless_gone(client.connection, work)
        record.stage("fetch", began)
        return Asked(request, read.presented), self.admissions.as_of_now(admission)

    def _stamp(self, entry: Entry, record: Record) -> tuple[StampedRequest | CountRequest, Destination]:
        """The body, rebuilt from what is allowed, with the salt of its border; and where it may go."""
        began = time.monotonic_ns()
        asked, admission, destination = entry.asked, entry.admission, entry.destination
        request, scope = asked.request, admission.scope
        decision = scope.decision(request.model, entry.content)
        record.scoped(scope.workspace, scope.project, scope.collection)
        record.decided(decision.unit_name, decision.line_name, decision.causes)
        several = len(destination.pools) > 1
        if request.endpoint.salt is None:
            record.stage("stamp", began)
            destination = replace(destination, caller=_name(admission.identity)) if several else destination
            return count(request, request_id=record.request_id), destination
        salt = self._salt(decision, admission.snapshot, asked.presented)
        record.stamped(salt.fingerprint, salt.key_id, salt.epoch)
        stamped = stamp(request, salt, request_id=record.request_id, show_reuse=scope.show_reuse)
        if several:
            begins = beginning(request, salt)
            destination = replace(destination, caller=_name(admission.identity), beginning=begins)
        record.stage("stamp", began)
        return stamped, destination

    def _salt(self, decision: Decision, snapshot: Snapshot, presented: str | None) -> Salt:
        """The salt of a request's border, as of the snapshot."""
        salt = self.salts.salt(decision, snapshot.ring, self.wall_clock())
        return salt if presented is None else self.salts.keys.within(salt, presented)

    def _list_models(self, request: Request, wanted: ListModels, scope: Scope, record: Record) -> Answer:
        if wanted.model is None:
            return model_list(request, record, self.engines.models(scope))
        self.engines.model(scope, wanted.model)
        return one_model(request, record, wanted.model)


def _name(identity: Identity) -> str:
    """One caller's, whatever he asks for. No issuer has a space in it."""
    return f"{identity.issuer} {identity.subject}"
