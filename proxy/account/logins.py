"""What is remembered of people's own sign-ins: the groups that their personal access tokens go on with."""

from __future__ import annotations

from typing import Final

from proxy.directory.token_store import TokenStore, asked_for_a_caller
from proxy.identity import Identity
from proxy.identity.personal_records import Login, Owner

SIGN_INS: Final = frozenset({"jwt", "introspection", "session"})
"""The methods (`Identity.method`) by which a person shows that he signed in at his issuer himself."""

_OUTLIVES_SECONDS: Final = 24 * 3600.0


def is_sign_in(identity: Identity) -> bool:
    """Whether the identity rests on a sign-in of the person himself, not on what stands for one."""
    return identity.method in SIGN_INS and identity.token_id is None


class Logins:
    """Notes sign-ins. `groups_max_age`, in seconds, counts from when the token that brought the groups was issued."""

    def __init__(self, tokens: TokenStore, *, groups_max_age: float) -> None:
        self._tokens = tokens
        self._keep_seconds = groups_max_age + _OUTLIVES_SECONDS

    async def note(self, identity: Identity) -> None:
        """Remember the identity's groups where it is a sign-in, unless a later one is known. A personal access token
        renews nothing. Raises DirectoryUnavailable.
        """
        if not is_sign_in(identity) or identity.issued_at is None:
            return  # Groups of an unknown age are none to rely on later.
        login = Login(identity.groups, identity.groups_complete, identity.issued_at)
        with asked_for_a_caller():
            await self._tokens.log_in(Owner(identity.issuer, identity.subject), login, keep_seconds=self._keep_seconds)
