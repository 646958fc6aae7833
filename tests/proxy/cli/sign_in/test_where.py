"""Where to sign in: the gate and the issuer are believed only for themselves, and never asked without bounds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from proxy.cli.sign_in import SignInFailed
from proxy.cli.sign_in.gate import METADATA_PATH, sign_in_of
from proxy.cli.sign_in.issuer import DISCOVERY, Refused, ask_for_tokens, discover
from proxy.cli.sign_in.web import Unreachable, Web, WebAnswer, open_web
from proxy.cli.signed_in import gate_url
from tests.parts.tokens import ABSENT
from tests.proxy.cli.sign_in.rogue import Rogue, huge, redirect_to


@pytest.fixture
async def rogue() -> AsyncIterator[Rogue]:
    async with Rogue() as running:
        yield running


@pytest.fixture
async def asking() -> AsyncIterator[Web]:
    async with open_web(seconds=0.5) as opened:
        yield opened


async def test_the_gate_says_where(rogue: Rogue, asking: Web) -> None:
    assert await sign_in_of(asking, rogue.url, None) == rogue.sign_in
    assert await sign_in_of(asking, rogue.url, rogue.url) == rogue.sign_in


@pytest.mark.parametrize("resource", ["https://llm.example.com", None, 7, "http://127.0.0.1:1\x1b[2J"])
async def test_a_document_of_another_gate_is_not_believed(rogue: Rogue, asking: Web, resource: object) -> None:
    rogue.metadata["resource"] = resource
    with pytest.raises(SignInFailed, match="calls itself") as failed:
        await sign_in_of(asking, rogue.url, None)
    assert str(failed.value).isprintable()
    assert len(rogue.asked) == 1


@pytest.mark.parametrize("suffix", ["/", "/v1"])
async def test_the_gates_name_is_compared_byte_for_byte(rogue: Rogue, asking: Web, suffix: str) -> None:
    rogue.metadata["resource"] = rogue.url + suffix
    with pytest.raises(SignInFailed, match="calls itself"):
        await sign_in_of(asking, rogue.url, None)


async def test_a_gate_without_a_sign_in_says_what_its_owner_must_do(rogue: Rogue, asking: Web) -> None:
    rogue.metadata["saltgate_sign_in"] = ABSENT
    with pytest.raises(SignInFailed, match="native_client_id"):
        await sign_in_of(asking, rogue.url, None)


async def test_of_several_issuers_none_is_guessed(rogue: Rogue, asking: Web) -> None:
    entries: list[dict[str, object]] = [
        {"issuer": i, "client_id": "c", "scopes": []} for i in ("https://a.example", "https://b.example")
    ]
    rogue.metadata |= {
        "authorization_servers": ["https://a.example", "https://b.example"],
        "saltgate_sign_in": entries,
    }
    with pytest.raises(SignInFailed, match=r"--issuer: https://a.example, https://b.example"):
        await sign_in_of(asking, rogue.url, None)
    assert (await sign_in_of(asking, rogue.url, "https://b.example")).issuer == "https://b.example"
    with pytest.raises(SignInFailed, match="no sign-in at that issuer"):
        await sign_in_of(asking, rogue.url, "https://b.example/")


@pytest.mark.parametrize("path", [METADATA_PATH, DISCOVERY])
async def test_a_huge_answer_a_redirect_and_a_page_that_is_no_json_are_refused(
    rogue: Rogue, asking: Web, path: str
) -> None:
    async def ask() -> object:
        return await sign_in_of(asking, rogue.url, None) if path == METADATA_PATH else await discover(asking, rogue.url)

    for bent, told in (
        (huge, "more than"),
        (redirect_to("http://127.0.0.1:1/"), "answered 307"),
        (lambda: web.Response(text="<html>"), "answered 200"),
        (_twice, "answered 200"),
    ):
        rogue.instead[path] = bent
        with pytest.raises(SignInFailed, match=told):
            await ask()
    assert {asked.path for asked in rogue.asked} == {path}


def _twice() -> web.StreamResponse:
    return web.Response(text='{"resource": "a", "resource": "b", "issuer": "a", "issuer": "b"}')


@pytest.mark.slow
async def test_an_answer_that_does_not_end_is_not_waited_for(rogue: Rogue, asking: Web) -> None:
    rogue.instead[METADATA_PATH] = lambda: web.Response(body=_drip(), content_type="application/json")
    async with asyncio.timeout(2):
        with pytest.raises(Unreachable, match="in time"):
            await sign_in_of(asking, rogue.url, None)


@pytest.mark.parametrize("address", ["http://10.0.0.1/", "http://evil.example/", "file:///etc/passwd", "", "https://"])
async def test_no_other_address_is_ever_asked(asking: Web, address: str) -> None:
    for ask in (asking.get(address, bearer="x"), asking.post(address, {}), asking.send("PUT", address, 1, bearer="x")):
        with pytest.raises(SignInFailed, match="must be https"):
            await ask


async def _drip() -> AsyncIterator[bytes]:
    while True:
        yield b" "
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("bent", "told"),
    [
        ({"issuer": "https://sso.example.com"}, "another issuer"),
        ({"issuer": ABSENT}, "another issuer"),
        ({"token_endpoint": ABSENT}, "no token_endpoint"),
        ({"token_endpoint": "http://evil.example/token"}, "must be https"),
        ({"token_endpoint": "file:///etc/passwd"}, "must be https"),
        ({"token_endpoint": "https://me:pw@sso.example.com/t"}, "must be https"),
        ({"token_endpoint": ["x"]}, "broken token_endpoint"),
        ({"device_authorization_endpoint": "http://10.0.0.1/d"}, "must be https"),
        ({"jwks_uri": "ftp://x/"}, "must be https"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "must be https"),
        ({"revocation_endpoint": "http://[::ffff:10.0.0.1]/"}, "must be https"),
        # It is shown on a terminal, and a browser is told to open it.
        ({"authorization_endpoint": "https://sso.example.com/\x1b[2J\x1b]8;;https://evil.example\x07"}, "broken"),
        ({"authorization_endpoint": "https://sso.example.com/\nsaltgate: signed in"}, "broken"),
        ({"authorization_endpoint": "https://sso.example.com/\u202e"}, "broken"),
        ({"authorization_endpoint": "https://sso.example.com/a b"}, "broken"),
        ({"authorization_endpoint": "https://sso.example.com/" + "a" * 3000}, "broken"),
        # A query behind a fragment would never reach the issuer (RFC 6749 section 3.1).
        ({"authorization_endpoint": "https://sso.example.com/authorize#there"}, "broken"),
        ({"token_endpoint": "https://sso.example.com/token#there"}, "broken"),
    ],
)
async def test_an_issuer_is_believed_only_for_itself(
    rogue: Rogue, asking: Web, bent: dict[str, object], told: str
) -> None:
    rogue.discovery |= bent
    with pytest.raises(SignInFailed, match=told):
        await discover(asking, rogue.url)


async def test_a_gate_elsewhere_sends_nobody_to_an_issuer_that_is_less_protected_than_itself() -> None:
    """Whoever runs a gate on the Internet has no business with what listens on a person's own machine."""
    issuer = "http://127.0.0.1:2375"
    entry = {"issuer": issuer, "client_id": "saltgate-cli", "scopes": ["openid"]}
    metadata = {"resource": "https://gate.example", "authorization_servers": [issuer], "saltgate_sign_in": [entry]}
    with pytest.raises(SignInFailed, match="less protected"):
        await sign_in_of(Told(json.dumps(metadata).encode()), "https://gate.example", None)


class Told(Web):
    """A gate's metadata, without a gate."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def get(self, address: str, *, bearer: str | None = None) -> WebAnswer:
        return WebAnswer(200, self._body)


async def test_no_token_is_asked_for_at_an_issuer_without_protection(asking: Web) -> None:
    with pytest.raises(SignInFailed, match="must be https"):
        await discover(asking, "http://sso.example.com")


@pytest.mark.parametrize(
    ("bent", "told"),
    [
        ({"token_type": "DPoP"}, "no bearer"),
        ({"token_type": ABSENT}, "no bearer"),
        ({"access_token": ABSENT}, "no access token"),
        ({"access_token": "a b"}, "no access token"),
        ({"access_token": "a\nb"}, "no access token"),
        ({"access_token": "\x1b]0;x\x07"}, "no access token"),
        ({"access_token": ""}, "no access token"),
        ({"access_token": ["x"]}, "no access token"),
        ({"refresh_token": "a\nb"}, "a token that is none"),
        ({"refresh_token": 1}, "a token that is none"),
        ({"id_token": ""}, "a token that is none"),
    ],
)
async def test_what_is_no_token_is_not_taken_for_one(
    rogue: Rogue, asking: Web, bent: dict[str, object], told: str
) -> None:
    rogue.token |= bent
    with pytest.raises(SignInFailed, match=told):
        await ask_for_tokens(asking, await discover(asking, rogue.url), {})


@pytest.mark.parametrize(
    ("expires_in", "lifetime"),
    [(300, 300.0), ("300", 300.0), (ABSENT, 300.0), (None, 300.0), (True, 300.0), (-5, 0.0), (1e300, 366 * 86400.0)],
)
async def test_a_lifetime_is_what_the_issuer_says_within_reason(
    rogue: Rogue, asking: Web, expires_in: object, lifetime: float
) -> None:
    rogue.token["expires_in"] = expires_in
    assert (await ask_for_tokens(asking, await discover(asking, rogue.url), {})).lifetime == lifetime


async def test_the_issuers_own_words_are_not_repeated(rogue: Rogue, asking: Web) -> None:
    rogue.instead["/token"] = lambda: web.json_response(
        {"error": "invalid_client", "error_description": "your code device-code-secret"}, status=400
    )
    with pytest.raises(Refused, match="invalid_client") as refused:
        await ask_for_tokens(asking, await discover(asking, rogue.url), {})
    assert "secret" not in str(refused.value)
    rogue.instead["/token"] = lambda: web.json_response({"error": "x\x1b[2J"}, status=400)
    with pytest.raises(Unreachable, match="answered 400") as unreadable:
        await ask_for_tokens(asking, await discover(asking, rogue.url), {})
    assert "\x1b" not in str(unreadable.value)


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("https://llm.example.com", "https://llm.example.com"),
        ("https://llm.example.com/", "https://llm.example.com"),
        ("https://llm.example.com/v1", "https://llm.example.com"),
        ("https://llm.example.com/v1/", "https://llm.example.com"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_the_base_url_that_clients_are_configured_with_names_the_gate(written: str, url: str) -> None:
    assert gate_url(written) == url


@pytest.mark.parametrize(
    "written",
    [
        "",
        "llm.example.com",
        "http://llm.example.com",
        "http://10.0.0.1",
        "https://me:pw@llm.example.com",
        "https://llm.example.com/w/acme/p/apollo/v1",
        "https://llm.example.com?x",
        "unix:/run/x",
        "ftp://llm.example.com",
        "https://",
        "https://a b",
    ],
)
def test_a_gate_is_asked_over_https_or_on_this_machine_only(written: str) -> None:
    with pytest.raises(SignInFailed, match="write https://HOST"):
        gate_url(written)
