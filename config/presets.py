"""What an issuer's `kind` fills in where the operator says nothing (contract section 3).

Each row is what that provider puts into its access tokens. Keys that the operator writes win.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PRESETS: Final[Mapping[str, Mapping[str, object]]] = {
    "generic": {},
    "rfc9068": {},
    # Keycloak tells its kinds of token apart in the payload's `typ`, and a mapper may put a nonce back: the header
    # alone does not say that a token is an access token.
    "keycloak": {
        "token_types": ["at+jwt", "JWT", ""],
        "payload_type": "Bearer",
        "groups": [["groups"], ["realm_access", "roles"]],
    },
    # The `sub` of Entra differs from one application to the next; `oid` names the person.
    "entra": {"token_types": ["JWT"], "subject": ["oid"]},
    # The `sub` of Okta's access tokens is the login name, which may change hands; `uid` stays.
    "okta": {"token_types": ["at+jwt", "JWT", ""], "subject": ["uid"]},
    # Auth0 sends custom claims only, under names that are URLs.
    "auth0": {"token_types": ["at+jwt", "JWT"], "groups": []},
    # Both make access tokens with the function for ID tokens, so that only `clients` tells whose token it is.
    "authentik": {"token_types": ["at+jwt", "JWT", ""], "allow_id_token_claims": True},
    "dex": {"token_types": ["at+jwt", "JWT", ""], "allow_id_token_claims": True},
    "google": {"token_types": ["JWT"], "groups": []},
    "local": {},
}
CLIENTS_REQUIRED: Final = frozenset({"authentik", "dex"})


def with_presets(table: Mapping[str, object]) -> dict[str, object]:
    """The configuration's table with the presets of its issuers filled in. Malformed parts stay as they are."""
    issuers = table.get("issuers")
    if not isinstance(issuers, list):
        return dict(table)
    return {**table, "issuers": [_filled(issuer) for issuer in issuers]}


def _filled(issuer: object) -> object:
    kind = issuer.get("kind") if isinstance(issuer, dict) else None
    if not isinstance(issuer, dict) or not isinstance(kind, str):
        return issuer
    return {**PRESETS.get(kind, {}), **issuer}
