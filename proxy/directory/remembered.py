"""Scopes that were selected a moment ago, for as long as the directory says the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.directory.membership import Named
from proxy.directory.snapshot import Snapshot
from proxy.identity import Identity
from proxy.isolation.scope import Scope
from proxy.kept import Kept

CAPACITY: Final = 32 * 1024
GROUPS: Final = 200_000
"""Of all remembered callers together. Each token of a caller is another one, and a token may name a thousand."""


class RememberedScopes:
    """What `select_scope` gives, and remembers it. Nothing that an earlier snapshot allowed is remembered. `hits` and
    `misses` count the look-ups so far.

    A refusal is not remembered: it is rare, and who makes up names would fill the memory with them.
    """

    def __init__(self, select: Callable[[Snapshot, Identity, Named], Scope]) -> None:
        """`select` is `select_scope` under the deployment's policy: nothing but its arguments decides."""
        self._select = select
        self._snapshot: Snapshot | None = None
        self._kept: Kept[tuple[Identity, Named], tuple[Scope, int]] = Kept(CAPACITY)
        self._groups = 0
        self.hits = 0
        self.misses = 0

    def scope(self, snapshot: Snapshot, identity: Identity, named: Named) -> Scope:
        """What the caller may act under. Raises as `select_scope` does."""
        if snapshot is not self._snapshot:
            self._snapshot = snapshot
            self._forget()
        key = (identity, named)
        kept = self._kept.find(key)
        if kept is not None:
            self.hits += 1
            return kept[0]
        self.misses += 1
        scope = self._select(snapshot, identity, named)
        groups = len(identity.groups)
        if self._groups + groups > GROUPS:
            self._forget()
        lost = self._kept.keep(key, (scope, groups))
        self._groups += groups - (0 if lost is None else lost[1])
        return scope

    def _forget(self) -> None:
        self._kept.forget()
        self._groups = 0
