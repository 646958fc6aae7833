"""Personal access tokens over HTTP: JSON in, JSON out, for programs and for `saltgate pat`.

    GET  /account/tokens                  your tokens; with ?issuer=…&subject=… another's, for administrators
    POST /account/tokens                  {"name": …, "expires_in": seconds, "projects": ["acme/apollo", …]} → 201
    POST /account/tokens/revoke           {"id": …}
    POST /account/tokens/revoke-all       {}; {"issuer": …, "subject": …} for administrators

Times are Unix seconds. `expires_in` and `projects` may be left out.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import parse_qsl

from proxy.account.pace import Pace
from proxy.account.persons import Person, WhoVisits
from proxy.account.tokens import AccountTokens, NewToken, Wish
from proxy.desk import Clerk, PageAnswer, Visit
from proxy.directory.token_store import OwnedToken
from proxy.identity.personal_records import Owner, TokenRecord
from proxy.identity.token import Json, strict_json
from proxy.refusals import InvalidRequest, UnsupportedMediaType
from proxy.routes import Page

LONGEST_NAME: Final = 64
MOST_PROJECTS: Final = 50
SHORTEST_LIFETIME: Final = 60

_Deed = Callable[[Person, Visit], Awaitable[PageAnswer]]


class TokenPages:
    """The clerks of these pages. `default_lifetime` is in seconds."""

    def __init__(self, who: WhoVisits, tokens: AccountTokens, pace: Pace, *, default_lifetime: int) -> None:
        self._who = who
        self._tokens = tokens
        self._pace = pace
        self._default_lifetime = default_lifetime

    def clerks(self) -> Mapping[Page, Clerk]:
        deeds: Mapping[Page, _Deed] = {
            Page.TOKENS: self._list,
            Page.NEW_TOKEN: self._create,
            Page.REVOKE_TOKEN: self._revoke,
            Page.REVOKE_ALL_TOKENS: self._revoke_all,
        }
        return {page: self._visited(deed) for page, deed in deeds.items()}

    def _visited(self, deed: _Deed) -> Clerk:
        async def clerk(visit: Visit) -> PageAnswer:
            person = await self._who(visit)
            self._pace.take(person.owner)
            return await deed(person, visit)

        return clerk

    async def _list(self, person: Person, visit: Visit) -> PageAnswer:
        owner = _owner(person, _query(visit.query))
        owned = await self._tokens.owned(person, owner)
        return _answer(200, {"tokens": [token_document(token) for token in owned]})

    async def _create(self, person: Person, visit: Visit) -> PageAnswer:
        made = await self._tokens.create(person, wish(json_object(visit), default_lifetime=self._default_lifetime))
        return _answer(201, new_token_document(made))

    async def _revoke(self, person: Person, visit: Visit) -> PageAnswer:
        members = json_object(visit)
        _refuse_others(members, {"id"})
        await self._tokens.revoke(person, _text(members, "id"))
        return _answer(200, {"revoked": 1})

    async def _revoke_all(self, person: Person, visit: Visit) -> PageAnswer:
        owner = _owner(person, json_object(visit))
        return _answer(200, {"revoked": await self._tokens.revoke_all(person, owner)})


def new_token_document(made: NewToken) -> dict[str, object]:
    """The one answer that holds a secret."""
    return {"token": made.token.text(), **_record_document(made.record)}


def token_document(token: OwnedToken) -> dict[str, object]:
    """A token as its owner's list shows it."""
    return {**_record_document(token.record), "last_used_at": token.used}


def wish(members: Mapping[str, Json], *, default_lifetime: int) -> Wish:
    """The token that is asked for. Raises InvalidRequest."""
    _refuse_others(members, {"name", "expires_in", "projects"})
    return Wish(
        checked_name(_text(members, "name")),
        _lifetime(members.get("expires_in", default_lifetime)),
        _projects(members.get("projects")),
    )


def checked_name(name: str) -> str:
    """Raises InvalidRequest. What does not show could make one name look like another in a list."""
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable() or name != name.strip():
        raise InvalidRequest(
            f"A token's name has 1 to {LONGEST_NAME} characters that show, none of them a space at an end.",
            param="name",
        )
    return name


def json_object(visit: Visit) -> dict[str, Json]:
    """The members of a body. Raises UnsupportedMediaType for a form: what a page of another site can send."""
    types = [value for name, value in visit.headers if name.lower() == "content-type"]
    if len(types) != 1 or types[0].partition(";")[0].strip().lower() != "application/json":
        raise UnsupportedMediaType("Send the body as Content-Type: application/json.")
    try:
        document = strict_json(visit.body)
    except ValueError as error:
        raise InvalidRequest("The body is not well-formed JSON, or names a member twice.") from error
    if not isinstance(document, dict):
        raise InvalidRequest("The body must be a JSON object.")
    return document


def _record_document(record: TokenRecord) -> dict[str, object]:
    return {
        "id": record.id,
        "name": record.name,
        "projects": None if record.projects is None else ["/".join(project) for project in record.projects],
        "created_at": record.created,
        "expires_at": record.expires,
    }


def _owner(person: Person, members: Mapping[str, Json]) -> Owner:
    """Whose tokens are meant: the person's own, unless another is named."""
    _refuse_others(members, {"issuer", "subject"})
    if not members:
        return person.owner
    return Owner(_text(members, "issuer"), _text(members, "subject"))


def _query(query: str) -> dict[str, Json]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True, max_num_fields=8) if query else []
    except ValueError as error:
        raise InvalidRequest("The query is not well-formed.") from error
    if len(dict(pairs)) != len(pairs):
        raise InvalidRequest("The query names something twice.")
    return dict(pairs)


def _refuse_others(members: Mapping[str, Json], known: set[str]) -> None:
    if members.keys() - known:
        raise InvalidRequest(f"Only these may be named here: {', '.join(sorted(known))}.")


def _text(members: Mapping[str, Json], name: str) -> str:
    value = members.get(name)
    if not isinstance(value, str):
        raise InvalidRequest(f"Write {name} as a string.", param=name)
    return value


def _lifetime(value: Json) -> int:
    if not isinstance(value, int) or value < SHORTEST_LIFETIME:  # true is 1, and too short
        raise InvalidRequest(
            f"Write expires_in as a whole number of seconds, {SHORTEST_LIFETIME} at least.", param="expires_in"
        )
    return value


def _projects(value: Json) -> tuple[tuple[str, str], ...] | None:
    if value is None:
        return None
    written = value if isinstance(value, list) else []
    projects = [tuple(each.split("/")) for each in written if isinstance(each, str)]
    pairs = [(parts[0], parts[1]) for parts in projects if len(parts) == 2]
    if not 0 < len(pairs) <= MOST_PROJECTS or len(pairs) != len(written) or len(set(pairs)) != len(pairs):
        raise InvalidRequest(
            f'Write projects as a list of 1 to {MOST_PROJECTS} "WORKSPACE/PROJECT", each once, or leave it out.',
            param="projects",
        )
    return tuple(pairs)


def _answer(status: int, document: object) -> PageAnswer:
    return PageAnswer(status=status, body=json.dumps(document, ensure_ascii=False).encode())
