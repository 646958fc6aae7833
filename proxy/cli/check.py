"""`saltgate check`: is the configuration right, and is what it names reachable and safe?"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import aiohttp

from config.addresses import is_loopback_host, web_address
from config.faults import ConfigurationFaults, Fault
from config.load import load
from config.settings import Directory as DirectorySettings
from config.settings import Issuer as IssuerSettings
from config.settings import Settings
from proxy.assurance.replica import Engine, served_by
from proxy.cli.check_audit import audit_lines
from proxy.cli.check_engine import replica_lines
from proxy.cli.check_eviction import eviction_lines
from proxy.cli.check_images import image_lines
from proxy.cli.check_introspection import introspection_lines
from proxy.cli.check_redis import redis_lines
from proxy.cli.check_sign_in import sign_in_lines
from proxy.cli.configuration import add_configuration, tell_faults
from proxy.cli.lines import Level, Line
from proxy.configured import configured_engine
from proxy.directory.connect import open_store, removal_policy
from proxy.directory.model import Workspace, user
from proxy.directory.snapshot import NOTHING_READ, Snapshot, read
from proxy.directory.store import StoreUnavailable
from proxy.engines.kinds import faulty_fields
from proxy.identity.client_authentication import faulty_client_keys
from proxy.identity.issuer import KeysNotFetchedError, TrustedIssuer
from proxy.isolation.ring import Ring
from proxy.isolation.salt import SaltKey
from proxy.reception import issuer_tls, public_url
from proxy.tls import faulty_certificates

# The issuers and the directory have bounds of their own: Schedule.timeout, and every method of a Store.
_COLUMNS: Final = 80


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_configuration(parser)
    parser.add_argument("--json", action="store_true", help="for programs")


def run(arguments: argparse.Namespace) -> int:
    show = _Shown() if arguments.json else _Told()
    settings = _configuration(arguments.configuration, show)
    if settings is None:
        show.end()
        return 2
    asyncio.run(_check(settings, show))
    show.end()
    return 1 if show.has_fault else 0


class _Told:
    """The lines for people, as they become known. What is wrong with the configuration goes to stderr."""

    def __init__(self) -> None:
        self.has_fault = False
        self._part = ""

    def line(self, line: Line) -> None:
        self.has_fault |= line.level is Level.FAULT
        if line.part != self._part:
            sys.stdout.write(f"{line.part}\n")
            self._part = line.part
        head = f"  {line.level.value:<8} {line.about + ': ' if line.about else ''}"
        wrapped = textwrap.wrap(
            head + line.message, _COLUMNS, subsequent_indent=" " * 11, break_long_words=False, break_on_hyphens=False
        )
        sys.stdout.write("\n".join(wrapped) + "\n")
        sys.stdout.flush()

    def misconfigured(self, path: Path, fault: Fault) -> None:
        tell_faults(path, [fault])

    def end(self) -> None:
        if self.has_fault:
            sys.stdout.write("Not everything is right: see each fault above.\n")


class _Shown:
    """The lines for programs: one document at the end."""

    def __init__(self) -> None:
        self.has_fault = False
        self._lines: list[Line] = []

    def line(self, line: Line) -> None:
        self.has_fault |= line.level is Level.FAULT
        self._lines.append(line)

    def misconfigured(self, _: Path, fault: Fault) -> None:
        self.line(Line(Level.FAULT, "configuration", fault.key, fault.message))

    def end(self) -> None:
        document = {"ok": not self.has_fault, "checks": [asdict(line) for line in self._lines]}
        json.dump(document, sys.stdout, indent=2, ensure_ascii=False)
        sys.stdout.write("\n")


def _configuration(path: Path, show: _Told | _Shown) -> Settings | None:
    """The settings, or None after every fault was told."""
    try:
        loaded = load(path)
    except ConfigurationFaults as error:
        faults = error.faults
    else:
        faults = (
            *faulty_certificates(loaded.settings),
            *faulty_fields(loaded.settings),
            *faulty_client_keys(loaded.settings),
        )
        if not faults:
            show.line(Line(Level.OK, "configuration", "", str(path)))
            for warning in loaded.warnings:
                show.line(Line(Level.WARNING, "configuration", "", warning))
            return loaded.settings
    for fault in faults:
        show.misconfigured(path, fault)
    return None


async def _check(settings: Settings, show: _Told | _Shown) -> None:
    """Everything at once, told in the order of the configuration."""
    engines = [configured_engine(engine, settings.timeouts) for engine in settings.engines]
    key = settings.isolation.keys[0]
    tls = issuer_tls(settings.issuers)
    # Cookies would travel between issuers, and a body that unpacks itself would escape its bound: as in `serve`.
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False) as session,
        asyncio.TaskGroup() as tasks,
    ):
        issuers = [
            TrustedIssuer(
                issuer,
                session=session,
                clock=time.time,  # noqa: TID251 - the clock is handed out here
                monotonic=time.monotonic,
                tls=tls.get(issuer.issuer),
            )
            for issuer in settings.issuers
        ]
        signing_in = [each for each in settings.issuers if each.login is not None and each.login.client_id is not None]
        parts = [
            tasks.create_task(_collected(lines))
            for issuer in issuers
            for lines in (
                _issuer(issuer),
                introspection_lines(issuer.rules, session, tls.get(issuer.rules.issuer)),
                sign_in_lines(
                    issuer.rules,
                    session,
                    tls.get(issuer.rules.issuer),
                    public_url=public_url(settings),
                    alone=len(signing_in) == 1,
                ),
            )
        ]
        parts.append(tasks.create_task(_collected(_directory(settings))))
        parts.append(tasks.create_task(_collected(audit_lines(settings.audit))))
        for engine, configured in zip(engines, settings.engines, strict=True):
            for replica, url in zip(engine.replicas, configured.urls, strict=True):
                lines = replica_lines(engine, replica, configured, url, SaltKey(key.id, key.secret.value))
                parts.append(tasks.create_task(_collected(lines)))
            parts.append(tasks.create_task(_collected(image_lines(configured))))
        for part in parts:
            for line in await part:
                show.line(line)
    for engine in engines:
        for replica in engine.replicas:
            replica.pool.close()
    for line in _models(engines):
        show.line(line)


async def _collected(lines: AsyncIterator[Line]) -> Sequence[Line]:
    return [line async for line in lines]


async def _issuer(issuer: TrustedIssuer) -> AsyncIterator[Line]:
    rules = issuer.rules
    part = f"issuer {rules.issuer}"
    try:
        keys = await issuer.asked()
    except KeysNotFetchedError as error:
        if rules.kind == "local":
            yield Line(Level.NOTE, part, "", "it runs inside `saltgate serve`, which is not running now")
            return
        yield Line(Level.FAULT, part, "", f"{error}. No token of it can be checked. {_remedy(rules)}")
        return
    usable = [key for key in keys.keys if not key.algorithms.isdisjoint(rules.algorithms)]
    if not usable:
        offered = ", ".join(sorted({name for key in keys.keys for name in key.algorithms}))
        yield Line(
            Level.FAULT,
            part,
            "",
            f"none of its keys is for {', '.join(rules.algorithms)}. Set `algorithms`; {offered} fit",
        )
        return
    yield Line(Level.OK, part, "", f"{len(usable)} usable {'key' if len(usable) == 1 else 'keys'}")


def _remedy(rules: IssuerSettings) -> str:
    if rules.jwks_uri is not None:
        return f"See that {rules.jwks_uri} can be reached from here and gives a JWK Set"
    address = rules.issuer.removesuffix("/") + "/.well-known/openid-configuration"
    return f"See that {address} can be reached from here, or set `jwks_uri`"


async def _directory(settings: Settings) -> AsyncIterator[Line]:
    place = settings.directory
    part = f"directory {place.redis or place.file}"
    for warning in _directory_warnings(place):
        yield Line(Level.WARNING, part, "", warning)
    store = open_store(place, removal_policy(settings.isolation))
    try:
        records = await store.read()
    except StoreUnavailable as error:
        yield Line(Level.FAULT, part, "", f"{error}")
        return
    finally:
        await store.close()
    async for line in eviction_lines(place, part):
        yield line
    reading = read(records, NOTHING_READ)
    snapshot = reading.snapshot
    known = f"generation {snapshot.generation}, workspaces: {len(snapshot.directory.workspaces)}"
    if reading.faults:
        yield Line(Level.NOTE, part, "", f"{known}, without what is left out by the faults below")
    else:
        yield Line(Level.OK, part, "", known)
    for fault in reading.faults:
        yield Line(Level.FAULT, part, fault.key, f"{fault.message}. It is left out until it is mended")
    for line in (
        *_memberships(part, snapshot, settings),
        *_gates(part, snapshot, settings),
        *_rules(part, snapshot, settings),
    ):
        yield line
    if snapshot.ring is not None:
        yield _ring(part, snapshot.ring.settled(records.now), settings)
    elif records.ring_is_missing:
        yield Line(
            Level.FAULT,
            part,
            "salt ring",
            "it is missing: `saltgate directory import FILE -c …` makes it",
        )
    # A ring that is there and cannot be read is among the faults.
    async for line in redis_lines(part, settings):
        yield line


def _directory_warnings(place: DirectorySettings) -> Iterator[str]:
    if place.redis is None or not place.redis.startswith("redis://"):
        return
    if not is_loopback_host(_redis_host(place.redis)):
        yield "who may use what travels unprotected: use rediss://, or a tunnel that ends on this machine"


def _redis_host(url: str) -> str | None:
    return web_address("http" + url.removeprefix("redis")).hostname


def _memberships(part: str, snapshot: Snapshot, settings: Settings) -> Iterator[Line]:
    workspaces = snapshot.directory.workspaces
    if not workspaces:
        yield Line(Level.WARNING, part, "", "nobody is a member of anything: `saltgate directory import FILE`")
    known = {issuer.issuer for issuer in settings.issuers}
    for name, workspace in sorted(workspaces.items()):
        if workspace.issuer not in known:
            yield Line(
                Level.WARNING,
                part,
                f"workspace {name}",
                f"its issuer {workspace.issuer} is none of [[issuers]], so nobody can sign in to it",
            )


def _gates(part: str, snapshot: Snapshot, settings: Settings) -> Iterator[Line]:
    """A gate in front names no scope and must see what was reused: else it gets 400, or can prove nothing."""
    for gate in settings.gates:
        found = [
            (workspace, project)
            for workspace in snapshot.directory.workspaces.values()
            if workspace.issuer == gate.issuer
            for project in workspace.projects_of(user(gate.subject))
        ]
        about = f"gate {gate.subject}"
        if len(found) > 1:
            names = ", ".join(f"{workspace.name}/{project}" for workspace, project in found)
            yield Line(Level.FAULT, part, about, f"it is a member of {names} and names none of them: leave it one")
        elif not found:
            yield Line(Level.NOTE, part, about, "it is named in no project. Unless a group of it is, it is refused")
        elif not _shows_reuse(found[0][0], settings):
            yield Line(
                Level.FAULT,
                part,
                about,
                f"`show_reuse` is false for {found[0][0].name}: the gate in front cannot prove that its borders hold",
            )


def _rules(part: str, snapshot: Snapshot, settings: Settings) -> Iterator[Line]:
    """A rule for a workspace that there is not protects nobody: as a slip of the pen would."""
    for rule in settings.isolation.rules:
        missing = sorted(set(rule.workspaces or ()) - snapshot.directory.workspaces.keys())
        if missing:
            yield Line(Level.WARNING, part, f"rule {rule.name}", f"there is no workspace {', '.join(missing)}")


def _shows_reuse(workspace: Workspace, settings: Settings) -> bool:
    return settings.isolation.show_reuse if workspace.show_reuse is None else workspace.show_reuse


def _ring(part: str, ring: Ring, settings: Settings) -> Line:
    coming = () if ring.plan is None else (ring.plan.next_key,)
    missing = {ring.first_key, *coming, *ring.keys.values()} - {key.id for key in settings.isolation.keys}
    if missing:
        return Line(
            Level.FAULT,
            part,
            "salt ring",
            f"it uses the keys {', '.join(sorted(missing))}, which [[isolation.keys]] lacks: "
            "units that use them are refused. Add them again; a key may go only when no unit uses it",
        )
    return Line(Level.OK, part, "salt ring", f"{ring.id}, first key {ring.first_key}")


def _models(engines: Sequence[Engine]) -> Iterator[Line]:
    for name, served in served_by(engines).items():
        if served.engine is None:
            yield Line(
                Level.FAULT,
                "engines",
                name,
                "two engines list a model of this name, so it is refused: name it under one engine's `models`",
            )
