"""Where a sign-in leads: never to another site, in whatever way that is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from proxy.account.return_to import ACCOUNT, return_path

ELSEWHERE = [
    "https://evil.example",
    "http://evil.example/account",
    "HTTPS://evil.example",
    "//evil.example",
    "///evil.example",
    "////evil.example/",
    "/\\evil.example",
    "\\\\evil.example",
    "/\\/evil.example",
    "\\/evil.example",
    "/\t/evil.example",
    "/\n/evil.example",
    "/\r\n/evil.example",
    "\t//evil.example",
    " //evil.example",
    "/ /evil.example",
    "/account//evil.example",
    "/%2Fevil.example",
    "/%2f%2fevil.example",
    "/%5Cevil.example",
    "/%09/evil.example",
    "/%0d%0aLocation:%20https://evil.example",
    "/%252Fevil.example",
    "/..//evil.example",
    "/.//evil.example",
    "/./evil",
    "/../evil",
    "/account/../..//evil.example",
    "/account/%2e%2e/evil",
    "javascript:alert(1)",
    "data:text/html,x",
    "evil.example",
    "@evil.example",
    "/@evil.example",
    ":evil.example",
    "/:80",
    "?x",
    "#//evil.example",
    "/#@evil.example",
    "/account?next=https://evil.example",
    "/account?next=//evil.example",
    "/account;x",
    "/account\x00",
    "/account\u2028",
    "/\u2215evil.example",
    "/\uff0fevil.example",
    "/\uff41ccount",
    "/account\n",
    "",
    "/",
    "/auth/login",
    "/auth/logout",
    "/auth",
    "/" + "a" * 200,
]


@pytest.mark.parametrize("wanted", ELSEWHERE)
def test_no_spelling_leads_elsewhere(wanted: str) -> None:
    assert return_path(wanted) == ACCOUNT


@pytest.mark.parametrize("wanted", ["/account", "/account/tokens", "/account/tokens/", "/account?tab=tokens&x=1"])
def test_a_page_of_ours_is_returned_to(wanted: str) -> None:
    assert return_path(wanted) == wanted


def test_nothing_asked_for_is_the_account() -> None:
    assert return_path(None) == ACCOUNT


@given(st.text(alphabet=st.characters(codec="utf-8")) | st.text(alphabet="/\\.%2fF5cC:@?#a\t\r\n ;=&"))
def test_whatever_is_asked_for_the_browser_stays_here(wanted: str) -> None:
    here = URL("https://gate.example/auth/callback")
    assert here.join(URL(return_path("/" + wanted))).origin() == here.origin()
