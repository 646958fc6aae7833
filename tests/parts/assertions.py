"""A chat front end as Open WebUI is one: its settings here, and the assertion that it makes of each request."""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Mapping
from typing import Final

from config.secret import Secret
from config.settings import TrustedFront
from tests.parts.tokens import ABSENT, base64url

SECRET: Final = b"a-front-ends-secret-0123456789abcdef"
SERVICE: Final = "service-account-webui"
HEADER: Final = "X-OpenWebUI-User-Jwt"


def front(
    *,
    name: str = "webui",
    issuer: str = "https://sso.example.test/realms/acme",
    subject: str = SERVICE,
    workspaces: tuple[str, ...] = ("acme",),
    secret: bytes = SECRET,
    **more: str,
) -> TrustedFront:
    return TrustedFront(
        name=name,
        issuer=issuer,
        subject=subject,
        workspaces=workspaces,
        secret=Secret(secret, "test"),
        **more,  # type: ignore[arg-type]  # named by the tests, checked at run time
    )


def assertion(
    subject: object = "alice",
    *,
    now: float | None = None,
    secret: bytes = SECRET,
    digest: str = "sha256",
    header: Mapping[str, object] | None = None,
    **claims: object,
) -> str:
    """As `_mint_forward_user_jwt` of Open WebUI makes it; `header` and `claims` replace members, ABSENT takes out."""
    issued = int(time.time() if now is None else now)
    body: dict[str, object] = {"sub": subject, "email": "alice@example.test", "name": "Alice", "role": "user"}
    body |= {"iss": "open-webui", "iat": issued, "exp": issued + 300}
    return signed(_json({"alg": "HS256", "typ": "JWT"} | dict(header or {})), _json(body | claims), secret, digest)


def signed(header: bytes, payload: bytes, secret: bytes = SECRET, digest: str = "sha256") -> str:
    """A compact JWS of exactly these bytes, whatever they say."""
    signing_input = f"{base64url(header)}.{base64url(payload)}"
    return f"{signing_input}.{base64url(hmac.digest(secret, signing_input.encode('ascii'), digest))}"


def _json(members: Mapping[str, object]) -> bytes:
    kept = {name: value for name, value in members.items() if value is not ABSENT}
    return json.dumps(kept, separators=(",", ":")).encode()
