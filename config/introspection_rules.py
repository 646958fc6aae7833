"""What must hold of `[issuers.introspection]`. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from config.faults import Fault
from config.settings import Introspection, Issuer

MAXIMUM_CACHE_SECONDS: Final = 30.0


def faults_of_introspection(
    key: str, issuer: Issuer, introspection: Introspection, algorithms: Collection[str]
) -> Iterator[Fault]:
    """The faults of one issuer's section, whose dotted key is `key`. `algorithms` are what a key may sign with."""
    yield from _faults_of_client(key, introspection, algorithms)
    if introspection.endpoint is not None and "#" in introspection.endpoint:
        yield Fault(f"{key}.endpoint", "leave out the fragment")
    if introspection.cache > MAXIMUM_CACHE_SECONDS:
        yield Fault(f"{key}.cache", 'write at most "30s": a revoked token must stop soon')
    for position, account in enumerate(introspection.service_accounts or ()):
        if issuer.clients is not None and account not in issuer.clients:
            yield Fault(
                f"{key}.service_accounts.{position}",
                "is not in `clients` of the issuer, so its tokens would be refused; add it there",
            )


def _faults_of_client(key: str, introspection: Introspection, algorithms: Collection[str]) -> Iterator[Fault]:
    """Exactly the secret that `client_auth` needs: another one would be thought to protect something."""
    by_key = introspection.client_auth == "private_key_jwt"
    needed, other = ("client_key", "client_secret") if by_key else ("client_secret", "client_key")
    has = {"client_key": introspection.client_key is not None, "client_secret": introspection.client_secret is not None}
    if not has[needed]:
        yield Fault(f"{key}.{needed}", f"is required for {introspection.client_auth}; write it, or set `client_auth`")
    if has[other]:
        yield Fault(
            f"{key}.{other}", f"is not used with {introspection.client_auth}; leave it out or set `client_auth`"
        )
    if by_key and introspection.client_key_algorithm not in algorithms:
        yield Fault(f"{key}.client_key_algorithm", f"is not accepted; write one of {', '.join(sorted(algorithms))}")
