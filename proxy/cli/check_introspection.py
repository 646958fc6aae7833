"""What `saltgate check` says of an issuer that is asked about opaque tokens."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator

import aiohttp

from config.settings import Introspection, Issuer
from proxy.cli.lines import Level, Line
from proxy.identity.asking import NoAnswerError
from proxy.identity.introspected import FaultyAnswerError, RefusedClientError
from proxy.identity.opaque import introspector


async def introspection_lines(
    rules: Issuer, session: aiohttp.ClientSession, tls: ssl.SSLContext | None
) -> AsyncIterator[Line]:
    """Asks about a token that cannot exist: nothing for an issuer that is not asked about tokens."""
    settings = rules.introspection
    if settings is None:
        return
    part = f"issuer {rules.issuer}"
    clock = time.time  # noqa: TID251 - the clock is handed out here
    try:
        await introspector(rules, settings, session=session, clock=clock, tls=tls).probe()
    except RefusedClientError as error:
        yield _fault(part, f"{error}. {_credentials(settings)}")
    except FaultyAnswerError as error:
        yield _fault(part, f"{error}. {_address(settings)}")
    except NoAnswerError as error:
        yield _fault(part, f"{error}. No opaque token of it can be checked. {_address(settings)}")
    else:
        yield Line(Level.OK, part, "introspection", f"answers the client {settings.client_id}")


def _fault(part: str, message: str) -> Line:
    return Line(Level.FAULT, part, "introspection", message)


def _credentials(settings: Introspection) -> str:
    secret = "client_key" if settings.client_auth == "private_key_jwt" else "client_secret"
    return (
        f"See that `client_id` and `{secret}` are those of a client there, that it authenticates by "
        f"{settings.client_auth} (else set `client_auth`), and that it may introspect tokens"
    )


def _address(settings: Introspection) -> str:
    if settings.endpoint is None:
        return "See that the issuer's discovery document has the right introspection_endpoint, or set `endpoint`"
    return f"See that {settings.endpoint} is the introspection endpoint and can be reached from here"
