"""From a `StampedRequest` to a finished answer: choose a replica, run the exchange, draw the conclusion.

Nothing that an engine may have begun is sent again, with one exception that is no second run: a connection that had
waited for its next request was closed by the engine while the request was on its way (the keep-alive race, RFC 9112
section 9.3.1). Then the request goes once more, on a new connection; but not where the engine had taken all of it
before it closed, nor behind TLS, where nobody can tell. It goes to another replica where none could be made, and where
one broke before the request was written whole: no engine computes a JSON document that has no
end. An answer is never such a case, 503 neither: vLLM gives it at the door, but also for a request that failed while it
ran, and for several prompts of which the first had been taken (vllm/exceptions.py, vllm/v1/engine/async_llm.py).
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import structlog

from observability.names import IsolationCheck, Outcome
from observability.record import Record
from proxy.accounting import Accounted
from proxy.engines.grammar import grammar_fields
from proxy.engines.stamp import CountRequest, StampedRequest
from proxy.engines.usage import UnreadableAnswer, Usage, holds_salt, read_answer
from proxy.refusals import (
    Draining,
    EngineBusy,
    EngineFailed,
    EngineUnavailable,
    GrammarFailed,
    ModelNotFound,
    Refusal,
)
from proxy.relay.answer import Answer, answer_headers
from proxy.relay.choice import Affinity, Choice
from proxy.relay.destination import Destination
from proxy.relay.downstream import ClientGone
from proxy.relay.exchange import End, Exchange, WholeAnswer
from proxy.relay.findings import Finding, finding
from proxy.relay.leg import Leg
from proxy.relay.pool import Pool
from proxy.relay.request import Request
from proxy.relay.sse import Observer

RACE_SECONDS: Final = 1.0
STANDINGS_A_TURN: Final = 200

Standing = Callable[[], Refusal | None]
"""Whether something still holds: None, or why it does not any more."""

_JSON: Final = b"Content-Type: application/json\r\n"
# An engine's refusal that is about the request itself, so the client must read it.
_CLIENTS_FAULT: Final = frozenset({400, 413, 422})
_NOT_BEGUN: Final = (End.UNREACHABLE, End.UNSENT)

_log = structlog.get_logger("saltgate.engines")


class Relay:
    """All exchanges of one worker."""

    def __init__(
        self,
        *,
        violated: Callable[[IsolationCheck], None],
        ejected: Callable[[str, str], None] = lambda engine, replica: None,  # noqa: ARG005
        clock: Callable[[], float] = time.monotonic,
        choice: Choice | None = None,
    ) -> None:
        """`violated` is told the name of an isolation check that failed: an alarm, never expected; `ejected` the engine
        and the replica that are left alone for a while. `clock` gives the seconds that they go by.
        """
        self.choice = choice or Affinity(clock)
        self._violated = violated
        self._ejected = ejected
        self._clock = clock
        self._open: dict[Exchange, Standing] = {}
        self._draining = False

    @property
    def open_exchanges(self) -> int:
        return len(self._open)

    def open_streams(self) -> Counter[tuple[str, str]]:
        """How many streams are open, by workspace and project."""
        records = (exchange.record for exchange in self._open)
        return Counter((one.workspace or "", one.project or "") for one in records if one.stream)

    def cut_all(self) -> None:
        """The drain limit is over: end what is still open, honestly."""
        self._draining = True
        for exchange in tuple(self._open):
            exchange.cut(End.DRAINED, _draining())

    async def end_revoked(self) -> None:
        """End each exchange whose caller may have it no more: its `standing` now gives a refusal.

        A busy worker has thousands open, so other work gets its turn in between.
        """
        for number, (exchange, standing) in enumerate(tuple(self._open.items()), start=1):
            if (refusal := standing()) is not None:
                exchange.cut(End.REVOKED, refusal)
            if number % STANDINGS_A_TURN == 0:
                await asyncio.sleep(0)

    async def relay(
        self,
        accounted: Accounted,  # noqa: ARG002 - the proof that the audit will tell of it
        stamped: StampedRequest | CountRequest,
        destination: Destination,
        request: Request,
        record: Record,
        standing: Standing,
        sendable: Standing,
    ) -> Answer:
        """The client's answer, written already. Raises a Refusal while nothing was written, or ClientGone.

        `standing` says whether the caller may still have what he was let in for, and is asked whenever that may have
        changed; `sendable` whether the request may be sent as it is, and is asked where a connection took its time.
        """
        if self._draining:  # it was uploaded for longer than the drain limit
            raise _draining()
        downstream = request.connection
        answer = Answer(request)
        record.engine = destination.engine
        exchange = Exchange(stamped, answer, record, destination.patience, downstream.alarm)
        if downstream.gone:
            raise ClientGone
        downstream.listener = exchange
        downstream.stall_seconds = destination.patience.stall
        if downstream.writing_paused:  # by the answer before this one
            exchange.hold()
        self._open[exchange] = standing
        try:
            end = await self._run(exchange, destination, sendable, record)
        finally:
            downstream.listener = None
            exchange.leave()
            del self._open[exchange]
        if end is End.CLIENT_GONE and downstream.stalled:
            record.because("client_stalled")
        return self._conclude(end, exchange, answer, record)

    def _run(
        self, exchange: Exchange, destination: Destination, sendable: Standing, record: Record
    ) -> Coroutine[None, None, End]:
        """Try the replicas in the order of the choice."""
        if len(destination.pools) == 1:
            return self._try(exchange, destination, destination.pools, sendable, record)
        return self._try_in_order(exchange, destination, sendable, record)

    async def _try_in_order(
        self, exchange: Exchange, destination: Destination, sendable: Standing, record: Record
    ) -> End:
        with self.choice.replicas(destination) as pools:
            return await self._try(exchange, destination, pools, sendable, record)

    async def _try(
        self,
        exchange: Exchange,
        destination: Destination,
        pools: Sequence[Pool],
        sendable: Standing,
        record: Record,
    ) -> End:
        """Where nothing can have begun at one replica, the next one is asked."""
        for pool in pools:
            pool.outstanding += 1
            try:
                end = await self._at(pool, exchange, destination.patience.connect, sendable, record)
            finally:
                pool.outstanding -= 1
            if len(destination.pools) > 1:  # nothing is gained by leaving the only one alone
                self._judge(finding(end, exchange), pool, destination)
            if end not in _NOT_BEGUN or self._is_over(exchange):
                return end
        if exchange.was_sent:
            return End.SILENT
        raise EngineUnavailable("No engine that serves this model can be reached. Try again in a moment.")

    async def _at(
        self, pool: Pool, exchange: Exchange, connect_seconds: float, sendable: Standing, record: Record
    ) -> End:
        """How it ended at one replica."""
        leg = None if exchange.was_sent else pool.idle_leg()
        if leg is not None:
            end = await self._send(exchange, leg, pool, record)
            if not (end is End.UNSENT or _is_reuse_race(end, exchange)) or self._is_over(exchange):
                return end
            exchange.retriable(end)
        began = time.monotonic_ns()
        leg = await _new_leg(pool, connect_seconds, exchange.done)
        record.stage("connect", began)
        if leg is not None:
            if (why := sendable()) is not None:
                exchange.cut(End.REVOKED, why)
            end = await self._send(exchange, leg, pool, record)
            if end is End.UNSENT and not self._is_over(exchange):
                exchange.retriable(end)
            return end
        return exchange.done.result() if exchange.done.done() else End.UNREACHABLE

    def _is_over(self, exchange: Exchange) -> bool:
        """Whether nobody waits for it any more, so that it is not begun anew."""
        return exchange.abandoned or exchange.cut_by is not None or self._draining

    def _judge(self, found: Finding, pool: Pool, destination: Destination) -> None:
        """What the replica's end of an exchange says of it."""
        among = [one.name for one in destination.pools]
        replica, outliers, now = pool.name, destination.outliers, self._clock()
        seconds = None
        match found:
            case Finding.GOOD:
                outliers.answered(replica, destination.caller)
            case Finding.UNREACHABLE:
                seconds = outliers.unreachable(replica, among, now)
            case Finding.FAILED:
                seconds = outliers.failed(replica, destination.caller, among, now)
            case Finding.NOTHING:
                pass
        if seconds is not None:
            _log.warning("engine.ejected", engine=destination.engine, replica=replica, seconds=seconds)
            self._ejected(destination.engine, replica)

    def _send(self, exchange: Exchange, leg: Leg, pool: Pool, record: Record) -> asyncio.Future[End]:
        if exchange.done.done():  # the client left, or the drain limit passed, while the connection was made
            leg.close()
            return exchange.done
        record.sent(pool.address.host if pool.address.unix is None else pool.address.unix, pool.address.port)
        headers = b"%bX-Request-Id: %b\r\ntraceparent: %b\r\n" % (
            pool.headers,
            record.request_id.encode("ascii"),
            record.traceparent.encode("ascii"),
        )
        if record.tracestate:
            headers += b"tracestate: %b\r\n" % record.tracestate.encode("ascii")
        exchange.send(leg, headers)
        return exchange.done

    def _conclude(self, end: End, exchange: Exchange, answer: Answer, record: Record) -> Answer:
        if exchange.observer is not None:
            if end is End.SALT_SEEN:
                self._violated("salt_in_answer")
            _record_stream(end, exchange, exchange.observer, answer, record)
            return answer
        if end is End.CLIENT_GONE:
            raise ClientGone
        if end in _NOT_BEGUN:  # it is not tried elsewhere, because nobody waits for it any more
            raise exchange.cut_by or (ClientGone() if exchange.abandoned else _draining())
        whole = exchange.whole
        if end in (End.REVOKED, End.TIMEOUT) and exchange.cut_by is not None:
            raise exchange.take_refusal()
        if end is not End.COMPLETE or whole is None:
            raise _refusal_for(end)
        stamped = exchange.stamped
        if isinstance(stamped, StampedRequest) and holds_salt(stamped.salt, whole.body):
            self._violated("salt_in_answer")
            raise EngineFailed("The engine's answer was withheld. The operator has been told.", reason="salt_in_answer")
        _answer_whole(whole, stamped, answer, record)
        return answer


def _is_reuse_race(end: End, exchange: Exchange) -> bool:
    return end is End.SILENT and exchange.elapsed < RACE_SECONDS


async def _new_leg(pool: Pool, seconds: float, over: asyncio.Future[End]) -> Leg | None:
    """None where no connection can be made in that time, or before the exchange is over."""
    try:
        async with asyncio.timeout(None) as waiting:
            stop = partial(_stop, waiting)
            over.add_done_callback(stop)
            try:
                return await pool.new_leg(seconds=seconds)
            finally:
                over.remove_done_callback(stop)
    except (OSError, TimeoutError):
        return None


def _stop(waiting: asyncio.Timeout, over: asyncio.Future[End]) -> None:
    with suppress(RuntimeError):  # the connection was there in the same moment
        waiting.reschedule(over.get_loop().time())


def _record_stream(end: End, exchange: Exchange, observer: Observer, answer: Answer, record: Record) -> None:
    record.streamed(
        exchange.rhythm,
        observer.events,
        bytes_sent=answer.bytes_sent,
        finish_reason=observer.finish_reason,
        response_id=observer.response_id,
    )
    if observer.usage is not None:
        _record_usage(observer.usage, record)
    why = exchange.cut_by
    if end is End.REVOKED and why is not None:
        record.refused(why.code, 200, why.reason)
    elif end is End.TIMEOUT and why is not None:
        record.ended("engine_timeout", why.reason)
    else:
        record.ended(*_STREAM_OUTCOMES[end])


def _record_usage(usage: Usage, record: Record) -> None:
    record.used(usage.prompt, usage.reused, usage.output, cache_written=usage.cache_written, reasoning=usage.reasoning)


_STREAM_OUTCOMES: Final[dict[End, tuple[Outcome, str | None]]] = {
    End.COMPLETE: ("ok", None),
    End.BROKEN: ("truncated", "upstream_stream_died"),
    End.FAILED: ("truncated", "engine_error"),
    End.CLIENT_GONE: ("client_gone", None),
    End.DRAINED: ("drained", "drained"),
    End.SALT_SEEN: ("truncated", "salt_in_answer"),
    End.TOO_LONG: ("truncated", "event_too_long"),
}


def _refusal_for(end: End) -> Refusal:
    match end:
        case End.DRAINED:
            return _draining()
        case _:
            return EngineFailed("The engine broke off before it answered. Send the request again.", reason=end.value)


def _draining() -> Draining:
    return Draining("saltgate is being restarted. Send the request again.")


def _answer_whole(whole: WholeAnswer, stamped: StampedRequest | CountRequest, answer: Answer, record: Record) -> None:
    """Relay a collected answer, or raise the Refusal that its status means. An engine's own fault is never the
    caller's.
    """
    if whole.status != 200:
        record.engine_status = whole.status
        if whole.status not in _CLIENTS_FAULT:
            raise _refusal_for_status(whole, stamped)
    if whole.content_type.partition(b";")[0].strip().lower() != b"application/json":
        raise EngineFailed("The engine gave no JSON answer. Send the request again.", reason="engine_content_type")
    body = whole.body
    if whole.status == 200:
        show_reuse = isinstance(stamped, StampedRequest) and stamped.show_reuse
        try:
            seen = read_answer(stamped.endpoint, body, show_reuse=show_reuse)
        except UnreadableAnswer as error:
            raise EngineFailed("The engine gave no JSON answer. Send the request again.", reason="no_json") from error
        body = seen.body
        if seen.usage is not None:
            _record_usage(seen.usage, record)
    record.answered(whole.status)
    record.bytes_sent = len(body)
    answer.whole(whole.status, _JSON + answer_headers(record), body)
    record.ended("ok")  # an engine's refusal of the client's own request is an answer like any other


def _refusal_for_status(whole: WholeAnswer, stamped: StampedRequest | CountRequest) -> Refusal:
    match whole.status:
        case 500 if grammar := _grammar(stamped):
            return GrammarFailed(
                f"The engine could not use the grammar or schema in {' and '.join(grammar)}. "
                "Correct it before you send the request again: unchanged, it fails again.",
                param=grammar[0],
                reason="engine_500_grammar",
            )
        case 404:
            return ModelNotFound("The engine does not serve this model now. Ask your operator.", reason="engine_404")
        case 429 | 503:
            return EngineBusy(
                "The engine takes no more requests now. Try again in a moment.",
                reason=f"engine_{whole.status}",
                retry_after=_seconds_to_wait(whole.retry_after),
            )
        case _:
            return EngineFailed("The engine failed on this request. Send it again.", reason=f"engine_{whole.status}")


def _seconds_to_wait(told: bytes) -> int | None:
    """The engine's own word on when to come again (RFC 9110 section 10.2.3). None where it is a date, or nothing that a
    client waits for: SDKs heed a minute at most.
    """
    return int(told) if re.fullmatch(rb"[1-9]|[1-5][0-9]|60", told) else None


def _grammar(stamped: StampedRequest | CountRequest) -> Sequence[str]:
    return tuple(grammar_fields(stamped)) if isinstance(stamped, StampedRequest) else ()
