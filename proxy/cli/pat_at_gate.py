"""Tokens at a gate where one is signed in, over `/account/tokens`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlencode

from proxy.cli.ask_gate import ask_gate
from proxy.cli.pat_shown import MadeToken, PatRefused, ShownToken, Whose, WrongUse
from proxy.cli.sign_in.web import Web, open_web
from proxy.cli.signed_in import SignedIn, fresh_sign_in
from proxy.identity.token import Json
from proxy.routes import Page


@asynccontextmanager
async def open_gate_tokens(gate: str | None, whose: Whose) -> AsyncIterator[GateTokens]:
    """The tokens at the gate. Raises NotSignedIn."""
    if whose.issuer is not None and whose.subject is None:
        raise WrongUse("--issuer goes with --subject, for administrators; your own tokens are of your own issuer")
    signed_in = await fresh_sign_in(gate)
    async with open_web() as web:
        yield GateTokens(web, signed_in, whose)


class GateTokens:
    """The gate judges everything; nothing is decided here."""

    def __init__(self, web: Web, signed_in: SignedIn, whose: Whose) -> None:
        self._web = web
        self._signed_in = signed_in
        self._owner: dict[str, str] = {}
        if whose.subject is not None:
            self._owner = {"issuer": whose.issuer or signed_in.issuer, "subject": whose.subject}

    async def create(self, name: str, lifetime: int | None, projects: Sequence[str] | None) -> MadeToken:
        wish: dict[str, object] = {"name": name}
        if lifetime is not None:
            wish["expires_in"] = lifetime
        if projects is not None:
            wish["projects"] = list(projects)
        answer = await self._ask(Page.NEW_TOKEN, wish)
        secret = answer.get("token")
        if not isinstance(secret, str) or not secret.isascii() or not secret.isprintable():
            raise _odd(self._signed_in)
        return MadeToken(secret, self._shown(answer), self._signed_in.gate)

    async def owned(self) -> tuple[ShownToken, ...]:
        answer = await self._ask(Page.TOKENS)
        tokens = answer.get("tokens")
        if not isinstance(tokens, list):
            raise _odd(self._signed_in)
        return tuple(self._shown(token) for token in tokens)

    async def revoke(self, token_id: str) -> None:
        await self._ask(Page.REVOKE_TOKEN, {"id": token_id})

    async def revoke_all(self) -> int:
        revoked = (await self._ask(Page.REVOKE_ALL_TOKENS, self._owner)).get("revoked")
        if not isinstance(revoked, int):
            raise _odd(self._signed_in)
        return revoked

    async def _ask(self, page: Page, document: object = None) -> Mapping[str, Json]:
        method, path = page.value
        if method == "GET" and self._owner:
            path = f"{path}?{urlencode(self._owner)}"
        return await ask_gate(
            self._web, self._signed_in.gate, self._signed_in.access_token, path, method=method, document=document
        )

    def _shown(self, token: object) -> ShownToken:
        match token:
            case {
                "id": str(token_id),
                "name": str(name),
                "projects": list() | None as projects,
                "created_at": int(created_at),
                "expires_at": int(expires_at),
                **others,
            }:
                used = others.get("last_used_at")
                return ShownToken(
                    id=token_id,
                    name=name,
                    projects=None if projects is None else tuple(map(str, projects)),
                    created_at=created_at,
                    expires_at=expires_at,
                    last_used_at=used if isinstance(used, int) else None,
                )
            case _:
                raise _odd(self._signed_in)


def _odd(signed_in: SignedIn) -> PatRefused:
    return PatRefused(
        f"{signed_in.gate} answered with something that this saltgate does not know; are they of one age?"
    )
