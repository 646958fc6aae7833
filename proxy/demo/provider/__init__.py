"""A small OpenID Provider inside the process: for `saltgate demo`, and as the `local` issuer of one person's computer.

Start at `server.py` (`open_provider`), then `provider.py` (all that it knows and does, without HTTP) and `web.py` (the
same over HTTP). `authorization.py`, `client_authentication.py` and `tokens.py` decide; `people.py`, `clients.py` and
`keys.py` say who takes part; `state.py` is what the local form keeps on disk. It listens on loopback only, which
`address.py` proves; `native_client.py` is a client of it, without a browser.
"""

from proxy.demo.provider.address import LoopbackAddress, NotLoopback, address_of_issuer, loopback_address
from proxy.demo.provider.clients import Client, Grant
from proxy.demo.provider.native_client import SignInFailed, sign_in
from proxy.demo.provider.people import Person, hash_password
from proxy.demo.provider.provider import Provider
from proxy.demo.provider.server import (
    LocalProvider,
    command_line_client,
    open_local_provider,
    open_provider,
    rotate_keys,
)
from proxy.demo.provider.state import UnsafeState
from proxy.demo.provider.tokens import Lifetimes, TokenResponse

__all__ = [
    "Client",
    "Grant",
    "Lifetimes",
    "LocalProvider",
    "LoopbackAddress",
    "NotLoopback",
    "Person",
    "Provider",
    "SignInFailed",
    "TokenResponse",
    "UnsafeState",
    "address_of_issuer",
    "command_line_client",
    "hash_password",
    "loopback_address",
    "open_local_provider",
    "open_provider",
    "rotate_keys",
    "sign_in",
]
