"""`GET /account`, for a program that shows a credential: who that is here, and what he may act for."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

from proxy.account.logins import Logins
from proxy.desk import PageAnswer, Visit
from proxy.directory.membership import OwnProject, own_projects
from proxy.directory.snapshot import Snapshot
from proxy.identity import Identity
from proxy.identity.shown import Shown
from proxy.isolation.unit import Level
from proxy.routes import Page, Route, named_scope

LISTED_AT_MOST: Final = 1000


class Identities(Protocol):
    """Who is calling. Raises a 401 Refusal, or IssuerUnavailable where saltgate cannot know."""

    async def identify(self, shown: Shown) -> Identity: ...


class Directory(Protocol):
    """What callers may act for, as of now. Raises DirectoryUnavailable where that is not known any more."""

    def current(self) -> Snapshot: ...


@dataclass(frozen=True, slots=True)
class Account:
    """The clerk of the page. `default_unit` is the deployment's border."""

    identities: Identities
    directory: Directory
    logins: Logins
    default_unit: Level

    async def serve(self, visit: Visit) -> PageAnswer:
        """Raises the same refusals as a request to an engine does: 401, 403 for who is blocked, 503."""
        identity = await self.identities.identify(shown_at(visit))
        projects = own_projects(self.directory.current(), identity, self.default_unit)
        await self.logins.note(identity)
        return PageAnswer(status=200, body=account_document(identity, projects))


def shown_at(visit: Visit) -> Shown:
    """What a program shows at a page of the account: the same as at an engine's endpoint, also the workspace that says
    who is asked about an opaque token. Raises InvalidRequest where two are named.
    """
    return Shown(
        headers=visit.headers,
        method=visit.method,
        path=visit.path,
        workspace=named_scope(Route(Page.ACCOUNT, visit.path), visit.headers).workspace,
        certificate=visit.certificate,
    )


def account_document(identity: Identity, projects: Iterable[OwnProject]) -> bytes:
    """The JSON. `more` is true where not all projects are listed; times are Unix seconds."""
    listed = list(islice(projects, LISTED_AT_MOST + 1))
    document = {
        "identity": {
            "issuer": identity.issuer,
            "subject": identity.subject,
            "groups": sorted(identity.groups),
            "groups_complete": identity.groups_complete,
            "client": identity.client,
            "method": identity.method,
            "expires_at": identity.expires_at,
        },
        "memberships": [
            {"workspace": each.workspace, "project": each.project, "unit": each.unit.value}
            for each in listed[:LISTED_AT_MOST]
        ],
        "more": len(listed) > LISTED_AT_MOST,
    }
    return json.dumps(document).encode()
