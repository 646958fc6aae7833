"""Headers that an engine, a router or a proxy might heed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.parts.hostile.writing import EVIL, SALTED, request

_LINES: Final = (
    f"cache_salt: {EVIL}",
    f"cache-salt: {EVIL}",
    f"X-Cache-Salt: {EVIL}",
    f"X-Saltgate-Salt: {EVIL}",
    "X-Saltgate-Workspace: globex",
    "X-Saltgate-Unit: deployment",
    "X-Saltgate-Unit: workspace",
    "X-Saltgate-Unit: user\r\nX-Saltgate-Unit: deployment",
    f"x-tenant-id: {EVIL}",
    f"X-Request-Id: {EVIL}",
    f"X-Request-Id: {'x' * 5000}",
    f"X-Session-ID: {EVIL}",
    "X-Vllm-Priority: -999",
    "X-data-parallel-rank: 0",
    "endpoint-load-metrics-format: json",
    "X-Amzn-SageMaker-Adapter-Identifier: other",
    "X-Amzn-SageMaker-Custom-Attributes: cache_salt=x",
    "X-HTTP-Method-Override: PUT",
    "X-Original-URL: /pooling",
    "X-Rewrite-URL: /pooling",
    "X-Forwarded-For: 127.0.0.1",
    "X-Forwarded-Host: evil.example",
    "X-Forwarded-Prefix: /w/globex/p/vault",
    "Forwarded: for=127.0.0.1;host=evil.example",
    "Host: other.test",
    "Connection: close, Authorization",
    "Connection: OpenAI-Organization",
    "Connection: keep-alive, cache_salt",
    "Keep-Alive: timeout=1000000",
    "Proxy-Connection: keep-alive",
    "TE: trailers",
    "Trailer: cache_salt",
    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZQ==\r\nSec-WebSocket-Version: 13",
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk",
    "Range: bytes=0-1",
    "If-None-Match: *",
    "Accept-Encoding: gzip",
    f"traceparent: 00-{'1' * 32}-{'2' * 16}-01",
    "traceparent: garbage",
    f"tracestate: cache_salt={EVIL}",
    f"baggage: cache_salt={EVIL}",
    f"Cookie: cache_salt={EVIL}",
    f"User-Agent: {EVIL}",
    f"X-Prefill-Instance: {EVIL}",
    f"x-gateway-destination-endpoint: {EVIL}",
)
CASES: Final[Mapping[str, bytes]] = {
    line.partition("\r\n")[0][:60] + f" ({number})": request(SALTED, line) for number, line in enumerate(_LINES)
}
