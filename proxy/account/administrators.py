"""Who is an administrator (`[[admin.administrators]]`). Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from config.settings import Administrator
from proxy.directory.model import Member


@dataclass(frozen=True, slots=True)
class Administrators:
    """As the configuration names them."""

    named: tuple[Administrator, ...]

    @classmethod
    def of(cls, named: Iterable[Administrator]) -> Administrators:
        return cls(tuple(named))

    def include(self, issuer: str, members: Collection[Member]) -> bool:
        """Whether somebody of this issuer, whom the directory may know as `members`, is one."""
        return any(one.issuer == issuer and not set(members).isdisjoint(one.members) for one in self.named)
