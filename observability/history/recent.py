"""Single requests: the last of all, and the last of each scope. One is found by its id as long as either has it."""

from __future__ import annotations

from collections import OrderedDict, deque

import msgspec

from observability.history.summary import Summary

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Summary)

Scope = tuple[str, str]


class Recent:
    """The last `most` of all, and the last `of_scope` of each of the `scopes` scopes that were heard of last."""

    def __init__(self, *, most: int, of_scope: int, scopes: int) -> None:
        self._most = most
        self._of_scope = of_scope
        self._scopes = scopes
        self._all: deque[str] = deque()
        self._by_scope: OrderedDict[Scope, deque[str]] = OrderedDict()
        self._kept: dict[str, bytes] = {}
        self._holders: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, summary: Summary) -> None:
        """One that is there already is not added again."""
        identifier = summary.request_id
        if identifier in self._kept:
            return
        self._kept[identifier] = _ENCODER.encode(summary)
        self._holders[identifier] = 1
        self._all.append(identifier)
        if summary.workspace is not None and summary.project is not None:
            self._holders[identifier] = 2
            self._add_to_scope((summary.workspace, summary.project), identifier)
        if len(self._all) > self._most:
            self._let_go(self._all.popleft())

    def find(self, request_id: str) -> Summary | None:
        packed = self._kept.get(request_id)
        return None if packed is None else _DECODER.decode(packed)

    def of(self, scope: Scope) -> list[Summary]:
        """The newest first."""
        return [_DECODER.decode(self._kept[identifier]) for identifier in reversed(self._by_scope.get(scope, ()))]

    def _add_to_scope(self, scope: Scope, identifier: str) -> None:
        ring = self._by_scope.get(scope)
        if ring is None:
            ring = self._by_scope[scope] = deque()
        self._by_scope.move_to_end(scope)
        ring.append(identifier)
        if len(ring) > self._of_scope:
            self._let_go(ring.popleft())
        if len(self._by_scope) > self._scopes:
            _, forgotten = self._by_scope.popitem(last=False)
            for each in forgotten:
                self._let_go(each)

    def _let_go(self, identifier: str) -> None:
        holders = self._holders[identifier] - 1
        if holders:
            self._holders[identifier] = holders
        else:
            del self._holders[identifier], self._kept[identifier]
