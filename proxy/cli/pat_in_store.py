"""Tokens with the configuration in hand: for the owner of a local issuer, and for the operator who ends a token.

Whoever may write where tokens are kept could make any. So this makes one only for the one owner of a `local` issuer.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from config.settings import Issuer, Settings
from observability.audit.acts import Acts
from observability.audit.entries import Act
from proxy.account.token_pages import wish
from proxy.account.tokens import NewToken, lifetime_words, new_token, token_created
from proxy.cli.command_audit import command_audit
from proxy.cli.local_issuer import OWNER, local_folder, tell_new_owner
from proxy.cli.pat_shown import MadeToken, PatRefused, ShownToken, Whose, WrongUse
from proxy.directory.connect import open_store, open_tokens, removal_policy
from proxy.directory.membership import check_member
from proxy.directory.snapshot import NOTHING_READ, read
from proxy.directory.store import Store
from proxy.directory.token_store import OwnedToken, TokenStore, TooManyTokens, revocation
from proxy.identity.personal_records import Kept, Owner, TokenRecord, identify_personal
from proxy.reception import personal_rules, public_url

_now = time.time  # noqa: TID251 - the clock is handed out here


@asynccontextmanager
async def open_stored_tokens(settings: Settings, configuration: Path, whose: Whose) -> AsyncIterator[StoredPats]:
    """Raises WrongUse where `[directory]` cannot be used as it is."""
    async with AsyncExitStack() as stack:
        try:
            store = open_store(settings.directory, removal_policy(settings.isolation))
            stack.push_async_callback(store.close)
            tokens = open_tokens(settings.directory)
            stack.push_async_callback(tokens.close)
        except ValueError as error:
            raise WrongUse(str(error)) from error
        acts = stack.enter_context(command_audit(settings, ("pat",)))
        yield StoredPats(settings, configuration, whose, store, tokens, acts)


class StoredPats:
    """One person's tokens: those of `whose`, else of the local issuer's owner."""

    def __init__(
        self, settings: Settings, configuration: Path, whose: Whose, store: Store, tokens: TokenStore, acts: Acts
    ) -> None:
        self._settings = settings
        self._configuration = configuration
        self._whose = whose
        self._store = store
        self._tokens = tokens
        self._acts = acts

    async def create(self, name: str, lifetime: int | None, projects: Sequence[str] | None) -> MadeToken:
        limits = self._settings.tokens
        wished = wish(
            {
                "name": name,
                "expires_in": int(limits.default_lifetime) if lifetime is None else lifetime,
                "projects": None if projects is None else list(projects),
            },
            default_lifetime=int(limits.default_lifetime),
        )
        if wished.lifetime > limits.max_lifetime:
            raise PatRefused(f"[tokens] max_lifetime lets a token live {lifetime_words(limits.max_lifetime)} at most")
        made = new_token(self._local_owner(), wished, now=_now())
        await self._check_projects(made)
        try:
            async with self._acts.acting(token_created(made.record)):
                await self._tokens.create(made.record, limit=limits.per_owner)
        except TooManyTokens:
            raise PatRefused(f"[tokens] per_owner gives no more than {limits.per_owner}; revoke one first") from None
        return MadeToken(made.token.text(), _shown(made.record, None), public_url(self._settings))

    async def owned(self) -> tuple[ShownToken, ...]:
        return tuple(_shown(token.record, token.used) for token in await self._owned())

    async def revoke(self, token_id: str) -> None:
        if await self._tokens.find(token_id) is None:
            raise PatRefused("there is no token of this id; `saltgate pat list` shows a person's")
        await self._revoke([token_id])

    async def revoke_all(self) -> int:
        ids = [token.record.id for token in await self._owned()]
        if ids:
            await self._revoke(ids)
        return len(ids)

    async def _owned(self) -> tuple[OwnedToken, ...]:
        return await self._tokens.owned(self._owner())

    async def _revoke(self, ids: Sequence[str]) -> None:
        async with self._acts.acting(Act(event="token.revoked", token_ids=tuple(ids))):
            await self._store.change(revocation(ids, now=_now(), max_stale=self._settings.directory.max_stale))

    async def _check_projects(self, made: NewToken) -> None:
        """Raises NotAMember for a project that is not the owner's."""
        if made.record.projects is None:
            return
        snapshot = read(await self._store.read(), NOTHING_READ).snapshot
        rules = personal_rules(self._settings)
        owner = identify_personal(made.token, Kept(made.record, None), rules=rules, now=_now())
        for workspace, project in made.record.projects:
            check_member(snapshot, owner, workspace, project)

    def _owner(self) -> Owner:
        if self._whose.subject is None:
            return self._local_owner()
        known = [issuer.issuer for issuer in self._settings.issuers]
        return Owner(_one_of(known, self._whose.issuer), self._whose.subject)

    def _local_owner(self) -> Owner:
        """The one owner of the local issuer, who is made here where the gate has never run. Takes some 50 ms then."""
        local = [issuer.issuer for issuer in self._settings.issuers if issuer.kind == "local"]
        if not local:
            raise WrongUse(
                'with -c this is for an issuer of kind "local"; people of others sign in with `saltgate login`, and an '
                "operator names whose tokens are listed or revoked with --subject"
            )
        issuer = _one_of(local, self._whose.issuer)
        return Owner(issuer, _local_subject(self._settings, self._configuration, _named(self._settings, issuer)))


def _local_subject(settings: Settings, configuration: Path, issuer: Issuer) -> str:
    # Here, because who is signed in at a gate need not wait for an issuer's imports.
    from proxy.demo.provider import NotLoopback, UnsafeState, address_of_issuer
    from proxy.demo.provider.state import open_state

    try:
        folder = local_folder(settings, configuration, address_of_issuer(issuer.issuer).port)
        owner = open_state(folder).owner(OWNER)
    except (NotLoopback, UnsafeState) as error:
        raise WrongUse(str(error)) from error
    except OSError as error:
        raise PatRefused(f"the local issuer's state cannot be used: {error.strerror or error}") from error
    if owner.new_password is not None:
        tell_new_owner(issuer.issuer, owner.person.subject, owner.new_password)
    return owner.person.subject


def _named(settings: Settings, issuer: str) -> Issuer:
    return next(each for each in settings.issuers if each.issuer == issuer)


def _one_of(known: Sequence[str], named: str | None) -> str:
    if named is None and len(known) == 1:
        return known[0]
    if named is None or named not in known:
        raise WrongUse(f"name the issuer with --issuer, one of: {', '.join(known)}")
    return named


def _shown(record: TokenRecord, used: int | None) -> ShownToken:
    return ShownToken(
        id=record.id,
        name=record.name,
        projects=None if record.projects is None else tuple("/".join(project) for project in record.projects),
        created_at=record.created,
        expires_at=record.expires,
        last_used_at=used,
    )
