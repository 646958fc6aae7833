"""saltgate's own pages: one visit in, one answer out. Which page is served by whom is a table that `app` fills."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from proxy.refusals import EndpointNotAllowed, Refusal
from proxy.routes import Page


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A request to one of saltgate's own pages, as it came. Who sent it is not known yet.

    `path` is the page's own, `query` what came behind the question mark, `certificate` the client's in DER where it was
    shown to our own listener.
    """

    method: str
    path: str
    query: str = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes = field(repr=False)
    certificate: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAnswer:
    """What the visitor gets. `headers` go beside those that every page has: neither names nor values hold line breaks.

    `body` None: no content type is told, as for a redirect. `refusal` is what a page for people tells in words of its
    own, for the record.
    """

    status: int
    body: bytes | None = field(default=None, repr=False)
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    refusal: Refusal | None = None

    @property
    def is_for_anybody(self) -> bool:
        """Whether one gets it without being known: a refusal, or the way to another page."""
        return self.refusal is not None or self.status >= 300


Clerk = Callable[[Visit], Awaitable[PageAnswer]]


class Desk:
    """The pages that this deployment has."""

    def __init__(self, clerks: Mapping[Page, Clerk]) -> None:
        self._clerks = clerks

    async def serve(self, page: Page, visit: Visit) -> PageAnswer:
        """Raises EndpointNotAllowed for a page that this deployment does not have, and the page's own refusals."""
        clerk = self._clerks.get(page)
        if clerk is None:
            raise EndpointNotAllowed("This saltgate has no such page. Its administrator has not switched it on.")
        return await clerk(visit)
