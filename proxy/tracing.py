"""Whose traces go on here: a caller's `traceparent` is believed of those whom the operator trusts with it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from config.settings import Settings
from proxy.identity import Identity
from proxy.peers import Peer, Trusted, trusted_proxies


@dataclass(frozen=True, slots=True)
class Tracing:
    """`clients` and `subjects` are of the callers that are trusted, with their issuers; `proxies` are where requests
    come from whose traces go on, whoever calls.
    """

    clients: frozenset[tuple[str, str | None]] = frozenset()
    subjects: frozenset[tuple[str, str]] = frozenset()
    proxies: Trusted = field(default_factory=Trusted)

    def goes_on(self, identity: Identity, peer: Peer) -> bool:
        """Whether the trace that the request names becomes its own. A front end that speaks for people counts as
        well as they do.
        """
        return self.proxies.holds(peer) or any(
            (caller.issuer, caller.subject) in self.subjects or (caller.issuer, caller.client) in self.clients
            for caller in (identity, identity.actor)
            if caller is not None
        )


def tracing(settings: Settings) -> Tracing:
    """What the settings say of it."""
    callers = settings.telemetry.trusted_callers
    return Tracing(
        clients=frozenset((one.issuer, one.client) for one in callers if one.client is not None),
        subjects=frozenset((one.issuer, one.subject) for one in callers if one.subject is not None),
        proxies=trusted_proxies(settings.proxies) if settings.telemetry.trusted_proxies else Trusted(),
    )
