"""Images that are elsewhere: which addresses a request may name, and what exactly is fetched for each.

An address is taken apart once, by the strictest reading: all before the path must be, character by character, one of
the origins that the operator has listed, so there is no host, user or port in it for two readers to disagree on. The
path and query are of the characters that RFC 3986 has for them, and go out as they came.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from msgspec import Raw

from config.media_hosts import MediaHost, Reach
from proxy.refusals import InvalidRequest

# Signed addresses of object stores are long; servers take 8 KiB in all.
MAX_ADDRESS_CHARACTERS: Final = 4096


@dataclass(frozen=True, slots=True)
class Origin:
    """A scheme, host and port that images may be fetched from; what it is called in a URL is `text`.

    `reach` bounds the addresses that the host may have, `ca` is the PEM file of its private authority.
    """

    text: str
    host: str
    port: int
    reach: Reach
    ca: Path | None = None


@dataclass(frozen=True, slots=True)
class Address:
    """Where an image is. `target` is the path and query, as the request line has it; it may hold a secret."""

    origin: Origin
    target: str = field(repr=False)

    @property
    def url(self) -> str:
        """What the client wrote."""
        return self.origin.text + self.target


@dataclass(frozen=True, slots=True)
class Remote:
    """An image that a request names by its address, and where in the request it does."""

    where: str
    address: Address


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The origins, by their text, at which an image may be in place of the request."""

    origins: Mapping[str, Origin]

    def admit(self, where: str, url: str) -> Raw:
        """Raises InvalidRequest for whatever is no address at one of the origins."""
        if self.address(url) is None:
            raise InvalidRequest(
                f"{where} must be an image in the request itself, written data:image/png;base64,… (or another type), "
                "or the https:// address of one, without a fragment, at a host that this deployment fetches from: ask "
                "your operator for these.",
                param=where,
                reason="media_refused",
            )
        return Raw(b'"%b"' % url.encode("ascii"))

    def address(self, url: str) -> Address | None:
        """The address that the text is; None where it is none that may be fetched."""
        if len(url) > MAX_ADDRESS_CHARACTERS:
            return None
        match = _URL.fullmatch(url)
        origin = self.origins.get(match["origin"]) if match is not None else None
        return Address(origin, match["target"]) if match is not None and origin is not None else None


# RFC 3986 section 3.3 and 3.4: pchar, "/" and "?". A query is never empty: some writers would drop the "?".
_CHARACTER: Final = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})"
_URL: Final = re.compile(rf"(?P<origin>https?://[^/?#]+)(?P<target>/{_CHARACTER}*(?:\?(?:{_CHARACTER}|\?)+)?)")


def elsewhere(hosts: Iterable[MediaHost], *, private_ca: Path | None) -> Elsewhere | None:
    """Where images may be, for these hosts; None where there is none. https, and on loopback http as well."""
    origins = {origin.text: origin for host in hosts for origin in _origins(host, private_ca)}
    return Elsewhere(origins) if origins else None


def _origins(host: MediaHost, private_ca: Path | None) -> Iterator[Origin]:
    ca = None if host.reach is Reach.PUBLIC else private_ca
    yield Origin(f"https://{host.authority}", host.host, host.port or 443, host.reach, ca)
    if host.reach is Reach.LOOPBACK:
        yield Origin(f"http://{host.authority}", host.host, host.port or 80, host.reach)
