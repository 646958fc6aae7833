"""Somebody else's name: in headers that front ends trust, beside a credential, or in the place of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.parts.hostile.writing import SALTED, request

# Alice's own credential stands beside these.
_BESIDE: Final = (
    "X-Forwarded-User: u-mallory-0009",
    "X-Forwarded-Email: mallory@globex.example",
    "X-Forwarded-Access-Token: eyJhbGciOiJub25lIn0.e30.",
    "X-Auth-Request-User: u-mallory-0009",
    "X-Remote-User: u-mallory-0009",
    "Remote-User: u-mallory-0009",
    "X-WEBAUTH-USER: u-mallory-0009",
    "X-OpenWebUI-User-Id: u-mallory-0009",
    "X-OpenWebUI-User-Email: mallory@globex.example",
    "X-User-Id: u-mallory-0009",
    "X-Authenticated-Userid: u-mallory-0009",
    "X-Consumer-Username: u-mallory-0009",
    "X-Amzn-Oidc-Data: eyJhbGciOiJub25lIn0.e30.",
    "X-Goog-Authenticated-User-Email: mallory@globex.example",
    "X-MS-Client-Principal: e30=",
    "X-Client-Cert: MIIB",
    "X-SSL-Client-S-DN: CN=u-mallory-0009",
    "Proxy-Authorization: Bearer eyJhbGciOiJub25lIn0.e30.",
    "Cookie: session=u-mallory-0009; access_token=eyJhbGciOiJub25lIn0.e30.",
    "X-Saltgate-User: u-mallory-0009",
    "X-Saltgate-Identity: u-mallory-0009",
)
# Each of these asks for what alice may not have, or shows two credentials.
_NEVER: Final[Mapping[str, bytes]] = {
    "no credential": request(SALTED, credentials=""),
    "an empty bearer": request(SALTED, credentials="Authorization: Bearer "),
    "alg none": request(SALTED, credentials="Authorization: Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSJ9."),
    "basic": request(SALTED, credentials="Authorization: Basic dS1hbGljZS0wMDAxOng="),
    "a personal access token that there never was": request(
        SALTED, credentials="Authorization: Bearer sgp_" + "a" * 40
    ),
    "two bearers": request(SALTED, "Authorization: Bearer eyJhbGciOiJub25lIn0.e30."),
    "a bearer and another key": request(SALTED, "x-api-key: eyJhbGciOiJub25lIn0.e30."),
    "a bearer and another api-key": request(SALTED, "api-key: sk-1234"),
    "two bearers in one line": request(SALTED, credentials="Authorization: Bearer a, Bearer b"),
    "another workspace": request(SALTED, "OpenAI-Organization: globex"),
    "another project": request(SALTED, "OpenAI-Project: hermes"),
    "another workspace, in capitals": request(SALTED, "OPENAI-ORGANIZATION: globex"),
    "another workspace in the path": request(SALTED, path="/w/globex/p/vault/v1/chat/completions"),
    "a collection of others": request(SALTED, "X-Saltgate-Collection: nowhere"),
    "a wider unit": request(SALTED, "X-Saltgate-Unit: workspace"),
    "a unit and a collection": request(SALTED, "X-Saltgate-Unit: user", "X-Saltgate-Collection: handbook"),
    "a unit that is none": request(SALTED, "X-Saltgate-Unit: everybody"),
}
NEVER_SERVED: Final = tuple(_NEVER)
CASES: Final[Mapping[str, bytes]] = {**{line: request(SALTED, line) for line in _BESIDE}, **_NEVER}
