"""A whole gate whose collector asks for a certificate: spans, metrics and the audit's lines come there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.observability.test_otlp_tls import demanding, shown
from tests.parts.gate_bed import chat
from tests.parts.otlp_sink import OtlpSink
from tests.parts.redis_server import RedisServer
from tests.proxy.test_server import serving
from tests.proxy.test_tls import Authority

pytestmark = pytest.mark.process

TABLES = """
[telemetry]
otlp_endpoint = "{url}"
otlp_ca = "{ca}"
otlp_client_cert = {{ certificate = "{certificate}", key = {{ file = "{key}" }} }}
[metrics]
otlp = true
otlp_interval = "1s"
[audit]
directory = "records"
journal = "journal"
otlp = true
[[audit.keys]]
id = "a1"
secret = {{ file = "audit" }}
"""


async def test_all_that_is_exported_shows_the_certificate(redis: RedisServer, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    mine = shown(authority)
    key = tmp_path / "collector.key"
    key.write_bytes(mine.key.value)
    (tmp_path / "audit").write_bytes(b"a" * 32)
    async with OtlpSink(tls=demanding(authority)) as sink:
        tables = TABLES.format(url=sink.url, ca=authority.file, certificate=mine.certificate, key=key)
        async with serving(redis, tmp_path, tables=tables.replace("{", "{{").replace("}", "}}")) as served:
            await served.until("/readyz", 200, seconds=120)
            await served.session.post(f"{served.url}/v1/chat/completions", json=chat(), headers=served.headers())
            async with asyncio.timeout(60):
                while not {"/v1/traces", "/v1/metrics", "/v1/logs"} <= set(sink.paths):
                    await asyncio.sleep(0.05)
            assert served.events("telemetry.collector_lost") == []
    assert sink.shown == {"127.0.0.9"}
    assert sink.spans
