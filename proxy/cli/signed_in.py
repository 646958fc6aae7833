"""The person who is signed in at a gate, with an access token that is good now: refreshed by one process for all.

It imports little before a refresh is needed: `saltgate token` runs before each of somebody's requests.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from config.person import person
from proxy.cli.sign_in import SignInFailed
from proxy.cli.sign_in.kept import KeptSignIn, SignIns

MIN_VALIDITY: Final = 60.0
"""Seconds that an access token is good for when it is handed out."""

# A refresh is two questions, each bounded; who waits longer for another's waits for nothing.
WAIT_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.05

_now: Final = time.time  # noqa: TID251 - a token's end is told in the time of this machine


class NotSignedIn(SignInFailed):
    """There is no access token that is good now. The message is one line with the remedy; it holds no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedIn:
    """`gate` is the gate's base URL, without a slash at its end. `expires_at` is Unix seconds of this machine.

    `subject` is what the issuer's ID token said at the sign-in, where there was one: for people to read, no proof.
    """

    gate: str
    issuer: str
    subject: str | None
    access_token: str = field(repr=False)
    expires_at: float


async def fresh_sign_in(gate: str | None, *, min_validity: float = MIN_VALIDITY) -> SignedIn:
    """The sign-in at `gate`; at None the one that SALTGATE_GATE names, else the last one.

    Its access token is good for `min_validity` seconds, or for half of its own life where that is shorter. It is
    refreshed where need be, by one process at a time. Raises NotSignedIn, also for a gate that is no address, a file
    that others can read, and an issuer that is away.
    """
    found = kept_sign_in(gate)
    if not found.is_fresh(_now(), min_validity):
        with _as_not_signed_in():
            found = await _refreshed_once(found, min_validity)
    return _signed_in(found)


def kept_token(gate: str | None, *, min_validity: float = MIN_VALIDITY) -> str | None:
    """The access token that is kept, where it is fresh: then nobody need be asked. Raises NotSignedIn."""
    found = kept_sign_in(gate)
    return found.access_token if found.is_fresh(_now(), min_validity) else None


def kept_sign_in(gate: str | None) -> KeptSignIn:
    """What is kept of the sign-in, fresh or not; `gate` as for `fresh_sign_in`. Asks nobody. Raises NotSignedIn."""
    with _as_not_signed_in():
        chosen = chosen_gate(gate)
        found = None if chosen is None else sign_ins().find(chosen)
    if chosen is None:
        raise NotSignedIn("you are not signed in; run: saltgate login --gate https://YOUR.GATE")
    if found is None:
        raise NotSignedIn(f"you are not signed in at {chosen}; run: saltgate login --gate {chosen}")
    return found


def chosen_gate(gate: str | None) -> str | None:
    """The gate's base URL: of the option, else of SALTGATE_GATE, else the last; None where none was ever. Raises
    SignInFailed.
    """
    named = gate or person().gate or sign_ins().last_gate()
    return None if named is None else gate_url(named)


@asynccontextmanager
async def alone_with(gate: str) -> AsyncIterator[None]:
    """No other process changes what is kept for the gate meanwhile. Raises SignInFailed where one takes too long."""
    import asyncio

    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        with sign_ins().refreshing(gate) as ours:
            if ours:
                yield
                return
        if time.monotonic() > deadline:
            raise SignInFailed("another saltgate has been busy with this sign-in for a minute; try again")
        await asyncio.sleep(LOOK_SECONDS)


def gate_url(text: str) -> str:
    """The gate's base URL as its own metadata must name it. The `/v1` that clients are configured with may be there.

    Raises SignInFailed for anything but https, or http on this machine.
    """
    from config.addresses import UnixAddress, is_loopback_host, upstream_address

    url = text.removesuffix("/").removesuffix("/v1")
    try:
        parts = upstream_address(url)
    except ValueError:
        parts = UnixAddress("")
    if isinstance(parts, UnixAddress) or (parts.scheme != "https" and not is_loopback_host(parts.hostname)):
        raise SignInFailed("the gate's address is wrong; write https://HOST, or http://127.0.0.1:PORT on this machine")
    return url


def sign_ins() -> SignIns:
    """What is kept for the person who runs this process. Raises SignInFailed."""
    try:
        return SignIns(person().state)
    except RuntimeError as error:
        raise SignInFailed("you have no home folder; set XDG_STATE_HOME to a folder of your own") from error


@contextmanager
def _as_not_signed_in() -> Iterator[None]:
    try:
        yield
    except NotSignedIn:
        raise
    except SignInFailed as error:
        raise NotSignedIn(str(error)) from error


def _signed_in(kept: KeptSignIn) -> SignedIn:
    return SignedIn(
        gate=kept.gate,
        issuer=kept.issuer,
        subject=kept.subject,
        access_token=kept.access_token,
        expires_at=kept.expires_at,
    )


async def _refreshed_once(kept: KeptSignIn, min_validity: float) -> KeptSignIn:
    """Refreshed by this process, or by the one that was first: rotated refresh tokens are good once."""
    async with alone_with(kept.gate):
        found = kept_sign_in(kept.gate)
        return found if found.is_fresh(_now(), min_validity) else await _to_its_end(_refreshed(found))


async def _refreshed(kept: KeptSignIn) -> KeptSignIn:
    from proxy.cli.sign_in.issuer import Refused, ask_for_tokens, discover
    from proxy.cli.sign_in.web import open_web

    if kept.refresh_token is None:
        raise NotSignedIn(f"your sign-in at {kept.gate} has expired; run: saltgate login --gate {kept.gate}")
    form = {"grant_type": "refresh_token", "client_id": kept.client_id, "refresh_token": kept.refresh_token}
    if kept.resource is not None:
        form["resource"] = kept.resource
    asked_at = _now()
    async with open_web() as web:
        endpoints = await discover(web, kept.issuer)
        try:
            tokens = await ask_for_tokens(web, endpoints, form)
        except Refused as refused:
            raise _ended(kept, refused.error) from refused
    fresh = replace(
        kept,
        access_token=tokens.access_token,
        # RFC 6749 section 6: without a new one the old one goes on.
        refresh_token=tokens.refresh_token or kept.refresh_token,
        expires_at=asked_at + tokens.lifetime,
        lifetime=tokens.lifetime,
    )
    sign_ins().keep(fresh, as_last=False)
    return fresh


def _ended(kept: KeptSignIn, error: str) -> NotSignedIn:
    """The issuer takes the refresh token no more: it is not sent again."""
    if error == "invalid_grant":
        sign_ins().forget(kept.gate)
    return NotSignedIn(
        f"your sign-in at {kept.gate} is over (the identity provider says {error}); "
        f"run: saltgate login --gate {kept.gate}"
    )


async def _to_its_end(refresh: Coroutine[None, None, KeptSignIn]) -> KeptSignIn:
    """Also where Ctrl-C comes meanwhile: the issuer may have taken the old refresh token already, and the new one must
    not be lost. It is bounded in time.
    """
    import asyncio

    task = asyncio.get_running_loop().create_task(refresh)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        raise
