"""One request on one leg: the answer's bytes go from the engine's read to the client's write in one call.

A stream's head and events pass as they come, observed on the side. An answer that is no stream is collected first,
because it may have to be refused: a salt in it, or an engine that breaks off, must not reach the client as a success.
"""

from __future__ import annotations

import asyncio
import time
from enum import Enum
from typing import Final, NamedTuple

from observability.record import Record
from observability.rhythm import Rhythm
from proxy.engines.stamp import CountRequest, StampedRequest
from proxy.refusals import EngineFailed, EngineTimeout, Refusal
from proxy.relay.alarm import Alarm
from proxy.relay.answer import Answer, answer_headers
from proxy.relay.endings import error_event
from proxy.relay.keep_alive import COMMENT, no_event
from proxy.relay.leg import Ending, Leg
from proxy.relay.patience import Limit, Patience, Seen, Watch
from proxy.relay.sse import Observer

MAXIMUM_WHOLE_ANSWER_BYTES: Final = 128 * 1024 * 1024
_STREAM: Final = (
    b"Content-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\nX-Accel-Buffering: no\r\n"
)


class End(Enum):
    """How an exchange ended, for the gate to draw its conclusion from."""

    COMPLETE = "complete"
    UNREACHABLE = "unreachable"  # there was no connection to send it on
    UNSENT = "unsent"  # it was never written whole: nothing can have begun
    SILENT = "silent"
    UNANSWERED = "unanswered"
    BAD_ANSWER = "bad_answer"
    CONTENT_CODING = "content_coding"
    FAILED = "failed"  # the engine itself told of a failure in its stream
    BROKEN = "broken"
    TIMEOUT = "timeout"
    CLIENT_GONE = "client_gone"
    DRAINED = "drained"
    REVOKED = "revoked"
    SALT_SEEN = "salt_seen"
    TOO_LONG = "too_long"  # an event that may tell what is hidden is too long to look at

    __hash__ = object.__hash__  # as `Operation`


class WholeAnswer(NamedTuple):
    """An engine's answer that is no event stream. `content_type` and `retry_after` as the engine sent them, empty where
    it did not.
    """

    status: int
    content_type: bytes
    body: bytes
    retry_after: bytes = b""

    def __repr__(self) -> str:
        return f"WholeAnswer(status={self.status}, {len(self.body)} bytes)"


class Exchange:
    """See the module. It is the leg's Sink and the downstream's Listener; `done` has its end.

    `abandoned`: the client is gone, also where the exchange had ended before. `cut_by` says why it was ended from our
    side, or would have been. `was_sent`: all of it was written once, to an engine that said nothing. `status` is the
    answer's, 0 where there was none; `observer` what was observed of a stream, None where the answer was none.
    """

    __slots__ = (
        "_alarm",
        "_answer",
        "_began",
        "_body_began",
        "_content_type",
        "_held",
        "_leg",
        "_loop",
        "_made",
        "_patience",
        "_pieces",
        "_record",
        "_released",
        "_retry_after",
        "_rhythm",
        "_size",
        "_token_events",
        "_visible_seen",
        "_watch",
        "abandoned",
        "cut_by",
        "done",
        "observer",
        "stamped",
        "status",
        "was_sent",
    )

    def __init__(
        self,
        stamped: StampedRequest | CountRequest,
        answer: Answer,
        record: Record,
        patience: Patience,
        alarm: Alarm,
    ) -> None:
        """`alarm` is the downstream's. The caller makes it the downstream's listener before it awaits anything, and
        says `leave` when it is over.
        """
        self.stamped = stamped
        self._alarm = alarm
        self._loop = alarm.loop
        self.done: asyncio.Future[End] = self._loop.create_future()
        self.abandoned = False
        self.was_sent = False
        self.cut_by: Refusal | None = None
        self._answer = answer
        self._record = record
        self._patience = patience
        self._made = self._loop.time()
        self._watch: Watch | None = None  # made when it is looked for the first time: most answers are there before
        self._leg: Leg | None = None
        self._held = False
        self._released = 0  # how often the client has made way
        self.observer: Observer | None = None
        self.status = 0
        self._content_type = self._retry_after = b""
        self._pieces: list[bytes] = []
        self._size = 0
        self._rhythm: Rhythm | None = None
        self._token_events = 0
        self._visible_seen = False
        self._body_began = False
        self._began = 0.0

    # What the gate does with an exchange.

    def send(self, leg: Leg, headers: bytes) -> None:
        """Send the request on `leg`."""
        self._leg = leg
        self._began = now = self._loop.time()
        if self._watch is not None:
            self._watch.sent(now)
        patience = self._patience
        self._alarm.set(min(now + patience.first_look, self._made + patience.total), self._look_at_clock)
        leg.send(self.stamped, headers=headers, sink=self)

    def leave(self) -> None:
        """It is over, or nobody waits for it any more: then the engine is left at once."""
        self._alarm.clear()
        leg, self._leg = self._leg, None
        if leg is not None:
            leg.abort()

    def retriable(self, end: End) -> None:
        """Forget a silent or unsent end, so that the request may be sent once more on a new connection."""
        self.was_sent = self.was_sent or end is not End.UNSENT
        self.done = self._loop.create_future()

    @property
    def record(self) -> Record:
        """What is told of its request."""
        return self._record

    @property
    def begun(self) -> bool:
        """Whether the engine had begun to answer: with the first token of a stream, or the first byte of another."""
        return self._seen.begun

    @property
    def whole(self) -> WholeAnswer | None:
        """The collected answer, where the engine's answer was no stream and is complete."""
        if self.status == 0 or self.observer is not None:
            return None
        return WholeAnswer(self.status, self._content_type, b"".join(self._pieces), self._retry_after)

    @property
    def elapsed(self) -> float:
        """Seconds since the request was sent."""
        return self._loop.time() - self._began

    def cut(self, end: End, why: Refusal) -> None:
        """End the exchange from our side, honestly: a running stream gets its protocol's error event, and what has not
        begun is refused with it.
        """
        if self.cut_by is None:
            self.cut_by = why  # also where it has just ended: then it is not begun anew
        if self.done.done():
            return
        self.leave()
        observer = self.observer
        if observer is not None and observer.complete and not observer.salt_seen:
            end = self._end_stream(observer, Ending.BROKEN)
        elif observer is not None and not observer.failed:
            self._end_badly(observer, why)
        self.done.set_result(end)

    def take_refusal(self) -> Refusal:
        """Why it was cut, to be raised. Raised, it keeps the frames that hold this exchange, which so forgets it."""
        assert self.cut_by is not None
        why, self.cut_by = self.cut_by, None
        return why

    # What the downstream tells (Listener).

    def hold(self) -> None:
        self._held = True
        if self._leg is not None and self._rhythm is not None:
            self._leg.hold()
            self._rhythm.hold(time.monotonic_ns())

    def release(self) -> None:
        self._held = False
        self._released += 1
        if self._rhythm is not None:
            self._rhythm.release(time.monotonic_ns())
        if self._leg is not None:
            self._leg.release()

    def client_gone(self) -> None:
        # A result, not an exception: an exception would keep this frame, and all it holds, in a cycle.
        self.abandoned = True
        self.leave()
        if self.done.done():
            return
        observer = self.observer
        # Many clients close after the protocol's last event, without a look at how the body ends.
        has_all = observer is not None and observer.complete and not self._held
        self.done.set_result(self._end_stream(observer, Ending.BROKEN) if observer and has_all else End.CLIENT_GONE)

    @property
    def streams(self) -> bool:
        return self.observer is not None and not self.done.done()

    def comment(self) -> bool:
        observer = self.observer
        return observer is not None and self.streams and observer.at_border and self._answer.aside(COMMENT)

    # What the leg tells (Sink).

    def head(self, status: int, content_type: bytes) -> None:
        self.status, self._content_type = status, content_type
        if status != 200 and self._leg is not None:
            self._retry_after = self._leg.retry_after
        stamped = self.stamped
        media_type = content_type.partition(b";")[0].strip().lower()
        if (
            isinstance(stamped, StampedRequest)
            and stamped.stream
            and status == 200
            and media_type == b"text/event-stream"
        ):
            self.observer = Observer(
                stamped.operation, hide_usage=stamped.hide_usage, show_reuse=stamped.show_reuse, salt=stamped.salt
            )
            self._rhythm = rhythm = Rhythm()
            more = self._leg is not None and self._leg.more
            self._answer.head(200, _STREAM + answer_headers(self._record), more=more)
            if self._held and self._leg is not None:
                self._leg.hold()
                rhythm.hold(time.monotonic_ns())

    def body(self, data: bytes) -> None:
        if self.done.done():
            return
        if not self._body_began:
            self._body_began = True
            self._record.first_byte()
        observer, rhythm = self.observer, self._rhythm
        if observer is None or rhythm is None:
            self._collect(data)
            return
        received_ns = time.monotonic_ns()
        forward = observer.feed(data)
        if observer.withheld:
            self._withhold(observer, forward)
            return
        self._answer.body(forward, more=self._leg is not None and self._leg.more)
        tokens = observer.token_events
        if tokens == self._token_events:
            return
        if self._visible_seen:  # nearly every event
            rhythm.came(tokens - self._token_events, received_ns)
            self._token_events = tokens
        else:
            self._note_tokens(observer, rhythm, received_ns)

    def end(self, ending: Ending) -> None:
        self._leg = None
        if self.done.done():
            return
        if self.observer is None:
            self.done.set_result(_WITHOUT_STREAM[ending])
            return
        if self._pass_rest(self.observer):
            end = self._end_stream(self.observer, ending)
            self._answer.flush()
            self.done.set_result(end)

    # The exchange's own steps.

    def _note_tokens(self, observer: Observer, rhythm: Rhythm, received_ns: int) -> None:
        """Events that bear tokens came at that time, and were written by now, or are in this turn."""
        before, self._token_events = self._token_events, observer.token_events
        rhythm.came(self._token_events - before, received_ns)
        if self._visible_seen or (before and not observer.visible):
            return
        self._visible_seen = observer.visible
        if observer.first_token is not None and not before:
            self._record.first_token(observer.first_token, received_ns, visible=observer.visible)
        else:
            self._record.first_visible_written()

    def _pass_rest(self, observer: Observer) -> bool:
        """Forward what was still held back. False where it must not be."""
        received_ns = time.monotonic_ns()
        rest = observer.finish()
        if observer.withheld:
            self._withhold(observer, rest)
            return False
        if rest:
            self._answer.body(rest, more=True)
        if observer.token_events != self._token_events and self._rhythm is not None:  # no blank line stood behind it
            self._note_tokens(observer, self._rhythm, received_ns)
        return True

    def _withhold(self, observer: Observer, before: bytes) -> None:
        """Give only what came before, and end."""
        self._answer.body(before)
        if observer.salt_seen:
            self.cut(End.SALT_SEEN, EngineFailed("The engine's answer was withheld. The operator has been told."))
        else:
            self.cut(End.TOO_LONG, EngineFailed("The engine's answer has too long an event. Ask for a shorter one."))

    def _end_stream(self, observer: Observer, ending: Ending) -> End:
        """Whole is what has the protocol's last event; how the engine then ended its body tells the client nothing."""
        if observer.complete or (observer.failed and ending is Ending.COMPLETE):
            self._answer.finish()
        elif not observer.failed:
            self._end_badly(observer, EngineFailed("The engine broke off its answer. Send the request again."))
            return End.BROKEN
        return End.FAILED if observer.failed else End.COMPLETE

    def _end_badly(self, observer: Observer, why: Refusal) -> None:
        if not observer.at_border:
            self._answer.body(b"\n\n")
        number = observer.sequence_number
        self._answer.body(error_event(self.stamped.operation, why, sequence_number=number))

    def _collect(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > MAXIMUM_WHOLE_ANSWER_BYTES:
            self.cut(End.BAD_ANSWER, EngineFailed("The engine's answer is too long. Ask for a shorter one."))
            return
        self._pieces.append(data)

    def _look_at_clock(self) -> None:
        if self._watch is None:
            self._watch = Watch(self._patience, self._made)
            self._watch.sent(self._began)
        now = self._loop.time()
        look = self._watch.look(now, self._seen)
        if look.over is not None:
            self.cut(End.TIMEOUT, EngineTimeout(_TOO_LATE[look.over], reason=f"engine_timeout_{look.over.value}"))
            return
        if look.silent:
            self._keep_alive()
        self._alarm.set(now + look.again, self._look_at_clock)

    @property
    def _seen(self) -> Seen:
        observer, written = self.observer, self._answer.bytes_sent
        if observer is None:
            return Seen(self._size, self._size > 0, held=False, written=written)
        return Seen(observer.events + self._released, observer.first_token is not None, self._held, written)

    def _keep_alive(self) -> None:
        """Let the client of a silent stream hear something, where that may stand. Before the engine's head it may not:
        it would begin an answer that may still have to be refused.
        """
        observer = self.observer
        if observer is None or not self.streams or not observer.at_border or observer.complete or observer.failed:
            return
        ended = observer.finish_reason is not None  # then its client may not take a further event for that choice
        mode = "comment" if ended else self._patience.keep_alive
        answer_id = observer.response_id or self._record.request_id
        self._answer.aside(no_event(self.stamped.operation, mode, model=self.stamped.model, answer_id=answer_id))

    @property
    def rhythm(self) -> Rhythm | None:
        """When the tokens of a stream came, as of its end; None where the answer was none."""
        if self._held and self._rhythm is not None:
            self._rhythm.release(time.monotonic_ns())
        return self._rhythm


_WITHOUT_STREAM: Final = {
    Ending.COMPLETE: End.COMPLETE,
    Ending.UNSENT: End.UNSENT,
    Ending.SILENT: End.SILENT,
    Ending.UNANSWERED: End.UNANSWERED,
    Ending.BAD_HEAD: End.BAD_ANSWER,
    Ending.CONTENT_CODING: End.CONTENT_CODING,
    Ending.BROKEN: End.BROKEN,
}

_TOO_LATE: Final = {
    Limit.FIRST_BYTE: "The engine did not answer in time. Send the request again, or a shorter one.",
    Limit.IDLE: "The engine took too long. Send the request again.",
    Limit.TOTAL: "The engine took too long for the whole answer. Ask for a shorter one.",
}
