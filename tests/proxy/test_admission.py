"""Who was let in a moment ago is let in again without a look at his token, and nobody else with him."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from weakref import ref

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from observability.record import Record
from proxy import admission
from proxy.admission import Admissions
from proxy.certificates import ClientCertificates
from proxy.directory.membership import select_scope
from proxy.directory.model import directory_from_toml, user
from proxy.directory.remembered import RememberedScopes
from proxy.directory.snapshot import Snapshot
from proxy.identity import Identity
from proxy.identity.callers import Callers
from proxy.identity.confirmation import base64url_digest
from proxy.identity.fronts import Fronts
from proxy.identity.issuer import Schedule
from proxy.identity.issuers import CACHE_LIFETIME, TrustedIssuers, open_issuers
from proxy.identity.possession import Possession
from proxy.identity.shown import Shown
from proxy.isolation.ring import Ring
from proxy.isolation.unit import Level
from proxy.kept import Kept
from proxy.refusals import Blocked, DirectoryUnavailable, InvalidRequest, InvalidToken, NotAMember, Refusal
from proxy.relay.downstream import Downstream
from proxy.relay.request import Request
from proxy.routes import find_route
from tests.observability.telling import recorder
from tests.parts.assertions import HEADER, SERVICE, assertion, front
from tests.parts.tokens import IssuerServer
from tests.proxy.identity.judging import NOW, mint

CHAT = "/v1/chat/completions"
CERTIFICATE = b"a certificate in DER"
DIRECTORY = """
[workspaces.acme]
issuer = "{issuer}"
projects.apollo.members = ["user:u-alice-0001", "user:front:webui/alice"]
projects.ares.members = ["user:u-alice-0001", "user:front:webui/alice"]
collections.handbook.projects = ["apollo"]
[workspaces.globex]
issuer = "{issuer}"
projects.apollo.members = ["user:u-alice-0001"]
"""


@dataclass(slots=True)
class Door:
    """The admissions with all that they rest on, and how often a head was looked at."""

    server: IssuerServer
    now: float = NOW
    shown: int = 0
    snapshot: Snapshot | None = None
    admissions: Admissions = field(init=False)
    issuers: TrustedIssuers = field(init=False)
    identities: Fronts = field(init=False)

    async def identify(self, shown: Shown) -> Identity:
        self.shown += 1
        return await self.identities.identify(shown)

    def current(self) -> Snapshot:
        if self.snapshot is None:
            raise DirectoryUnavailable("away")
        return self.snapshot

    async def next_after(self, snapshot: Snapshot | None) -> Snapshot:
        raise NotImplementedError

    def token(self, subject: str = "u-alice-0001", **claims: object) -> str:
        return self.server.mint.token(subject=subject, groups=(), claims=claims)

    async def admitted(self, request: Request) -> Identity:
        """As the gateway asks."""
        route, record = find_route(request.method, request.target), a_record()
        found = self.admissions.known(request, route, record) or await self.admissions.found(request, route, record)
        assert record.subject == found.identity.subject
        assert (record.workspace, record.project) == (found.scope.workspace, found.scope.project)
        assert {"auth", "directory"} <= record.stages.keys()
        return found.identity

    def knows(self, request: Request) -> bool:
        return self.admissions.known(request, find_route(request.method, request.target), a_record()) is not None


def a_record() -> Record:
    return recorder().request(method="POST", route=CHAT)


def request(headers: Mapping[str, str] | list[tuple[str, str]], path: str = CHAT) -> Request:
    lines = list(headers.items()) if isinstance(headers, Mapping) else headers
    lines = [("Host", "a"), *lines, ("Content-Length", "2")]
    head = SimpleNamespace(
        method="POST",
        path=path,
        version=(1, 1),
        headers=CIMultiDictProxy(CIMultiDict(lines)),
        raw_headers=tuple((name.encode(), value.encode()) for name, value in lines),
        should_close=False,
    )
    return Request(cast("Any", head), cast("Any", None), cast("Downstream", SimpleNamespace(transport=None)))


def named(token: str, **more: str) -> dict[str, str]:
    scope = {"OpenAI-Organization": "acme", "OpenAI-Project": "apollo"}
    return (
        {"Authorization": f"Bearer {token}"} | scope | {name.replace("_", "-"): value for name, value in more.items()}
    )


def snapshot_of(server: IssuerServer, document: str = DIRECTORY) -> Snapshot:
    return Snapshot(
        directory_from_toml(document.replace("{issuer}", server.mint.issuer)), {}, Ring("r", "k", 1, {}, {}), 1
    )


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    async with IssuerServer(mint("RS256")) as server:
        made = Door(server)
        still = Schedule(interval=1e6, first_pause=1e6)
        async with open_issuers((server.settings(),), clock=lambda: made.now, schedule=still) as issuers:
            await issuers.identify(server.mint.token())
            proofs = Possession(public_url="http://a", clock=lambda: made.now, used=cast("Any", None))
            fronts = [replace(front(), issuer=server.mint.issuer)]
            made.identities = Fronts(Callers(issuers, possession=proofs), fronts, clock=lambda: made.now)
            made.issuers, made.snapshot = issuers, snapshot_of(server)
            select = partial(select_scope, default_unit=Level.PROJECT, default_show_reuse=True)
            made.admissions = Admissions(
                identities=made,
                warrants=issuers,
                directory=made,
                scopes=RememberedScopes(select),
                certificates=cast("ClientCertificates", SimpleNamespace(of=lambda _: CERTIFICATE)),
                wall_clock=lambda: made.now,
            )
            yield made


async def test_the_head_of_a_moment_ago_is_not_looked_at_again(door: Door) -> None:
    token = door.token()
    first = await door.admitted(request(named(token)))
    for more in ({}, {"X-Other": "1"}, {"Traceparent": "00-1"}):
        assert await door.admitted(request(named(token, **more))) is first
    assert door.shown == 1


@pytest.mark.parametrize(
    ("path", "change"),
    [
        (CHAT, {"Authorization": "Bearer OTHER"}),
        (CHAT, {"Authorization": "DPoP TOKEN"}),
        (CHAT, {"x-api-key": "TOKEN"}),
        (CHAT, {"API-Key": "TOKEN"}),
        (CHAT, {"OpenAI-Organization": "globex"}),
        (CHAT, {"OpenAI-Project": "ares"}),
        (CHAT, {"X-Saltgate-Unit": "user"}),
        (CHAT, {"x-saltgate-collection": "handbook"}),
        (f"/w/acme/p/apollo{CHAT}", {}),
        (f"/w/acme/p/ares{CHAT}", {"OpenAI-Project": "ares"}),
        (f"/w/globex/p/apollo{CHAT}", {"OpenAI-Organization": "globex"}),
    ],
)
async def test_a_head_that_says_something_else_is_looked_at(door: Door, path: str, change: dict[str, str]) -> None:
    token = door.token()
    await door.admitted(request(named(token)))
    assert door.knows(request(named(token)))
    words = {"Bearer OTHER": f"Bearer {token[:-1]}", "DPoP TOKEN": f"DPoP {token}", "TOKEN": token}
    changed = named(token) | {name: words.get(value, value) for name, value in change.items()}
    assert not door.knows(request(changed, path))


async def test_another_scope_in_the_path_is_looked_at(door: Door) -> None:
    alone = {"Authorization": f"Bearer {door.token()}"}
    await door.admitted(request(alone, f"/w/acme/p/apollo{CHAT}"))
    assert door.knows(request(alone, f"/w/acme/p/apollo{CHAT}?query"))
    for scope in ("/w/acme/p/ares", "/w/globex/p/apollo", ""):
        assert not door.knows(request(alone, scope + CHAT))


@pytest.mark.parametrize("name", ["Authorization", "OpenAI-Project", "openai-organization"])
async def test_a_line_that_stands_there_twice_is_not_taken_for_one(door: Door, name: str) -> None:
    lines = list(named(door.token()).items())
    await door.admitted(request(lines))
    said = request([*lines, (name, "another")])
    assert not door.knows(said)
    with pytest.raises(InvalidRequest):
        await door.admitted(said)


async def test_what_stands_in_one_line_is_not_what_stands_in_two(door: Door) -> None:
    token = door.token()
    lines = [("Authorization", f"Bearer {token}"), ("OpenAI-Organization", "acme"), ("OpenAI-Project", "apollo")]
    await door.admitted(request(lines))
    for other in (
        [lines[0], ("OpenAI-Organization", "acme"), ("OpenAI-Project", ""), ("X-Other", "apollo")],
        [lines[0], ("OpenAI-Project", "acme"), ("OpenAI-Organization", "apollo")],
        [("X-Other", f"Bearer {token}"), *lines[1:]],
    ):
        assert not door.knows(request(other))


async def test_it_ends_with_the_token_and_with_the_time_that_a_token_is_remembered(door: Door) -> None:
    short = door.server.mint.token(subject="u-alice-0001", groups=(), lifetime=30.0)
    both = [request(named(short)), request(named(door.token()))]
    for one in both:
        await door.admitted(one)
    door.now += 29.0
    assert [door.knows(one) for one in both] == [True, True]
    door.now += 1.5
    assert [door.knows(one) for one in both] == [False, True]
    door.now = NOW + CACHE_LIFETIME
    assert [door.knows(one) for one in both] == [False, False]


async def test_a_token_that_is_verified_again_for_one_scope_is_so_for_each(door: Door) -> None:
    token = door.token()
    apollo, ares = request(named(token)), request(named(token, OpenAI_Project="ares"))
    other = request(named(door.token(jti="another")))
    for one in (apollo, ares, other):
        await door.admitted(one)
    door.now += CACHE_LIFETIME
    assert [door.knows(one) for one in (apollo, ares, other)] == [False, False, False]
    await door.admitted(apollo)
    assert [door.knows(one) for one in (apollo, ares, other)] == [True, True, False]
    door.server.mint.rotate()
    await door.issuers.issuers[0]._fetch()
    await door.admitted(request(named(door.token())))
    assert not door.knows(ares)


async def test_it_ends_with_the_keys_that_verified_it(door: Door) -> None:
    asked = request(named(door.token()))
    await door.admitted(asked)
    (issuer,) = door.issuers.issuers
    door.server.mint.rotate()
    await issuer._fetch()
    assert not door.knows(asked)


async def test_it_ends_where_the_issuer_was_away_for_too_long(door: Door) -> None:
    asked = request(named(door.token()))
    await door.admitted(asked)
    (issuer,) = door.issuers.issuers
    fetched = issuer._fetched_at
    assert fetched is not None
    issuer._fetched_at = fetched - Schedule().max_stale - 1
    assert not door.knows(asked)


async def test_it_ends_with_what_the_directory_said(door: Door) -> None:
    asked = request(named(door.token()))
    identity = await door.admitted(asked)
    assert door.snapshot is not None
    door.snapshot = replace(door.snapshot, blocks={identity.issuer: frozenset({user("u-alice-0001")})})
    with pytest.raises(Blocked):
        await door.admitted(asked)
    door.snapshot = snapshot_of(door.server, DIRECTORY.replace("u-alice-0001", "u-bob-0002"))
    with pytest.raises(NotAMember):
        await door.admitted(asked)
    door.snapshot = snapshot_of(door.server)
    assert (await door.admitted(asked)) == identity
    door.snapshot = None
    with pytest.raises(DirectoryUnavailable):
        await door.admitted(asked)


async def test_who_is_bound_to_a_certificate_shows_it_each_time(door: Door) -> None:
    asked = request(named(door.token(cnf={"x5t#S256": base64url_digest(CERTIFICATE)})))
    for number in range(1, 4):
        await door.admitted(asked)
        assert door.shown == number
    door.admissions.certificates = cast("ClientCertificates", SimpleNamespace(of=lambda _: b"another"))
    with pytest.raises(InvalidToken):
        await door.admitted(asked)


async def test_for_whom_a_front_end_speaks_is_looked_at_each_time(door: Door) -> None:
    token = door.token(SERVICE)
    for person in ("alice", "alice", "bob"):
        asked = request([*named(token).items(), (HEADER, assertion(person, now=NOW))])
        if person == "bob":
            with pytest.raises(NotAMember):
                await door.admitted(asked)
        else:
            assert (await door.admitted(asked)).subject == "front:webui/alice"
    assert door.shown == 3


async def test_a_certificate_that_is_passed_on_doubtfully_is_refused_also_where_the_head_is_known(door: Door) -> None:
    def doubtful(_: object) -> bytes:
        raise InvalidRequest("no certificate")

    asked = request(named(door.token()))
    await door.admitted(asked)
    door.admissions.certificates = cast("ClientCertificates", SimpleNamespace(of=doubtful))
    with pytest.raises(InvalidRequest):
        await door.admitted(asked)


async def test_only_a_bearer_token_of_the_issuers_own_has_a_warrant(door: Door) -> None:
    token = door.token()
    identity = await door.issuers.identify(token)

    def shown(*lines: tuple[str, str]) -> Shown:
        return Shown(headers=lines, method="POST", path=CHAT, workspace="acme")

    warrant = door.issuers.warrant
    assert warrant(shown(("Authorization", f"Bearer {token}")), identity) is not None
    assert warrant(shown(("Authorization", f"DPoP {token}")), identity) is None
    assert warrant(shown(("Authorization", "Bearer sgp_" + "a" * 40)), identity) is None
    assert warrant(shown(("Authorization", "Bearer opaque")), identity) is None
    assert warrant(shown(("Authorization", f"Bearer {door.token('u-bob-0002')}")), identity) is None
    assert warrant(shown(("Authorization", f"Bearer {token}")), replace(identity)) is None


async def test_no_token_stays_in_memory_and_no_more_groups_than_a_bound(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "GROUPS", 3)
    kept = door.admissions._kept
    for number in range(4):
        token = door.server.mint.token(subject="u-alice-0001", groups=(f"g-{number}",))
        await door.admitted(request(named(token)))
        assert len(kept) == (number % 3) + 1
    assert all(len(key) == 32 for key in kept._values)


async def test_who_is_kept_again_counts_once(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "GROUPS", 3)
    tokens = [door.server.mint.token(subject="u-alice-0001", groups=(f"g-{number}",)) for number in range(2)]
    for _ in range(4):
        for token in tokens:
            await door.admitted(request(named(token)))
        assert all(door.knows(request(named(token))) for token in tokens)
        door.now += CACHE_LIFETIME


async def test_no_snapshot_stays_in_memory_for_who_came_while_it_was_in_force(door: Door) -> None:
    class Seen(Snapshot):
        """One that can be looked for."""

    snapshots, document = [], snapshot_of(door.server)
    for number in range(20):
        door.snapshot = Seen(document.directory, {}, document.ring, number)
        snapshots.append(ref(door.snapshot))
        for other in range(2):
            await door.admitted(request(named(door.token(jti=f"{number}/{other}"))))
    assert sum(one() is not None for one in snapshots) <= 3


async def test_who_is_refused_leaves_nothing_in_memory(door: Door) -> None:
    token = door.token("u-bob-0002")
    for number in range(50):
        for head in (named(f"{door.token()[:-4]}{number:04d}"), named(token, X_Saltgate_Collection=f"{number}")):
            with pytest.raises((InvalidToken, NotAMember)):
                await door.admitted(request(head))
    assert door.admissions._kept.held == 0


async def test_it_ends_at_the_very_second_of_the_token(door: Door) -> None:
    short = door.server.mint.token(subject="u-alice-0001", groups=(), lifetime=30.0)
    asked = request(named(short))
    await door.admitted(asked)
    for later in (29.999, 30.0, 30.001):
        door.now = NOW + later
        assert door.knows(asked) is (later < 30.0)


def any_head(tokens: list[str], random: Random) -> Request:
    """Lines that decide, in every form, order and number that a client may think of."""
    names = ("Authorization", "authorization", "x-api-key", "API-Key", "OpenAI-Organization", "openai-project")
    lines = []
    for _ in range(random.randint(0, 2)):
        token = random.choice(tokens)
        name = random.choice((*names, "X-Saltgate-Unit", "X-Saltgate-Collection", HEADER, "DPoP", "X-Other"))
        forms = (f"Bearer {token}", f"bearer {token}", f"DPoP {token}", f"Bearer  {token}", "Bearer", token, "")
        scopes = ("acme", "apollo", "globex", "ares", "", "acme ", "user", "project", "handbook", "acme\tapollo")
        shows_token = name.lower() in {"authorization", "x-api-key", "api-key"}
        lines.append((name, random.choice(forms if shows_token else scopes)))
    if random.random() < 0.7:
        lines.append(("Authorization", f"Bearer {random.choice(tokens)}"))
    base = random.choice(("", "", "/w/acme/p/apollo", "/w/acme/p/ares", "/w/globex/p/apollo", "/w/acme%0A/p/apollo"))
    return request(lines, base + CHAT)


async def test_whatever_came_before_a_head_is_let_in_or_refused_as_if_it_were_the_first(door: Door) -> None:
    random = Random(1)
    bound = door.token(cnf={"x5t#S256": base64url_digest(b"another")})
    tokens = [door.token(), door.token("u-bob-0002"), door.token(SERVICE), bound, "sgp_" + "a" * 40, "opaque"]
    fresh = replace(door.admissions, _kept=Kept(1))
    known, heads = 0, [any_head(tokens[:1] if random.random() < 0.8 else tokens, random) for _ in range(300)]
    for asked in random.choices(heads, k=900):
        known += door.knows(asked)
        assert await what_became(door.admissions, asked) == await what_became(fresh, asked)
        fresh._kept.forget()
    assert known > 100


async def what_became(admissions: Admissions, asked: Request) -> object:
    """As whom, and for what; or why not."""
    route, record = find_route(asked.method, asked.target), a_record()
    try:
        found = admissions.known(asked, route, record) or await admissions.found(asked, route, record)
    except Refusal as refusal:
        return type(refusal), refusal.message
    told = record.caller, record.workspace, record.project, record.collection
    return found.identity, found.named, found.scope, told
