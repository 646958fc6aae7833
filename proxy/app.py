"""From settings to a gate that serves: every part of one worker, opened in order and closed in reverse."""

from __future__ import annotations

import asyncio
import hmac
import ssl
import time
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

import structlog

from config.addresses import UnixAddress, listen_address, upstream_address
from config.settings import Engine as EngineSettings
from config.settings import Issuer as IssuerSettings
from config.settings import Settings
from observability.logs import Logs
from observability.metrics import Metrics
from observability.names import ProofState
from observability.record import Recorder
from observability.telemetry import Telemetry
from proxy.account.account import Account
from proxy.account.clerks import Around, open_clerks
from proxy.account.logins import Logins
from proxy.account.pace import Pace
from proxy.account.persons import Bearers
from proxy.account.token_pages import TokenPages
from proxy.account.tokens import AccountTokens
from proxy.answers import refusal_headers
from proxy.assurance.engines import Engine, Engines, Replica
from proxy.assurance.verdict import Verdict
from proxy.certificates import client_certificates
from proxy.channel import WorkerState
from proxy.cross_origin import CrossOrigin
from proxy.desk import Clerk, Desk
from proxy.directory.connect import open_store, open_tokens, removal_policy
from proxy.directory.remembered import RememberedScopes
from proxy.directory.store import Store
from proxy.directory.token_store import StoredTokens, TokenStore
from proxy.directory.used_proofs import open_used_proofs
from proxy.directory.view import DirectoryView
from proxy.engines.kinds import image_origins, profile_of
from proxy.entrance import Entrance, Face
from proxy.fetching.fetcher import Fetcher
from proxy.fetching.lookup import SystemLookup
from proxy.gateway import Gateway, Policy
from proxy.identity.callers import Callers
from proxy.identity.fronts import Fronts
from proxy.identity.issuers import TrustedIssuers, open_issuers
from proxy.identity.native_sign_in import NativeSignIn
from proxy.identity.opaque import IssuerOfWorkspace, OpaqueTokens, open_introspection
from proxy.identity.personal_records import PersonalRules
from proxy.identity.personal_tokens import PersonalTokens
from proxy.identity.possession import Possession
from proxy.isolation.narrowing import Rule, Unseen, isolation_rule
from proxy.isolation.remembered import RememberedSalts
from proxy.isolation.ring import KeyRing
from proxy.isolation.salt import SaltKey
from proxy.isolation.unit import Level
from proxy.refusals import Refusal
from proxy.relay.downstream import Front
from proxy.relay.exchange import Patience
from proxy.relay.pool import Address, Pool
from proxy.relay.relay import Relay, answer_headers
from proxy.routes import Page
from proxy.scanner import Scanner
from proxy.tls import client_context

VERSION: Final = version("saltgate")
# How often the parts' states go into the metrics.
LOOK_SECONDS: Final = 1.0
# After the drain limit, cut streams still need a turn of the loop to write their error event.
CUT_SECONDS: Final = 2.0
CANCEL_AGAIN_SECONDS: Final = 0.2

_log = structlog.get_logger("saltgate.gate")


@dataclass(frozen=True, slots=True)
class Gate:
    """One worker's gate: `front` makes the protocol of each client connection."""

    front: Front
    entrance: Entrance
    gateway: Gateway
    issuers: TrustedIssuers
    opaque: OpaqueTokens
    personal: PersonalTokens
    view: DirectoryView
    engines: Engines
    metrics: Metrics

    def waits_for(self) -> tuple[str, ...]:
        """The parts that are not known good. Nothing to wait for means ready."""
        parts = {
            "issuers": self.issuers.ready,
            "directory": self.view.ready,
            "keys": not self.lacking_keys(),
            "engines": self.engines.ready,
        }
        return tuple(name for name, ready in parts.items() if not ready)

    def lacking_keys(self) -> tuple[str, ...]:
        """The ids of salt keys that the directory's ring uses and the configuration lacks."""
        ring = self.view.current().ring if self.view.ready else None
        return () if ring is None else self.gateway.salts.keys.lacking(ring, self.gateway.wall_clock())

    def state(self) -> WorkerState:
        return WorkerState(self.waits_for(), self.gateway.relay.open_exchanges, self.metrics.snapshot().encode())

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
            await asyncio.sleep(0.02)
            self.front.close_idle()


@asynccontextmanager
async def open_gate(settings: Settings, *, instance: str, logs: Logs) -> AsyncIterator[Gate]:
    """A gate with everything that it needs, for as long as the context is open.

    It opens also while issuers, directory or engines are away: then it is not ready, and heals by itself. Where a part
    breaks for good, the body is cancelled and the fault raised: the worker ends and its supervisor starts another.
    """
    telemetry = Telemetry.start(settings.telemetry, instance=instance, version=VERSION)
    rules = isolation_rules(settings)
    metrics = Metrics(
        version=VERSION,
        drops={"spans": telemetry.dropped, "logs": logs.dropped},
        rules=(*(rule.name for rule in rules), *(reason.value for reason in Unseen)) if rules else (),
    )
    recorder = Recorder(
        (metrics, logs, telemetry),
        monotonic_ns=time.monotonic_ns,
        wall_ns=time.time_ns,
        trace_ratio=settings.telemetry.trace_ratio,
        url_scheme=public_url(settings).partition(":")[0],
    )
    keys = key_ring(settings)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(asyncio.to_thread, telemetry.stop)
        tls = issuer_tls(settings.issuers)
        issuers = await stack.enter_async_context(
            open_issuers(
                settings.issuers,
                clock=time.time,
                tls=tls,
                sign_in_url=sign_in_url(settings),
            )
        )
        engines = Engines(
            [configured_engine(engine, settings.timeouts.connect) for engine in settings.engines],
            keys.keys[settings.isolation.keys[0].id],
            _Observed(metrics),
        )
        stack.callback(engines.close)
        store = open_store(settings.directory, removal_policy(settings.isolation))
        stack.push_async_callback(store.close)
        view = DirectoryView(store, max_stale=settings.directory.max_stale)
        tokens = open_tokens(settings.directory)
        stack.push_async_callback(tokens.close)
        personal = personal_tokens(settings, tokens)
        stack.push_async_callback(personal.tell_uses_now)
        used_proofs = open_used_proofs(settings.directory)
        stack.push_async_callback(used_proofs.close)
        possession = Possession(public_url=public_url(settings), clock=time.time, used=used_proofs)
        opaque = await stack.enter_async_context(
            open_introspection(
                settings.issuers,
                issuer_of_workspace=issuer_of_workspace(view),
                key=introspection_key(settings),
                clock=time.time,
                tls=tls,
            )
        )
        scanner = Scanner(rules, limit_bytes=settings.isolation.scan_limit)
        stack.callback(scanner.close)
        callers = Fronts(
            Callers(issuers, opaque=opaque, personal=personal, possession=possession), settings.fronts, clock=time.time
        )
        logins = Logins(tokens, groups_max_age=settings.tokens.groups_max_age)
        account, pace = _account_tokens(settings, tokens, store), Pace(clock=time.monotonic)
        programs = _programs_clerks(settings, callers, view, account, logins, pace)
        people = await stack.enter_async_context(
            open_clerks(
                Around(
                    issuers=issuers.issuers,
                    tls=tls,
                    directory=view,
                    store=store,
                    directory_settings=settings.directory,
                    sessions=settings.sessions,
                    isolation_secrets=tuple(key.secret.value for key in settings.isolation.keys),
                    public_url=public_url(settings),
                    clock=time.time,
                    tokens=account,
                    token_pace=pace,
                    token_settings=settings.tokens,
                ),
                program=programs[Page.ACCOUNT],
                seen=(logins.note,),
            )
        )
        lookup = SystemLookup()
        stack.callback(lookup.close)
        images = Fetcher(lookup, seconds=settings.timeouts.media, tls=image_tls(settings.engines))
        stack.callback(images.close)
        gateway = Gateway(
            identities=callers,
            directory=view,
            scopes=RememberedScopes(policy(settings).scope),
            salts=RememberedSalts(keys),
            rules=scanner,
            engines=engines,
            images=images,
            relay=Relay(
                Patience(first_byte=settings.timeouts.first_byte, idle=settings.timeouts.idle),
                violated=metrics.isolation_violation,
            ),
            policy=policy(settings),
            wall_clock=time.time,
        )
        entrance = Entrance(
            gateway=gateway,
            desk=Desk({**programs, **people}),
            recorder=recorder,
            face=face(settings),
            certificates=gateway.policy.certificates,
            request_seconds=settings.timeouts.request,
        )
        gate = Gate(
            _front(entrance, recorder, settings), entrance, gateway, issuers, opaque, personal, view, engines, metrics
        )
        endless = [view.follow(), engines.follow(), personal.tell_uses(), _tell_states(gate)]
        if settings.streams_end_on_revoke:
            endless.append(gateway.follow_revocations())
        await stack.enter_async_context(_running(*endless))
        yield gate


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


def public_url(settings: Settings) -> str:
    """The address that clients use: every absolute URL begins with it."""
    if settings.public.url is not None:
        return settings.public.url.rstrip("/")
    address = listen_address(settings.public.listen)
    if isinstance(address, UnixAddress):
        return "http://localhost"
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{'https' if settings.public.tls else 'http'}://{host}:{address.port}"


def sign_in_url(settings: Settings) -> str:
    """Our own page where people sign in, for those issuers that have `[issuers.login] client_id`."""
    return public_url(settings) + Page.SIGN_IN.value[1]


def key_ring(settings: Settings) -> KeyRing:
    return KeyRing({key.id: SaltKey(key.id, key.secret.value) for key in settings.isolation.keys})


def personal_tokens(settings: Settings, tokens: TokenStore) -> PersonalTokens:
    return PersonalTokens(
        StoredTokens(tokens),
        personal_rules(settings),
        max_stale=settings.directory.max_stale,
        clock=time.time,
        monotonic=time.monotonic,
    )


def personal_rules(settings: Settings) -> PersonalRules:
    """Whose personal access tokens count. The owner of a local issuer has no groups that a sign-in could tell."""
    return PersonalRules(
        issuers=frozenset(issuer.issuer for issuer in settings.issuers),
        without_groups=frozenset(i.issuer for i in settings.issuers if i.kind == "local" or not i.groups),
        groups_max_age=settings.tokens.groups_max_age,
    )


def _account_tokens(settings: Settings, tokens: TokenStore, store: Store) -> AccountTokens:
    return AccountTokens(
        tokens,
        store.change,
        settings.tokens,
        settings.admin.administrators,
        max_stale=settings.directory.max_stale,
        clock=time.time,
    )


def _programs_clerks(
    settings: Settings, callers: Fronts, view: DirectoryView, account: AccountTokens, logins: Logins, pace: Pace
) -> Mapping[Page, Clerk]:
    """The pages of the account, for programs that show a credential."""
    pages = TokenPages(
        Bearers(callers, view, logins).person,
        account,
        pace,
        default_lifetime=int(settings.tokens.default_lifetime),
    )
    shown = Account(callers, view, logins, Level(settings.isolation.unit))
    return {Page.ACCOUNT: shown.serve, **pages.clerks()}


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


def face(settings: Settings) -> Face:
    """What everybody may know of the deployment."""
    return Face(
        url=public_url(settings),
        issuers=tuple(issuer.issuer for issuer in settings.issuers),
        native_sign_ins=native_sign_ins(settings),
        cross_origin=CrossOrigin(frozenset(settings.cors.origins)) if settings.cors.origins else None,
    )


def native_sign_ins(settings: Settings) -> tuple[NativeSignIn, ...]:
    """Where `saltgate login` may sign people in."""
    return tuple(
        NativeSignIn(
            issuer=issuer.issuer,
            client_id=issuer.login.native_client_id,
            scopes=issuer.login.native_scopes,
            resource=issuer.login.resource,
        )
        for issuer in settings.issuers
        if issuer.login is not None and issuer.login.native_client_id is not None
    )


def _front(entrance: Entrance, recorder: Recorder, settings: Settings) -> Front:
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
        pace=entrance.pace,
    )


def issuer_tls(issuers: tuple[IssuerSettings, ...]) -> dict[str, ssl.SSLContext]:
    """The contexts of those issuers that have an authority or a client certificate of their own."""
    return {i.issuer: client_context(i.ca, i.client_cert) for i in issuers if i.ca or i.client_cert}


def image_tls(engines: tuple[EngineSettings, ...]) -> dict[Path | None, ssl.SSLContext]:
    """The contexts of the hosts that images are fetched from, by the file of their authority; None is the system's."""
    found = [place for engine in engines if (place := image_origins(engine)) is not None]
    files = {origin.ca for place in found for origin in place.origins.values()}
    return {file: client_context(file, None) for file in files}


def issuer_of_workspace(view: DirectoryView) -> IssuerOfWorkspace:
    def issuer_of(name: str) -> str | None:
        workspace = view.current().directory.workspaces.get(name)
        return None if workspace is None else workspace.issuer

    return issuer_of


def introspection_key(settings: Settings) -> bytes:
    """Of what all workers of all machines have in common, for this purpose alone."""
    return hmac.digest(settings.isolation.keys[0].secret.value, b"saltgate introspection stand-in", "sha256")


def configured_engine(engine: EngineSettings, connect_seconds: float) -> Engine:
    """The engine with its replicas, none of which has been asked yet."""
    return Engine(
        name=engine.name,
        proof=engine.proof,
        models=None if engine.models is None else frozenset(engine.models),
        replicas=tuple(
            Replica(partial(Pool, _address(engine, url), connect_seconds=connect_seconds)) for url in engine.urls
        ),
        profile=profile_of(engine),
    )


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


async def _tell_states(gate: Gate) -> None:
    """Keep the gauges of issuers, directory and engines true, and say when a salt key is lacking."""
    lacking: tuple[str, ...] = ()
    while True:
        before, lacking = lacking, gate.lacking_keys()
        if lacking and lacking != before:
            _log.error("salt_key_missing", keys=lacking, remedy="add it under [[isolation.keys]]")
        for issuer in gate.issuers.issuers:
            gate.metrics.issuer_up(issuer.rules.issuer, issuer.ready)
        for introspector in gate.opaque.introspectors:
            gate.metrics.introspection_up(introspector.rules.issuer, introspector.ready)
        gate.metrics.directory_up(not gate.view.away)
        age = gate.view.confirmed_age
        if age is not None:
            gate.metrics.directory_confirmed(time.time() - age)
        for engine in gate.engines.engines:
            for replica in engine.replicas:
                gate.metrics.engine_up(engine.name, str(replica.pool.address), replica.reachable)
        await asyncio.sleep(LOOK_SECONDS)
