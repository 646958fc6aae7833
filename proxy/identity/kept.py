"""An identity that was verified once and is kept for a while: as JSON, and back. Pure.

Whoever keeps one sees to it that nobody else can write where it is kept.
"""

from __future__ import annotations

from proxy.identity import Identity
from proxy.identity.token import Json


def identity_to_json(identity: Identity) -> dict[str, Json]:
    """Everything that decides what the identity may do. Raises ValueError for one that a personal access token proves,
    which is kept itself, with what it is limited to; and for one for whom a front end speaks, each time anew.
    """
    if identity.token_id is not None or identity.projects is not None:
        raise ValueError("a personal access token's identity is not kept")
    if identity.actor is not None or identity.workspaces is not None:
        raise ValueError("the identity of somebody for whom a front end speaks is not kept")
    return {
        "issuer": identity.issuer,
        "subject": identity.subject,
        "groups": [*sorted(identity.groups)],
        "groups_complete": identity.groups_complete,
        "expires_at": identity.expires_at,
        "client": identity.client,
        "method": identity.method,
        "session": identity.session,
        "issued_at": identity.issued_at,
    }


def identity_from_json(kept: dict[str, Json]) -> Identity:
    """Raises ValueError for what `identity_to_json` did not write."""
    match kept:
        case {
            "issuer": str(issuer),
            "subject": str(subject),
            "groups": [*groups],
            "groups_complete": bool(groups_complete),
            "expires_at": float(expires_at),
            "client": str() | None as client,
            "method": str(method),
            "session": str() | None as session,
            "issued_at": float() | None as issued_at,
        }:
            names = frozenset(group for group in groups if isinstance(group, str))
            return Identity(
                issuer=issuer,
                subject=subject,
                groups=names,
                groups_complete=groups_complete and len(names) == len(groups),
                expires_at=expires_at,
                client=client,
                method=method,
                session=session,
                issued_at=issued_at,
            )
        case _:
            raise ValueError("no identity is kept there")
