"""Watching a stream of server-sent events on its way to the client (WHATWG HTML, section 9.2).

Whole events leave, byte by byte as they came and as soon as they are whole. An event's beginning waits for its end:
nobody can use half an event, and where the engine dies within one, the protocol's error event must not stand behind it.
Bytes that may be the beginning of the salt, or of its last characters, wait for the next ones. An event that nobody but
the gate asked for is left out, and one that would tell a reuse that must not be told is rewritten.

What waits is bounded: an event longer than MAX_EVENT_BYTES is relayed as it comes, without a look at it. Where it could
tell what must not be told, nothing is given from there on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from observability.names import TokenKind
from proxy.engines.profile import Operation
from proxy.engines.usage import Usage, hide_reuse, usage_of
from proxy.isolation.salt import Salt

# The last event of /v1/responses repeats the whole answer, the instructions and the tools, and only it tells the usage.
MAX_EVENT_BYTES: Final = 4 * 1024 * 1024

# Two line ends in a row. Atomic, so that the two bytes of one CRLF are never taken for two line ends.
_BORDER: Final = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_BORDER_BYTES: Final = 4
_LAST_EVENT: Final = re.compile(rb"[\r\n]*event: ?response\.(completed|incomplete|failed)[\r\n]")
# A stream may begin with it, and clients pass over it there (WHATWG HTML, section 9.2.5).
_BYTE_ORDER_MARK: Final = "\ufeff".encode()
_WITHHELD: Final = b""
# To look for a number in bytes, or for bytes by `find`, is several times quicker than `bytes in bytes`, for which
# CPython first makes an error, that bytes are no number, and forgets it (Objects/bytes_methods.c, _Py_bytes_contains).
_LF: Final = 10
_CR: Final = 13


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct, gc=False):
    function: _Function | None = None


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


# `Raw | None` would take nothing but null, so what is absent is UNSET.


class _Chunk(msgspec.Struct, gc=False):
    """An event of chat or completions."""

    id: str | None = None
    choices: list[_Choice] | None = None
    usage: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _Incomplete(msgspec.Struct, gc=False):
    reason: str | None = None


class _Response(msgspec.Struct, gc=False):
    id: str | None = None
    status: str | None = None
    incomplete_details: _Incomplete | None = None
    usage: Raw | UnsetType = UNSET


class _Item(msgspec.Struct, gc=False):
    type: str = ""
    name: str | None = None


class _ResponsesEvent(msgspec.Struct, gc=False):
    type: str = ""
    sequence_number: int | None = None
    delta: Raw | UnsetType = UNSET
    item: _Item | None = None
    response: _Response | None = None
    error: Raw | UnsetType = UNSET
    usage: Raw | UnsetType = UNSET


class _MessagesDelta(msgspec.Struct, gc=False):
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Message(msgspec.Struct, gc=False):
    id: str | None = None
    usage: Raw | UnsetType = UNSET


class _Block(msgspec.Struct, gc=False):
    type: str = ""
    name: str | None = None
    text: str | None = None
    thinking: str | None = None


class _MessagesEvent(msgspec.Struct, gc=False):
    type: str = ""
    delta: _MessagesDelta | None = None
    content_block: _Block | None = None
    message: _Message | None = None
    usage: Raw | UnsetType = UNSET


_CHUNK: Final = msgspec.json.Decoder(_Chunk)
_RESPONSES_EVENT: Final = msgspec.json.Decoder(_ResponsesEvent)
_MESSAGES_EVENT: Final = msgspec.json.Decoder(_MessagesEvent)
_MEMBERS: Final = msgspec.json.Decoder(dict[str, Raw])
_ENCODER: Final = msgspec.json.Encoder()

_UNSEEN: Final[TokenKind] = "reasoning"
_RESPONSES_TOKENS: Final[Mapping[str, TokenKind]] = {
    "response.output_text.delta": "content",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.refusal.delta": "refusal",
    "response.function_call_arguments.delta": "tool_call",
    "response.custom_tool_call_input.delta": "tool_call",
}
_HOLD_USAGE: Final = frozenset({"response", "message"})  # members of an event that have a `usage` of their own
_RESPONSES_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})


class Observer:
    """One stream's observer. Feed it what the engine sends, forward what it gives back, and read what it saw.

    `first_token` is the kind of the first event that bears a token: "content", "reasoning", "tool_call" or "refusal";
    an event with a role only, an empty one, a comment or usage bears none. One that is too long to look at is taken for
    one of "content", but not the last of /v1/responses. `token_events` counts those that do, `events` all that carry
    data or were too long to look at. `visible`: one of them held something that a person sees, which reasoning is not.
    `usage` is the latest that was told. `complete`: the protocol's last event was seen.
    `failed`: an error was told in the stream. `unobserved`: some event was too long to look at, or no JSON; it was
    relayed all the same. `withheld`: nothing is given back from there on, because the engine sent the salt
    (`salt_seen`), or an event too long to be looked at, which could tell a reuse that must not be told. `at_border`:
    what was given back ends with a whole event, so one of the gate's own may follow; `sequence_number` is the number
    that /v1/responses would give it.
    """

    __slots__ = (
        "_after_cr",
        "_blind",
        "_blind_end",
        "_ended_within",
        "_hide_usage",
        "_last_dropped",
        "_look",
        "_marks",
        "_operation",
        "_sent",
        "_show_reuse",
        "_suspect",
        "_tail",
        "complete",
        "events",
        "failed",
        "finish_reason",
        "first_token",
        "response_id",
        "salt_seen",
        "sequence_number",
        "token_events",
        "unobserved",
        "usage",
        "visible",
        "withheld",
    )

    def __init__(self, operation: Operation, *, hide_usage: bool, show_reuse: bool, salt: Salt) -> None:
        self._operation = operation
        self._look = _LOOKS.get(operation, Observer._look_at_chunk)
        self._hide_usage = hide_usage
        self._show_reuse = show_reuse
        self._marks = salt.marks
        self._suspect = b""  # the end of what was read, where it may be the beginning of a mark
        self._tail = bytearray()  # an event's beginning
        self._sent = 0  # how much of `_tail` was given back already, of an event that is too long
        self._blind = False  # `_tail` is the end of an event that is too long to be looked at
        self._blind_end: bytes | None = None  # and it is the protocol's last one, of this kind
        self._ended_within = False  # the stream is over, and its last event has no end
        self._after_cr = False  # the last event ended with CR: a LF now belongs to it
        self._last_dropped = False
        self.first_token: TokenKind | None = None
        self.visible = False
        self.token_events = 0
        self.events = 0
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.response_id: str | None = None
        self.complete = False
        self.failed = False
        self.unobserved = False
        self.salt_seen = False
        self.withheld = False
        self.sequence_number = 0

    @property
    def at_border(self) -> bool:
        return not (self._blind or self._ended_within)

    def feed(self, data: bytes) -> bytes:
        """What to forward now."""
        beginning, end = self._marks
        if (
            not data.endswith(b"\n\n")
            or _CR in data
            or self._tail
            or self._suspect
            or self._after_cr
            or self.withheld
            or data.find(beginning) >= 0
            or data.find(end) >= 0
        ):
            return self._feed_any(data)
        # Whole events with LF line ends, nothing before and nothing after: nearly every read.
        if data.find(_LF) == len(data) - 2 and data.startswith(b"data: "):  # one, as engines send each token
            other = self._look_at_payload(data, data[6:-2])
            return data if other is None else other
        events = data[:-2].split(b"\n\n")
        instead = self._look_at(events)
        return data if instead is None else _with_others(events, instead)

    def _feed_any(self, data: bytes) -> bytes:
        if self.withheld:
            return b""
        data = self._without_salt(data)
        return self._events(data) if data else b""

    def finish(self) -> bytes:
        """What to forward at the end of the engine's answer. An event that was cut off is not completed by it."""
        if self.withheld:
            return b""
        data, self._suspect = self._suspect, b""
        seen = self._events(data) if data else b""
        rest = self._look_at_rest()
        self._ended_within = bool(rest)
        return seen + rest

    # The salt.

    def _without_salt(self, data: bytes) -> bytes:
        """The data, less an end where a mark of the salt may begin; nothing where one is."""
        if self._suspect:
            data = self._suspect + data
            self._suspect = b""
        beginning, end = self._marks
        if data.find(beginning) >= 0 or data.find(end) >= 0:
            self.salt_seen = self.withheld = True
            return b""
        if data.endswith(b"\n"):  # as nearly every read ends, and no mark begins
            return data
        length = max(_overlap(data, mark) for mark in self._marks)
        if length:
            self._suspect = data[-length:]
            return data[:-length]
        return data

    # From bytes to events.

    def _events(self, data: bytes) -> bytes:
        given = []
        if self._after_cr:
            self._after_cr = False
            if data.startswith(b"\n"):
                data = data[1:]
                if not self._last_dropped:
                    given.append(b"\n")
        tail = self._tail
        begin, search_from = 0, max(0, len(tail) - _BORDER_BYTES + 1)
        tail += data
        border_end = _plain_border_end if tail.find(_CR, search_from) < 0 else _border_end
        while end := border_end(tail, search_from):
            given.append(self._event(bytes(tail[begin:end])))
            begin = search_from = end
        if begin:
            self._after_cr = begin == len(tail) and tail.endswith(b"\r")
            del tail[:begin]
        given.append(self._beginning())
        return b"".join(given)

    def _event(self, event: bytes) -> bytes:
        """What to give back of an event that has its end now."""
        if self._blind:
            return self._event_unseen(event)
        instead = self._look_at((event,))
        self._last_dropped = instead is not None
        return event if instead is None else instead[0]

    def _event_unseen(self, event: bytes) -> bytes:
        given = event[self._sent :]
        self.complete |= self._blind_end is not None
        self.failed |= self._blind_end == b"failed"
        self._blind = self._last_dropped = False
        self._sent = 0
        return given

    def _beginning(self) -> bytes:
        """What to give back of an event that has no end yet: nothing, until it is too long to wait for."""
        tail = self._tail
        if not self._blind:
            if len(tail) <= MAX_EVENT_BYTES:
                return b""
            self._look_away()
        given = b"" if self.withheld else bytes(tail[self._sent :])
        del tail[: -_BORDER_BYTES + 1]
        self._sent = len(tail)
        return given

    def _look_away(self) -> None:
        """Give the event up. Its name still tells whether it is the last one."""
        self.events += 1
        self.unobserved = True
        if not self._show_reuse:
            self.withheld = True
            return
        self._blind = True
        self._sent = 0
        self._blind_end = self._last_event()
        if self._blind_end is None:
            self._note_token("content")

    def _last_event(self) -> bytes | None:
        """How the answer ends, where the event that has begun is the protocol's last one, by its name."""
        named = _LAST_EVENT.match(self._tail) if self._operation is Operation.RESPONSES else None
        return named[1] if named is not None else None

    def _look_at_rest(self) -> bytes:
        """The last event, where the stream ended without its blank line. A piece of one is left out."""
        rest, self._tail = bytes(self._tail), bytearray()
        if self._blind:
            return b""
        if not rest.strip():
            return rest
        unobserved, self.unobserved = self.unobserved, False
        instead = self._look_at((rest,))
        cut, self.unobserved = self.unobserved, unobserved or self.unobserved
        if cut or _payload(rest) is None:
            return b""
        return rest if instead is None else instead[0]

    # From events to what they tell.

    def _look_at(self, events: Sequence[bytes]) -> dict[int, bytes] | None:
        """Note what the events tell. None: give them back as they came; else what to give back in the place of some."""
        changed: dict[int, bytes] | None = None
        for number, event in enumerate(events):
            plain = event.startswith(b"data: ") and _LF not in event and _CR not in event
            payload = event[6:] if plain else _payload(event)
            instead = None if payload is None else self._look_at_payload(event, payload)
            if instead is not None:
                changed = {} if changed is None else changed
                changed[number] = instead
        return changed

    def _look_at_payload(self, event: bytes, payload: bytes) -> bytes | None:
        self.events += 1
        try:
            return self._look(self, event, payload)
        except (msgspec.DecodeError, RecursionError):
            self.unobserved = True
            # What cannot be read passes as it came, unless it may tell what is hidden.
            return None if self._show_reuse or b'"usage"' not in payload else _WITHHELD

    def _look_at_chunk(self, event: bytes, payload: bytes) -> bytes | None:
        if payload == b"[DONE]":
            self.complete = True
            return None
        chunk = _CHUNK.decode(payload)
        if self.response_id is None:
            self.response_id = chunk.id
        for choice in chunk.choices or ():
            if choice.finish_reason is not None:
                self.finish_reason = choice.finish_reason
            delta = choice.delta
            if self.visible and delta is not None and delta.content:  # nearly every event
                self.token_events += 1
            else:
                self._note_token(_token(choice))
        if chunk.usage is UNSET and chunk.error is UNSET:
            return None
        return self._look_at_last_words(event, payload, chunk)

    def _look_at_last_words(self, event: bytes, payload: bytes, chunk: _Chunk) -> bytes | None:
        """A chunk that tells of usage or of a failure."""
        failed = _is_told(chunk.error)
        self.failed |= failed
        if not isinstance(chunk.usage, Raw) or not _is_told(chunk.usage):
            return None
        self.usage = usage_of(self._operation, chunk.usage) or self.usage
        if self._hide_usage and not chunk.choices and not failed:
            return _WITHHELD
        return self._without_reuse(event, payload)

    def _look_at_response(self, event: bytes, payload: bytes) -> bytes | None:
        told = _RESPONSES_EVENT.decode(payload)
        if told.sequence_number is not None:
            self.sequence_number = told.sequence_number + 1
        if isinstance(told.delta, Raw):
            if told.type in _RESPONSES_TOKENS and bytes(told.delta) != b'""':
                self._note_token(_RESPONSES_TOKENS[told.type])
        elif told.type == "response.output_item.added":
            self._note_token(_item_token(told.item))
        else:
            self.complete |= told.type in _RESPONSES_ENDS
            self.failed |= told.type in ("error", "response.failed") or _is_told(told.error)
        if told.response is not None:
            self._note_response(told.type, told.response)
        elif told.usage is UNSET:  # nearly every event
            return None
        return self._without_reuse(event, payload)

    def _note_response(self, kind: str, response: _Response) -> None:
        self.response_id = response.id or self.response_id
        if kind in _RESPONSES_ENDS:
            details = response.incomplete_details
            self.finish_reason = details.reason if details is not None and details.reason else response.status
        if isinstance(response.usage, Raw):
            self.usage = usage_of(self._operation, response.usage) or self.usage

    def _look_at_message(self, event: bytes, payload: bytes) -> bytes | None:
        told = _MESSAGES_EVENT.decode(payload)
        match told.type:
            case "content_block_delta":
                self._note_token(_messages_token(told.delta))
            case "content_block_start":
                self._note_token(_block_token(told.content_block))
            case "message_stop":
                self.complete = True
            case "error":
                self.failed = True
            case "message_start" if told.message is not None:
                self.response_id = told.message.id
                self._note_first_usage(told.message.usage)
            case "message_delta":
                if told.delta is not None:
                    self.finish_reason = told.delta.stop_reason or self.finish_reason
                if isinstance(told.usage, Raw):
                    self.usage = usage_of(self._operation, told.usage, self.usage) or self.usage
            case _:
                pass
        if told.message is None and told.usage is UNSET:  # nearly every event
            return None
        return self._without_reuse(event, payload)

    def _note_first_usage(self, member: Raw | UnsetType) -> None:
        usage = usage_of(self._operation, member) if isinstance(member, Raw) else None
        if usage is not None:  # it counts no output yet, which is not an output of none
            self.usage = Usage(usage.prompt, usage.reused, None, usage.cache_written)

    def _note_token(self, token: TokenKind | None) -> None:
        if token is not None:
            self.token_events += 1
            if not self.visible:
                self.visible = token != _UNSEEN
                if self.first_token is None:
                    self.first_token = token

    def _without_reuse(self, event: bytes, payload: bytes) -> bytes | None:
        """The event telling no reuse, wherever its protocol has a `usage`; None where it may be told or is not."""
        if self._show_reuse:
            return None
        members = _MEMBERS.decode(payload)
        changed = _hide_in(self._operation, members)
        for name in _HOLD_USAGE & members.keys():
            inner = _MEMBERS.decode(members[name]) if _is_told(members[name]) else {}
            if _hide_in(self._operation, inner):
                members[name] = Raw(_ENCODER.encode(inner))
                changed = True
        return _with_payload(event, _ENCODER.encode(members)) if changed else None


# Functions and not bound methods, which would tie the observer to itself.
_LOOKS: Final[Mapping[Operation, Callable[[Observer, bytes, bytes], bytes | None]]] = {
    Operation.RESPONSES: Observer._look_at_response,  # noqa: SLF001 - its own
    Operation.MESSAGES: Observer._look_at_message,  # noqa: SLF001
}


def _border_end(tail: bytearray, start: int) -> int:
    """Where the first border from `start` on ends; 0 where there is none."""
    border = _BORDER.search(tail, start)
    return 0 if border is None else border.end()


def _plain_border_end(tail: bytearray, start: int) -> int:
    """The same where no CR is, many times quicker."""
    border = tail.find(b"\n\n", start)
    return 0 if border < 0 else border + 2


def _with_others(events: Sequence[bytes], instead: Mapping[int, bytes]) -> bytes:
    """The whole events, some of them with others in their places."""
    return b"".join([instead.get(number, event + b"\n\n") for number, event in enumerate(events)])


def _payload(event: bytes) -> bytes | None:
    """The event's data, its lines joined with LF; None where it has none."""
    if event.endswith(b"\n\n"):
        event = event[:-2]
    rest = event.partition(b"\n")[2] if event.startswith(b"event: ") else event
    if rest.startswith(b"data: ") and b"\n" not in rest and b"\r" not in event:
        return rest[6:]
    lines = [value for name, value in map(_field, event.splitlines()) if name == b"data"]
    return b"\n".join(lines) if lines else None


def _field(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b":")
    return name.removeprefix(_BYTE_ORDER_MARK), value.removeprefix(b" ")


def _with_payload(event: bytes, payload: bytes) -> bytes:
    others = [line for line in event.splitlines() if line and _field(line)[0] != b"data"]
    return b"\n".join((*others, b"data: " + payload, b"", b""))


def _hide_in(operation: Operation, members: dict[str, Raw]) -> bool:
    """Whether `usage` told reuse; it tells none then."""
    told = members.get("usage")
    shown = None if told is None else hide_reuse(operation, told)
    if shown is None:
        return False
    members["usage"] = Raw(shown)
    return True


def _is_told(member: Raw | UnsetType) -> bool:
    return isinstance(member, Raw) and bytes(memoryview(member)[:4]) != b"null"


def _token(choice: _Choice) -> TokenKind | None:
    """The kind of token that a choice of chat or completions bears."""
    if choice.text:
        return "content"
    delta = choice.delta
    if delta is None:
        return None
    if delta.content:
        return "content"
    if delta.reasoning or delta.reasoning_content:
        return "reasoning"
    if delta.refusal:
        return "refusal"
    for call in delta.tool_calls or ():
        if call.function is not None and (call.function.name or call.function.arguments):
            return "tool_call"
    return None


def _item_token(item: _Item | None) -> TokenKind | None:
    """The kind of token that an output item of /v1/responses begins with."""
    return "tool_call" if item is not None and item.name and item.type.endswith("_call") else None


def _block_token(block: _Block | None) -> TokenKind | None:
    """The same of a content block of /v1/messages."""
    if block is None:
        return None
    if block.text:
        return "content"
    if block.thinking:
        return "reasoning"
    return "tool_call" if block.name and block.type.endswith("tool_use") else None


def _messages_token(delta: _MessagesDelta | None) -> TokenKind | None:
    if delta is None:
        return None
    if delta.text:
        return "content"
    if delta.thinking:
        return "reasoning"
    return "tool_call" if delta.partial_json else None


def _overlap(data: bytes, mark: bytes) -> int:
    """How many bytes at the end of the data the mark may begin with."""
    lengths = range(min(len(mark) - 1, len(data)), 0, -1)
    return next((length for length in lengths if data.endswith(mark[:length])), 0)
