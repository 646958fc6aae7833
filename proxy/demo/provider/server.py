"""Starting and stopping a provider: a listener on loopback, and for the local form the state that outlives it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from aiohttp import web

from proxy.demo.provider.address import LoopbackAddress
from proxy.demo.provider.clients import Client, Grant
from proxy.demo.provider.keys import SigningKeys, new_keys
from proxy.demo.provider.people import Attempts, Person
from proxy.demo.provider.provider import Provider
from proxy.demo.provider.state import LocalState, open_state
from proxy.demo.provider.tokens import Lifetimes
from proxy.demo.provider.web import provider_application

NATIVE_CLIENT: Final = "saltgate-cli"
NATIVE_REDIRECT_URIS = ("http://127.0.0.1/callback", "http://[::1]/callback")
PERSON_GRANTS = frozenset({Grant.AUTHORIZATION_CODE, Grant.REFRESH_TOKEN, Grant.DEVICE_CODE})


@asynccontextmanager
async def open_provider(
    address: LoopbackAddress,
    *,
    people: Iterable[Person],
    clients: Iterable[Client],
    clock: Callable[[], float],
    keys: SigningKeys | None = None,
    lifetimes: Lifetimes | None = None,
    attempts: Attempts | None = None,
) -> AsyncIterator[Provider]:
    """A provider that answers at `address` until the block ends; port 0 is a free one, which `provider.issuer` names.

    Without `keys` it makes its own, which end with it. Raises OSError where the port is taken.
    """
    listener = _listener(address)
    try:
        provider = Provider(
            address.at(listener.getsockname()[1]),
            people=people,
            clients=clients,
            keys=keys if keys is not None else await asyncio.to_thread(new_keys),
            clock=clock,
            lifetimes=lifetimes,
            attempts=attempts,
        )
        # No access log: request lines here hold codes and states.
        runner = web.AppRunner(provider_application(provider), access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.SockSite(runner, listener).start()
            yield provider
        finally:
            await runner.cleanup()
    finally:
        listener.close()


@dataclass(frozen=True, slots=True)
class LocalProvider:
    """The `local` issuer. `new_password` is there once, at the very first start: tell the owner, keep it nowhere."""

    provider: Provider
    owner: Person
    state: LocalState
    new_password: str | None = field(default=None, repr=False)


@asynccontextmanager
async def open_local_provider(
    address: LoopbackAddress,
    folder: Path,
    *,
    audience: str,
    username: str,
    clock: Callable[[], float],
    clients: Iterable[Client] = (),
) -> AsyncIterator[LocalProvider]:
    """An issuer for one person on one computer: keys and owner are kept in `folder`, so tokens survive a restart.

    Besides `clients` it knows `saltgate-cli`, for `saltgate login`. Refresh tokens and sessions end with the process.
    Raises UnsafeState where others may read the folder.
    """
    state = await asyncio.to_thread(open_state, folder)
    keys, owner = await asyncio.to_thread(state.keys), await asyncio.to_thread(state.owner, username)
    known = (command_line_client(audience), *clients)
    async with open_provider(address, people=[owner.person], clients=known, clock=clock, keys=keys) as provider:
        yield LocalProvider(provider, owner.person, state, owner.new_password)


async def rotate_keys(provider: Provider, state: LocalState | None = None) -> None:
    """New keys sign from now on; the old ones verify until their last token has expired. Kept in `state`, if given."""
    keep_seconds = provider.lifetimes.access_token
    keys = await asyncio.to_thread(provider.keys.rotated, now=provider.clock(), keep_seconds=keep_seconds)
    if state is not None:
        await asyncio.to_thread(state.keep_keys, keys)
    provider.use_keys(keys)


def command_line_client(audience: str) -> Client:
    """The public client of `saltgate login`: a loopback listener (RFC 8252) or the device grant (RFC 8628)."""
    return Client(id=NATIVE_CLIENT, redirect_uris=NATIVE_REDIRECT_URIS, grants=PERSON_GRANTS, audience=audience)


def _listener(address: LoopbackAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.bind_host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.bind_host, address.port))
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener
