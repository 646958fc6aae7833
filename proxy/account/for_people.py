"""A clerk for people: what he refuses is told on a page, in words that say what to do. Programs have JSON."""

from __future__ import annotations

from typing import Final

from proxy.account.pages import html_page, refusal_page
from proxy.desk import Clerk, PageAnswer, Visit
from proxy.refusals import Blocked, RateLimited, Refusal, Unauthenticated, Unavailable


def for_people(clerk: Clerk) -> Clerk:
    """The clerk, with a page for each refusal."""

    async def serve(visit: Visit) -> PageAnswer:
        try:
            return await clerk(visit)
        except Refusal as refusal:
            return _page(refusal)

    return serve


def _page(refusal: Refusal) -> PageAnswer:
    """Never 401: its challenge asks for a token, which these pages do not take."""
    if isinstance(refusal, Unauthenticated):
        page = refusal_page("You are not signed in", _NOT_SIGNED_IN)
        return html_page(page, status=400, refusal=refusal)
    if isinstance(refusal, Unavailable):
        page = refusal_page("Try again in a moment", refusal.message)
        return html_page(page, status=503, headers=(("Retry-After", str(refusal.retry_after)),), refusal=refusal)
    if isinstance(refusal, RateLimited):
        page = refusal_page("Wait a little", refusal.message)
        return html_page(page, status=429, headers=(("Retry-After", str(refusal.retry_after)),), refusal=refusal)
    title = "You have no access" if isinstance(refusal, Blocked) else "This cannot be done"
    return html_page(refusal_page(title, refusal.message), status=refusal.status, refusal=refusal)


# What exactly was wrong with a token is for the log: whoever forges one learns nothing.
_NOT_SIGNED_IN: Final = (
    "Your identity provider's answer was not accepted here. Sign in again; "
    "if it happens again, tell your administrator."
)
