"""The tokens and what becomes of them: claims, signatures, rotation, refresh, revocation (RFC 9068, 6749, 7009)."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Mapping
from urllib.parse import quote_plus

import pytest
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata  # type: ignore[import-untyped]
from authlib.oidc.discovery import OpenIDProviderMetadata  # type: ignore[import-untyped]
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey

from proxy.demo.provider import Lifetimes, Person, open_provider, rotate_keys
from proxy.demo.provider.address import LoopbackAddress
from tests.proxy.demo.provider_parts import (
    CODE_EXCHANGE,
    VERIFIER,
    WEB_CALLBACK,
    WEB_SECRET,
    Answer,
    Clock,
    Scene,
    clients,
    keys,
    people,
    scene,
)


@pytest.fixture
async def at() -> AsyncIterator[Scene]:
    async with scene() as running:
        yield running


async def test_an_access_token_verifies_with_the_published_keys_and_holds_the_claims_of_rfc_9068(at: Scene) -> None:
    token = await verified(at, access_token(await at.tokens()), "RS256")
    assert token.header == {"alg": "RS256", "typ": "at+jwt", "kid": token.header["kid"]}
    now = int(at.clock.now)
    jti = token.claims.pop("jti")
    assert isinstance(jti, str)
    assert len(jti) > 30
    assert token.claims == {
        "iss": at.issuer,
        "sub": "u-alice",
        "aud": "saltgate",
        "client_id": "saltgate-cli",
        "iat": now,
        "exp": now + 3600,
        "auth_time": now,
        "scope": "groups openid profile",
        "groups": ["all", "eng"],
    }


async def test_a_client_may_have_its_tokens_signed_with_es256(at: Scene) -> None:
    tokens = await web_tokens(at)
    for name in ("access_token", "id_token"):
        assert (await verified(at, str(tokens.document[name]), "ES256")).header["alg"] == "ES256"


async def test_no_two_access_tokens_have_the_same_id(at: Scene) -> None:
    first = await at.tokens()
    tokens = [first, await refresh(at, first), await at.tokens()]
    ids = {(await verified(at, access_token(answer), "RS256")).claims["jti"] for answer in tokens}
    assert len(ids) == 3


async def test_an_id_token_names_client_nonce_and_access_token(at: Scene) -> None:
    tokens = await at.tokens()
    token = await verified(at, str(tokens.document["id_token"]), "RS256")
    half = hashlib.sha256(access_token(tokens).encode()).digest()[:16]
    assert token.header["typ"] == "JWT"
    assert token.claims["aud"] == "saltgate-cli"
    assert token.claims["nonce"] == "a nonce"
    assert token.claims["at_hash"] == urlsafe_b64encode(half).rstrip(b"=").decode()
    assert token.claims["preferred_username"] == "alice"


async def test_without_openid_there_is_no_id_token_and_no_userinfo(at: Scene) -> None:
    tokens = await at.tokens(scope="profile")
    assert "id_token" not in tokens.document
    answer = await userinfo(at, access_token(tokens))
    assert answer.status == 403
    assert answer.headers["WWW-Authenticate"] == 'Bearer error="insufficient_scope"'


async def test_a_scope_that_is_not_known_is_not_granted(at: Scene) -> None:
    assert (await at.tokens(scope="openid admin")).document["scope"] == "openid"


async def test_scopes_decide_what_userinfo_tells(at: Scene) -> None:
    little, all_of_it = await at.tokens(scope="openid"), await at.tokens()
    assert (await userinfo(at, access_token(little))).document == {"sub": "u-alice"}
    assert (await userinfo(at, access_token(all_of_it))).document == {
        "sub": "u-alice",
        "name": "Alice <b>",
        "preferred_username": "alice",
        "groups": ["all", "eng"],
    }


async def test_an_access_token_ends_after_its_life(at: Scene) -> None:
    token = access_token(await at.tokens())
    at.clock.now += 3600
    assert (await userinfo(at, token)).document["error"] == "invalid_token"


def test_an_access_token_may_not_live_longer_than_a_day() -> None:
    with pytest.raises(ValueError, match="24 hours"):
        Lifetimes(access_token=86401)


async def test_userinfo_takes_access_tokens_of_this_provider_only(at: Scene) -> None:
    tokens = await at.tokens()
    claims = (await verified(at, access_token(tokens), "RS256")).claims
    kid = keys().signing("RS256").kid
    forged = jwt.encode({"alg": "RS256", "typ": "at+jwt", "kid": kid}, claims, RSAKey.generate_key(2048), ["RS256"])
    header, payload, signature = access_token(tokens).split(".")
    changed = urlsafe_b64encode(json.dumps({**claims, "sub": "u-bob"}).encode()).rstrip(b"=").decode()
    unsigned = urlsafe_b64encode(b'{"alg":"none","typ":"at+jwt"}').rstrip(b"=").decode()
    for token in (
        forged,
        f"{header}.{changed}.{signature}",
        f"{unsigned}.{payload}.",
        f"{unsigned}.{payload}.{signature}",
        str(tokens.document["id_token"]),
        str(tokens.document["refresh_token"]),
        "x",
    ):
        answer = await userinfo(at, token)
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"] == 'Bearer error="invalid_token"'


async def test_the_published_keys_hold_no_private_part_and_say_what_they_are_for(at: Scene) -> None:
    answer = await at.browser().get("/jwks")
    published = answer.document["keys"]
    assert isinstance(published, list)
    assert [(key["kty"], key["alg"], key["use"]) for key in published] == [
        ("RSA", "RS256", "sig"),
        ("EC", "ES256", "sig"),
    ]
    assert not {"d", "p", "q", "dp", "dq", "qi", "k"} & {name for key in published for name in key}


async def test_both_discovery_documents_are_sound_and_name_the_issuer(at: Scene) -> None:
    openid = await at.browser().get("/.well-known/openid-configuration")
    oauth = await at.browser().get("/.well-known/oauth-authorization-server")
    assert openid.document == oauth.document
    assert openid.document["issuer"] == at.issuer
    assert openid.document["code_challenge_methods_supported"] == ["S256"]
    assert openid.document["authorization_response_iss_parameter_supported"] is True
    # Both standards want https; loopback is the exception that this provider is for.
    document = json.loads(json.dumps(openid.document).replace("http://", "https://"))
    OpenIDProviderMetadata(document).validate()
    AuthorizationServerMetadata(document).validate()


async def test_after_a_rotation_new_keys_sign_and_the_old_ones_verify_as_long_as_their_tokens_live(at: Scene) -> None:
    before = access_token(await at.tokens())
    await rotate_keys(at.provider)
    after = access_token(await at.tokens())
    assert header(before)["kid"] != header(after)["kid"]
    await verified(at, before, "RS256")
    await verified(at, after, "RS256")
    at.clock.now += 3600
    published = (await at.browser().get("/jwks")).document["keys"]
    assert isinstance(published, list)
    assert len(published) == 2
    assert header(before)["kid"] not in {key["kid"] for key in published}


async def test_a_refresh_brings_new_tokens_of_the_same_sign_in_without_a_nonce(at: Scene) -> None:
    first = await at.tokens()
    at.clock.now += 100
    second = await refresh(at, first)
    token = await verified(at, str(second.document["id_token"]), "RS256")
    assert second.document["refresh_token"] != first.document["refresh_token"]
    assert token.claims["auth_time"] == int(at.clock.now) - 100
    assert "nonce" not in token.claims


async def test_a_refresh_token_used_twice_ends_the_whole_grant(at: Scene) -> None:
    first = await at.tokens()
    second = await refresh(at, first)
    assert (await refresh(at, first)).document["error"] == "invalid_grant"
    assert (await refresh(at, second)).document["error"] == "invalid_grant"
    assert (await userinfo(at, access_token(second))).status == 401


async def test_a_refresh_token_used_again_many_generations_later_ends_the_grant(at: Scene) -> None:
    first = newest = await at.tokens()
    for _ in range(20):
        newest = await refresh(at, newest)
    await refresh(at, first)
    assert (await refresh(at, newest)).document["error"] == "invalid_grant"


async def test_a_refresh_token_cannot_be_made_up_from_a_known_one_nor_end_a_grant_so(at: Scene) -> None:
    first = await at.tokens()
    grant, generation, tag = str(first.document["refresh_token"]).split(".")
    for made_up in (f"{grant}.{int(generation) + 1}.{tag}", f"{grant}.0.{'A' * 43}", f"{grant}.{tag}", grant):
        form = {"grant_type": "refresh_token", "client_id": "saltgate-cli", "refresh_token": made_up}
        assert (await at.call("/token", form)).document["error"] == "invalid_grant"
    assert (await refresh(at, first)).status == 200


async def test_a_refresh_may_narrow_the_scope_and_not_widen_it(at: Scene) -> None:
    first = await at.tokens(scope="openid groups")
    wider = await refresh(at, first, scope="openid groups profile")
    assert wider.document["error"] == "invalid_scope"
    narrower = await refresh(at, first, scope="openid")
    assert narrower.document["scope"] == "openid"


async def test_another_client_cannot_refresh(at: Scene) -> None:
    stolen = (await at.tokens()).document["refresh_token"]
    form = {"grant_type": "refresh_token", "refresh_token": str(stolen)}
    answer = await at.call("/token", form, Authorization=basic("chat-ui", WEB_SECRET))
    assert answer.document["error"] == "invalid_grant"


async def test_a_grant_ends_after_its_time_however_often_it_was_refreshed(at: Scene) -> None:
    tokens = await at.tokens()
    at.clock.now += at.provider.lifetimes.grant - 1
    tokens = await refresh(at, tokens)
    assert tokens.status == 200
    at.clock.now += 1
    assert (await refresh(at, tokens)).document["error"] == "invalid_grant"


@pytest.mark.parametrize("name", ["refresh_token", "access_token"])
async def test_revoking_a_token_ends_its_grant(at: Scene, name: str) -> None:
    tokens = await at.tokens()
    answer = await at.call("/revoke", {"client_id": "saltgate-cli", "token": str(tokens.document[name])})
    assert answer.status == 200
    assert (await refresh(at, tokens)).document["error"] == "invalid_grant"
    assert (await userinfo(at, access_token(tokens))).status == 401


async def test_revoking_an_unknown_token_is_no_error_and_another_clients_is(at: Scene) -> None:
    tokens = await at.tokens()
    assert (await at.call("/revoke", {"client_id": "saltgate-cli", "token": "unknown"})).status == 200
    form = {"token": str(tokens.document["refresh_token"])}
    answer = await at.call("/revoke", form, Authorization=basic("chat-ui", WEB_SECRET))
    assert answer.document["error"] == "invalid_grant"
    assert (await refresh(at, tokens)).status == 200


async def test_a_service_account_gets_a_token_of_its_own_and_no_more(at: Scene) -> None:
    answer = await at.call("/token", {"grant_type": "client_credentials"}, Authorization=basic("batch", "batch-secret"))
    token = await verified(at, access_token(answer), "RS256")
    assert token.claims["sub"] == token.claims["client_id"] == "batch"
    assert token.claims["groups"] == ["robots"]
    assert "auth_time" not in token.claims
    assert answer.document.keys() == {"access_token", "token_type", "expires_in", "scope"}
    assert (await userinfo(at, access_token(answer))).status == 401


async def test_a_client_authenticates_by_header_or_by_form(at: Scene) -> None:
    for form, sent in (
        ({}, {"Authorization": basic("chat-ui", WEB_SECRET)}),
        ({"client_id": "chat-ui", "client_secret": WEB_SECRET}, {}),
    ):
        answer = await at.call("/revoke", {"token": "unknown", **form}, **sent)
        assert answer.status == 200


@pytest.mark.parametrize(
    ("form", "header"),
    [
        ({"client_id": "batch"}, None),
        ({"client_id": "batch", "client_secret": "wrong"}, None),
        ({"client_id": "batch", "client_secret": ""}, None),
        ({"client_id": "nobody", "client_secret": "batch-secret"}, None),
        ({"client_id": "saltgate-cli", "client_secret": "batch-secret"}, None),
        ({}, None),
        ({}, ("batch", "wrong")),
        ({}, ("nobody", "batch-secret")),
    ],
)
async def test_a_client_that_does_not_prove_itself_gets_nothing(
    at: Scene, form: dict[str, str], header: tuple[str, str] | None
) -> None:
    sent = {"Authorization": basic(*header)} if header else {}
    answer = await at.call("/token", {"grant_type": "client_credentials", **form}, **sent)
    assert answer.status == 401
    assert answer.document["error"] == "invalid_client"
    assert answer.headers["WWW-Authenticate"] == 'Basic realm="saltgate"'


@pytest.mark.parametrize("header", ["Basic ???", "Basic bm9jb2xvbg==", "Bearer x", "Basic", "Basic /w=="])
async def test_a_malformed_client_authentication_is_refused(at: Scene, header: str) -> None:
    answer = await at.call("/token", {"grant_type": "client_credentials"}, Authorization=header)
    assert answer.document["error"] == "invalid_client"


async def test_a_client_that_authenticates_in_two_ways_is_refused(at: Scene) -> None:
    form = {"grant_type": "client_credentials", "client_id": "batch", "client_secret": "batch-secret"}
    sent = basic("batch", "batch-secret")
    assert (await at.call("/token", form, Authorization=sent)).document["error"] == "invalid_request"
    other = {"grant_type": "client_credentials", "client_id": "chat-ui"}
    assert (await at.call("/token", other, Authorization=sent)).document["error"] == "invalid_request"


@pytest.mark.parametrize(
    ("grant_type", "error"),
    [
        ("authorization_code", "unauthorized_client"),
        ("refresh_token", "unauthorized_client"),
        ("password", "unsupported_grant_type"),
    ],
)
async def test_a_client_uses_its_own_grants_only(at: Scene, grant_type: str, error: str) -> None:
    sent = basic("batch", "batch-secret")
    answer = await at.call("/token", {**CODE_EXCHANGE, "client_id": "", "grant_type": grant_type}, Authorization=sent)
    assert answer.document["error"] == error


async def test_a_person_and_a_client_never_share_a_subject() -> None:
    twin = Person("batch", "batch", people()[0].password, "Batch", frozenset())
    with pytest.raises(ValueError, match="a person and a client"):
        async with open_provider(
            LoopbackAddress("127.0.0.1", 0), people=[twin], clients=clients(), keys=keys(), clock=Clock()
        ):
            pass


async def web_tokens(at: Scene) -> Answer:
    code = await at.code(client_id="chat-ui", redirect_uri=WEB_CALLBACK)
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": WEB_CALLBACK, "code_verifier": VERIFIER}
    return await at.call("/token", form, Authorization=basic("chat-ui", WEB_SECRET))


async def verified(at: Scene, token: str, algorithm: str) -> jwt.Token:
    """The token, verified with what the provider publishes and nothing else."""
    published = KeySet.import_key_set((await at.browser().get("/jwks")).document)  # type: ignore[arg-type]
    kid = header(token)["kid"]
    key = next(key for key in published.keys if key.kid == kid)
    assert isinstance(key, RSAKey | ECKey)
    return jwt.decode(token, key, algorithms=[algorithm])


def header(token: str) -> Mapping[str, object]:
    encoded = token.partition(".")[0]
    decoded: Mapping[str, object] = json.loads(urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
    return decoded


async def refresh(at: Scene, tokens: Answer, scope: str = "") -> Answer:
    form = {"grant_type": "refresh_token", "client_id": "saltgate-cli", "scope": scope}
    return await at.call("/token", {**form, "refresh_token": str(tokens.document["refresh_token"])})


async def userinfo(at: Scene, token: str) -> Answer:
    return await at.browser().get("/userinfo", Authorization=f"Bearer {token}")


def access_token(tokens: Answer) -> str:
    return str(tokens.document["access_token"])


def basic(client_id: str, secret: str) -> str:
    """RFC 6749 section 2.3.1: both halves are form-encoded first."""
    return "Basic " + b64encode(f"{quote_plus(client_id)}:{quote_plus(secret)}".encode()).decode()
