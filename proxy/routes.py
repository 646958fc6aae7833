"""What a request asks for and for whom: exact method and path, and the scope that path and headers name.

Everything that is not on the list does not exist. Paths are compared as they were sent, byte for byte: an engine
decodes `%2F` and friends before it routes (uvicorn does), so a gate that normalised would allow what it never saw.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final
from urllib.parse import unquote

from proxy.directory.membership import Named
from proxy.engines.kinds import PROFILES
from proxy.engines.profile import Operation
from proxy.isolation.scope import WIDTH
from proxy.isolation.unit import NAME, Level
from proxy.refusals import Dialect, EndpointNotAllowed, InvalidRequest

METADATA_PATH: Final = "/.well-known/oauth-protected-resource"

ORGANIZATION: Final = "OpenAI-Organization"
PROJECT: Final = "OpenAI-Project"
UNIT: Final = "X-Saltgate-Unit"
COLLECTION: Final = "X-Saltgate-Collection"
NAMING_HEADERS: Final = (ORGANIZATION, PROJECT, COLLECTION, UNIT)


@dataclass(frozen=True, slots=True)
class Generate:
    """An engine's endpoint. Which fields it takes depends on the engine that serves the model in the body."""

    operation: Operation
    operation_name: str
    path: str
    dialect: Dialect


@dataclass(frozen=True, slots=True)
class ListModels:
    """What this scope may use; one model where `model` is named."""

    model: str | None


@dataclass(frozen=True, slots=True)
class ResourceMetadata:
    """The OAuth protected-resource metadata document (RFC 9728) of the whole gate, or of the base URL `resource`."""

    resource: str


class Page(Enum):
    """One of saltgate's own pages: exact method and path. Those of people begin with /auth/ or are under /account.

    Under `CALLBACK` are those of issuers that have one of their own, by its name.
    """

    SIGN_IN = ("GET", "/auth/login")
    CALLBACK = ("GET", "/auth/callback")
    SIGN_OUT = ("POST", "/auth/logout")
    SIGNED_OUT = ("GET", "/auth/signed-out")
    BACK_CHANNEL_LOGOUT = ("POST", "/auth/backchannel-logout")
    ACCOUNT = ("GET", "/account")
    END_SESSIONS = ("POST", "/account/sessions")
    TO_ADMIN_PAGES = ("POST", "/account/admin")
    TOKENS = ("GET", "/account/tokens")
    NEW_TOKEN = ("POST", "/account/tokens")
    REVOKE_TOKEN = ("POST", "/account/tokens/revoke")
    REVOKE_ALL_TOKENS = ("POST", "/account/tokens/revoke-all")
    MAKE_TOKEN_BY_FORM = ("POST", "/account/tokens/make")
    END_TOKEN_BY_FORM = ("POST", "/account/tokens/end")

    @property
    def is_for_anybody(self) -> bool:
        """Whether it is there for people whom nobody knows yet, or for issuers."""
        return self.value[1].startswith("/auth/")


@dataclass(frozen=True, slots=True)
class Preflight:
    """A browser asks on behalf of a page at `origin`, which is let in, whether it may send `method` with `headers`."""

    origin: str
    method: str
    headers: tuple[str, ...]


Wanted = Generate | ListModels | ResourceMetadata | Page | Preflight


@dataclass(frozen=True, slots=True)
class Route:
    """`name` is the route's template for records: no byte of the client in it."""

    wanted: Wanted
    name: str
    workspace: str | None = None
    project: str | None = None

    @property
    def dialect(self) -> Dialect:
        return self.wanted.dialect if isinstance(self.wanted, Generate) else Dialect.OPENAI


# What any kind has. That the engine of the asked model has it, too, is seen when its model is known.
_GENERATE: Final[Mapping[tuple[str, str], Generate]] = {
    (endpoint.method, endpoint.path): Generate(
        endpoint.operation, endpoint.operation_name, endpoint.path, endpoint.dialect
    )
    for profile in PROFILES.values()
    for endpoint in profile.endpoints
}


_GENERATE_ROUTES: Final[Mapping[tuple[str, str], Route]] = {
    wanted: Route(generate, generate.path) for wanted, generate in _GENERATE.items()
}
_PAGES: Final[Mapping[tuple[str, str], Page]] = {page.value: page for page in Page}


def find_route(method: str, target: str) -> Route:
    """The route of a request line. A query is ignored and never passed on. Raises EndpointNotAllowed."""
    path = target.partition("?")[0]
    known = _GENERATE_ROUTES.get((method, path))
    if known is not None:
        return known
    if path == METADATA_PATH or path.startswith(METADATA_PATH + "/"):
        return _metadata(method, path.removeprefix(METADATA_PATH))
    page = _PAGES.get((method, path))
    if page is not None:
        return Route(page, path)
    if method == "GET" and _OWN_CALLBACK.fullmatch(path):
        return Route(Page.CALLBACK, Page.CALLBACK.value[1] + "/{name}")
    workspace, project, rest = _scope_in_path(path)
    prefix = "" if workspace is None else "/w/{workspace}/p/{project}"
    generate = _GENERATE.get((method, rest))
    if generate is not None:
        return Route(generate, prefix + rest, workspace, project)
    if method == "GET" and rest == "/v1/models":
        return Route(ListModels(None), prefix + rest, workspace, project)
    if method == "GET" and rest.startswith("/v1/models/") and rest != "/v1/models/":
        return Route(
            ListModels(unquote(rest.removeprefix("/v1/models/"))), prefix + "/v1/models/{model}", workspace, project
        )
    raise _not_allowed()


def dialect_of(target: str) -> Dialect:
    """In whose form a refusal of this target is told, also where no route was found."""
    path = target.partition("?")[0]
    return Dialect.ANTHROPIC if path.endswith(("/v1/messages", "/v1/messages/count_tokens")) else Dialect.OPENAI


def resource_of(target: str) -> str:
    """The base URL whose metadata document tells how to call this target, as a path; "" is the gate as a whole."""
    match = _UNDER_BASE.match(target)
    return "" if match is None else match[1]


def is_for_people(target: str) -> bool:
    """Whether the target is, or would be, one of saltgate's own pages: no other page's script has business there."""
    path = target.partition("?")[0]
    return path.startswith("/auth/") or path.partition("/account")[:2] == ("", "/account")


def _metadata(method: str, resource: str) -> Route:
    """RFC 9728 section 3.1 puts the resource's own path behind the well-known one, and the document repeats it: so it
    must be a base URL of ours, not whatever was sent.
    """
    if method != "GET" or not (resource in ("", "/v1") or _BASE.fullmatch(resource)):
        raise _not_allowed()
    return Route(ResourceMetadata(resource), METADATA_PATH)


_OWN_CALLBACK: Final = re.compile(f"{Page.CALLBACK.value[1]}/{NAME.pattern}")
_BASE: Final = re.compile(f"/w/{NAME.pattern}/p/{NAME.pattern}/v1")
_UNDER_BASE: Final = re.compile(f"({_BASE.pattern})(?=[/?]|\\Z)")


def _scope_in_path(path: str) -> tuple[str | None, str | None, str]:
    if not path.startswith("/w/"):
        return None, None, path
    parts = path.split("/", 5)
    if len(parts) != 6 or parts[3] != "p" or not parts[2] or not parts[4]:
        raise _not_allowed()
    return parts[2], parts[4], "/" + parts[5]


def _not_allowed() -> EndpointNotAllowed:
    return EndpointNotAllowed(
        "saltgate serves no such endpoint. Its base URL ends in /v1; see the documentation for the list."
    )


def named_scope(route: Route, headers: Sequence[tuple[str, str]]) -> Named:
    """What path and headers name together. Raises InvalidRequest where they disagree or say something twice."""
    said = _said(headers)
    workspace = _agreed("workspace", route.workspace, said.get(ORGANIZATION))
    project = _agreed("project", route.project, said.get(PROJECT))
    return Named(workspace, project, said.get(COLLECTION), _level(said.get(UNIT)))


_NAMING: Final = {name.lower(): name for name in NAMING_HEADERS}


def _said(headers: Sequence[tuple[str, str]]) -> dict[str, str | None]:
    """What each of the naming headers says; None and absent are the same."""
    said: dict[str, str | None] = {}
    for key, value in headers:
        name = _NAMING.get(key.lower())
        if name is None:
            continue
        if said.setdefault(name, value or None) != (value or None):
            raise InvalidRequest(f"The header {name} is there twice with different values. Send it once.", param=name)
    return said


def _agreed(what: str, in_path: str | None, in_header: str | None) -> str | None:
    if in_path is not None and in_header is not None and in_path != in_header:
        raise InvalidRequest(f"The path and the headers name different {what}s. Name one of them.", param=what)
    return in_path if in_path is not None else in_header


def _level(value: str | None) -> Level | None:
    if value is None:
        return None
    level = _LEVELS.get(value)
    if level is None:
        raise InvalidRequest(f"{UNIT} names no unit. Use {', '.join(_LEVELS)}.", param=UNIT)
    return level


# A collection is named by a header of its own.
_LEVELS: Final[Mapping[str, Level]] = {level.value: level for level in WIDTH}
