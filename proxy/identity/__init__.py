"""Who is calling: a credential from the request becomes an `Identity`, or a refusal.

    Shown → `credential` → Credential → `token` → CompactToken → `keys` → VerifiedToken → `claims` → Identity
                                      → `introspection` (the issuer is asked) → `introspected` ↗
    and where the token is bound to a key, `claims` → Bound → `possession` → Identity

`possession` asks each request for what its token is bound to; `confirmation` says what that is, `dpop` checks a proof.
`callers` is the door: it judges each credential in the way of its form. `issuers` are those whose tokens are accepted,
`issuer` fetches the keys of one. `opaque` says which issuer is asked about an opaque token, `introspection_endpoint`
asks it and `client_authentication` proves who is asking, `breaker` says when not to. `asking` bounds whatever is asked.
`cache` remembers for a moment, `reasons` holds what a refused caller is told. Personal access tokens have a door of
their own: `personal_tokens`, with their form in `personal` and what is kept of them in `personal_records`. `id_token`
and `native_sign_in` are for those who sign people in: what an ID token proves to its client, and what the gate tells a
command line of where to sign in.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """A verified caller: the person or service finally acted for.

    Only `proxy.identity` makes one, and only after every rule held. `groups_complete` is False where the issuer said
    that there are more groups than it could name (Entra's overage): then the groups are unknown, not absent.
    `expires_at` is Unix seconds: the end of what the credential proves. `client` is the OAuth client that the token
    was issued to, where the issuer says so; `method` is how it was judged: "jwt", "introspection" or "pat". What may be
    ended before it expires: `session` is the issuer's session (`sid`) that it belongs to, `issued_at` (Unix seconds)
    when it was issued, `token_id` the personal access token. `projects`, where it is not None, are the only (workspace,
    project) that the credential is for: whoever shows it is a member of nothing else.
    """

    issuer: str
    subject: str
    groups: frozenset[str]
    groups_complete: bool
    expires_at: float
    client: str | None = None
    method: str = "jwt"
    session: str | None = None
    issued_at: float | None = None
    token_id: str | None = None
    projects: frozenset[tuple[str, str]] | None = None
