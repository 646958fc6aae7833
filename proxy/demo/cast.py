"""The demo's people, programs and directory: two customers who must not notice each other.

alice and carol are colleagues in acme's project apollo, so they may share the cache; bob is in globex's project hermes.
The passwords are no secrets: they are printed on the screen, and the provider that takes them is reachable from this
computer only.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from proxy.demo.provider.clients import Client, Grant
from proxy.demo.provider.people import Person, hash_password
from proxy.demo.provider.server import command_line_client

AUDIENCE: Final = "saltgate"


@dataclass(frozen=True, slots=True)
class Role:
    """One of the demo's people, and where he works."""

    subject: str
    username: str
    password: str
    name: str
    groups: frozenset[str]
    workspace: str
    project: str


ALICE: Final = Role("u-alice-0001", "alice", "alice-demo", "Alice of Acme", frozenset({"eng"}), "acme", "apollo")
CAROL: Final = Role("u-carol-0003", "carol", "carol-demo", "Carol of Acme", frozenset({"docs"}), "acme", "apollo")
BOB: Final = Role("u-bob-0002", "bob", "bob-demo", "Bob of Globex", frozenset({"ops"}), "globex", "hermes")
CAST: Final = (ALICE, CAROL, BOB)

WEB_CLIENT: Final = "saltgate-web"
SERVICE_ACCOUNT: Final = "acme-batch"


def people() -> tuple[Person, ...]:
    """The cast as the provider knows it. Each password takes some 50 ms to hash; call it off the event loop."""
    return tuple(Person(r.subject, r.username, hash_password(r.password), r.name, r.groups) for r in CAST)


def clients(*, service_secret: str, web_secret: str, public_url: str) -> tuple[Client, ...]:
    """The demo's programs: `saltgate login`, saltgate's own pages at `public_url`, and acme's service account. Their
    secrets are of this run.
    """
    web = Client(
        id=WEB_CLIENT,
        secret=web_secret,
        redirect_uris=(f"{public_url}/auth/callback",),
        post_logout_redirect_uris=(f"{public_url}/auth/signed-out",),
        grants=frozenset({Grant.AUTHORIZATION_CODE}),
        audience=AUDIENCE,
    )
    service = Client(
        id=SERVICE_ACCOUNT,
        secret=service_secret,
        grants=frozenset({Grant.CLIENT_CREDENTIALS}),
        audience=AUDIENCE,
        algorithm="ES256",
    )
    return (command_line_client(AUDIENCE), web, service)


def directory_toml(issuer: str) -> str:
    """The directory of both customers, whose people `issuer` signs in (the form of `saltgate directory import`)."""
    quoted = json.dumps(issuer)  # A JSON string is a TOML basic string.
    return f"""\
[workspaces.acme]
issuer = {quoted}

[workspaces.acme.projects.apollo]
members = ["group:eng", "user:{CAROL.subject}", "user:{SERVICE_ACCOUNT}"]

[workspaces.globex]
issuer = {quoted}

[workspaces.globex.projects.hermes]
members = ["user:{BOB.subject}"]
"""
