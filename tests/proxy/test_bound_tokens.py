"""Tokens that are bound to a key or a certificate, through the whole gate: real sockets, real Redis, real TLS."""

from __future__ import annotations

import asyncio
import json
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path

import aiohttp
import pytest

from config.client_tls import client_context
from config.settings import ClientCertificate, Directory, Proxies, Public
from proxy.demo.simulator import AT_ONCE, EngineShape, Simulator
from tests.parts.dpop import DpopClient
from tests.parts.gate_bed import GateBed, chat, gate_bed
from tests.parts.redis_server import RedisServer
from tests.parts.tokens import base64url
from tests.proxy.test_tls import Authority

pytestmark = pytest.mark.slow

CHAT = "/v1/chat/completions"
SCOPED = "/w/acme/p/apollo/v1/chat/completions"
PUBLIC = "http://gate.test"
CLIENT = DpopClient()
PROJECT = {"OpenAI-Project": "apollo"}


@asynccontextmanager
async def bed_of(directory: Directory, folder: Path, **more: object) -> AsyncIterator[tuple[GateBed, Simulator]]:
    async with (
        Simulator(EngineShape(pace=AT_ONCE)) as engine,
        gate_bed(directory, [engine.url], folder, **more) as bed,  # type: ignore[arg-type]
    ):
        engine.requests.clear()
        yield bed, engine


def with_proof(token: str, path: str = CHAT, method: str = "POST", **claims: object) -> dict[str, str]:
    proof = CLIENT.proof(token, PUBLIC + path, method, claims=claims)
    return PROJECT | {"Authorization": f"DPoP {token}", "DPoP": proof}


@pytest.mark.parametrize("path", [CHAT, SCOPED])
async def test_a_bound_token_is_served_with_its_proof_alone(redis: RedisServer, tmp_path: Path, path: str) -> None:
    async with bed_of(redis.settings(), tmp_path) as (bed, engine):
        token = CLIENT.token(bed.mint)

        def proven_at(address: str, **headers: str) -> dict[str, str]:
            claimed = {name.replace("_", "-"): value for name, value in headers.items()}
            return claimed | with_proof(token, path, htu=address + path)

        assert (await bed.post(path, None, with_proof(token, path)))[0] == 200
        assert len(engine.requests) == 1
        for headers in (
            {"Authorization": f"Bearer {token}"},
            {"x-api-key": token},
            {"Authorization": f"DPoP {token}"},
            {"Authorization": f"Bearer {token}", "DPoP": CLIENT.proof(token, PUBLIC + path)},
            with_proof(token, "/v1/responses"),
            with_proof(token, path, "GET"),
            proven_at("http://evil.example", Host="evil.example"),
            proven_at("https://evil.example", X_Forwarded_Host="evil.example", X_Forwarded_Proto="https"),
            proven_at(bed.url),  # where it was sent to, which is not our public address
        ):
            status, _, body = await bed.post(path, None, PROJECT | headers)
            assert (status, json.loads(body)["error"]["code"]) == (401, "invalid_token")
        assert len(engine.requests) == 1


async def test_a_proof_is_for_what_is_asked_with_a_query_and_with_get_too(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_of(redis.settings(), tmp_path) as (bed, _):
        token = CLIENT.token(bed.mint)
        assert (await bed.post(CHAT + "?api-version=1", None, with_proof(token)))[0] == 200
        headers = with_proof(token, "/v1/models", "GET")
        async with bed.session.get(bed.url + "/v1/models", headers=headers) as answer:
            assert answer.status == 200
        async with bed.session.get(bed.url + "/v1/models", headers=headers) as answer:
            assert answer.status == 401


async def test_of_twenty_at_once_with_one_proof_exactly_one_is_served(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_of(redis.settings(), tmp_path) as (bed, engine):
        headers = with_proof(CLIENT.token(bed.mint))
        answers = await asyncio.gather(*(bed.post(CHAT, None, headers) for _ in range(20)))
        assert sorted(status for status, _, _ in answers) == [200] + [401] * 19
        assert len(engine.requests) == 1
        lines = await bed.completed(20)
        assert sum(line.get("reason") == "proof_replayed" for line in lines) == 19


async def test_without_redis_the_state_folder_remembers(tmp_path: Path) -> None:
    directory = Directory(file=tmp_path / "directory.toml", state=tmp_path / "state")
    async with bed_of(directory, tmp_path) as (bed, _):
        headers = with_proof(CLIENT.token(bed.mint))
        statuses = [(await bed.post(CHAT, None, headers))[0] for _ in range(2)]
        assert statuses == [200, 401]


async def test_while_redis_is_away_bound_tokens_get_503_and_others_are_served(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    async with bed_of(own_redis.settings(), tmp_path) as (bed, engine):
        token = CLIENT.token(bed.mint)
        own_redis.stop()
        status, headers, body = await bed.post(CHAT, None, with_proof(token))
        assert (status, json.loads(body)["error"]["code"]) == (503, "directory_unavailable")
        assert "Retry-After" in headers
        assert "WWW-Authenticate" not in headers
        assert not engine.requests
        assert (await bed.post())[0] == 200
        own_redis.start()
        assert (await bed.post(CHAT, None, with_proof(token)))[0] == 200


async def test_what_comes_with_a_bound_token_is_told_to_nobody(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_of(redis.settings(), tmp_path) as (bed, engine):
        token = CLIENT.token(bed.mint)
        secret = []
        for claims in ({}, {"htm": "PUT"}, {"ath": "x"}, {"jti": "marked-identifier"}):
            headers = with_proof(token, **claims)
            secret += [token, headers["DPoP"], *headers["DPoP"].split(".")[1:]]
            _, answered, body = await bed.post(CHAT, None, headers)
            assert not any(part in str(answered) or part.encode() in body for part in secret)
        assert not any(name.lower() == b"dpop" for name, _ in engine.last.headers)
        await bed.completed(4)
        written = bed.log.read_text()
        assert not [part for part in [*secret, "marked-identifier"] if part in written]


# Challenges.


async def challenged(bed: GateBed, headers: Mapping[str, str], path: str = CHAT) -> tuple[str, str]:
    """The challenges of a 401, Bearer and DPoP."""
    sent = {"Content-Type": "application/json"} | dict(headers)
    async with bed.session.post(bed.url + path, data=json.dumps(chat()), headers=sent) as answer:
        assert answer.status == 401
        bearer, dpop = answer.headers.getall("WWW-Authenticate")
        assert bearer.startswith('Bearer realm="saltgate", ')
        assert dpop.startswith('DPoP realm="saltgate", ')
        assert 'algs="ES256 Ed25519 EdDSA"' in dpop
        return bearer, dpop


async def test_the_error_stands_at_the_scheme_that_was_tried(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_of(redis.settings(), tmp_path) as (bed, _):
        bearer, dpop = await challenged(bed, {})
        assert "error" not in bearer + dpop
        bearer, dpop = await challenged(bed, {"Authorization": f"Bearer {CLIENT.token(bed.mint)}"})
        assert 'error="invalid_token", error_description="The access token is not valid here"' in bearer
        assert "error" not in dpop
        token = CLIENT.token(bed.mint)
        bearer, dpop = await challenged(bed, with_proof(token, htm="PUT"))
        assert "error" not in bearer
        assert 'error="invalid_dpop_proof", error_description="The DPoP proof is not valid for this request"' in dpop
        bearer, dpop = await challenged(bed, with_proof(bed.token()))
        assert "error" not in bearer
        assert 'error="invalid_token"' in dpop
        old = CLIENT.token(bed.mint, claims={"iat": 1_700_000_000, "exp": 1_700_000_060})
        bearer, dpop = await challenged(bed, with_proof(old))
        assert 'error="invalid_token", error_description="The access token expired"' in dpop


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        (CHAT, ""),
        (SCOPED, "/w/acme/p/apollo/v1"),
        ("/w/no-such/p/project/v1/messages", "/w/no-such/p/project/v1"),
        (SCOPED + "?w=/w/x/p/y/v1", "/w/acme/p/apollo/v1"),
    ],
)
async def test_a_challenge_points_at_the_document_of_the_base_url_that_was_asked(
    redis: RedisServer, tmp_path: Path, path: str, resource: str
) -> None:
    """RFC 9728 section 3.1. The document is there, and says what the challenge was for."""
    async with bed_of(redis.settings(), tmp_path) as (bed, _):
        where = f"/.well-known/oauth-protected-resource{resource}"
        for challenge in await challenged(bed, {"Host": "evil.example"}, path):
            assert f'resource_metadata="{PUBLIC}{where}"' in challenge
        async with bed.session.get(bed.url + where) as answer:
            assert (await answer.json())["resource"] == PUBLIC + resource


async def test_a_challenge_never_repeats_a_name_that_cannot_be_one(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_of(redis.settings(), tmp_path) as (bed, _):
        for name in ('x"y', "x%22", "X", "a" * 64, "..", "x\\y", "x,y"):
            reader, writer = await asyncio.open_connection("127.0.0.1", bed.port)
            writer.write(
                f"POST /w/{name}/p/apollo/v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
                "Content-Type: application/json\r\nConnection: close\r\n\r\n{}".encode()
            )
            answer = (await reader.read()).decode()
            writer.close()
            assert answer.startswith("HTTP/1.1 401 ")
            assert f'resource_metadata="{PUBLIC}/.well-known/oauth-protected-resource"' in answer
            assert f"/w/{name}/" not in answer


async def test_a_refusal_that_is_no_401_challenges_nobody(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_of(redis.settings(), tmp_path) as (bed, _):
        status, headers, _ = await bed.post(CHAT, None, bed.headers("u-stranger"))
        assert status == 403
        assert "WWW-Authenticate" not in headers


# Certificates.


def certified(authority: Authority, host: str = "127.0.0.3") -> tuple[ClientCertificate, str]:
    """A client's certificate of the authority, and what a token that is bound to it says."""
    made = authority.tls(host)
    der = ssl.PEM_cert_to_DER_cert(made.certificate.read_text())
    return ClientCertificate(certificate=made.certificate, key=made.key), base64url(sha256(der).digest())


def bound_to(bed: GateBed, thumbprint: str) -> dict[str, str]:
    token = bed.mint.token(groups=(), claims={"cnf": {"x5t#S256": thumbprint}})
    return PROJECT | {"Authorization": f"Bearer {token}"}


async def asked(
    bed: GateBed, headers: Mapping[str, str], authority: Authority, certificate: ClientCertificate | None
) -> int:
    """The status of one request over a new TLS connection."""
    tls = client_context(authority.file, certificate)
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session,
        session.post(bed.url + CHAT, json=chat(), headers=headers) as answer,
    ):
        return answer.status


async def test_a_token_bound_to_a_certificate_is_served_on_its_connections_alone(
    redis: RedisServer, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    mine, thumbprint = certified(authority)
    other, _ = certified(authority, "127.0.0.4")
    tls = authority.tls("127.0.0.1", client_ca=authority.file)
    async with bed_of(redis.settings(), tmp_path, public=Public(tls=tls)) as (bed, engine):
        headers = bound_to(bed, thumbprint)
        assert await asked(bed, headers, authority, mine) == 200
        assert await asked(bed, headers, authority, other) == 401
        assert await asked(bed, headers, authority, None) == 401
        assert await asked(bed, bed.headers(), authority, None) == 200  # nobody else needs one
        assert await asked(bed, bed.headers(), authority, mine) == 200
        assert len(engine.requests) == 3
        tls_client = client_context(authority.file, None)
        where = bed.url + "/.well-known/oauth-protected-resource"
        async with bed.session.get(where, ssl=tls_client) as answer:
            assert (await answer.json())["tls_client_certificate_bound_access_tokens"] is True


async def test_a_certificate_of_another_authority_ends_the_connection(redis: RedisServer, tmp_path: Path) -> None:
    (tmp_path / "stranger").mkdir()
    authority, stranger = Authority(tmp_path), Authority(tmp_path / "stranger")
    forged, thumbprint = certified(stranger)
    tls = authority.tls("127.0.0.1", client_ca=authority.file)
    async with bed_of(redis.settings(), tmp_path, public=Public(tls=tls)) as (bed, engine):
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await asked(bed, bound_to(bed, thumbprint), authority, forged)
        assert not engine.requests


async def test_a_listener_that_asks_for_no_certificate_believes_in_none(redis: RedisServer, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    mine, thumbprint = certified(authority)
    async with bed_of(redis.settings(), tmp_path, public=Public(tls=authority.tls("127.0.0.1"))) as (bed, _):
        assert await asked(bed, bound_to(bed, thumbprint), authority, mine) == 401


DER = b"\x30\x82 a certificate, as far as anybody here looks"
HEADER = ("Client-Cert", f":{b64encode(DER).decode()}:")
THUMBPRINT = base64url(sha256(DER).digest())


async def told(bed: GateBed, *headers: tuple[str, str]) -> int:
    """The status of a request with these header lines, all of them, of a token bound to DER."""
    lines = [*bound_to(bed, THUMBPRINT).items(), *headers, ("Content-Type", "application/json")]
    async with bed.session.post(bed.url + CHAT, data=json.dumps(chat()), headers=lines) as answer:
        return answer.status


@pytest.mark.parametrize("trusted", ["127.0.0.1", "127.0.0.0/8", "::ffff:127.0.0.1"])
async def test_a_trusted_front_tells_the_certificate(redis: RedisServer, tmp_path: Path, trusted: str) -> None:
    places = ("10.0.0.0/8", "127.0.0.1" if "ffff" in trusted else trusted)
    proxies = Proxies(trusted=places, client_certificate_header="Client-Cert")
    async with bed_of(redis.settings(), tmp_path, proxies=proxies) as (bed, engine):
        assert await told(bed, HEADER) == 200
        assert await told(bed, ("client-cert", HEADER[1])) == 200
        assert not any(name.lower() == b"client-cert" for name, _ in engine.last.headers)
        assert await told(bed) == 401
        assert await told(bed, ("Client-Cert", "")) == 401
        assert await told(bed, ("Client-Cert", "::")) == 401
        assert await told(bed, ("Client-Cert", f":{b64encode(b'another').decode()}:")) == 401
        assert await told(bed, ("X-Forwarded-Client-Cert", HEADER[1])) == 401


NO_CERTIFICATES = (
    *(":", "MIIB", ":MIIB", ":M:", ":MIIB=:", ":M I I B:", ":MIIC-_==:", ":AB==:", ":MIIB:;x", ":MIIB:, :MIIB:"),
    *("%2D", "-----BEGIN"),
)


async def test_what_a_front_passes_must_be_one_certificate(redis: RedisServer, tmp_path: Path) -> None:
    proxies = Proxies(trusted=("127.0.0.1",), client_certificate_header="Client-Cert")
    async with bed_of(redis.settings(), tmp_path, proxies=proxies) as (bed, engine):
        for value in (*NO_CERTIFICATES, ":" + "A" * 20_000 + ":"):
            assert await told(bed, ("Client-Cert", value)) == 400, value
            assert await told(bed, HEADER, ("Client-Cert", value)) == 400, value
        assert await told(bed, HEADER, HEADER) == 400  # one of them may be the client's
        assert await told(bed, HEADER, ("Client-Cert", "")) == 400
        assert not engine.requests


@pytest.mark.parametrize(
    "proxies",
    [
        Proxies(),
        Proxies(trusted=("127.0.0.1",)),
        Proxies(trusted=("10.0.0.0/8",), client_certificate_header="Client-Cert"),
        Proxies(trusted=("127.0.0.2",), client_certificate_header="Client-Cert"),
        Proxies(trusted=("::1",), client_certificate_header="Client-Cert"),
        Proxies(trusted=("unix",), client_certificate_header="Client-Cert"),
        Proxies(trusted=("127.0.0.1",), client_certificate_header="X-Client-Cert"),
    ],
    ids=str,
)
async def test_of_nobody_else_a_certificate_is_believed(redis: RedisServer, tmp_path: Path, proxies: Proxies) -> None:
    """Whatever else a client claims of where it comes from."""
    claims = [
        ("X-Forwarded-For", "10.0.0.1"),
        ("Forwarded", "for=10.0.0.1;proto=https"),
        ("X-Real-IP", "127.0.0.1"),
        ("Via", "1.1 front"),
        ("Client-Cert-Chain", HEADER[1]),
    ]
    async with bed_of(redis.settings(), tmp_path, proxies=proxies) as (bed, engine):
        assert await told(bed, HEADER, *claims) == 401
        assert await told(bed, HEADER, HEADER, ("Client-Cert", "broken")) == 401
        assert (await bed.post(CHAT, None, bed.headers() | {"Client-Cert": "broken"}))[0] == 200
        assert len(engine.requests) == 1


async def test_the_fronts_own_certificate_is_nobodys(redis: RedisServer, tmp_path: Path) -> None:
    """A front that shows one of its own says by its header, or by saying nothing, what its client has."""
    authority = Authority(tmp_path)
    fronts, thumbprint = certified(authority)
    tls = authority.tls("127.0.0.1", client_ca=authority.file)
    proxies = Proxies(trusted=("127.0.0.1",), client_certificate_header="Client-Cert")
    async with bed_of(redis.settings(), tmp_path, public=Public(tls=tls), proxies=proxies) as (bed, _):
        assert await asked(bed, bound_to(bed, thumbprint), authority, fronts) == 401
        headers = bound_to(bed, THUMBPRINT) | {HEADER[0]: HEADER[1]}
        assert await asked(bed, headers, authority, fronts) == 200


@pytest.mark.parametrize(("trusted", "status"), [("unix", 200), ("127.0.0.0/8", 401)])
async def test_who_connects_to_our_unix_socket_is_a_front_only_if_told_so(
    redis: RedisServer, tmp_path: Path, trusted: str, status: int
) -> None:
    proxies = Proxies(trusted=(trusted,), client_certificate_header="Client-Cert")
    async with bed_of(redis.settings(), tmp_path, proxies=proxies) as (bed, _):
        path = str(tmp_path / "s")
        server = await asyncio.get_running_loop().create_unix_server(bed.gate.front, path)
        headers = bound_to(bed, THUMBPRINT) | {HEADER[0]: HEADER[1]}
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(path)) as session,
            session.post("http://gate" + CHAT, json=chat(), headers=headers) as answer,
        ):
            assert answer.status == status
        server.close()
