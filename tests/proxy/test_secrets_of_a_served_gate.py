"""All that a whole `saltgate serve` writes, shows and sends from its start to its end is searched for secrets.

Whatever it has to tell of requests is switched on, and everybody asks: programs, people who sign in with a browser,
an administrator, those who are refused, those whose engine fails. A place that was searched must hold what is known to
be told there: else nothing was searched.
"""

from __future__ import annotations

import json
import re
import signal
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from redis import Redis

from tests.parts.assertions import SECRET, SERVICE
from tests.parts.canaries import Canaries
from tests.parts.openid_provider import CLIENT, Browser, OpenIdProvider
from tests.parts.otlp_sink import OtlpSink
from tests.parts.raw_engine import RawEngine, Send, json_answer
from tests.parts.redis_server import RedisServer
from tests.proxy.telling_requests import Telling, raw, request
from tests.proxy.test_admin_pages import Viewer, ticket
from tests.proxy.test_secrets_stay_inside import PEOPLE, Told, has_status, secrets_of_ours, up
from tests.proxy.test_server import Served, serving

pytestmark = pytest.mark.process

WORKERS: Final = 2
ENDPOINTS: Final = 5
"""That each of them proves."""

OURS: Final = {
    "front": SECRET,
    "audit": b"audit-secret-0123456789-abcdefghijklmn",
    "client": b"client-secret-of-the-gate-0123456789",
    "engine": b"engine-key-0123456789-abcdefghijklmn",
    "person": b"person-hash-key-0123456789-abcdefghi",
    "collector": b"x-collector-key: collector-key-0123456789-abcdef",
}
"""The configuration's secrets, each in a file of its name."""

TABLES: Final = f"""
[issuers.login]
client_id = "{CLIENT}"
client_secret = {{{{ file = "client" }}}}
[[engines]]
name = "quoting"
urls = ["QUOTING"]
models = ["quoting"]
api_key = {{{{ file = "engine" }}}}
proof = "off"
[[fronts]]
name = "webui"
issuer = "{{issuer}}"
subject = "{SERVICE}"
workspaces = ["acme"]
secret = {{{{ file = "front" }}}}
[telemetry]
otlp_endpoint = "OTLP"
otlp_headers = {{{{ file = "collector" }}}}
user_hash_key = {{{{ file = "person" }}}}
client_address = true
[metrics]
otlp = true
otlp_interval = "1s"
[audit]
directory = "records"
journal = "journal"
otlp = true
[[audit.keys]]
id = "a1"
secret = {{{{ file = "audit" }}}}
[history]
redis = true
[logs]
level = "debug"
"""


class TellingProvider(OpenIdProvider):
    """All that it gives out is a secret, but for what is signed nowhere and opens nothing."""

    def __init__(self, credentials: Canaries) -> None:
        super().__init__()
        self.credentials = credentials

    def code_for(self, request: Mapping[str, str]) -> str:
        self.credentials.known("state", request["state"])
        return self.credentials.known("code", super().code_for(request))

    def id_token(self, nonce: str, access_token: str) -> str:
        self.credentials.known("nonce", nonce)
        self.credentials.known("access token of a sign-in", access_token)
        return self.credentials.known("ID token", super().id_token(nonce, access_token))


@dataclass(slots=True)
class Everybody:
    """All who ask a served gate. `seen` and `metrics` is what administrators saw."""

    served: Served
    told: Told
    provider: TellingProvider
    seen: bytes = b""
    metrics: bytes = b""
    ids: list[str] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.served.url.rpartition(":")[2])

    async def come(self) -> None:
        mint = self.served.mint
        await self.told.tell(mint, self.port)
        await self.told.tell_a_broken_engine(mint, self.port, self.served.engine)
        await self._ask_for_all_that_models_do()
        await self._use_an_access_token()
        await self._sign_in()

    async def _ask_for_all_that_models_do(self) -> None:
        """On each endpoint, tools and images, and an engine that quotes what it was asked."""
        content = self.told.contents.new
        image = b64encode(b"GIF89a" + content("image").encode()).decode()
        said = {"messages": [{"role": "user", "content": content("prompt")}]}
        tool = {"name": "look", "description": content("tool"), "parameters": {"type": "object"}}
        forced = {"type": "function", "function": {"name": "look"}}
        call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": content("arguments")}}
        called = [
            {"role": "assistant", "content": content("answer"), "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": content("tool's answer")},
        ]
        seen = [{"type": "image_url", "image_url": {"url": f"data:image/gif;base64,{image}"}}]
        chat, more = "chat/completions", {"max_tokens": 4}
        for path, body, status in (
            (chat, said | {"tools": [{"type": "function", "function": tool}], "tool_choice": forced}, 200),
            (chat, {"messages": [*said["messages"], *called], "stream": True}, 200),
            (chat, said | {"n": 2, "logprobs": True, "top_logprobs": 2}, 200),
            (chat, said | {"user": content("user"), "metadata": {"name": content("metadata")}}, 200),
            ("completions", {"prompt": content("prompt")}, 200),
            ("completions", {"prompt": [content("one"), content("two")], "stream": True}, 200),
            ("responses", {"input": content("input"), "instructions": content("instructions"), "store": False}, 200),
            ("messages", said | {"system": content("system"), "stream": True}, 200),
            (chat, {"messages": [{"role": "user", "content": seen}]}, 400),
            (chat, said | {"model": "quoting"}, 400),
            # What has the form of a model's name is told, and whoever asked in vain is to be told of with it.
            (chat, said | {"model": f"{content('model')}, as people write"}, 403),
            (chat, said | {"response_format": {"type": content("format")}}, None),
        ):
            token = self.told.credentials.known("access token", self.served.mint.token(groups=()))
            wire = request(
                {"Authorization": f"Bearer {token}"},
                json.dumps({"model": "tiny"} | more | body).encode(),
                path=f"/w/acme/p/apollo/v1/{path}",
            )
            await self._expect(Telling(f"{path}: {', '.join(body)}", wire, status))

    async def _use_an_access_token(self) -> None:
        """One that is made, used, wrong in one place, and revoked."""
        headers = {"Authorization": self.served.headers()["Authorization"]}
        self.told.credentials.known("access token", headers["Authorization"].removeprefix("Bearer "))
        address = f"{self.served.url}/account/tokens"
        async with self.served.session.post(address, json={"name": "ci"}, headers=headers) as answer:
            assert answer.status == 201, await answer.text()
            token = self.told.credentials.known("personal access token", (await answer.json())["token"])
        await self._expect(self._with(token, 200))
        await self._expect(self._with(token[:-10] + token[-10:].swapcase(), 401))
        revoke = {"id": token[4:12]}
        async with self.served.session.post(f"{address}/revoke", json=revoke, headers=headers) as answer:
            assert answer.status == 200

    def _with(self, token: str, status: int) -> Telling:
        body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "x"}]}).encode()
        return Telling("a personal token", raw([("Authorization", f"Bearer {token}")], body), status)

    async def _sign_in(self) -> None:
        """With a browser: it succeeds, is tried again with what was used, and ends."""
        known = self.told.credentials.known
        browser = Browser(self.served.session, self.served.url, self.served.url)
        begun = await browser.begin()
        for name, value in browser.cookies.items():
            known(f"cookie {name} before", value)
        back = {"code": self.provider.code_for(begun), "state": begun["state"], "iss": self.provider.mint.issuer}
        shown = await browser.back(**back)
        assert shown.status == 303, shown.text
        for name, value in browser.cookies.items():
            known(f"cookie {name}", value)
        page = await browser.get("/account")
        assert page.status == 200
        form = {"form_token": known("form token", page.form_token)}
        stranger = Browser(self.served.session, self.served.url, self.served.url)
        assert (await stranger.back(**back)).status >= 400
        wrong = {"form_token": self.told.credentials.new("wrong form token")}
        assert (await browser.post("/auth/logout", wrong)).status == 400
        assert (await browser.post("/auth/logout", form)).status == 200
        secrets = self.provider.authorizations
        assert secrets
        known("the gate at the issuer", str(secrets[0]))

    async def look(self) -> None:
        """An administrator's pages: all of them, and each request that they list."""
        known = self.told.credentials.known
        viewer = Viewer(self.served)
        async with viewer.session:
            await viewer.enter(known("ticket", await ticket(self.served)))
            known("key of the pages", viewer.key)
            for cookie in viewer.session.cookie_jar:
                known("cookie of the pages", cookie.value)
            await viewer.until_requests(100)
            scope = await self._seen(viewer, "/api/scopes/acme/apollo?window=1h")
            self.ids = [one["request_id"] for one in scope["recent"]]
            for request_id in self.ids:
                await self._seen(viewer, f"/api/requests/{request_id}")
            await self._seen(viewer, "/api/overview?window=1h")
            for page in ("/", "/scopes/acme/apollo", "/healthz", "/readyz"):
                self.seen += await self._page(viewer, page)
            self.metrics = await self._page(viewer, "/metrics")

    async def _page(self, viewer: Viewer, path: str) -> bytes:
        async with viewer.session.get(self.served.admin + path) as answer:
            assert answer.status == 200
            return await answer.read()

    async def _seen(self, viewer: Viewer, path: str) -> Any:
        status, view = await viewer.get(path)
        assert status == 200, view
        assert view["viewer"].pop("form_token") == viewer.key  # its own, and nowhere else
        self.seen += json.dumps(view).encode()
        return view

    async def _expect(self, telling: Telling) -> None:
        answer = await self.told.ask(self.port, telling)
        assert has_status(answer, telling), (telling.name, answer[:400])


def in_redis(redis: RedisServer) -> bytes:
    """Every key with all that it holds."""
    held = b""
    with Redis.from_url(redis.url) as client:
        read = {
            b"string": client.get,
            b"hash": client.hgetall,
            b"set": client.smembers,
            b"list": lambda key: client.lrange(key, 0, -1),
            b"zset": lambda key: client.zrange(key, 0, -1, withscores=True),
            b"stream": client.xrange,
        }
        for key in client.scan_iter("*"):
            held += key + b"\n" + _flat(read[client.type(key)](key)) + b"\n"
    return held


def _flat(value: object) -> bytes:
    match value:
        case bytes():
            return value
        case dict():
            return b"\n".join(_flat(each) for pair in value.items() for each in pair)
        case list() | tuple() | set():
            return b"\n".join(_flat(each) for each in value)
        case _:
            return str(value).encode()


def on_disk(folder: Path) -> bytes:
    """All files, but for room that nothing was written in yet."""
    found = b"\n".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
    return re.sub(rb"\0{2,}", b"\0\0", found)


def received(sink: OtlpSink, path: str) -> bytes:
    return b"\n".join(body for body, at in zip(sink.raw, sink.paths, strict=True) if at == path)


async def test_nothing_that_is_secret_comes_out_of_a_served_gate_anywhere(redis: RedisServer, tmp_path: Path) -> None:
    for name, secret in OURS.items():
        (tmp_path / name).write_bytes(secret)
    told = Told(Canaries(), Canaries())
    provider = TellingProvider(told.credentials)
    quoted = told.contents.new("what an engine quotes")
    error = json.dumps({"error": {"message": f"cannot do {quoted}", "type": quoted, "code": 400, "param": quoted}})
    async with (
        OtlpSink() as sink,
        RawEngine([Send(json_answer(error.encode(), "400 Bad Request"))]) as quoting,
    ):
        tables = TABLES.replace("QUOTING", quoting.url).replace("OTLP", sink.url)
        async with serving(
            redis, tmp_path, workers=WORKERS, tables=tables, document=PEOPLE, issuer_server=provider
        ) as served:
            await served.until("/readyz", 200, seconds=120)
            await served.until_told("engine.proof", times=WORKERS * ENDPOINTS)
            served.engine.requests.clear()
            everybody = Everybody(served, told, provider)
            await everybody.come()
            await everybody.look()
            while_it_runs = on_disk(tmp_path / "records") + on_disk(tmp_path / "journal")
            secrets_of_ours(told, served.engine.requests)
            for name, secret in OURS.items():
                told.contents.known(f"secret of the configuration: {name}", secret.decode())
            served.process.send_signal(signal.SIGTERM)
            assert await served.ended() == 0
            engine = up(served.engine.requests) + b"".join(one.head for one in quoting.requests)
    written = {
        "log": served.log.read_bytes(),
        "spans": received(sink, "/v1/traces"),
        "metrics by OTLP": received(sink, "/v1/metrics"),
        "audit by OTLP": received(sink, "/v1/logs"),
        "audit": on_disk(tmp_path / "records"),
        "audit and journal while it runs": while_it_runs,
        "Redis": in_redis(redis),
        "administrators' pages": everybody.seen,
        "metrics": everybody.metrics,
    }
    marks = {place: everybody.ids[0].encode() for place in written}
    marks |= {"metrics": b'project="apollo"', "metrics by OTLP": b"apollo"}
    assert [place for place, data in written.items() if marks[place] not in data] == []
    assert written["log"].count(b"request.completed") > told.sent // 2
    told.credentials.check(written | {"answers": told.answers, "engines": engine})
    told.contents.check(written)
