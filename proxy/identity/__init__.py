"""Who is calling: a credential from the request becomes an `Identity`, or a refusal.

    Shown → `credential` → Credential → `token` → CompactToken → `keys` → VerifiedToken → `claims` → Identity

`callers` is the door: it judges each credential in the way of its form; `fronts` finds for whom a chat UI asks, by its
signed `assertion`. `issuers` are those whose tokens are accepted, `issuer` fetches the keys of one, `cache` remembers
for a moment, `reasons` holds what a refused caller is told.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """A verified caller: the person or service finally acted for.

    Only `proxy.identity` makes one, and only after every rule held. `groups_complete` is False where the issuer said
    that there are more groups than it could name (Entra's overage): then the groups are unknown, not absent.
    `expires_at` is Unix seconds: the end of what the credential proves. `client` is the OAuth client that the token
    was issued to, where the issuer says so.

    `actor` is the front end that speaks for this person, where one does (RFC 8693 section 4.1): whatever is forbidden
    to it is forbidden here, too. `workspaces` are the only ones that may be acted for; None: the directory alone says.
    """

    issuer: str
    subject: str
    groups: frozenset[str]
    groups_complete: bool
    expires_at: float
    client: str | None = None
    method: str = "jwt"
    actor: Identity | None = None
    workspaces: frozenset[str] | None = None
