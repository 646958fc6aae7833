"""The images of a request, asked for at the addresses that it names: within a time, a size, and nothing of the client.

What goes out is a GET with constant headers. What comes back counts only as 200, as it is (no redirect, no coding), and
whole. Why an image was not fetched is for the operator alone: a client that could tell a closed port from a refused
address would have a view of the operator's network.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
from aiohttp import ClientConnectorDNSError, ClientResponse, ClientSession, ClientTimeout
from yarl import URL

from proxy.engines.body import ClientRequest, UnfetchedRequest, with_images
from proxy.engines.remote import Address, Remote
from proxy.fetching.lookup import AllowedResolver, Lookup, NoAllowedAddressError
from proxy.refusals import BodyTooLarge, EngineBusy, InvalidRequest, Refusal
from proxy.turns import Turns

# Each may hold as many bytes as a client's upload, so they have an end: of requests of one worker whose images are
# being fetched, of those of one workspace among them, for a slow host holds each until the deadline, and of connections
# of each request.
REQUESTS: Final = 16
OF_ONE_WORKSPACE: Final = 8
CONNECTIONS: Final = 4
_HEADERS: Final = {"Accept": "image/*", "Accept-Encoding": "identity", "User-Agent": "saltgate"}


class Fetcher:
    """Fetches images for all requests of one worker. To be closed."""

    def __init__(
        self,
        lookup: Lookup,
        *,
        seconds: float,
        tls: Mapping[Path | None, ssl.SSLContext],
        requests: int = REQUESTS,
        of_one_workspace: int = OF_ONE_WORKSPACE,
    ) -> None:
        """All images of a request must be there after `seconds`. `tls` has the context of each origin's `ca`."""
        self._lookup = lookup
        self._seconds = seconds
        self._tls = tls
        self._turns = Turns(requests, of_one_workspace)
        # Some bytes name megabytes, and to write and check these takes a tenth of a second per ten of them, for which
        # no stream shall wait. One thread, because more would keep the loop from Python's lock. Begins when needed.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="saltgate-images")

    async def completed(self, request: UnfetchedRequest, *, workspace: str, most_bytes: int) -> ClientRequest:
        """The request with all its images in it, each address asked once; so it may have `most_bytes`. Workspaces take
        turns.

        Raises InvalidRequest with the image's place for one that cannot be had, BodyTooLarge, and EngineBusy where too
        many others are being fetched.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._seconds
        async with self._turn(workspace, deadline):
            images = await self._fetched(request, deadline, _Room(most_bytes - request.size_bytes))
            return await loop.run_in_executor(self._thread, with_images, request, images)

    def close(self) -> None:
        """Takes no request any more. What is being put together is not waited for: nobody needs it."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _fetched(self, request: UnfetchedRequest, deadline: float, room: _Room) -> Mapping[Address, bytes]:
        """The data of every image, by its address."""
        named = Counter(remote.address for remote in request.remote)
        first = {remote.address: remote for remote in reversed(request.remote)}
        async with self._session(named) as session:
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = {
                        address: group.create_task(
                            self._fetch(session, first[address], deadline, request.most_bytes, room, times)
                        )
                        for address, times in named.items()
                    }
            except ExceptionGroup as failed:
                raise _one_of(failed) from None
        return {address: task.result() for address, task in tasks.items()}

    @asynccontextmanager
    async def _turn(self, workspace: str, deadline: float) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout_at(deadline):
                await self._turns.take(workspace)
        except TimeoutError:
            raise EngineBusy(
                "saltgate is fetching as many images as it can. Try again in a moment.", reason="media_busy"
            ) from None
        try:
            yield
        finally:
            self._turns.give_back(workspace)

    def _session(self, addresses: Mapping[Address, int]) -> ClientSession:
        resolver = AllowedResolver(self._lookup, {address.origin for address in addresses})
        return ClientSession(
            connector=aiohttp.TCPConnector(resolver=resolver, use_dns_cache=False, limit=CONNECTIONS),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,  # a body that unpacks itself would escape the bound on its length
            trust_env=False,  # a proxy would look the names up itself, and a .netrc holds passwords
            timeout=ClientTimeout(),  # the deadline is of all images together
            headers=_HEADERS,
        )

    async def _fetch(
        self, session: ClientSession, remote: Remote, deadline: float, most_bytes: int, room: _Room, times: int
    ) -> bytes:
        origin = remote.address.origin
        tls = self._tls[origin.ca] if origin.text.startswith("https:") else True
        try:
            async with (
                asyncio.timeout_at(deadline),
                # Its characters are checked, so nothing in it is to be mended: it goes out as it is.
                session.get(URL(remote.address.url, encoded=True), allow_redirects=False, ssl=tls) as response,
            ):
                _check_head(remote, response, most_bytes)
                return await _collected(remote, response, most_bytes, room, times)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise _not_fetched(remote, _reason(error)) from error


class _Room:
    """How many bytes may still be added to a request, in base64."""

    def __init__(self, most_bytes: int) -> None:
        self._quarters = most_bytes * 3

    def take(self, size: int) -> None:
        """Raises BodyTooLarge."""
        self._quarters -= size * 4
        if self._quarters < 0:
            raise BodyTooLarge(
                "The request is too large with its images in it. Send fewer or smaller ones.", reason="media_too_large"
            )


def _check_head(remote: Remote, response: ClientResponse, most_bytes: int) -> None:
    if response.status != 200:
        raise _not_fetched(remote, "media_status")
    codings = response.headers.getall("Content-Encoding", ())
    if any(coding.strip().lower() != "identity" for coding in codings):
        raise _not_fetched(remote, "media_encoding")
    if response.content_length is None and response.headers.get("Transfer-Encoding", "").strip().lower() != "chunked":
        raise _not_fetched(remote, "media_length")  # its end could be anywhere
    if response.content_length is not None and response.content_length > most_bytes:
        raise _too_large(remote, most_bytes)


async def _collected(remote: Remote, response: ClientResponse, most_bytes: int, room: _Room, times: int) -> bytes:
    body = bytearray()
    async for piece in response.content.iter_any():
        room.take(len(piece) * times)
        body += piece
        if len(body) > most_bytes:
            raise _too_large(remote, most_bytes)
    return bytes(body)


def _one_of(failed: ExceptionGroup) -> Exception:
    """What a request is refused for where several images failed; a fault of ours before all."""
    refusals, faults = failed.split(Refusal)
    if faults is not None or refusals is None:
        return failed
    return refusals.exceptions[0]


def _too_large(remote: Remote, most_bytes: int) -> InvalidRequest:
    return InvalidRequest(f"{remote.where} must be an image of at most {most_bytes} bytes.", param=remote.where)


def _not_fetched(remote: Remote, reason: str) -> InvalidRequest:
    return InvalidRequest(
        f"{remote.where} could not be fetched. See that its host gives the image itself to anybody, at once and "
        "without a redirect, or send it in the request, written data:image/png;base64,….",
        param=remote.where,
        reason=reason,
    )


def _reason(error: Exception) -> str:
    match error:
        case ClientConnectorDNSError(os_error=NoAllowedAddressError()):
            return "media_address"
        case TimeoutError():
            return "media_slow"
        case aiohttp.ClientSSLError():
            return "media_tls"
        case aiohttp.ClientConnectorError():
            return "media_unreachable"
        case _:
            return "media_broken"
