"""What commands do, in the words of the audit."""

from __future__ import annotations

from typing import Any

from observability.audit.entries import Act
from proxy.directory.changes import Change
from proxy.directory.model import Member
from proxy.isolation.unit import Unit, UserUnit


def act_on_member(event: str, issuer: str | None, member: Member, **more: Any) -> Act:
    """`issuer` is whose member it is; None where nobody knows."""
    kind, _, name = str(member).partition(":")
    if kind == "user":
        return Act(event=event, issuer=issuer, subject=name, **more)
    return Act(event=event, issuer=issuer, group=name, **more)


def changed(change: Change) -> dict[str, Any]:
    """The fields that tell what came of a change."""
    written = tuple(sorted(name for name, record in change.workspaces.items() if record is not None))
    deleted = tuple(sorted(name for name, record in change.workspaces.items() if record is None))
    return {
        "workspaces": written or None,
        "deleted": deleted or None,
        "raised": tuple(map(unit_name, change.raises)) or None,
    }


def unit_name(unit: Unit) -> str:
    """A person's own unit without the person."""
    return f"user:{unit.workspace}/{unit.project}" if isinstance(unit, UserUnit) else str(unit)
