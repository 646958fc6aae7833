"""The certificate that the public listener shows: that of its files, followed while saltgate runs.

Whoever renews a certificate writes two files, one after the other, so a look may find halves that do not fit; then the
one that is shown stays, until a later look finds a pair. Connections that are open keep what they were shown.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

import structlog

from config.settings import Tls
from proxy.tls import Pair, expiry, pair_context, read_pair

LOOK_SECONDS: Final = 10.0

_log = structlog.get_logger("saltgate.tls")


class ShownCertificate:
    """See the module. `pair` is what the configuration's reading found sound. `tell` hears of every look when what is
    shown ends, in Unix seconds, and whether the files are what is shown.
    """

    def __init__(self, tls: Tls, pair: Pair, tell: Callable[[float, bool], None]) -> None:
        self._tls = tls
        self._pair = pair
        self._seen = pair
        self._tell = tell
        self._unread: str | None = None
        self.context: ssl.SSLContext = pair_context(pair)
        self.look()

    def look(self) -> None:
        """Show what the files hold now, if it can be shown."""
        try:
            found = read_pair(self._tls)
        except OSError as error:
            self._stay(error.strerror or "cannot be read")
        else:
            self._unread = None
            if found != self._seen:
                self._seen = found
                self._try(found)
        self._tell(expiry(self._pair), self._unread is None and self._seen == self._pair)

    async def follow(self, seconds: float = LOOK_SECONDS) -> None:
        """Look every so often. Endless."""
        while True:
            await asyncio.sleep(seconds)
            self.look()

    def _try(self, found: Pair) -> None:
        try:
            context = pair_context(found)
            expiry(found)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            _log.error("tls.certificate_unusable", why=_words(error), remedy="write certificate and key of one pair")
            return
        self._pair, self.context = found, context
        _log.info("tls.certificate_renewed")

    def _stay(self, why: str) -> None:
        if self._unread != why:
            self._unread = why
            _log.error("tls.certificate_unreadable", why=why, remedy="let saltgate read certificate, key and client_ca")


def _words(error: OSError | ValueError) -> str:
    reason = error.reason if isinstance(error, ssl.SSLError) else type(error).__name__
    return (reason or "cannot be used").replace("_", " ").lower()
