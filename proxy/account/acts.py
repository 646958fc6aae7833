"""What people and issuers do with sessions, in the words of the audit."""

from __future__ import annotations

from observability.audit.entries import Act
from proxy.identity import Identity


def session_began(identity: Identity) -> Act:
    """Somebody has signed in with a browser."""
    return _act("session.began", identity, by=identity)


def sessions_ended(identity: Identity, count: int, *, by: Identity) -> Act:
    """So many sessions of a person are over."""
    act = _act("session.ended", identity, by=by)
    return Act(event=act.event, by_issuer=act.by_issuer, by=act.by, issuer=act.issuer, subject=act.subject, count=count)


def ended_by_issuer(issuer: str, subject: str, count: int) -> Act:
    """The issuer says that somebody has signed out."""
    return Act(event="session.ended", by_issuer=issuer, issuer=issuer, subject=subject, count=count)


def admin_ticket_made(identity: Identity) -> Act:
    """An administrator goes to the pages of the admin listener."""
    return _act("admin.ticket_made", identity, by=identity)


def _act(event: str, identity: Identity, *, by: Identity) -> Act:
    return Act(event=event, by_issuer=by.issuer, by=by.subject, issuer=identity.issuer, subject=identity.subject)
