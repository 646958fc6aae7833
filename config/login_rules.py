"""What must hold of `[issuers.login]` and `[sessions]`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from config.faults import Fault
from config.settings import Directory, Issuer, Login, Sessions

LONGEST_SESSION: Final = 30 * 24 * 3600.0
_CALLBACK: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_CLIENT_SECRET: Final = re.compile(rb"[ -~]+")  # RFC 6749 appendix A.2


def faults_of_logins(issuers: Mapping[int, Issuer], directory: Directory | None) -> Iterator[Fault]:
    """The faults, in the order of the issuers. `directory` is None where it could not be read."""
    callbacks: set[str] = set()
    for number, issuer in issuers.items():
        if issuer.login is not None:
            yield from _faults_of(f"issuers.{number}.login", issuer, issuer.login, directory)
            yield from _faults_of_callback(f"issuers.{number}.login.callback", issuer.login, callbacks)


def faults_of_sessions(sessions: Sessions) -> Iterator[Fault]:
    """The faults of `[sessions]`."""
    if sessions.absolute > LONGEST_SESSION:
        yield Fault("sessions.absolute", 'is at most "720h"; people sign in again then')
    if sessions.idle > sessions.absolute:
        yield Fault("sessions.idle", "is longer than `sessions.absolute`; write that or less")


def _faults_of_callback(key: str, login: Login, taken: set[str]) -> Iterator[Fault]:
    """`taken` are those of the issuers before."""
    if login.callback is None:
        return
    if not _CALLBACK.fullmatch(login.callback):
        yield Fault(key, "is a name of small letters, digits, dot, dash and underscore, for example acme")
    if login.client_id is None:
        yield Fault(key, "belongs to `client_id`; write that, too")
    if login.callback in taken:
        yield Fault(key, "is another issuer's too; each has its own")
    taken.add(login.callback)


def _faults_of(key: str, issuer: Issuer, login: Login, directory: Directory | None) -> Iterator[Fault]:
    if login.client_id is None and login.native_client_id is None:
        yield Fault(
            key, "write `client_id` (sign-in with a browser), `native_client_id` (`saltgate login`), or both of them"
        )
    if login.client_id in issuer.audiences:
        yield Fault(
            f"{key}.client_id",
            "is also in `audiences`: that client's ID tokens would pass; give saltgate an audience of its own",
        )
    if issuer.clients is not None and login.native_client_id not in (None, *issuer.clients):
        yield Fault(f"{key}.native_client_id", "is not in `clients`, so its tokens would be refused; add it there")
    if login.client_secret is not None and login.client_id is None:
        yield Fault(f"{key}.client_secret", "belongs to `client_id`; write that, too")
    if login.client_secret is not None and not _CLIENT_SECRET.fullmatch(login.client_secret.value):
        yield Fault(
            f"{key}.client_secret",
            f"{login.client_secret.source} holds line breaks or other bytes that no client secret may have",
        )
    for name, scopes in (("scopes", login.scopes), ("native_scopes", login.native_scopes)):
        if "openid" not in scopes:
            yield Fault(f"{key}.{name}", "lacks openid, without which no ID token comes; add it")
    if login.client_id is not None and directory is not None and directory.redis is None:
        yield Fault(f"{key}.client_id", "needs `directory.redis`: sign-ins must be known to all workers at once")
