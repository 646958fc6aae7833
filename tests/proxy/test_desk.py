"""saltgate's own pages through the gate: what is not switched on does not exist, and no page is like an endpoint."""

from __future__ import annotations

import pytest

from proxy.desk import Desk, PageAnswer, Visit
from proxy.refusals import EndpointNotAllowed
from proxy.routes import Page, find_route


@pytest.mark.parametrize("page", list(Page))
async def test_a_page_that_is_not_switched_on_does_not_exist(page: Page) -> None:
    visit = Visit(method=page.value[0], path=page.value[1], query="", headers=(), body=b"")
    with pytest.raises(EndpointNotAllowed):
        await Desk({}).serve(page, visit)


async def test_each_page_has_its_own_clerk() -> None:
    async def clerk(visit: Visit) -> PageAnswer:
        return PageAnswer(status=200, body=visit.query.encode())

    desk = Desk({Page.ACCOUNT: clerk})
    visit = Visit(method="GET", path="/account", query="q=1", headers=(), body=b"")
    assert (await desk.serve(Page.ACCOUNT, visit)).body == b"q=1"


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", "/account"),
        ("HEAD", "/account"),
        ("GET", "/account/"),
        ("GET", "//account"),
        ("GET", "/%61ccount"),
        ("GET", "/account;x"),
        ("GET", "/auth"),
        ("GET", "/auth/"),
        ("POST", "/account/sessions/"),
        ("GET", "/account/sessions"),
        ("POST", "/auth/signed-out"),
        ("POST", "/auth/login"),
        ("GET", "/auth/logout"),
        ("GET", "/w/acme/p/apollo/account"),
        ("GET", "/w/acme/p/apollo/auth/login"),
        ("GET", "/auth/../account"),
    ],
)
def test_a_page_has_one_spelling(method: str, target: str) -> None:
    with pytest.raises(EndpointNotAllowed):
        find_route(method, target)


def test_the_query_is_not_part_of_the_path() -> None:
    assert find_route("GET", "/auth/callback?code=a&state=b").wanted is Page.CALLBACK
