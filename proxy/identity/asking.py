"""How an issuer may be asked: over protected addresses only, no redirect followed, every answer bounded.

The rules are those of OpenID Connect Discovery 1.0 section 4.3 (the metadata must name the issuer that was asked) and
RFC 8725 section 3.10 (no address from a token is ever asked). Time is bounded by whoever asks.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final

import aiohttp
from yarl import URL

from proxy.identity.token import Json, strict_json

MAXIMUM_DOCUMENT_BYTES: Final = 256 * 1024
# A body that unpacks itself would escape the bound on its length.
ACCEPT_JSON: Final[Mapping[str, str]] = {"Accept": "application/json", "Accept-Encoding": "identity"}


class NoAnswerError(Exception):
    """The issuer could not be asked or gave no usable answer.

    The text says why, for the log. It holds addresses, but never anything of what was sent or answered.
    """


def trusted_address(text: str) -> URL:
    """An address that may be asked: https, or http on this machine. Raises NoAnswerError otherwise."""
    try:
        address = URL(text)
    except ValueError as error:
        raise NoAnswerError("it is no address") from error
    if address.user is not None or address.password is not None:
        raise NoAnswerError("an address with a user or password in it is not asked")
    if address.scheme == "https" and address.host:
        return address
    if address.scheme == "http" and _is_loopback(address.host):
        return address
    raise NoAnswerError("an address of an issuer must be https, or http on loopback")


async def metadata(session: aiohttp.ClientSession, issuer: str, tls: ssl.SSLContext | None) -> Mapping[str, Json]:
    """What the issuer says about itself. Raises NoAnswerError, ValueError, and what aiohttp raises."""
    address = trusted_address(issuer.removesuffix("/") + "/.well-known/openid-configuration")
    found = strict_json((await document(session, address, tls))[0])
    if not isinstance(found, dict) or found.get("issuer") != issuer:
        raise NoAnswerError("the metadata does not name this issuer, byte for byte")
    return found


def address_in(found: Mapping[str, Json], name: str, issuer: str) -> URL:
    """The address that the issuer's metadata gives under `name`; never a less protected one than the issuer's own."""
    text = found.get(name)
    if not isinstance(text, str):
        raise NoAnswerError(f"the metadata has no {name}")
    address = trusted_address(text)
    if address.scheme != URL(issuer).scheme and address.scheme != "https":
        raise NoAnswerError(f"the metadata's {name} is less protected than the issuer")
    return address


async def document(session: aiohttp.ClientSession, address: URL, tls: ssl.SSLContext | None) -> tuple[bytes, str]:
    """The body at the address, and its Cache-Control."""
    async with session.get(address, allow_redirects=False, ssl=tls or True, headers=ACCEPT_JSON) as response:
        if response.status != 200:
            raise NoAnswerError(f"{address} answered {response.status}")
        return await body_of(response), response.headers.get("Cache-Control", "")


async def body_of(response: aiohttp.ClientResponse) -> bytes:
    """The whole body, of at most MAXIMUM_DOCUMENT_BYTES."""
    body = bytearray()
    async for chunk in response.content.iter_chunked(16 * 1024):
        body += chunk
        if len(body) > MAXIMUM_DOCUMENT_BYTES:
            raise NoAnswerError(f"{response.url} answered with more than {MAXIMUM_DOCUMENT_BYTES} bytes")
    return bytes(body)


def _is_loopback(host: str | None) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host or "").is_loopback
    except ValueError:
        return False
