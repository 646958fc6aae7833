"""The gate that one writes in an afternoon: aiohttp on both sides, the token verified and the body parsed each time.

python -m tests.bench.simple_proxy PORT ENGINE_PORT ISSUER JWKS_FILE
"""

from __future__ import annotations

import hashlib
import hmac
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import uvloop
from aiohttp import ClientSession, ClientTimeout, TCPConnector, web
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet


@dataclass(frozen=True, slots=True)
class SimpleProxy:
    engine: str
    issuer: str
    keys: KeySet
    session: ClientSession

    async def ask(self, request: web.Request) -> web.StreamResponse:
        try:
            subject = self._subject(request.headers.get("Authorization", "").removeprefix("Bearer "))
        except JoseError:
            return web.json_response({"error": "unauthorized"}, status=401)
        document = msgspec.json.decode(await request.read(), type=dict[str, object])
        document["cache_salt"] = hmac.new(b"secret", subject.encode(), hashlib.sha256).hexdigest()
        headers = {"Content-Type": "application/json"}
        async with self.session.post(
            self.engine + request.path, data=msgspec.json.encode(document), headers=headers
        ) as found:
            answer = web.StreamResponse(status=found.status, headers={"Content-Type": found.headers["Content-Type"]})
            await answer.prepare(request)
            async for piece in found.content.iter_any():
                await answer.write(piece)
            await answer.write_eof()
            return answer

    async def read(self, request: web.Request) -> web.Response:
        async with self.session.get(self.engine + request.path) as found:
            return web.Response(status=found.status, body=await found.read())

    def _subject(self, token: str) -> str:
        claims = jwt.decode(token, self.keys, algorithms=["RS256"]).claims
        required = jwt.JWTClaimsRegistry(
            iss={"essential": True, "value": self.issuer},
            aud={"essential": True, "value": "saltgate"},
            exp={"essential": True},
        )
        required.validate(claims)
        return str(claims["sub"])


def application(engine: str, issuer: str, keys: KeySet) -> web.Application:
    app = web.Application(client_max_size=64 * 1024 * 1024)

    async def open_session(app: web.Application) -> AsyncIterator[None]:
        async with ClientSession(connector=TCPConnector(limit=0), timeout=ClientTimeout(total=None)) as session:
            proxy = SimpleProxy(engine, issuer, keys, session)
            app.router.add_post("/{path:.*}", proxy.ask)
            app.router.add_get("/{path:.*}", proxy.read)
            yield

    app.cleanup_ctx.append(open_session)
    return app


def main() -> None:
    port, engine_port, issuer, file = sys.argv[1:]
    keys = KeySet.import_key_set(json.loads(Path(file).read_text()))
    app = application(f"http://127.0.0.1:{engine_port}", issuer, keys)
    loop = uvloop.new_event_loop()
    web.run_app(app, host="127.0.0.1", port=int(port), access_log=None, print=None, backlog=4096, loop=loop)


if __name__ == "__main__":
    main()
