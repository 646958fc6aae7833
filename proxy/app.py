"""From settings to a gate that serves: every part of one worker, opened in order and closed in reverse."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import ssl
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from config.addresses import UnixAddress, upstream_address
from config.settings import Engine as EngineSettings
from config.settings import EngineTimeouts, Settings, Timeouts
from observability import families
from observability.audit.start import start_audit, start_export
from observability.counted import Counted
from observability.history.told import Ended
from observability.lag import follow_lag
from observability.logs import Logs
from observability.metrics import Metrics
from observability.names import ProofState
from observability.record import Observer, Recorder
from observability.shares import shares
from observability.telemetry import Telemetry
from proxy.accounting import Accounting
from proxy.admission import Admissions
from proxy.answers import refusal_headers
from proxy.assurance.engines import Engine, Engines, Replica
from proxy.assurance.verdict import Verdict
from proxy.capacity.places import Capacity, Limits
from proxy.capacity.shares import Share
from proxy.certificates import client_certificates
from proxy.channel import WorkerState
from proxy.cross_origin import CrossOrigin
from proxy.descriptors import connections_possible
from proxy.directory.connect import open_store, removal_policy
from proxy.directory.redis_history import RedisHistory
from proxy.directory.remembered import RememberedScopes
from proxy.directory.view import DirectoryView
from proxy.engines.kinds import image_origins, profile_of
from proxy.entrance import Entrance, Face
from proxy.entry import Entries
from proxy.fetching.fetcher import Fetcher
from proxy.fetching.lookup import SystemLookup
from proxy.gateway import Gateway, Policy
from proxy.inquiries import Inquiries, open_inquiries
from proxy.isolation.narrowing import Rule, Unseen, isolation_rule
from proxy.isolation.remembered import RememberedSalts
from proxy.isolation.ring import KeyRing
from proxy.isolation.salt import SaltKey
from proxy.isolation.unit import Level
from proxy.peers import ClientAddresses, trusted_proxies
from proxy.questions import Done, HowIsIt, Keep, Question, Recall, Recalled, ReplicaStatus, Status
from proxy.reception import Reception, native_sign_ins, open_desk, open_reception, public_url
from proxy.refusals import Refusal
from proxy.relay.answer import answer_headers
from proxy.relay.crowd import REASONS, Crowd
from proxy.relay.downstream import MOST_CONNECTIONS, Front
from proxy.relay.lookup import Lookup
from proxy.relay.patience import Patience
from proxy.relay.pool import Address, Pool
from proxy.relay.relay import Relay
from proxy.scanner import Scanner
from proxy.tls import client_context
from proxy.tracing import tracing

VERSION: Final = version("saltgate")
# How often the parts' states go into the metrics.
LOOK_SECONDS: Final = 1.0
# After the drain limit, cut streams still need a turn of the loop to write their error event.
CUT_SECONDS: Final = 2.0
EXPORT_STOP_SECONDS: Final = 2.0
CANCEL_AGAIN_SECONDS: Final = 0.2
# What happened is told together with what happens in this time: less than a log line waits for its writing.
TELL_SECONDS: Final = 0.01
LOOK_AT_CONNECTIONS_SECONDS: Final = 0.02

_NOT_KEPT: Final = "[history] redis is not set here"

_log = structlog.get_logger("saltgate.gate")


@dataclass(frozen=True, slots=True)
class Gate:
    """One worker's gate: `front` makes the protocol of each client connection."""

    front: Front
    entrance: Entrance
    gateway: Gateway
    reception: Reception
    view: DirectoryView
    engines: Engines
    inquiries: Inquiries
    kept: RedisHistory | None
    _metrics: Metrics
    _ended: Ended

    @property
    def metrics(self) -> Metrics:
        """The worker's numbers, with all in them that has happened until now."""
        self.entrance.recorder.tell()
        return self._metrics

    @property
    def ended(self) -> Ended:
        """The requests that have ended until now and are not told yet."""
        self.entrance.recorder.tell()
        return self._ended

    def waits_for(self) -> tuple[str, ...]:
        """The parts that are not known good. Nothing to wait for means ready."""
        parts = {
            "issuers": self.reception.issuers.ready,
            "directory": self.view.ready,
            "keys": not self.lacking_keys(),
            "engines": self.engines.ready,
            "audit": self.gateway.accounting.ready,
        }
        return tuple(name for name, ready in parts.items() if not ready)

    def lacking_keys(self) -> tuple[str, ...]:
        """The ids of salt keys that the directory's ring uses and the configuration lacks."""
        ring = self.view.current().ring if self.view.ready else None
        return () if ring is None else self.gateway.salts.keys.lacking(ring, self.gateway.wall_clock())

    def state(self) -> WorkerState:
        return WorkerState(self.waits_for(), self.gateway.relay.open_exchanges)

    def counted(self) -> Iterator[Counted]:
        """What the metrics tell: see `Metrics.told`."""
        metrics = self.metrics
        for places in self.gateway.entries.capacity:
            metrics.engine_load(places.engine, taken=places.taken, limit=places.limit, waiting=places.waiting)
        audit = self.gateway.accounting.state()
        if audit is not None:
            metrics.audit(**dataclasses.asdict(audit))
        crowd = self.front.crowd
        metrics.connections(crowd.open, limit=crowd.most, closed={one: crowd.closed[one] for one in REASONS})
        return metrics.told()

    async def answer(self, question: bytes) -> bytes:
        """To one of the supervisor's questions, encoded; nothing to a question of another version."""
        try:
            asked = msgspec.msgpack.decode(question, type=Question)
        except ValueError:
            return b""
        match asked:
            case HowIsIt():
                return msgspec.msgpack.encode(self._status())
            case Keep():
                kept = Done(_NOT_KEPT) if self.kept is None else await self.kept.keep(asked, now=time.time())
                return msgspec.msgpack.encode(kept)
            case Recall():
                recalled = Recalled(why=_NOT_KEPT) if self.kept is None else await self.kept.recall(asked)
                return msgspec.msgpack.encode(recalled)
            case _:
                return msgspec.msgpack.encode(await self.inquiries.judged(asked))

    def _status(self) -> Status:
        replicas = tuple(
            ReplicaStatus(
                engine.name,
                str(replica.pool.address),
                replica.reachable,
                {one.operation.value: replica.finding(one.operation).verdict.value for one in engine.profile.salted},
            )
            for engine in self.engines.engines
            for replica in engine.replicas
        )
        return Status(self.waits_for(), sum(places.waiting for places in self.gateway.entries.capacity), replicas)

    async def retire(self, seconds: float, ended: asyncio.Event) -> None:
        """Others have taken over: serve the connections that are open until each has had its next answer and is closed
        with it, for `seconds` at most, or until `ended`.

        A connection that waits for a request is left open, since its client may be sending one just now.
        """
        self.entrance.retiring = True
        deadline = time.monotonic() + seconds
        while not self.front.is_empty and time.monotonic() < deadline and not ended.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), LOOK_AT_CONNECTIONS_SECONDS)

    async def drain(self, seconds: float) -> None:
        """Take no request any more; let the open ones finish for `seconds`, then end them honestly."""
        self.entrance.draining = True
        self.entrance.pace.end()
        self.entrance.page_pace.end()
        self.front.close_idle()
        await self._until_quiet(seconds)
        self.gateway.relay.cut_all()
        await self._until_quiet(CUT_SECONDS)
        await self.front.shutdown(timeout=CUT_SECONDS)

    async def _until_quiet(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.front.busy and time.monotonic() < deadline:
            await asyncio.sleep(LOOK_AT_CONNECTIONS_SECONDS)
            self.front.close_idle()


@asynccontextmanager
async def open_gate(
    settings: Settings, *, instance: str, logs: Logs, share: Share | None = None, also: Sequence[Observer] = ()
) -> AsyncIterator[Gate]:
    """A gate with everything that it needs, for as long as the context is open. `share` is its worker's, by default the
    whole. `also` are told of its requests, too, after all others.

    It opens also while issuers, directory or engines are away: then it is not ready, and heals by itself. Where a part
    breaks for good, the body is cancelled and the fault raised: the worker ends and its supervisor starts another.
    """
    telemetry = Telemetry.start(
        settings.telemetry, instance=instance, version=VERSION, engines=settings.engines, monotonic=time.monotonic
    )
    export = start_export(settings, instance=instance, version=VERSION, monotonic=time.monotonic)
    rules = isolation_rules(settings)
    metrics = Metrics(
        version=VERSION,
        drops={"spans": telemetry.dropped, "logs": logs.dropped}
        | ({} if export is None else {"audit": export.dropped}),
        traced=telemetry.keeps,
        rules=(*(rule.name for rule in rules), *(reason.value for reason in Unseen)) if rules else (),
    )
    share = share or Share()
    ended = Ended()
    audit = start_audit(
        settings,
        instance=instance,
        version=VERSION,
        slots=share.of(settings.capacity.requests),
        wall_ns=time.time_ns,
        export=export,
    )
    recorder = Recorder(
        (metrics, logs, telemetry, ended, *(() if audit is None else (audit,)), *also),
        monotonic_ns=time.monotonic_ns,
        wall_ns=time.time_ns,
        shares=shares(settings.telemetry),
        user_hash_key=None if settings.telemetry.user_hash_key is None else settings.telemetry.user_hash_key.value,
        url_scheme=public_url(settings).partition(":")[0],
        later=partial(asyncio.get_running_loop().call_later, TELL_SECONDS),
    )
    keys = key_ring(settings)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(asyncio.to_thread, telemetry.stop)
        if export is not None:
            stack.push_async_callback(asyncio.to_thread, export.stop, EXPORT_STOP_SECONDS)
        if audit is not None:
            stack.push_async_callback(asyncio.to_thread, audit.close)
        stack.callback(recorder.tell)
        store = open_store(settings.directory, removal_policy(settings.isolation))
        stack.push_async_callback(store.close)
        view = DirectoryView(store, max_stale=settings.directory.max_stale)
        reception = await stack.enter_async_context(open_reception(settings, view))
        engines = Engines(
            [configured_engine(engine, settings.timeouts) for engine in settings.engines],
            keys.keys[settings.isolation.keys[0].id],
            _Observed(metrics),
        )
        stack.callback(engines.close)
        accounting = Accounting(audit)
        gateway = stack.enter_context(
            _open_gateway(settings, share, reception, view, engines, accounting, rules, metrics)
        )
        entrance = Entrance(
            gateway=gateway,
            desk=await stack.enter_async_context(open_desk(settings, reception, view, store, accounting)),
            recorder=recorder,
            face=face(settings),
            certificates=gateway.policy.certificates,
            request_seconds=settings.timeouts.request,
            addresses=client_addresses(settings) if settings.telemetry.client_address else None,
        )
        crowd = connections(settings, share)
        gate = Gate(
            front=_front(entrance, recorder, crowd, settings),
            entrance=entrance,
            gateway=gateway,
            reception=reception,
            view=view,
            engines=engines,
            inquiries=await stack.enter_async_context(open_inquiries(settings, reception.callers, view)),
            kept=_kept_history(settings, stack),
            _metrics=metrics,
            _ended=ended,
        )
        endless = [view.follow(), engines.follow(), reception.personal.tell_uses(), _tell_states(gate)]
        endless += [tell_ready(gate.waits_for), follow_lag(metrics.loop_lag)]
        if settings.streams_end_on_revoke:
            endless.append(gateway.follow_revocations())
        await stack.enter_async_context(_running(*endless))
        yield gate


def _kept_history(settings: Settings, stack: AsyncExitStack) -> RedisHistory | None:
    if not settings.history.redis:
        return None
    kept = RedisHistory(settings.directory)
    stack.push_async_callback(kept.close)
    return kept


@contextmanager
def _open_gateway(
    settings: Settings,
    share: Share,
    reception: Reception,
    view: DirectoryView,
    engines: Engines,
    accounting: Accounting,
    rules: Sequence[Rule],
    metrics: Metrics,
) -> Iterator[Gateway]:
    """The way of those who ask for a model, with the threads and connections that only it needs."""
    with ExitStack() as stack:
        scanner = Scanner(rules, limit_bytes=settings.isolation.scan_limit)
        stack.callback(scanner.close)
        lookup = SystemLookup()
        stack.callback(lookup.close)
        images = Fetcher(lookup, seconds=settings.timeouts.media, tls=image_tls(settings.engines))
        stack.callback(images.close)
        own = policy(settings)
        admissions = Admissions(
            identities=reception.callers,
            warrants=reception.issuers,
            directory=view,
            scopes=RememberedScopes(own.scope),
            certificates=own.certificates,
            wall_clock=time.time,
        )
        places = capacity(settings, share)
        yield Gateway(
            admissions=admissions,
            entries=Entries(admissions=admissions, rules=scanner, engines=engines, capacity=places),
            salts=RememberedSalts(key_ring(settings)),
            engines=engines,
            images=images,
            accounting=accounting,
            relay=Relay(violated=metrics.isolation_violation, ejected=metrics.engine_ejection),
            policy=own,
            wall_clock=time.time,
            tracing=tracing(settings),
        )


@asynccontextmanager
async def _running(*endless: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """They run as long as the gate is open and are ended with it; one that fails ends the gate."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in endless]
        try:
            yield
        finally:
            await _end(tasks)


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel until it has worked: on Python 3.11 `asyncio.wait_for`, under which redis-py writes, can lose one."""
    pending: Collection[asyncio.Task[None]] = tasks
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN_SECONDS)


def key_ring(settings: Settings) -> KeyRing:
    return KeyRing({key.id: SaltKey(key.id, key.secret.value) for key in settings.isolation.keys})


def isolation_rules(settings: Settings) -> tuple[Rule, ...]:
    """What makes a request's border narrower by its content, ready to look."""
    return tuple(
        isolation_rule(
            written.name,
            workspaces=written.workspaces,
            words=written.words or (),
            patterns=written.patterns or (),
            sets=written.sets or (),
            level=Level(written.unit),
        )
        for written in settings.isolation.rules
    )


def policy(settings: Settings) -> Policy:
    return Policy(
        unit=Level(settings.isolation.unit),
        show_reuse=settings.isolation.show_reuse,
        maximum_body_bytes=settings.public.max_body,
        request_seconds=settings.timeouts.request,
        certificates=client_certificates(settings.public.tls, settings.proxies),
        gates=frozenset((gate.issuer, gate.subject) for gate in settings.gates),
    )


def client_addresses(settings: Settings) -> ClientAddresses:
    """Who is believed about where clients are."""
    return ClientAddresses(trusted_proxies(settings.proxies), settings.proxies.client_address_header)


def capacity(settings: Settings, share: Share) -> Capacity:
    """The places at the engines, as many as one worker has of them."""
    engines = {
        engine.name: Limits(
            requests=engine.capacity.requests,
            waiting=share.part(engine.capacity.waiting),
            waiting_bytes=share.part(engine.capacity.waiting_bytes),
            wait_seconds=engine.capacity.wait,
            share=share,
        )
        for engine in settings.engines
    }
    return Capacity(share.of(settings.capacity.requests), engines, clock=time.monotonic)


def connections(settings: Settings, share: Share) -> Crowd:
    """The client connections that one worker may have."""
    wanted, of_one = settings.capacity.connections, settings.capacity.connections_per_address
    possible = connections_possible()
    most = min(MOST_CONNECTIONS if wanted is None else share.of(wanted), possible)
    if wanted is not None and share.of(wanted) > possible:
        _log.warning("connections.limited", possible=possible, remedy="raise the limit of open files (ulimit -n)")
    return Crowd(
        most,
        of_one_address=max(most * 3 // 4, 1) if of_one is None else share.of(of_one),
        trusted=trusted_proxies(settings.proxies),
    )


def face(settings: Settings) -> Face:
    """What everybody may know of the deployment."""
    return Face(
        url=public_url(settings),
        issuers=tuple(issuer.issuer for issuer in settings.issuers),
        native_sign_ins=native_sign_ins(settings),
        cross_origin=CrossOrigin(frozenset(settings.cors.origins)) if settings.cors.origins else None,
    )


def _front(entrance: Entrance, recorder: Recorder, crowd: Crowd, settings: Settings) -> Front:
    url = public_url(settings)

    def failed(refusal: Refusal, error: BaseException | None) -> bytes:
        """The record of what never became a request. A failed handler has left its own record already."""
        if refusal.status == 500:
            _log.error("gate.failed", exc_info=error)
            return b"Content-Type: application/json\r\n"
        with recorder.request(method="_OTHER", route=None) as record:
            record.refused(refusal.code, refusal.status, refusal.reason)
        return b"Content-Type: application/json\r\n" + answer_headers(record) + refusal_headers(refusal, url)

    return Front(
        entrance.handle,
        failed,
        request_seconds=settings.timeouts.request,
        stall_seconds=settings.timeouts.stall,
        half_close=settings.timeouts.half_close,
        crowd=crowd,
        write_buffer_bytes=settings.public.write_buffer,
        pace=entrance.pace,
    )


def image_tls(engines: tuple[EngineSettings, ...]) -> dict[Path | None, ssl.SSLContext]:
    """The contexts of the hosts that images are fetched from, by the file of their authority; None is the system's."""
    found = [place for engine in engines if (place := image_origins(engine)) is not None]
    files = {origin.ca for place in found for origin in place.origins.values()}
    return {file: client_context(file, None) for file in files}


def configured_engine(engine: EngineSettings, timeouts: Timeouts, lookup: Lookup | None = None) -> Engine:
    """The engine with its replicas, none of which has been asked yet. `lookup` is the system's unless it is given."""
    return Engine(
        name=engine.name,
        proof=engine.proof,
        models=None if engine.models is None else frozenset(engine.models),
        replicas=tuple(
            Replica(
                partial(
                    Pool,
                    _address(engine, url),
                    connect_seconds=timeouts.connect,
                    age_seconds=engine.connection_age,
                    lookup=lookup,
                )
            )
            for url in engine.urls
        ),
        patience=patience_of(timeouts, engine.timeouts),
        model_patience={
            model: patience_of(timeouts, engine.timeouts, own) for own in engine.model_timeouts for model in own.models
        },
        profile=profile_of(engine),
    )


def patience_of(timeouts: Timeouts, *nearer: EngineTimeouts) -> Patience:
    """The patience that `timeouts` give, where no time of `nearer` takes its place; the last of these is nearest."""
    for own in nearer:
        timeouts = dataclasses.replace(timeouts, **_written(own))
    return Patience(
        connect=timeouts.connect,
        first_byte=timeouts.first_byte,
        idle=timeouts.idle,
        total=timeouts.total or math.inf,
        stall=timeouts.stall,
        keep_alive=timeouts.keep_alive,
        keep_alive_interval=timeouts.keep_alive_interval,
    )


def _written(own: EngineTimeouts) -> dict[str, Any]:
    times = {field.name: getattr(own, field.name) for field in dataclasses.fields(EngineTimeouts)}
    return {name: time for name, time in times.items() if time is not None}


def _address(engine: EngineSettings, url: str) -> Address:
    api_key = None if engine.api_key is None else engine.api_key.value
    parts = upstream_address(url)
    if isinstance(parts, UnixAddress):
        return Address(host="localhost", port=0, unix=parts.path, api_key=api_key)
    tls = client_context(engine.ca, engine.client_cert) if parts.scheme == "https" else None
    port = parts.port or (443 if tls is not None else 80)
    return Address(host=parts.hostname or "", port=port, tls=tls, api_key=api_key)


@dataclass(frozen=True, slots=True)
class _Observed:
    """What the engines' proof tells, into the metrics."""

    metrics: Metrics

    def verdict(self, engine: str, replica: str, operation: str, verdict: Verdict) -> None:
        self.metrics.engine_proof(engine, replica, operation, _PROOF_STATES[verdict])

    def version(self, engine: str, replica: str, version: str) -> None:
        self.metrics.engine_version(engine, replica, version)

    def probed(self, engine: str, replica: str, prompt_tokens: int) -> None:
        self.metrics.engine_probed(engine, replica, prompt_tokens)


_PROOF_STATES: Final[dict[Verdict, ProofState]] = {
    Verdict.PROVEN: "proven",
    Verdict.NO_CACHE: "no cache",
    Verdict.FAILED: "failed",
    Verdict.UNKNOWN: "unknown",
}


async def tell_ready(waits_for: Callable[[], tuple[str, ...]], *, every: float = LOOK_SECONDS) -> None:
    """Say when it becomes ready, and when it is so no more and for what. That it is not yet, at its start, is no news.
    Endless.
    """
    known: tuple[str, ...] | None = None  # until it was ready once
    while True:
        waits = waits_for()
        if not waits and known != ():
            _log.info("gate.ready")
        elif waits and known is not None and waits != known:
            _log.warning("gate.not_ready", waits_for=waits)
        if known is not None or not waits:
            known = waits
        await asyncio.sleep(every)


async def _tell_states(gate: Gate) -> None:
    """Keep the gauges of issuers, directory and engines true, and say when a salt key is lacking."""
    lacking: tuple[str, ...] = ()
    while True:
        before, lacking = lacking, gate.lacking_keys()
        if lacking and lacking != before:
            _log.error("salt_key_missing", keys=lacking, remedy="add it under [[isolation.keys]]")
        for issuer in gate.reception.issuers.issuers:
            gate.metrics.issuer_up(issuer.rules.issuer, issuer.ready)
            gate.metrics.jwks_refreshed(issuer.rules.issuer, fetched=issuer.fetched, failed=issuer.not_fetched)
        for introspector in gate.reception.opaque.introspectors:
            gate.metrics.introspection_up(introspector.rules.issuer, introspector.ready)
        again = gate.gateway.admissions.hits  # both at once
        tokens, scopes = gate.reception.issuers, gate.gateway.admissions.scopes
        gate.metrics.lookups(families.TOKEN_LOOKUPS, hits=again + tokens.hits, misses=tokens.misses)
        gate.metrics.lookups(families.SCOPE_LOOKUPS, hits=again + scopes.hits, misses=scopes.misses)
        gate.metrics.directory_up(not gate.view.away)
        gate.metrics.directory_read(read=gate.view.reads, failed=gate.view.failures)
        age = gate.view.confirmed_age
        if age is not None:
            gate.metrics.directory_confirmed(time.time() - age)
        for engine in gate.engines.engines:
            ejected = engine.outliers.ejected(time.monotonic())
            usable = sum(replica.reachable and replica.pool.name not in ejected for replica in engine.replicas)
            gate.gateway.entries.capacity.at(engine.name).usable(usable)
            for replica in engine.replicas:
                gate.metrics.engine_up(engine.name, replica.pool.name, replica.reachable)
                gate.metrics.engine_ejected(engine.name, replica.pool.name, replica.pool.name in ejected)
            for name in sorted(engine.outliers.returned(time.monotonic())):
                _log.info("engine.returned", engine=engine.name, replica=name)
        await asyncio.sleep(LOOK_SECONDS)
