"""What is asked over the network for a sign-in: at which addresses, and how much of an answer is read."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final

from aiohttp import ClientResponse
from yarl import URL

MAXIMUM_DOCUMENT_BYTES: Final = 256 * 1024


class NotAskedError(ValueError):
    """An address that is not asked, or an answer that is not read. The text says why."""


def outside_address(text: str) -> URL:
    """An address that keys and tokens may come from: https, or http on this machine. Raises NotAskedError otherwise."""
    try:
        address = URL(text)
    except ValueError as error:
        raise NotAskedError("it is no address") from error
    if address.user is not None or address.password is not None:
        raise NotAskedError("an address with a user or password in it is not asked")
    if address.scheme == "https" and address.host:
        return address
    if address.scheme == "http" and is_loopback(address.host):
        return address
    raise NotAskedError("an address of an issuer must be https, or http on loopback")


def is_loopback(host: str | None) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host or "").is_loopback
    except ValueError:
        return False


async def bounded_body(response: ClientResponse) -> bytes:
    """The answer's body. Raises NotAskedError as soon as it is longer than any document of an issuer."""
    body = bytearray()
    async for chunk in response.content.iter_chunked(16 * 1024):
        body += chunk
        if len(body) > MAXIMUM_DOCUMENT_BYTES:
            raise NotAskedError(f"{response.url} answered with more than {MAXIMUM_DOCUMENT_BYTES} bytes")
    return bytes(body)
