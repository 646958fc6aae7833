"""What `saltgate check` finds out about the hosts that images are fetched from. It says hello, and asks for nothing."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Final

from config.client_tls import client_context
from config.media_hosts import Reach
from config.settings import Engine
from proxy.cli.lines import Level, Line
from proxy.engines.kinds import image_hosts
from proxy.engines.remote import Origin, elsewhere
from proxy.fetching.lookup import Lookup, NoAllowedAddressError, SystemLookup, allowed_addresses

HELLO_SECONDS: Final = 5.0


async def image_lines(engine: Engine) -> AsyncIterator[Line]:
    """A line for each host of an engine's images; none where it fetches none."""
    part = f"images for engine {engine.name}"
    with closing(SystemLookup()) as lookup:
        for host in image_hosts(engine) if engine.media else ():
            places = elsewhere([host], private_ca=engine.media_private_ca)
            lines = [await origin_line(part, origin, lookup) for origin in places.origins.values()] if places else []
            # On loopback a host is an origin of https and one of http: one of them is enough.
            yield next((line for line in lines if line.level is Level.OK), lines[0])


async def origin_line(part: str, origin: Origin, lookup: Lookup) -> Line:
    """Whether an origin has an address that it may have, and whether something that may be trusted answers there."""
    try:
        async with asyncio.timeout(HELLO_SECONDS):
            addresses = await allowed_addresses(lookup, origin)
            await _hello(origin, addresses[0])
    except NoAllowedAddressError as error:
        return Line(Level.FAULT, part, origin.text, _inward(origin, error))
    except TimeoutError:
        return Line(Level.FAULT, part, origin.text, f"it does not answer within {HELLO_SECONDS:g} s")
    except ssl.SSLError as error:
        remedy = "See that its certificate has this name, and `media_private_ca` if its authority is your own"
        return Line(Level.FAULT, part, origin.text, f"its certificate is not trusted ({error.reason}). {remedy}")
    except OSError as error:
        return Line(
            Level.FAULT, part, origin.text, f"it cannot be reached from here ({error.strerror or 'no connection'})"
        )
    return Line(Level.OK, part, origin.text, f"it answers at {addresses[0]}")


async def _hello(origin: Origin, address: str) -> None:
    """Connects, and speaks TLS where the origin does. Raises OSError."""
    tls = client_context(origin.ca, None) if origin.text.startswith("https:") else None
    _, writer = await asyncio.open_connection(
        address, origin.port, ssl=tls, server_hostname=origin.host if tls is not None else None
    )
    writer.close()


def _inward(origin: Origin, error: NoAllowedAddressError) -> str:
    found = ", ".join(error.found) or "none"
    if origin.reach is not Reach.PUBLIC:
        return f"none of its addresses may be asked ({found}), so no image is fetched from it"
    return (
        f"none of its addresses is public ({found}), so no image is fetched from it. If it is meant to be inside your "
        "network, move it to `media_private_hosts`"
    )
