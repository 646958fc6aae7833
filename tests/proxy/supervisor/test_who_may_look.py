"""Whoever tries to see the administrators' pages without being let in, at a real listener: rebinding, other origins,
replayed and foreign tickets, stolen cookies, people who are no administrators any more.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest

from observability.history.history import Bounds, History
from proxy.pages import assets
from proxy.plan import Plan
from proxy.questions import Judged, MayLook, Question, ReplicaStatus, Status, WhoLooks
from proxy.supervisor.admin import admin_listener
from proxy.supervisor.gathering import Gathering
from proxy.supervisor.page_routes import Site
from proxy.supervisor.shown import Shown
from proxy.supervisor.visitors import MOST_SESSIONS, SESSION_SECONDS, Visitors
from proxy.ticket import TICKET_SECONDS, Holder, new_ticket, ticket_key
from tests.observability.history.summaries import summary
from tests.parts.redis_server import free_port

KEY = ticket_key(b"a secret of thirty-two bytes, or more")
PERSON = Holder("Alice", b'{"issuer":"https://i"}', "session-key")
OPERATOR = Holder("operator")
START = 1_700_000_000.0


class Gate:
    """The supervisor, as the pages know it. `verdict` is what workers say of people; None: none answers."""

    metrics_token: bytes | None = None
    admin_origin: str | None = None
    size = 2
    is_draining = False

    def __init__(self, origin: str | None) -> None:
        self.now = START
        self.verdict: Judged | None = Judged("yes", "u-alice-0001")
        self.questions: list[MayLook | WhoLooks] = []
        self.gathering = Gathering(History(Bounds(scopes=100, recent=100), since=START), lambda: self.now)
        self.plan = Plan(
            public="", admin="", workers=1, drain_seconds=1.0, metrics_token=None, fixed={}, packed=b"",
            admin_origin=origin, admin_keys=(KEY,),
        )  # fmt: skip

    async def ask(self, question: bytes) -> bytes | None:
        asked = msgspec.msgpack.decode(question, type=Question)
        assert isinstance(asked, MayLook | WhoLooks)
        self.questions.append(asked)
        return None if self.verdict is None else msgspec.msgpack.encode(self.verdict)

    async def ask_all(self, question: bytes) -> list[bytes | None]:
        told = Status((), 0, (ReplicaStatus("main", "http://e", True, {"chat": "failed"}),))
        return [msgspec.msgpack.encode(told), b"of another version"]

    def violations(self) -> Counter[str]:
        return Counter({"salt_in_answer": 1})

    async def waits_for(self) -> list[str]:
        return []

    async def metrics(self, *, open_metrics: bool) -> Iterator[str]:
        return iter(("# EOF\n",))


class Bed:
    def __init__(self, gate: Gate, session: aiohttp.ClientSession, port: int) -> None:
        self.gate = gate
        self.session = session
        self.port = port
        self.origin = f"http://127.0.0.1:{port}"

    def ticket(self, holder: Holder = OPERATOR, **changes: Any) -> str:
        named: dict[str, Any] = {"audience": self.gate.plan.admin_origin, "now": self.gate.now} | changes
        return new_ticket(named.pop("key", KEY), holder, **named)

    async def enter(self, ticket: str, **headers: str) -> tuple[int, str, str]:
        """The status, and where it went well the cookie and the key."""
        sent = {"Origin": self.origin} | headers
        async with self.session.post(f"{self.origin}/sign-in", json={"ticket": ticket}, headers=sent) as answer:
            document = json.loads(await answer.read())
            if answer.status != 200:
                return answer.status, "", document["error"]["code"]
            cookie = next(iter(answer.headers.getall("Set-Cookie"))).partition(";")[0]
            return 200, cookie, document["key"]

    async def get(
        self, path: str, cookie: str = "", key: str = "", **headers: str
    ) -> tuple[int, Mapping[str, str], bytes]:
        sent = {"Cookie": cookie, "X-Saltgate-Key": key} if cookie or key else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.get(self.origin + path, headers=sent, allow_redirects=False) as answer:
            return answer.status, answer.headers, await answer.read()

    async def status(self, path: str, cookie: str = "", key: str = "", **headers: str) -> int:
        return (await self.get(path, cookie, key, **headers))[0]


@asynccontextmanager
async def _bed(
    origin: str | None = "",
) -> AsyncIterator[Bed]:
    port = free_port()
    gate = Gate(f"http://127.0.0.1:{port}" if origin == "" else origin)
    shown = Shown(gate, clock=lambda: gate.now, monotonic=time.monotonic)
    site = Site(Visitors(gate, clock=lambda: gate.now), shown, lambda: gate.plan.admin_origin)
    async with (
        admin_listener(f"127.0.0.1:{port}", gate, site.routes()),
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
    ):
        yield Bed(gate, session, port)


@pytest.fixture
async def bed() -> AsyncIterator[Bed]:
    async with _bed() as made:
        yield made


DATA = ("/api/overview", "/api/scopes/acme/apollo", "/api/requests/req_1")


async def test_an_operator_with_a_ticket_sees_everything(bed: Bed) -> None:
    known = summary()
    bed.gate.gathering.history.add(known, START)
    status, cookie, key = await bed.enter(bed.ticket())
    assert status == 200
    for path in ("/api/overview?window=24h", "/api/scopes/acme/apollo", f"/api/requests/{known.request_id}"):
        status, headers, body = await bed.get(path, cookie, key)
        assert status == 200, path
        told = json.loads(body)
        assert told["viewer"] == {"name": "operator", "sign_out": "/sign-out", "form_token": key}
        assert told["now"] >= START
        assert {one["check"]: one["count"] for one in told["alarms"]}["salt_in_answer"] == 1, "on every page"
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "Access-Control-Allow-Origin" not in headers
    view = json.loads((await bed.get("/api/overview", cookie, key))[2])
    assert view["total"]["requests"] == 1
    assert [(one["check"], one["count"]) for one in view["alarms"]] == [
        ("engine_proof_failed", 1),
        ("salt_in_answer", 1),
    ]
    assert view["gate"]["waits_for"] == ["workers"], "one of them told nothing that is understood"
    assert await bed.status("/", cookie) == 200


@pytest.mark.parametrize("path", DATA)
async def test_nobody_sees_data_without_cookie_and_key(bed: Bed, path: str) -> None:
    _, cookie, key = await bed.enter(bed.ticket())
    _, other_cookie, other_key = await bed.enter(bed.ticket())
    name = cookie.partition("=")[0]
    for shown in (
        {},
        {"cookie": cookie},  # as another port of this host gets it
        {"key": key},
        {"cookie": cookie, "key": other_key},
        {"cookie": f"{name}=x", "key": key},
        {"cookie": f"{cookie}; {other_cookie}", "key": key},  # which of them counts is nobody's to choose
        {"cookie": f"saltgate-8080={cookie.partition('=')[2]}", "key": key},  # the public listener's
    ):
        status, _, body = await bed.get(path, **shown)
        assert status == 401, shown
        assert json.loads(body)["sign_in"] == "/sign-in"


async def test_who_has_not_come_in_is_led_to_the_sign_in_from_every_page(bed: Bed) -> None:
    for path in ("/", "/scopes/acme/apollo", "/requests/req_1"):
        status, headers, body = await bed.get(path)
        assert (status, headers["Location"], body) == (303, f"/sign-in?return_to={path}", b"")
    status, headers, _ = await bed.get("/sign-in")
    assert status == 200
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")


async def test_metrics_token_and_open_pages_give_nothing_else(bed: Bed) -> None:
    bed.gate.metrics_token = b"scraper"
    assert await bed.status("/metrics", Authorization="Bearer scraper") == 200
    bed.gate.verdict = Judged("nobody")
    assert await bed.status("/api/overview", Authorization="Bearer scraper") == 401
    assert await bed.status("/healthz", Host="anything.example") == 200


async def test_a_ticket_is_good_once(bed: Bed) -> None:
    ticket = bed.ticket()
    assert (await bed.enter(ticket))[0] == 200
    assert await bed.enter(ticket) == (401, "", "ticket_not_good")
    padded = ticket + "=" * (-len(ticket) % 4)
    assert (await bed.enter(padded))[0] == 401


@pytest.mark.parametrize(
    "changes",
    [
        {"audience": "http://127.0.0.1:1"},
        {"audience": "https://admin.example.com"},
        {"key": ticket_key(b"the secret of another gate, as long")},
        {"key": b""},
        {"now": START - TICKET_SECONDS - 1},
        {"now": START + 60},
        {"now": START - 0.001},  # made before this process began: it may have been used
    ],
)
async def test_a_ticket_of_another_gate_or_time_is_none(bed: Bed, changes: dict[str, Any]) -> None:
    assert await bed.enter(bed.ticket(**changes)) == (401, "", "ticket_not_good")


async def test_what_is_no_ticket_is_none(bed: Bed) -> None:
    good = bed.ticket()
    changed = good[:60] + ("A" if good[60] != "A" else "B") + good[61:]
    for text in ("", "x", "=", "é", "A" * 43, changed, good[:-4], good + "AAAA", "A" * 70_000):
        assert (await bed.enter(text))[0] == 401, text[:20]
    for body, kind, status in (
        (b"[]", "application/json", 400),
        (b"{", "application/json", 400),
        (b'{"ticket": 1}', "application/json", 400),
        (good.encode(), "text/plain", 415),
        (b"x" * 200_000, "application/json", 413),
    ):
        headers = {"Origin": bed.origin, "Content-Type": kind}
        async with bed.session.post(f"{bed.origin}/sign-in", data=body, headers=headers) as answer:
            assert answer.status == status


@pytest.mark.parametrize(
    "host",
    [
        "attacker.example",
        "localhost.attacker.example",
        "127.0.0.1.attacker.example",
        "127.0.0.2",
        "attacker.example:80@localhost",
        "localhost:99999999",
        "localhost:80:80",
        "0.0.0.0",
        "[::]",
        "[::ffff:127.0.0.1]",
        "",
    ],
)
async def test_a_name_that_was_made_to_lead_here_shows_nothing(bed: Bed, host: str) -> None:
    _, cookie, key = await bed.enter(bed.ticket())
    for path in ("/", "/sign-in", "/assets/app.js", *DATA):
        assert await bed.status(path, cookie, key, Host=host) in (400, 421), path
    status, _, _ = await bed.enter(bed.ticket(), Host=host, Origin=f"http://{host}")
    assert status in (400, 421)


async def test_this_machine_has_three_names_at_any_port(bed: Bed) -> None:
    """A tunnel ends at another one. The cookie's name is that of the port that the browser sees."""
    for host in ("localhost:19080", "LOCALHOST:19080", "[::1]:19080", "127.0.0.1:19080"):
        origin = f"http://{host.lower()}"
        status, cookie, key = await bed.enter(bed.ticket(), Host=host, Origin=origin)
        assert (status, cookie.partition("=")[0]) == (200, "saltgate-admin-19080")
        assert await bed.status("/api/overview", cookie, key, Host=host) == 200


async def test_the_configured_address_has_a_cookie_that_no_other_host_can_set() -> None:
    async with _bed("https://admin.example.com") as bed:
        host = {"Host": "admin.example.com", "Origin": "https://admin.example.com"}
        sent = host | {"Content-Type": "application/json"}
        document = json.dumps({"ticket": bed.ticket()})
        async with bed.session.post(f"{bed.origin}/sign-in", data=document, headers=sent) as answer:
            line = answer.headers["Set-Cookie"]
            key = (await answer.json())["key"]
        assert line.startswith("__Host-saltgate-admin=")
        for part in ("HttpOnly", "SameSite=Strict", "Secure", "Path=/", "Max-Age=43200"):
            assert part in line
        assert "Domain" not in line
        assert await bed.status("/api/overview", line.partition(";")[0], key, Host="admin.example.com") == 200
        for wrong in ("admin.example.com:8443", "example.com", "admin.example.com.evil"):
            assert await bed.status("/api/overview", line.partition(";")[0], key, Host=wrong) == 421
        assert (await bed.enter(bed.ticket(), **(host | {"Origin": "http://admin.example.com"})))[0] == 403


async def test_without_an_address_there_is_no_way_in() -> None:
    async with _bed(None) as bed:
        assert (await bed.enter(new_ticket(KEY, OPERATOR, audience="None", now=START)))[0] == 401
        assert await bed.status("/api/overview") == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://attacker.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},  # another program on this machine: the same site, another origin
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "none"},
    ],
)
async def test_no_page_of_another_origin_signs_anybody_in_or_out(bed: Bed, headers: dict[str, str]) -> None:
    assert await bed.enter(bed.ticket(), **headers) == (403, "", "other_origin")
    _, cookie, key = await bed.enter(bed.ticket())
    sent = {"Origin": bed.origin, "Cookie": cookie, "X-Saltgate-Key": key} | headers
    async with bed.session.post(f"{bed.origin}/sign-out", headers=sent) as answer:
        assert answer.status == 403
    assert await bed.status("/api/overview", cookie, key) == 200


async def test_what_changes_something_needs_an_origin(bed: Bed) -> None:
    async with bed.session.post(f"{bed.origin}/sign-in", json={"ticket": bed.ticket()}) as answer:
        assert answer.status == 403


@pytest.mark.parametrize("site", ["same-site", "cross-site"])
async def test_no_page_of_another_origin_asks_for_data(bed: Bed, site: str) -> None:
    _, cookie, key = await bed.enter(bed.ticket())
    for path in DATA:
        status, headers, _ = await bed.get(path, cookie, key, Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate")
        assert status == 403
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert await bed.status("/assets/app.js", Sec_Fetch_Site=site, Sec_Fetch_Mode="no-cors") == 403
    assert await bed.status("/", cookie, Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate") == 200, "a link is one"


@pytest.mark.parametrize("origin", ["http://attacker.example", "null", "http://localhost:3000", "", "HTTP://127.0.0.1"])
async def test_no_page_that_names_another_origin_is_answered_whatever_it_shows(bed: Bed, origin: str) -> None:
    """Also where no `Sec-Fetch-Site` says so: not every browser tells that, and not on plain http."""
    _, cookie, key = await bed.enter(bed.ticket())
    for path in (*DATA, "/", "/sign-in", "/assets/app.js"):
        assert await bed.status(path, cookie, key, Origin=origin) == 403, path
        assert await bed.status(path, cookie, key, Origin=origin, Sec_Fetch_Site="same-origin") == 403, path
    bearer = {"Authorization": "Bearer token"}
    assert await bed.status("/api/overview", Origin=origin, **bearer) == 403
    assert await bed.status("/api/overview", cookie, key, Origin=bed.origin) == 200
    assert await bed.status("/api/overview", **bearer) == 200


async def test_a_person_is_asked_about_each_time(bed: Bed) -> None:
    status, cookie, key = await bed.enter(bed.ticket(PERSON))
    assert status == 200
    assert await bed.status("/api/overview", cookie, key) == 200
    assert bed.gate.questions == [MayLook(PERSON.identity, PERSON.session)] * 2
    bed.gate.verdict = None
    assert await bed.status("/api/overview", cookie, key) == 503
    bed.gate.verdict = Judged("unknown")
    assert await bed.status("/api/overview", cookie, key) == 503
    bed.gate.verdict = Judged("yes")
    assert await bed.status("/api/overview", cookie, key) == 200, "not knowing ends nothing"


@pytest.mark.parametrize(("verdict", "expected"), [("no", 403), ("nobody", 401)])
async def test_who_is_no_administrator_any_more_is_out_for_good(bed: Bed, verdict: Any, expected: int) -> None:
    _, cookie, key = await bed.enter(bed.ticket(PERSON))
    bed.gate.verdict = Judged(verdict)
    assert await bed.status("/api/overview", cookie, key) == expected
    bed.gate.verdict = Judged("yes")
    assert await bed.status("/api/overview", cookie, key) == 401, "the session has ended"
    assert await bed.status("/", cookie) == 303


@pytest.mark.parametrize(("verdict", "expected"), [("no", 403), ("nobody", 401), ("unknown", 503)])
async def test_a_good_ticket_of_who_may_not_look_opens_nothing(bed: Bed, verdict: Any, expected: int) -> None:
    bed.gate.verdict = Judged(verdict)
    assert (await bed.enter(bed.ticket(PERSON)))[0] == expected


async def test_a_credential_of_an_administrator_counts_for_data_alone(bed: Bed) -> None:
    status, _, body = await bed.get("/api/overview", Authorization="Bearer token")
    assert (status, json.loads(body)["viewer"]["name"]) == (200, "u-alice-0001")
    asked = bed.gate.questions[0]
    assert isinstance(asked, WhoLooks)
    assert ("Authorization", "Bearer token") in asked.headers
    bed.gate.verdict = Judged("no")
    _, cookie, key = await bed.enter(bed.ticket())
    assert await bed.status("/api/overview", cookie, key, Authorization="Bearer token") == 403
    assert await bed.status("/", Authorization="Bearer token") == 303


async def test_a_session_ends(bed: Bed) -> None:
    _, cookie, key = await bed.enter(bed.ticket())
    bed.gate.now += SESSION_SECONDS - 1
    assert await bed.status("/api/overview", cookie, key) == 200
    bed.gate.now += 1
    assert await bed.status("/api/overview", cookie, key) == 401


@pytest.mark.parametrize("in_form", [True, False])
async def test_who_signs_out_is_out(bed: Bed, in_form: bool) -> None:
    _, cookie, key = await bed.enter(bed.ticket())
    shown = {"data": {"form_token": key}} if in_form else {}
    headers = {"Origin": bed.origin, "Cookie": cookie} | ({} if in_form else {"X-Saltgate-Key": key})
    async with bed.session.post(f"{bed.origin}/sign-out", headers=headers, allow_redirects=False, **shown) as answer:  # type: ignore[arg-type]
        assert (answer.status, answer.headers["Location"]) == (303, "/sign-in")
        assert "Max-Age=0" in answer.headers["Set-Cookie"]
    assert await bed.status("/api/overview", cookie, key) == 401


async def test_a_cookie_alone_signs_nobody_out(bed: Bed) -> None:
    _, cookie, key = await bed.enter(bed.ticket())
    async with bed.session.post(f"{bed.origin}/sign-out", headers={"Origin": bed.origin, "Cookie": cookie}) as answer:
        assert answer.status == 401
    assert await bed.status("/api/overview", cookie, key) == 200


async def test_who_comes_in_again_ends_his_session_before(bed: Bed) -> None:
    _, cookie, key = await bed.enter(bed.ticket())
    assert (await bed.enter(bed.ticket(), Cookie=cookie))[0] == 200
    assert await bed.status("/api/overview", cookie, key) == 401


async def test_sessions_are_bounded() -> None:
    gate = Gate("http://127.0.0.1:9080")
    visitors = Visitors(gate, clock=lambda: gate.now)
    entries = [
        await visitors.enter(new_ticket(KEY, OPERATOR, audience="http://127.0.0.1:9080", now=START))
        for _ in range(MOST_SESSIONS + 1)
    ]
    assert not visitors.has_cookie(entries[0].cookie)
    assert visitors.has_cookie(entries[1].cookie)
    gate.now += 3600
    await visitors.enter(new_ticket(KEY, OPERATOR, audience="http://127.0.0.1:9080", now=gate.now))
    assert len(visitors._used) == 1


@pytest.mark.parametrize(
    "path",
    [
        "/api/scopes/acme/apollo/",
        "/api/scopes/acme%2Fapollo/x",
        "/api/scopes/../overview",
        "/api/scopes/acme/<script>",
        "/api/scopes/acme/%3Cscript%3E",
        "/api/scopes/__other__/__other__",
        "/api/scopes/ACME/apollo",
        f"/api/scopes/acme/{'a' * 64}",
        "/api/requests/../overview",
        "/api/requests/%2e%2e",
        f"/api/requests/{'a' * 65}",
        "/api",
        "/api/",
        "//api/overview",
        "/assets/../__init__.py",
        "/assets/%2e%2e%2f__init__.py",
        "/assets/..%2f..%2fplan.py",
        "/assets/%00",
        "/assets/",
        "/assets/index.html",
        "/assets/sign-in.html",
        "/index.html",
    ],
)
async def test_no_other_path_leads_anywhere(bed: Bed, path: str) -> None:
    from yarl import URL

    _, cookie, key = await bed.enter(bed.ticket())
    headers = {"Cookie": cookie, "X-Saltgate-Key": key}
    target = URL(bed.origin + path, encoded=True)
    async with bed.session.get(target, headers=headers, allow_redirects=False) as answer:
        assert answer.status in (400, 404), await answer.text()


async def test_a_huge_or_unknown_query_is_refused_or_ignored(bed: Bed) -> None:
    _, cookie, key = await bed.enter(bed.ticket())
    assert await bed.status("/api/overview?window=" + "9" * 20_000, cookie, key) == 400
    assert await bed.status("/api/overview?window=1000h", cookie, key) == 400
    assert await bed.status("/api/overview?window=1h&x=" + "y" * 4000, cookie, key) == 200


async def test_names_that_hold_html_are_data_and_nothing_else(bed: Bed) -> None:
    name = "</script><img src=x onerror=alert(1)>"
    bed.gate.gathering.history.add(summary(model=name), START)
    _, cookie, key = await bed.enter(bed.ticket())
    status, headers, body = await bed.get("/api/scopes/acme/apollo", cookie, key)
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body)["models"][0]["model"] == name


async def test_data_that_is_the_same_is_not_sent_again_and_much_is_sent_small(bed: Bed) -> None:
    for number in range(90):
        bed.gate.gathering.history.add(summary(project=f"p{number}"), START)
    _, cookie, key = await bed.enter(bed.ticket())
    _, headers, body = await bed.get("/api/overview", cookie, key)
    assert headers["Content-Encoding"] == "gzip"
    assert len(json.loads(body)["workspaces"][0]["projects"]) == 90
    assert int(headers["Content-Length"]) < len(body) / 5
    status, _, body = await bed.get("/api/overview", cookie, key, If_None_Match=headers["ETag"])
    assert (status, body) == (304, b"")


async def test_assets_are_told_by_their_type_and_are_kept(bed: Bed) -> None:
    for name, asset in assets().items():
        if name.endswith(".html"):
            continue
        status, headers, body = await bed.get(f"/assets/{name}")
        assert (status, headers["Content-Type"], body) == (200, asset.content_type, asset.body)
        assert await bed.status(f"/assets/{name}", If_None_Match=asset.etag) == 304
