"""The sign-in with a browser, and every way to get one that should not be: through the gate, on real parts."""

from __future__ import annotations

import asyncio
import base64
import re
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from yarl import URL

from config.settings import Login
from proxy.directory.changes import block, end
from proxy.directory.endings import Ending
from proxy.directory.model import user
from tests.parts.openid_provider import ALICE, CLIENT, Browser
from tests.parts.redis_server import RedisServer
from tests.parts.tokens import ABSENT, TokenMint, signing_key
from tests.proxy.account.scene import LOGIN, AccountScene, account_scene

pytestmark = pytest.mark.slow


@pytest.fixture
async def scene(redis: RedisServer, tmp_path: Path) -> AsyncIterator[AccountScene]:
    async with account_scene(redis, tmp_path) as opened:
        yield opened


async def test_a_person_signs_in_and_sees_who_he_is_and_what_he_may_use(scene: AccountScene) -> None:
    browser = scene.browser()
    first = await browser.get("/account")
    assert (first.status, first.headers["Location"]) == (303, "/auth/login?return_to=%2Faccount")
    back = await browser.sign_in(scene.provider, "?return_to=%2Faccount")
    assert (back.status, back.headers["Location"]) == (303, "/account")
    page = await browser.get("/account")
    assert page.status == 200
    for told in ("Alice &lt;i&gt;", "u-alice-0001", "eng", "acme/apollo", "acme/ares", "this one"):
        assert told in page.text
    assert "<i>" not in page.text


@pytest.mark.parametrize(
    "wanted", ["//evil.example", "https%3A%2F%2Fevil.example", "%2F%5Cevil.example", "/auth/login"]
)
async def test_a_sign_in_never_leads_to_another_site(scene: AccountScene, wanted: str) -> None:
    back = await scene.browser().sign_in(scene.provider, f"?return_to={wanted}")
    assert back.headers["Location"] == "/account"


async def test_the_authorization_request_is_code_with_pkce_and_all_that_binds_it(scene: AccountScene) -> None:
    one, other = await scene.browser().begin(), await scene.browser().begin()
    assert one[""] == f"{scene.provider.url}/authorize"
    assert (one["theme"], one["response_type"], one["code_challenge_method"]) == ("dark", "code", "S256")
    assert (one["client_id"], one["scope"]) == (CLIENT, "openid profile")
    assert one["redirect_uri"] == "http://gate.test/auth/callback"
    for name in ("state", "nonce", "code_challenge"):
        assert one[name] != other[name]
        assert len(one[name]) >= 43
    assert one["nonce"] not in one["state"]


async def test_the_code_is_redeemed_with_the_secret_in_a_header_and_the_verifier(scene: AccountScene) -> None:
    await scene.signed_in()
    assert (
        scene.provider.authorizations[-1] == "Basic " + base64.b64encode(b"saltgate-web:s3cret%3A+with+more").decode()
    )
    form = scene.provider.asked[-1]
    assert form["redirect_uri"] == "http://gate.test/auth/callback"
    assert len(form["code_verifier"]) == 43
    assert "client_secret" not in form


async def test_a_secret_goes_into_the_form_where_the_issuer_wants_it_there(redis: RedisServer, tmp_path: Path) -> None:
    async with account_scene(redis, tmp_path) as scene:
        scene.provider.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
        await scene.signed_in()
    assert scene.provider.authorizations == [None]
    assert scene.provider.asked[0]["client_secret"] == "s3cret: with more"


async def test_a_public_client_names_itself(redis: RedisServer, tmp_path: Path) -> None:
    async with account_scene(redis, tmp_path, login=Login(client_id=CLIENT)) as scene:
        await scene.signed_in()
    assert scene.provider.authorizations == [None]
    assert scene.provider.asked[0]["client_id"] == CLIENT


async def test_a_sign_in_gets_a_new_session_and_the_old_one_is_over(scene: AccountScene) -> None:
    browser = await scene.signed_in()
    old = Browser(scene.session, scene.bed.url, cookies=dict(browser.cookies))
    await browser.sign_in(scene.provider)
    assert browser.cookies != old.cookies
    assert await scene.is_signed_in(browser)
    assert not await scene.is_signed_in(old)


async def test_a_session_that_somebody_planted_is_not_the_one_after_the_sign_in(scene: AccountScene) -> None:
    """Fixation: the attacker knows the cookie that the victim's browser came with."""
    planted = "A" * 43
    victim = scene.browser()
    victim.cookies["saltgate-80"] = planted
    await victim.sign_in(scene.provider)
    assert victim.cookies["saltgate-80"] != planted
    attacker = Browser(scene.session, scene.bed.url, cookies={"saltgate-80": planted})
    assert not await scene.is_signed_in(attacker)


async def test_a_callback_is_good_once(scene: AccountScene) -> None:
    browser = scene.browser()
    request = await browser.begin()
    answer = {"code": scene.provider.code_for(request), "state": request["state"], "iss": scene.provider.mint.issuer}
    thief = Browser(scene.session, scene.bed.url, cookies=dict(browser.cookies))
    await browser.back(**answer)
    # The code of the replay would be good: only the state was used before.
    again = await thief.back(**answer | {"code": scene.provider.code_for(request)})
    assert again.status == 400
    assert await scene.refusal() == "state_used"
    assert len(scene.provider.asked) == 1
    assert not await scene.is_signed_in(thief)


async def test_two_callbacks_at_once_make_one_session(scene: AccountScene) -> None:
    browser = scene.browser()
    request = await browser.begin()
    answers = await asyncio.gather(
        *(
            Browser(scene.session, scene.bed.url, cookies=dict(browser.cookies)).back(
                code=scene.provider.code_for(request), state=request["state"], iss=scene.provider.mint.issuer
            )
            for _ in range(8)
        )
    )
    assert sorted(answer.status for answer in answers) == [303] + [400] * 7


async def test_a_state_of_another_browser_signs_nobody_in(scene: AccountScene) -> None:
    """Login CSRF: the attacker makes the victim come back with the attacker's own code and state."""
    attacker, victim = scene.browser(), scene.browser()
    request = await attacker.begin()
    await victim.begin()
    answer = {"code": scene.provider.code_for(request), "state": request["state"], "iss": scene.provider.mint.issuer}
    assert (await victim.back(**answer)).status == 400
    assert await scene.refusal() == "state"
    assert not await scene.is_signed_in(victim)
    assert scene.provider.asked == []


async def test_who_is_signed_in_stays_who_he_is_when_a_foreign_callback_comes(scene: AccountScene) -> None:
    victim, attacker = await scene.signed_in(), scene.browser()
    before = dict(victim.cookies)
    scene.provider.person = {"sub": "u-mallory-0009", "name": "Mallory"}
    request = await attacker.begin()
    back = await victim.back(
        code=scene.provider.code_for(request), state=request["state"], iss=scene.provider.mint.issuer
    )
    assert (back.status, back.headers.get("Location"), victim.cookies) == (303, "/account", before)
    assert "Alice" in (await victim.get("/account")).text


async def test_a_callback_without_the_cookie_of_the_sign_in_is_refused(scene: AccountScene) -> None:
    request = await scene.browser().begin()
    stranger = scene.browser()
    answer = {"code": scene.provider.code_for(request), "state": request["state"], "iss": scene.provider.mint.issuer}
    assert (await stranger.back(**answer)).status == 400
    assert await scene.refusal() == "no_sign_in_cookie"


async def test_the_cookie_of_a_sign_in_is_no_session_and_over_after_it(scene: AccountScene) -> None:
    browser = scene.browser()
    await browser.begin()
    stolen = browser.cookies["saltgate-80-sign-in"]
    await browser.sign_in(scene.provider)
    assert "saltgate-80-sign-in" not in browser.cookies
    for name in ("saltgate-80", "saltgate-80-sign-in"):
        thief = Browser(scene.session, scene.bed.url, cookies={name: stolen})
        assert not await scene.is_signed_in(thief)


async def test_two_tabs_may_sign_in_at_the_same_time(scene: AccountScene) -> None:
    browser = scene.browser()
    first, second = await browser.begin(), await browser.begin()
    issuer = scene.provider.mint.issuer
    done = await browser.back(code=scene.provider.code_for(first), state=first["state"], iss=issuer)
    assert (done.status, done.headers["Location"]) == (303, "/account")
    late = await browser.back(code=scene.provider.code_for(second), state=second["state"], iss=issuer)
    assert (late.status, late.headers["Location"]) == (303, "/account")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"nonce": "another"}, "id_token_nonce"),
        ({"nonce": ABSENT}, "id_token_nonce"),
        ({"nonce": ""}, "id_token_nonce"),
        ({"nonce": ["n"]}, "id_token_nonce"),
        ({"aud": "another-client"}, "id_token_aud"),
        ({"aud": "saltgate"}, "id_token_aud"),
        ({"aud": ABSENT}, "id_token_aud"),
        ({"aud": [CLIENT, "another-client"]}, "id_token_azp"),
        ({"aud": [CLIENT, "another-client"], "azp": "another-client"}, "id_token_azp"),
        ({"azp": "another-client"}, "id_token_azp"),
        ({"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"}, "id_token_at_hash"),
        ({"at_hash": 7}, "id_token_at_hash"),
        ({"at_hash": None}, "id_token_at_hash"),
        ({"iss": "https://evil.example"}, "id_token_iss"),
        ({"exp": 1}, "id_token_exp"),
        ({"exp": ABSENT}, "id_token_exp"),
        ({"iat": ABSENT}, "id_token_iat"),
        ({"iat": time.time() + 200}, "id_token_iat"),
        ({"nbf": time.time() + 300}, "id_token_nbf"),
        ({"sub": ABSENT}, "id_token_sub"),
        ({"sub": ""}, "id_token_sub"),
        ({"sub": "u-alice\u200b-0001"}, "id_token_sub"),
        ({"sub": "u" * 256}, "id_token_sub"),
        ({"sid": 7}, "id_token_sid"),
        ({"groups": "eng"}, "groups"),
        ({"events": {}}, "id_token_events"),
        ({"cnf": {"jkt": "x"}}, "sender_constrained"),
    ],
)
async def test_an_id_token_that_breaks_a_rule_signs_nobody_in(
    scene: AccountScene, changed: dict[str, object], reason: str
) -> None:
    scene.provider.changed = changed
    browser = scene.browser()
    assert (await browser.sign_in(scene.provider)).status == 400
    assert await scene.refusal() == reason
    assert not await scene.is_signed_in(browser)


async def test_an_expired_id_token_signs_nobody_in(scene: AccountScene) -> None:
    scene.provider.changed = {"iat": time.time() - 400, "exp": time.time() - 100}
    assert (await scene.browser().sign_in(scene.provider)).status == 400
    assert await scene.refusal() == "id_token_exp"


@pytest.mark.parametrize("type_", ["at+jwt", "logout+jwt", "application/at+jwt", "dpop+jwt"])
async def test_another_kind_of_token_is_no_id_token(scene: AccountScene, type_: str) -> None:
    scene.provider.header = {"typ": type_}
    assert (await scene.browser().sign_in(scene.provider)).status == 400
    assert await scene.refusal() == "id_token_typ"


async def test_a_key_that_is_not_the_issuers_signs_nobody_in(scene: AccountScene) -> None:
    scene.provider.given = {"id_token": TokenMint(issuer=scene.provider.mint.issuer).token(audience=CLIENT)}
    forged = signing_key("RS256", "rs256-0", number=7)
    scene.provider.given["id_token"] = forged.sign(b'{"alg":"RS256","kid":"rs256-0"}', b'{"iss":"x"}')
    assert (await scene.browser().sign_in(scene.provider)).status == 400


@pytest.mark.parametrize("header", [b'{"alg":"none"}', b'{"alg":"HS256"}', b'{"alg":"PS256","kid":"rs256-0"}'])
async def test_an_algorithm_that_is_not_configured_signs_nobody_in(scene: AccountScene, header: bytes) -> None:
    payload = f'{{"iss":"{scene.provider.mint.issuer}","sub":"u-alice-0001"}}'.encode()
    scene.provider.given = {"id_token": scene.provider.mint.key().sign(header, payload)}
    assert (await scene.browser().sign_in(scene.provider)).status == 400
    assert await scene.refusal() == "algorithm"


async def test_an_at_hash_without_an_access_token_proves_nothing(scene: AccountScene) -> None:
    scene.provider.given = {"access_token": None}
    assert (await scene.browser().sign_in(scene.provider)).status == 400
    assert await scene.refusal() == "id_token_at_hash"


async def test_an_issuer_may_leave_out_at_hash(scene: AccountScene) -> None:
    scene.provider.changed = {"at_hash": ABSENT}
    await scene.signed_in()


@pytest.mark.parametrize("iss", ["https://evil.example", "", "{issuer}/"])
async def test_an_answer_of_another_issuer_is_refused(scene: AccountScene, iss: str) -> None:
    browser = scene.browser()
    request = await browser.begin()
    named = iss.replace("{issuer}", scene.provider.mint.issuer)
    back = await browser.back(code=scene.provider.code_for(request), state=request["state"], iss=named)
    assert back.status == 400
    assert await scene.refusal() == "iss"
    assert scene.provider.asked == []


async def test_an_issuer_that_never_names_itself_is_believed_without(redis: RedisServer, tmp_path: Path) -> None:
    async with account_scene(redis, tmp_path) as scene:
        scene.provider.metadata["authorization_response_iss_parameter_supported"] = False
        browser = scene.browser()
        request = await browser.begin()
        back = await browser.back(code=scene.provider.code_for(request), state=request["state"])
        assert back.status == 303
        wrong = await browser.begin()
        answer = {"code": scene.provider.code_for(wrong), "state": wrong["state"], "iss": "https://evil.example"}
        assert (await browser.back(**answer)).status == 400


async def test_several_issuers_are_a_choice_and_never_mixed_up(redis: RedisServer, tmp_path: Path) -> None:
    async with account_scene(redis, tmp_path, two_issuers=True) as scene:
        assert scene.other is not None
        browser = scene.browser()
        choice = await browser.get("/auth/login?return_to=%2Faccount")
        assert choice.status == 200
        links = re.findall(r'href="(/auth/login\?[^"]+)"', choice.text)
        assert len(links) == 2
        for unknown in ("https%3A%2F%2Fevil.example", "", "0"):
            assert (await browser.get(f"/auth/login?issuer={unknown}")).status == 200
        asked = await browser.begin(links[1].replace("&amp;", "&").removeprefix("/auth/login"))
        assert asked[""] == f"{scene.other.url}/authorize"
        # The attacker's issuer was asked; it passes on a code of the honest one, to be told to the attacker's endpoint.
        code = scene.provider.code_for(asked)
        mixed = await browser.back(code=code, state=asked["state"], iss=scene.provider.mint.issuer)
        assert mixed.status == 400
        assert await scene.refusal() == "iss"
        assert scene.other.asked == scene.provider.asked == []
        # Its own ID tokens say nothing about the other's people.
        scene.other.changed = {"iss": scene.provider.mint.issuer}
        asked = await browser.begin(links[1].replace("&amp;", "&").removeprefix("/auth/login"))
        back = await browser.back(code=scene.other.code_for(asked), state=asked["state"], iss=scene.other.mint.issuer)
        assert back.status == 400
        assert not await scene.is_signed_in(browser)


async def test_an_issuer_cannot_have_a_code_of_another_that_never_names_itself(
    redis: RedisServer, tmp_path: Path
) -> None:
    """RFC 9700 section 4.4: `iss` or a redirect URI of its own; issuers of two customers need not trust each other."""
    async with account_scene(redis, tmp_path, two_issuers=True) as scene:
        assert scene.other is not None
        honest, evil = scene.provider, scene.other
        honest.metadata["authorization_response_iss_parameter_supported"] = False
        attacker, victim = scene.browser(), scene.browser()
        shown = await attacker.get(f"/auth/login?issuer={honest.mint.issuer}")
        # The attacker's own sign-in, whose nonce and challenge his issuer puts into the request of somebody else.
        his = shown.query if shown.status == 303 else {"nonce": "n", "code_challenge": "c", "state": "s"}
        hers = await victim.begin(f"?issuer={evil.mint.issuer}")
        code = honest.code_for({**hers, "nonce": his["nonce"], "code_challenge": his["code_challenge"]})
        await victim.back(code=code, state=hers["state"])
        await attacker.back(code=code, state=his["state"])
        assert not await scene.is_signed_in(attacker)
        assert shown.status == 503
        assert "administrator" in shown.text
        # The other is used as before.
        assert (await victim.sign_in(evil, f"?issuer={evil.mint.issuer}")).status == 303


async def test_an_issuer_that_never_names_itself_has_a_callback_of_its_own_among_several(
    redis: RedisServer, tmp_path: Path
) -> None:
    login = replace(LOGIN, callback="acme")
    async with account_scene(redis, tmp_path, two_issuers=True, login=login) as scene:
        assert scene.other is not None
        honest, evil = scene.provider, scene.other
        honest.metadata["authorization_response_iss_parameter_supported"] = False
        browser, attacker, victim = scene.browser(), scene.browser(), scene.browser()
        request = await browser.begin(f"?issuer={honest.mint.issuer}")
        assert request["redirect_uri"] == "http://gate.test/auth/callback/acme"
        answer = {"code": honest.code_for(request), "state": request["state"]}
        for path in ("/auth/callback", "/auth/callback/", "/auth/callback/globex", "/auth/callback/acme/"):
            back = await browser.get(str(URL(path).with_query(answer)))
            assert back.status in {400, 404}
        assert (await browser.get(str(URL("/auth/callback/acme").with_query(answer)))).status == 303
        assert honest.asked[-1]["redirect_uri"] == request["redirect_uri"]
        assert await scene.is_signed_in(browser)
        # Whatever the other issuer writes into the request, the honest one sends nobody elsewhere than there.
        his = await attacker.begin(f"?issuer={honest.mint.issuer}")
        hers = await victim.begin(f"?issuer={evil.mint.issuer}")
        code = honest.code_for({**hers, "nonce": his["nonce"], "code_challenge": his["code_challenge"]})
        mixed = {"code": code, "state": hers["state"]}
        assert (await victim.get(str(URL("/auth/callback/acme").with_query(mixed)))).status == 400
        assert await scene.refusal() == "callback"
        assert evil.asked == []


@pytest.mark.parametrize(
    "query",
    [
        "code=a&code=b&state={state}&iss={issuer}",
        "code=a&state={state}&state={state}&iss={issuer}",
        "code=&state={state}&iss={issuer}",
        "state={state}&iss={issuer}",
        "code=a&state={state}x&iss={issuer}",
        "code=a&state=&iss={issuer}",
        "code=a&iss={issuer}",
        "code=a&state=%00&iss={issuer}",
        "code=a&state=%F0%9F%92%A9&iss={issuer}",
        "code=%ff&state={state}&iss={issuer}",
        "error=server_error&error_description=%3Cscript%3Ealert(1)%3C/script%3E&state={state}&iss={issuer}",
        "error=access_denied&error_description=PWNED&state={state}&iss={issuer}",
        "error=%3Cscript%3E&state={state}&iss={issuer}",
        "code=a&error=x&state={state}&iss={issuer}",
        "code=" + "a" * 5000 + "&state={state}&iss={issuer}",
        "&&&",
        "nonsense",
        "",
    ],
)
async def test_a_wrong_answer_of_the_issuer_is_a_page_that_repeats_nothing(scene: AccountScene, query: str) -> None:
    browser = scene.browser()
    state = (await browser.begin())["state"]
    shown = await browser.get(
        "/auth/callback?" + query.replace("{state}", state).replace("{issuer}", scene.provider.mint.issuer)
    )
    assert shown.status == 400
    assert shown.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "script" not in shown.text
    assert "PWNED" not in shown.text
    assert scene.provider.asked == []
    assert not await scene.is_signed_in(browser)


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"id_token": None}, 200),
        ({"id_token": 7}, 200),
        ({"access_token": 7}, 200),
        ({"id_token": "x" * 300_000}, 200),
        ({"error": "invalid_client"}, 401),
        ({}, 500),
        ({}, 302),
        ({"error": ["invalid_grant"]}, 400),
    ],
)
async def test_a_token_endpoint_without_a_good_answer_is_our_fault(
    scene: AccountScene, given: dict[str, object], status: int
) -> None:
    scene.provider.given, scene.provider.status = given, status
    shown = await scene.browser().sign_in(scene.provider)
    assert shown.status == 503
    assert "Retry-After" in shown.headers


async def test_an_unknown_code_is_told_so(scene: AccountScene) -> None:
    browser = scene.browser()
    request = await browser.begin()
    shown = await browser.back(code="made-up", state=request["state"], iss=scene.provider.mint.issuer)
    assert shown.status == 400
    assert await scene.refusal() == "code_refused"


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://evil.example"},
        {"token_endpoint": "http://evil.example/token"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": None},
        {"token_endpoint": 7},
        {"token_endpoint": "https://user:pw@sso.example/token"},
        {"authorization_endpoint": "https://sso.example/a#b"},
        {"end_session_endpoint": "http://evil.example/logout"},
    ],
)
async def test_metadata_that_names_what_is_not_to_be_trusted_signs_nobody_in(
    scene: AccountScene, metadata: dict[str, object]
) -> None:
    scene.provider.metadata = metadata
    shown = await scene.browser().get("/auth/login")
    assert (shown.status, "Location" in shown.headers) == (503, False)


@pytest.mark.parametrize("fault", ["status", "garbage", "redirect", "large", "other_issuer"])
async def test_an_issuer_that_does_not_answer_is_told_as_such(scene: AccountScene, fault: str) -> None:
    scene.provider.faults["discovery"] = fault  # type: ignore[assignment]
    assert (await scene.browser().get("/auth/login")).status == 503


async def test_no_redirect_of_an_issuer_is_followed(scene: AccountScene) -> None:
    """A code and a secret go to the token endpoint and nowhere else."""
    browser = scene.browser()
    request = await browser.begin()
    scene.provider.status = 307
    issuer = scene.provider.mint.issuer
    back = await browser.back(code=scene.provider.code_for(request), state=request["state"], iss=issuer)
    assert (back.status, scene.provider.followed) == (503, [])


async def test_no_redirect_of_the_metadata_is_followed(scene: AccountScene) -> None:
    scene.provider.moved = True
    assert (await scene.browser().get("/auth/login")).status == 503
    assert scene.provider.followed == []


async def test_the_metadata_is_asked_for_once(scene: AccountScene) -> None:
    before = scene.provider.hits["discovery"]
    for _ in range(5):
        await scene.browser().begin()
    assert scene.provider.hits["discovery"] == before + 1


async def test_invented_codes_leave_nothing_in_redis(scene: AccountScene, redis: RedisServer) -> None:
    """Anybody can begin as many sign-ins as he likes, and come back from each."""
    browser = scene.browser()
    before = redis.command("DBSIZE")
    for _ in range(10):
        request = await browser.begin()
        back = await browser.back(code="invented", state=request["state"], iss=scene.provider.mint.issuer)
        assert (back.status, await scene.refusal()) == (400, "code_refused")
    assert redis.command("DBSIZE") == before


async def test_begun_sign_ins_leave_nothing_in_redis(scene: AccountScene, redis: RedisServer) -> None:
    before = redis.command("DBSIZE")
    for _ in range(20):
        await scene.browser().begin()
    assert redis.command("DBSIZE") == before


async def test_who_is_blocked_does_not_get_in(scene: AccountScene) -> None:
    await scene.bed.change(block(scene.provider.mint.issuer, user("u-alice-0001")))
    await scene.bed.gate.view.confirm()
    shown = await scene.browser().sign_in(scene.provider)
    assert shown.status == 403
    assert "blocked you" in shown.text


async def test_an_id_token_from_before_the_person_was_ended_does_not_get_in(scene: AccountScene) -> None:
    now = int(time.time())
    await scene.bed.change(end(Ending("subject", scene.provider.mint.issuer, "u-alice-0001", now + 60, now + 3600)))
    await scene.bed.gate.view.confirm()
    assert (await scene.browser().sign_in(scene.provider)).status == 400
    assert await scene.refusal() == "ended"


async def test_an_overage_of_groups_is_told_on_the_page(scene: AccountScene) -> None:
    scene.provider.person = {**ALICE, "groups": ABSENT, "_claim_names": {"groups": "src1"}}
    browser = await scene.signed_in()
    assert "did not tell all of them" in (await browser.get("/account")).text


async def test_nothing_secret_of_a_sign_in_is_in_the_log(scene: AccountScene) -> None:
    browser = await scene.signed_in()
    await (await scene.signed_in()).get("/account")
    log = scene.bed.log.read_text()
    form = scene.provider.asked[0]
    for secret in (*browser.cookies.values(), form["code"], form["code_verifier"], "s3cret"):
        assert secret not in log


async def test_without_redis_nobody_signs_in_and_nobody_is_let_in(own_redis: RedisServer, tmp_path: Path) -> None:
    async with account_scene(own_redis, tmp_path) as scene:
        browser = await scene.signed_in()
        own_redis.stop()
        assert (await browser.get("/account")).status == 503
        assert (await scene.browser().sign_in(scene.provider)).status == 503
        own_redis.start()
