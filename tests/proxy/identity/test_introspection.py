"""One issuer that is asked about opaque tokens, over real sockets: what is sent, believed and remembered."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from proxy.identity import Identity
from proxy.identity.confirmation import bearer
from proxy.identity.introspection import Bounds, Introspector
from proxy.identity.opaque import introspection_session, introspector
from proxy.identity.reasons import Reason
from proxy.refusals import InvalidToken, IssuerUnavailable, Unauthenticated
from tests.parts.introspection_server import INACTIVE, IntrospectionServer, http, until

NOW = 1_900_000_000.0
# Nothing opens by itself unless a test is about that.
PATIENT = Bounds(threshold=10**9)
HASTY = Bounds(timeout=0.15, threshold=10**9)
JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
ODD: dict[str, bytes] = {
    "nothing": b"",
    "no HTTP": b"garbage\r\n\r\n",
    "an endless header": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    "a body cut short": JSON + b'Content-Length: 99\r\n\r\n{"active":true,',
    "a chunk cut short": JSON + b"Transfer-Encoding: chunked\r\n\r\nff\r\n{",
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "a redirect": http(b"", status="307 Temporary Redirect", more="Location: /introspect\r\n"),
    "a page": http(b"<html>sign in</html>", media_type="text/html"),
    "the wrong media type": http(b'{"active":true}', media_type="text/plain"),
    "no media type": b'HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n{"active": true}',
    "gzip": http(gzip.compress(b'{"active":true}'), more="Content-Encoding: gzip\r\n"),
    "a coding that is not there": http(INACTIVE, more="Content-Encoding: br\r\n"),
    "too much": http(b'{"active":false,"x":"' + b"a" * 300_000 + b'"}'),
    "NaN": http(b'{"active":true,"exp":NaN}'),
    "a member twice": http(b'{"active":false,"active":true}'),
    "active as text": http(b'{"active":"true"}'),
    "active as a number": http(b'{"active":1}'),
    "no active": http(b'{"sub":"u-alice-0001"}'),
    "a list": http(b'[{"active":true}]'),
    "an error": http(b'{"error":"server_error"}', status="500 Internal Server Error"),
    "inactive, but an error": http(INACTIVE, status="500 Internal Server Error"),
    "unavailable": http(b"", status="503 Service Unavailable", more="Retry-After: 1\r\n"),
    "too many requests": http(b"", status="429 Too Many Requests"),
    "bad request": http(b'{"error":"invalid_request"}', status="400 Bad Request"),
    "wrong credentials": http(b'{"error":"invalid_client"}', status="401 Unauthorized"),
    "forbidden": http(b"", status="403 Forbidden"),
    "inactive, but forbidden": http(INACTIVE, status="403 Forbidden"),
}

UNFINISHED = {"nothing", "a body cut short", "a chunk cut short"}


class Clock:
    """Seconds that only a test moves."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        return self.seconds


@asynccontextmanager
async def asking(
    server: IntrospectionServer,
    bounds: Bounds = PATIENT,
    *,
    clock: Callable[[], float] = Clock(NOW),  # noqa: B008 - nobody moves it
    monotonic: Callable[[], float] = Clock(1000.0),  # noqa: B008
    tls: ssl.SSLContext | None = None,
    **settings: object,
) -> AsyncIterator[Introspector]:
    rules = server.issuer(**settings)  # type: ignore[arg-type]
    assert rules.introspection is not None
    async with (
        introspection_session() as session,
        introspector(
            rules, rules.introspection, session=session, clock=clock, monotonic=monotonic, tls=tls, bounds=bounds
        ) as opened,
    ):
        yield opened


@pytest.fixture
async def server() -> AsyncIterator[IntrospectionServer]:
    async with IntrospectionServer() as running:
        for name in ("alice", "bob"):
            running.active[f"token-of-{name}"] = running.claims(f"u-{name}", exp=int(NOW) + 300)
        yield running


async def refused(asked: Introspector, token: str) -> InvalidToken:
    with pytest.raises(InvalidToken) as caught:
        bearer(await asked.judged(token))
    return caught.value


async def unavailable(asked: Introspector, token: str) -> IssuerUnavailable:
    with pytest.raises(IssuerUnavailable) as caught:
        bearer(await asked.judged(token))
    assert caught.value.retry_after is not None
    assert caught.value.retry_after >= 1
    return caught.value


async def test_an_active_token_is_its_subject_and_another_is_nobody(server: IntrospectionServer) -> None:
    async with asking(server) as asked:
        identity = bearer(await asked.judged("token-of-alice"))
        assert (identity.issuer, identity.subject, identity.method) == (server.url, "u-alice", "introspection")
        assert (await refused(asked, "token-of-nobody")).reason == Reason.INACTIVE.value


async def test_the_token_is_in_the_body_and_nowhere_else(server: IntrospectionServer) -> None:
    token = "aA0-._~+/opaque=="
    async with asking(server) as asked:
        await refused(asked, token)
    question = server.questions[-1]
    assert question.form == {"token": token, "token_type_hint": "access_token"}
    assert question.target == "/introspect"
    assert token not in repr(question.headers.values())
    assert question.headers["content-type"] == "application/x-www-form-urlencoded"
    assert question.headers["accept"] == "application/json"
    assert question.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("name", ODD)
async def test_an_odd_answer_is_nobodys_fault_but_the_issuers(server: IntrospectionServer, name: str) -> None:
    async with asking(server) as asked:
        bearer(await asked.judged("token-of-bob"))
        server.raw_for["token-of-alice"] = ODD[name]
        if name in UNFINISHED:
            server.behaviour = "close_after"
        refusal = await unavailable(asked, "token-of-alice")
        assert "token" not in refusal.reason
        server.behaviour = "answer"
        del server.raw_for["token-of-alice"]
        # Nothing of it is remembered, and others were not touched.
        assert (bearer(await asked.judged("token-of-alice"))).subject == "u-alice"
        assert (bearer(await asked.judged("token-of-bob"))).subject == "u-bob"


@pytest.mark.parametrize("behaviour", ["hang", "drip", "close"])
async def test_an_issuer_that_does_not_come_to_an_end_is_not_waited_for(
    server: IntrospectionServer, behaviour: str
) -> None:
    server.behaviour = behaviour  # type: ignore[assignment]
    async with asking(server, HASTY) as asked:
        await unavailable(asked, "token-of-alice")


async def test_a_redirect_is_not_followed(server: IntrospectionServer) -> None:
    async with IntrospectionServer() as other:
        other.active["token-of-alice"] = other.claims("u-mallory", exp=int(NOW) + 300)
        server.raw = http(b"", status="307 Temporary Redirect", more=f"Location: {other.endpoint}\r\n")
        async with asking(server) as asked:
            await unavailable(asked, "token-of-alice")
        assert other.questions == []


async def test_a_token_of_another_kind_is_refused_and_not_the_issuers_fault(server: IntrospectionServer) -> None:
    server.raw = http(b'{"error":"unsupported_token_type"}', status="400 Bad Request")
    async with asking(server) as asked:
        await refused(asked, "token-of-alice")


async def test_a_connection_that_was_kept_open_and_is_closed_says_nothing(server: IntrospectionServer) -> None:
    server.behaviour = "close_reused"
    async with asking(server) as asked:
        for number in range(5):
            await refused(asked, f"t-{number}")
    assert len(server.asked) == 5  # what was sent into the closed connections did not count


# What is remembered, and for how long


async def test_an_active_token_is_asked_about_again_after_the_cache_time_and_not_before(
    server: IntrospectionServer,
) -> None:
    watch = Clock(1000.0)
    async with asking(server, monotonic=watch) as asked:
        for seconds, hits in ((0.0, 1), (29.9, 1), (30.1, 2), (59.9, 2), (60.2, 3)):
            watch.seconds = 1000.0 + seconds
            bearer(await asked.judged("token-of-alice"))
            assert server.hits["token-of-alice"] == hits


async def test_a_revoked_token_is_refused_within_the_cache_time(server: IntrospectionServer) -> None:
    watch = Clock(1000.0)
    async with asking(server, monotonic=watch, cache=10.0) as asked:
        bearer(await asked.judged("token-of-alice"))
        del server.active["token-of-alice"]
        watch.seconds += 9.9
        bearer(await asked.judged("token-of-alice"))
        watch.seconds += 0.2
        await refused(asked, "token-of-alice")


async def test_the_cache_time_begins_with_the_question_not_with_the_answer(server: IntrospectionServer) -> None:
    watch = Clock(1000.0)
    server.behaviour = "hang"
    async with asking(server, monotonic=watch) as asked:
        flight = asyncio.ensure_future(asked.judged("token-of-alice"))
        await until(lambda: server.asked == ["token-of-alice"])
        watch.seconds += 20
        server.behaviour = "answer"
        server.release()
        await flight
        watch.seconds += 10.1
        bearer(await asked.judged("token-of-alice"))
    assert server.hits["token-of-alice"] == 2


async def test_an_answer_serves_no_longer_than_the_token_lives(server: IntrospectionServer) -> None:
    watch, clock = Clock(1000.0), Clock(NOW)
    server.active["short"] = server.claims("u-alice", exp=int(NOW) + 3)
    async with asking(server, monotonic=watch, clock=clock) as asked:
        bearer(await asked.judged("short"))
        watch.seconds += 2.9
        clock.seconds += 2.9
        bearer(await asked.judged("short"))
        assert server.hits["short"] == 1
        watch.seconds += 0.2
        clock.seconds += 0.2
        bearer(await asked.judged("short"))
        assert server.hits["short"] == 2


async def test_a_wall_clock_that_is_set_back_lengthens_nothing(server: IntrospectionServer) -> None:
    watch, clock = Clock(1000.0), Clock(NOW)
    async with asking(server, monotonic=watch, clock=clock) as asked:
        bearer(await asked.judged("token-of-alice"))
        clock.seconds -= 3600
        watch.seconds += 30.1
        del server.active["token-of-alice"]
        await refused(asked, "token-of-alice")


async def test_a_token_within_the_leeway_only_is_asked_about_each_time(server: IntrospectionServer) -> None:
    server.active["over"] = server.claims("u-alice", exp=int(NOW) - 10)
    async with asking(server) as asked:
        bearer(await asked.judged("over"))
        bearer(await asked.judged("over"))
    assert server.hits["over"] == 2


async def test_a_refused_token_is_remembered_for_five_seconds(server: IntrospectionServer) -> None:
    watch = Clock(1000.0)
    async with asking(server, monotonic=watch) as asked:
        for seconds, hits in ((0.0, 1), (4.9, 1), (5.1, 2)):
            watch.seconds = 1000.0 + seconds
            await refused(asked, "token-of-nobody")
            assert server.hits["token-of-nobody"] == hits


@pytest.mark.parametrize("changes", [{"aud": "other"}, {"cnf": {"jkt": "x"}}, {"exp": int(NOW) - 60}], ids=str)
async def test_an_active_token_that_breaks_a_rule_is_refused_and_remembered_as_such(
    server: IntrospectionServer, changes: dict[str, object]
) -> None:
    server.active["token-of-alice"] |= changes
    async with asking(server) as asked:
        reasons = set()
        for _ in range(3):
            with pytest.raises(Unauthenticated) as caught:
                bearer(await asked.judged("token-of-alice"))
            reasons.add((type(caught.value), caught.value.reason, caught.value.message))
        assert len(reasons) == 1
    assert server.hits["token-of-alice"] == 1


async def test_that_the_issuer_failed_is_not_remembered(server: IntrospectionServer) -> None:
    server.raw = http(b"", status="500 Internal Server Error")
    async with asking(server) as asked:
        for _ in range(3):
            await unavailable(asked, "token-of-alice")
        server.raw = None
        bearer(await asked.judged("token-of-alice"))
    assert server.hits["token-of-alice"] == 4


async def test_tokens_with_a_long_common_beginning_never_share_an_identity(server: IntrospectionServer) -> None:
    start = "x" * 16_000
    for name in ("alice", "bob"):
        server.active[start + name] = server.claims(f"u-{name}", exp=int(NOW) + 300)
    async with asking(server) as asked:
        for _ in range(2):
            assert (bearer(await asked.judged(start + "alice"))).subject == "u-alice"
            assert (bearer(await asked.judged(start + "bob"))).subject == "u-bob"
            for wrong in (start, start + "mallory", start + "alic", start + "alicee", "x" + start + "alice"):
                await refused(asked, wrong)


async def test_the_memory_is_bounded_and_wrong_tokens_displace_no_good_one(server: IntrospectionServer) -> None:
    async with asking(server, replace(PATIENT, capacity=10)) as asked:
        bearer(await asked.judged("token-of-alice"))
        for number in range(50):
            await refused(asked, f"invented-{number}")
        bearer(await asked.judged("token-of-alice"))
        assert server.hits["token-of-alice"] == 1
        assert len(asked._good) <= 10
        assert len(asked._refused) == 10
        assert not asked._flights


async def test_a_remembered_token_is_known_without_waiting(server: IntrospectionServer) -> None:
    async with asking(server) as asked:
        first = bearer(await asked.judged("token-of-alice"))
        waiting = asked.judged("token-of-alice")
        with pytest.raises(StopIteration) as done:
            waiting.send(None)
        assert done.value.value is first


# One question for all who show the token


async def test_many_who_show_one_token_cost_one_question(server: IntrospectionServer) -> None:
    server.seconds = 0.05
    async with asking(server) as asked:
        identities = await asyncio.gather(*(asked.judged("token-of-alice") for _ in range(200)))
    assert {bearer(identity).subject for identity in identities} == {"u-alice"}
    assert server.hits["token-of-alice"] == 1


async def test_each_who_is_refused_gets_a_refusal_of_his_own(server: IntrospectionServer) -> None:
    async with asking(server) as asked:
        found = await asyncio.gather(*(asked.judged("wrong") for _ in range(10)), return_exceptions=True)
        found += await asyncio.gather(*(asked.judged("wrong") for _ in range(10)), return_exceptions=True)
    assert len({id(refusal) for refusal in found}) == 20
    assert server.hits["wrong"] == 1


async def test_who_leaves_does_not_take_away_the_answer_that_others_wait_for(server: IntrospectionServer) -> None:
    server.behaviour = "hang"
    async with asking(server) as asked:
        first, second, third = (asyncio.ensure_future(asked.judged("token-of-alice")) for _ in range(3))
        await until(lambda: server.asked == ["token-of-alice"])
        first.cancel()
        second.cancel()
        server.behaviour = "answer"
        server.release()
        assert bearer(await third).subject == "u-alice"
        assert first.cancelled()
    assert server.hits["token-of-alice"] == 1


async def test_that_all_have_left_does_not_spoil_the_next_one(server: IntrospectionServer) -> None:
    server.behaviour = "hang"
    async with asking(server) as asked:
        leaving = asyncio.ensure_future(asked.judged("token-of-alice"))
        await until(lambda: server.asked == ["token-of-alice"])
        leaving.cancel()
        await asyncio.sleep(0)
        server.behaviour = "answer"
        server.release()
        assert (bearer(await asked.judged("token-of-alice"))).subject == "u-alice"
    assert server.hits["token-of-alice"] == 1


# What a flood may cost


async def test_a_flood_of_wrong_tokens_asks_so_many_questions_at_once_and_no_more(server: IntrospectionServer) -> None:
    server.seconds = 0.02
    bounds = replace(PATIENT, questions=8, waiting=40)
    async with asking(server, bounds) as asked:
        await until(lambda: asked.ready)
        found = await asyncio.gather(*(asked.judged(f"wrong-{n}") for n in range(500)), return_exceptions=True)
    refusals = [type(refusal) for refusal in found]
    assert (refusals.count(InvalidToken), refusals.count(IssuerUnavailable)) == (40, 460)
    assert len(server.asked) == 40
    assert server.most_at_once <= 8


async def test_in_a_flood_those_who_were_there_before_have_turns_of_their_own(server: IntrospectionServer) -> None:
    watch = Clock(1000.0)
    async with asking(server, replace(PATIENT, questions=4, waiting=20), monotonic=watch) as asked:
        bearer(await asked.judged("token-of-alice"))
        watch.seconds += 31
        server.behaviour = "hang"
        flood = [asyncio.ensure_future(asked.judged(f"wrong-{n}")) for n in range(100)]
        await until(lambda: len(server.asked) == 5)
        alice = asyncio.ensure_future(asked.judged("token-of-alice"))
        await until(lambda: server.hits["token-of-alice"] == 2)
        server.behaviour = "answer"
        server.release()
        assert bearer(await alice).subject == "u-alice"
        await asyncio.gather(*flood, return_exceptions=True)


async def test_a_token_that_has_ended_has_no_such_turn_any_more(server: IntrospectionServer) -> None:
    watch = Clock(1000.0)
    async with asking(server, replace(PATIENT, questions=1, waiting=1), monotonic=watch) as asked:
        bearer(await asked.judged("token-of-alice"))
        watch.seconds += 31
        del server.active["token-of-alice"]
        await refused(asked, "token-of-alice")
        watch.seconds += 6
        server.behaviour = "hang"
        first = asyncio.ensure_future(asked.judged("wrong"))
        await until(lambda: "wrong" in server.asked)
        assert (await unavailable(asked, "token-of-alice")).reason == "introspection_busy"
        server.behaviour = "answer"
        server.release()
        await asyncio.gather(first, return_exceptions=True)


async def test_who_gets_no_turn_in_time_is_told_so_and_the_issuer_is_not_blamed(server: IntrospectionServer) -> None:
    server.behaviour = "hang"
    async with asking(server, replace(HASTY, questions=1, threshold=2, timeout=0.2)) as asked:
        found = await asyncio.gather(*(asked.judged(f"t-{n}") for n in range(4)), return_exceptions=True)
        reasons = [refusal.reason for refusal in found if isinstance(refusal, IssuerUnavailable)]
        assert len(reasons) == 4
        assert "introspection_busy" in reasons


# The breaker

BREAKING = Bounds(timeout=0.2, threshold=3, first_pause=0.05, longest_pause=0.1)


async def test_an_issuer_that_is_away_is_not_asked_for_callers_and_heals_by_itself(
    server: IntrospectionServer,
) -> None:
    async with asking(server, BREAKING) as asked:
        bearer(await asked.judged("token-of-alice"))
        server.raw, server.probes_too = http(b"", status="503 Service Unavailable"), True
        for number in range(3):
            assert (await unavailable(asked, f"t-{number}")).reason == "introspection_failed"
        await until(lambda: not asked.ready)
        before = len(server.asked)
        for number in range(50):
            assert (await unavailable(asked, f"u-{number}")).reason == "introspection_away"
        assert len(server.asked) == before
        with pytest.raises(IssuerUnavailable):
            asked.judged("at-once").send(None)  # without waiting for anything
        assert (bearer(await asked.judged("token-of-alice"))).subject == "u-alice"  # still remembered
        server.raw = None
        await until(lambda: asked.ready)
        assert (bearer(await asked.judged("token-of-bob"))).subject == "u-bob"


async def test_an_outage_costs_the_issuer_one_probe_a_pause(server: IntrospectionServer) -> None:
    server.raw, server.probes_too = http(b"", status="503 Service Unavailable"), True
    async with asking(server, replace(BREAKING, first_pause=0.1, longest_pause=0.1)) as asked:
        await until(lambda: server.probes >= 2)
        began, probes = asyncio.get_running_loop().time(), server.probes
        while server.probes < probes + 3:
            with pytest.raises(IssuerUnavailable):
                bearer(await asked.judged("token-of-alice"))
            await asyncio.sleep(0)
        assert asyncio.get_running_loop().time() - began >= 0.2
    assert server.asked == []
    assert server.most_at_once == 1


async def test_a_token_on_which_the_issuer_stumbles_shuts_out_nobody(server: IntrospectionServer) -> None:
    server.raw_for["poison"] = http(b"", status="500 Internal Server Error")
    async with asking(server, BREAKING) as asked:
        for number in range(20):
            await unavailable(asked, "poison")
            await asyncio.sleep(0)
            with pytest.raises(InvalidToken):
                bearer(await asked.judged(f"somebody-{number}"))
        probes = server.probes
        for _ in range(20):
            await unavailable(asked, "poison")
        await until(lambda: server.probes > probes)
        assert (bearer(await asked.judged("token-of-alice"))).subject == "u-alice"
        assert asked.ready


async def test_while_there_is_a_doubt_nobody_is_asked_for_a_caller(server: IntrospectionServer) -> None:
    async with asking(server, replace(BREAKING, timeout=0.5)) as asked:
        await until(lambda: asked.ready)
        server.raw_for |= dict.fromkeys(("a", "b", "c"), http(b"", status="500 Internal Server Error"))
        server.behaviour, server.probes_too = "hang", True
        probes = server.probes
        failing = [asyncio.ensure_future(asked.judged(token)) for token in ("a", "b", "c")]
        await until(lambda: server.asked == ["a", "b", "c"])
        server.release()
        await until(lambda: server.probes > probes)
        waiting = asyncio.ensure_future(asked.judged("token-of-alice"))
        await asyncio.sleep(0.02)
        assert server.hits["token-of-alice"] == 0
        server.behaviour = "answer"
        server.release()
        assert bearer(await waiting).subject == "u-alice"
        await asyncio.gather(*failing, return_exceptions=True)


async def test_an_issuer_that_calls_everything_active_is_believed_nothing(server: IntrospectionServer) -> None:
    server.raw, server.probes_too = http(json.dumps(server.claims("u-alice", exp=int(NOW) + 300)).encode()), True
    async with asking(server, BREAKING) as asked:
        await unavailable(asked, "anything")
        assert not asked.ready
    assert server.asked == []


async def test_at_start_callers_wait_for_the_first_probe(server: IntrospectionServer) -> None:
    server.seconds = 0.05
    async with asking(server) as asked:
        assert not asked.ready
        assert (bearer(await asked.judged("token-of-alice"))).subject == "u-alice"
        assert asked.ready


async def test_it_starts_also_while_the_issuer_is_away(server: IntrospectionServer) -> None:
    await server.stop()
    async with asking(server, BREAKING) as asked:
        await unavailable(asked, "token-of-alice")
        await server.start()
        await until(lambda: asked.ready)
        assert (bearer(await asked.judged("token-of-alice"))).subject == "u-alice"


async def test_closing_leaves_no_task_behind(server: IntrospectionServer) -> None:
    before = asyncio.all_tasks()
    server.behaviour = "hang"
    async with asking(server) as asked:
        waiting = asyncio.ensure_future(asked.judged("token-of-alice"))
        await until(lambda: server.asked == ["token-of-alice"])
    await asyncio.gather(waiting, return_exceptions=True)
    server.release()
    names = {task.get_coro().__qualname__ for task in asyncio.all_tasks() - before}  # type: ignore[union-attr]
    assert not any("Introspector" in name for name in names)


# What the log hears


@pytest.mark.parametrize("name", ODD)
async def test_the_log_never_holds_a_token_also_where_the_issuer_repeats_it(
    server: IntrospectionServer, name: str
) -> None:
    token = "very-secret-token"
    odd = ODD[name].replace(b"garbage", token.encode()).replace(b"X: a", f"{token}: {token}".encode() + b" a")
    server.raw_for[token] = odd.replace(b"HTTP/1.1 5", f"HTTP/1.1 5 {token}".encode())
    if name in UNFINISHED:
        server.behaviour = "close_after"
    with capture_logs() as logs:
        async with asking(server) as asked:
            refusal = await unavailable(asked, token)
    assert [entry["event"] for entry in logs] == ["introspection_failed"]
    for shown in (repr(logs), refusal.message, refusal.reason, repr(refusal), repr(refusal.__cause__)):
        assert token not in shown
        assert "introspection-password" not in shown


async def test_the_same_failure_is_told_once_a_minute(server: IntrospectionServer) -> None:
    watch = Clock(1000.0)
    server.raw = http(b"", status="500 Internal Server Error")
    with capture_logs() as logs:
        async with asking(server, monotonic=watch) as asked:
            for seconds, lines in ((0, 1), (30, 1), (59, 1), (61, 2), (62, 2)):
                watch.seconds = 1000.0 + seconds
                await unavailable(asked, f"t-{seconds}")
                assert len(logs) == lines


async def test_failures_that_alternate_do_not_fill_the_log(server: IntrospectionServer) -> None:
    server.raw_for["a"] = http(b"", status="500 Internal Server Error")
    server.raw_for["b"] = http(b"", status="502 Bad Gateway")
    with capture_logs() as logs:
        async with asking(server) as asked:
            for _ in range(20):
                await unavailable(asked, "a")
                await unavailable(asked, "b")
    assert len(logs) == 2


async def test_a_fault_of_ours_lets_nobody_in_and_tells_the_log_where_it_is(server: IntrospectionServer) -> None:
    def broken_clock() -> float:
        raise RuntimeError("clock at very-secret-token")

    with capture_logs() as logs:
        async with asking(server, clock=broken_clock) as asked:
            await unavailable(asked, "token-of-alice")
    assert "RuntimeError at test_introspection.py" in str(logs)
    assert "very-secret-token" not in str(logs)


async def test_discovery_gives_the_endpoint(server: IntrospectionServer) -> None:
    async with asking(server, endpoint=None) as asked:
        assert (bearer(await asked.judged("token-of-alice"))).subject == "u-alice"


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "{url}/", "introspection_endpoint": "{url}/introspect"},
        {"issuer": "https://other.example", "introspection_endpoint": "{url}/introspect"},
        {"introspection_endpoint": "{url}/introspect"},
        {"issuer": "{url}"},
        {"issuer": "{url}", "introspection_endpoint": 5},
        {"issuer": "{url}", "introspection_endpoint": "http://sso.example.test/introspect"},
        {"issuer": "{url}", "introspection_endpoint": "file:///etc/passwd"},
        {"issuer": "{url}", "introspection_endpoint": "http://u:p@127.0.0.1/introspect"},
    ],
    ids=str,
)
async def test_metadata_that_does_not_hold_gives_no_endpoint(
    server: IntrospectionServer, metadata: dict[str, object]
) -> None:
    written = {k: v.format(url=server.url) if isinstance(v, str) else v for k, v in metadata.items()}
    server.discovery = json.dumps(written).encode()
    async with asking(server, endpoint=None) as asked:
        await unavailable(asked, "token-of-alice")
    assert server.questions == []


async def test_an_endpoint_that_moved_is_found_again(server: IntrospectionServer) -> None:
    async with IntrospectionServer() as other:
        other.active["token-of-alice"] = other.claims("u-alice", exp=int(NOW) + 300)
        async with asking(server, BREAKING, endpoint=None) as asked:
            await until(lambda: asked.ready)
            moved = {"issuer": server.url, "introspection_endpoint": other.endpoint}
            server.discovery = json.dumps(moved).encode()
            server.raw = http(b"", status="404 Not Found")
            found: list[Identity] = []
            async with asyncio.timeout(10):
                while not found:
                    try:
                        found.append(bearer(await asked.judged("token-of-alice")))
                    except IssuerUnavailable:
                        await asyncio.sleep(0.01)
            assert found[0].subject == "u-alice"


async def test_the_token_goes_to_whom_the_configured_authority_vouches_for_and_to_nobody_else(
    authority: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    server_tls, client_tls = authority
    async with IntrospectionServer(tls=server_tls) as server:
        server.active["token-of-alice"] = server.claims("u-alice", exp=int(NOW) + 300)
        async with asking(server, tls=client_tls, endpoint=None) as asked:
            assert (bearer(await asked.judged("token-of-alice"))).subject == "u-alice"
        server.questions.clear()
        with capture_logs() as logs:
            async with asking(server) as asked:
                await unavailable(asked, "token-of-alice")
        assert server.questions == []
        assert "certificate is not accepted" in str(logs)


async def test_an_https_issuer_cannot_send_us_to_http_with_a_token(
    authority: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    server_tls, client_tls = authority
    async with IntrospectionServer(tls=server_tls) as server, IntrospectionServer() as plain:
        server.discovery = json.dumps({"issuer": server.url, "introspection_endpoint": plain.endpoint}).encode()
        async with asking(server, tls=client_tls, endpoint=None) as asked:
            await unavailable(asked, "token-of-alice")
        assert plain.questions == []
