"""What must hold of `[proxies]`: whoever is trusted there says what a client holds and where it is. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv6Network, ip_network
from typing import Final

from config.faults import Fault
from config.settings import Proxies

UNIX: Final = "unix"
_MAPPED: Final = IPv6Network("::ffff:0:0/96")

_HEADER_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
# Headers with another meaning here, which a client may send.
_TAKEN: Final = re.compile(
    r"authorization|dpop|x-api-key|api-key|cookie|host|origin|connection|expect|upgrade|transfer-encoding|traceparent"
    r"|forwarded|x-forwarded-for"
    r"|access-control-.*|content-.*|openai-.*|anthropic-.*|x-saltgate-.*",
    re.IGNORECASE,
)


def faults_of_proxies(proxies: Proxies) -> Iterator[Fault]:
    """The faults, in the order of the keys."""
    for number, place in enumerate(proxies.trusted):
        wrong = None if place == UNIX else _wrong_with(place)
        if wrong is not None:
            yield Fault(f"proxies.trusted.{number}", wrong)
    if not proxies.trusted:
        if proxies.client_address_header is not None:
            yield Fault("proxies.client_address_header", "is believed of `trusted` proxies only; list them")
        if proxies.proxy_protocol:
            yield Fault("proxies.proxy_protocol", "is asked of `trusted` balancers only; list them")
    name = proxies.client_certificate_header
    if name is None:
        return
    if not _HEADER_NAME.fullmatch(name) or _TAKEN.fullmatch(name):
        yield Fault("proxies.client_certificate_header", "write a header's name of its own, for example Client-Cert")
    if not proxies.trusted:
        yield Fault("proxies.client_certificate_header", "is believed of `trusted` fronts only; list them")


def _wrong_with(place: str) -> str | None:
    try:
        network = ip_network(place)
    except ValueError:
        return 'write an address, a network such as 10.0.0.0/8 without host bits, or "unix"'
    if network.prefixlen == 0:
        return "is everybody, who could then claim any certificate; list your fronts"
    if "%" in place:
        return "leave out what is behind the %: a link-local address is compared without its link"
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        return "write it as an IPv4 address or network: a mapped address counts as IPv4"
    return None
