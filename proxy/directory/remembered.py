"""Scopes that were selected a moment ago, for as long as the directory says the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.directory.membership import Named
from proxy.directory.snapshot import Snapshot
from proxy.identity import Identity
from proxy.isolation.scope import Scope

CAPACITY: Final = 10_000
GROUPS: Final = 200_000
"""Of all remembered callers together. Each token of a caller is another one, and a token may name a thousand."""


class RememberedScopes:
    """What `select_scope` gives, and remembers it. Nothing that an earlier snapshot allowed is remembered.

    A refusal is not remembered: it is rare, and who makes up names would fill the memory with them.
    """

    def __init__(self, select: Callable[[Snapshot, Identity, Named], Scope]) -> None:
        """`select` is `select_scope` under the deployment's policy: nothing but its arguments decides."""
        self._select = select
        self._snapshot: Snapshot | None = None
        self._kept: dict[tuple[Identity, Named], Scope] = {}
        self._groups = 0

    def scope(self, snapshot: Snapshot, identity: Identity, named: Named) -> Scope:
        """What the caller may act under. Raises as `select_scope` does."""
        if snapshot is not self._snapshot:
            self._snapshot = snapshot
            self._forget()
        key = (identity, named)
        kept = self._kept.get(key)
        if kept is not None:
            return kept
        scope = self._select(snapshot, identity, named)
        if len(self._kept) >= CAPACITY or self._groups + len(identity.groups) > GROUPS:
            self._forget()
        self._groups += len(identity.groups)
        self._kept[key] = scope
        return scope

    def _forget(self) -> None:
        self._kept.clear()
        self._groups = 0
