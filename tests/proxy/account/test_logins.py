"""Which sign-ins renew what tokens know of groups, and who is an administrator of what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from config.settings import Administrator, Tokens
from proxy.account.logins import Logins
from proxy.account.persons import Person
from proxy.account.tokens import AccountTokens
from proxy.accounting import Accounting
from proxy.directory.changes import Change, Deed
from proxy.directory.model import group, user
from proxy.directory.snapshot import NOTHING_READ
from proxy.directory.token_store import OwnedToken
from proxy.identity import Identity
from proxy.identity.personal_records import Kept, Login, Owner, TokenRecord
from proxy.refusals import NotAMember

ISSUER, OTHER = "https://sso.example.com", "https://other.example.com"
ALICE = Identity(ISSUER, "alice", frozenset({"eng"}), True, 2e9, issued_at=1e9)


class Store:
    """Keeps nothing but what it was told of logins."""

    def __init__(self) -> None:
        self.logins: list[tuple[Owner, Login, float]] = []

    async def find(self, token_id: str) -> Kept | None:
        return None

    async def owned(self, owner: Owner) -> tuple[OwnedToken, ...]:
        return ()

    async def create(self, record: TokenRecord, *, limit: int) -> None: ...

    async def used(self, uses: Mapping[str, int]) -> None: ...

    async def log_in(self, owner: Owner, login: Login, *, keep_seconds: float) -> None:
        self.logins.append((owner, login, keep_seconds))

    async def close(self) -> None: ...


async def noted(identity: Identity) -> list[tuple[Owner, Login, float]]:
    store = Store()
    await Logins(store, groups_max_age=3600.0).note(identity)
    return store.logins


async def test_a_sign_in_is_noted_with_the_time_at_which_its_token_was_issued() -> None:
    login = Login(frozenset({"eng"}), True, 1e9)
    assert await noted(ALICE) == [(Owner(ISSUER, "alice"), login, 25 * 3600.0)]
    (_, incomplete, _), *_ = await noted(replace(ALICE, groups_complete=False))
    assert incomplete.groups_complete is False


@pytest.mark.parametrize(
    "identity",
    [
        replace(ALICE, method="pat", token_id="t1"),
        replace(ALICE, token_id="t1"),
        replace(ALICE, method="pat"),
        replace(ALICE, method="front"),
        replace(ALICE, method="anything else"),
        replace(ALICE, issued_at=None),
    ],
)
async def test_what_stands_for_a_sign_in_renews_nothing(identity: Identity) -> None:
    assert await noted(identity) == []


@pytest.mark.parametrize(
    ("identity", "may"),
    [
        (ALICE, True),
        (replace(ALICE, subject="bob"), True),
        (replace(ALICE, subject="bob", groups=frozenset()), False),
        (replace(ALICE, issuer=OTHER), False),
        (replace(ALICE, issuer=OTHER, subject="group:eng"), False),
    ],
)
async def test_an_administrator_is_one_of_his_own_issuers_people(identity: Identity, may: bool) -> None:
    async def change(deed: Deed) -> Change:
        return Change()

    tokens = AccountTokens(
        Store(),
        change,
        Tokens(),
        [Administrator(issuer=ISSUER, members=("user:alice", "group:eng"))],
        max_stale=1.0,
        clock=lambda: 0.0,
        accounting=Accounting(None),
    )
    members = frozenset({user(identity.subject), *map(group, identity.groups)})
    person = Person(identity, members, NOTHING_READ.snapshot)
    assert await tokens.owned(person, person.owner) == ()
    if may:
        assert await tokens.owned(person, Owner(OTHER, "carol")) == ()
    else:
        with pytest.raises(NotAMember):
            await tokens.owned(person, Owner(OTHER, "carol"))
