"""What must hold of `[cors]`: origins as a browser sends them (RFC 6454 section 6.1), or none would be equal. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from config.addresses import is_loopback_host
from config.faults import Fault
from config.settings import Cors

_ORIGIN: Final = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])(?::(?P<port>[1-9][0-9]{0,4}))?"
)
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}


def faults_of_cors(cors: Cors) -> Iterator[Fault]:
    """The faults, in the order of the origins."""
    for number, origin in enumerate(cors.origins):
        wrong = _wrong_with(origin)
        if wrong is not None:
            yield Fault(f"cors.origins.{number}", wrong)


def _wrong_with(origin: str) -> str | None:
    if origin == "*":
        return "would let every page in; list the origins of those that you know"
    if origin == "null":
        return "is the origin of any page that hides its own; serve the page from an address"
    match = _ORIGIN.fullmatch(origin)
    if match is None:
        return (
            'write it as a browser sends it, in lower case and without a path, for example "https://chat.example.com"'
        )
    scheme, host, port = match["scheme"], match["host"], match["port"]
    if port is not None and (port == _DEFAULT_PORTS.get(scheme) or int(port) > 65535):
        return "leave out the port, as a browser does where it is the scheme's own"
    if scheme == "http" and not is_loopback_host(host.strip("[]")):
        return "must be https:// unless the host is loopback; whoever can change the page has its tokens"
    return None
