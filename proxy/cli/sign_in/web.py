"""How gate and identity provider are asked: https or loopback, bounded in size and time, no redirect followed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import aiohttp
from yarl import URL

from proxy.cli.sign_in import SignInFailed
from proxy.identity.asking import NoAnswerError, body_of, trusted_address
from proxy.identity.token import Json, strict_json

SECONDS: Final = 15.0
"""For one question and its answer in all."""


class Unreachable(SignInFailed):
    """There was no answer. The same question may have one later."""


@dataclass(frozen=True, slots=True)
class WebAnswer:
    """`body` as it came; nothing of it is judged."""

    status: int
    body: bytes = field(repr=False)

    def members(self) -> Mapping[str, Json]:
        """The members of the JSON object that it is; none where it is none."""
        try:
            value = strict_json(self.body)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


class Web:
    """`seconds` bounds each question with its answer. Every method raises SignInFailed, Unreachable for no answer."""

    def __init__(self, session: aiohttp.ClientSession, *, seconds: float = SECONDS) -> None:
        self._session = session
        self._timeout = aiohttp.ClientTimeout(total=seconds)

    async def get(self, address: str, *, bearer: str | None = None) -> WebAnswer:
        return await self._asked("GET", address, bearer=bearer)

    async def post(self, address: str, form: Mapping[str, str]) -> WebAnswer:
        return await self._asked("POST", address, form=form)

    async def send(self, method: str, address: str, document: object, *, bearer: str) -> WebAnswer:
        """A JSON document."""
        return await self._asked(method, address, document=document, bearer=bearer)

    async def _asked(
        self,
        method: str,
        address: str,
        *,
        form: Mapping[str, str] | None = None,
        document: object = None,
        bearer: str | None = None,
    ) -> WebAnswer:
        asked = checked_address(address)
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if bearer is not None:
            headers["Authorization"] = f"Bearer {bearer}"
        try:
            async with self._session.request(
                method, asked, data=form, json=document, headers=headers, allow_redirects=False, timeout=self._timeout
            ) as response:
                return WebAnswer(response.status, await body_of(response))
        except NoAnswerError as error:
            raise SignInFailed(f"{asked.origin()}: {error}") from None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            # Not the error's own text: it may repeat what was sent.
            raise Unreachable(f"{asked.origin()} cannot be reached ({_why(error)}); try again") from None


def checked_address(address: str) -> URL:
    """https, or http on this machine. Raises SignInFailed."""
    try:
        return trusted_address(address)
    except NoAnswerError:
        raise SignInFailed(
            f"{shown(address)} is not asked: an address must be https, or http on this machine, without a password"
        ) from None


def shown(text: str) -> str:
    """Text from outside, fit for a terminal: no control characters, no more than a line of it."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text[:300])


@asynccontextmanager
async def open_web(*, seconds: float = SECONDS) -> AsyncIterator[Web]:
    """No cookies travel between gate and identity provider; a body that unpacks itself would escape its bound."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False) as session:
        yield Web(session, seconds=seconds)


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not trusted; SSL_CERT_FILE names a private authority"
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.strerror:
        return error.os_error.strerror
    return type(error).__name__
