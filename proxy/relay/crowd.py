"""How many client connections are open in one worker, in all and from one address, and who may come in. Pure."""

from __future__ import annotations

from collections import Counter
from ipaddress import IPv6Address
from typing import Final, Literal

from proxy.peers import Peer, Trusted

Reason = Literal["all", "address", "idle"]
REASONS: Final[tuple[Reason, ...]] = ("all", "address", "idle")
# What a network hands out to one of its customers at least (RFC 6177): who has one address of it has them all.
_IPV6_PREFIX: Final = 64


class Crowd:
    """See the module. `closed` counts the connections that were closed because there were too many: `address` and `all`
    those that came, `idle` those that were open and waited for a request, or whose TLS handshake was not over.
    """

    def __init__(self, most: int, *, of_one_address: int, trusted: Trusted = Trusted()) -> None:  # noqa: B008 - frozen
        """Through those who are `trusted` all their clients come."""
        self.most = most
        self.open = 0
        self.closed: Counter[Reason] = Counter()
        self._of_one_address = of_one_address
        self._trusted = trusted
        self._from: Counter[str] = Counter()

    @property
    def is_full(self) -> bool:
        return self.open >= self.most

    def origin(self, peer: Peer) -> str:
        """Whom a connection from there is counted for; "" where it only counts in all."""
        if peer is None or isinstance(peer, str) or self._trusted.holds(peer):
            return ""
        if isinstance(peer, IPv6Address):
            return f"{int(peer) >> (128 - _IPV6_PREFIX):x}"
        return str(peer)

    def has_enough(self, origin: str) -> bool:
        """Whether there are as many from there as there may be, so that nobody needs to make room for one more."""
        return self._from[origin] >= self._of_one_address

    def enter(self, origin: str) -> bool:
        """Whether the connection may stay. If so, `leave` is to be said once for it."""
        if self.has_enough(origin):
            self.closed["address"] += 1
            return False
        if self.is_full:
            self.closed["all"] += 1
            return False
        self.open += 1
        if origin:
            self._from[origin] += 1
        return True

    def leave(self, origin: str) -> None:
        self.open -= 1
        if origin:
            self._from[origin] -= 1
            if not self._from[origin]:
                del self._from[origin]
