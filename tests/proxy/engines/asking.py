"""Requests as clients write them, and what becomes of them on the way to the engine."""

from __future__ import annotations

import json
from typing import Any

from proxy.engines.body import read_body
from proxy.engines.profile import ENDPOINTS, Endpoint, Operation
from proxy.engines.stamp import StampedRequest, stamp
from proxy.isolation.salt import SaltKey, salt_for
from proxy.isolation.unit import ProjectUnit

SALT = salt_for(ProjectUnit("acme", "apollo"), epoch=0, key=SaltKey("k1", b"0123456789abcdef0123456789abcdef"))

ENDPOINT: dict[Operation, Endpoint] = {endpoint.operation: endpoint for endpoint in ENDPOINTS}

# The least that each endpoint takes, less the model.
LEAST: dict[Operation, dict[str, Any]] = {
    Operation.CHAT: {"messages": [{"role": "user", "content": "Hi"}]},
    Operation.COMPLETIONS: {"prompt": "Hi"},
    Operation.RESPONSES: {"input": "Hi"},
    Operation.MESSAGES: {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8},
    Operation.EMBEDDINGS: {"input": "Hi"},
}


def stamped(operation: Operation, body: bytes) -> StampedRequest:
    return stamp(read_body(ENDPOINT[operation], body), SALT, request_id="r-1", show_reuse=True)


def body_of(operation: Operation, **fields: Any) -> bytes:
    return json.dumps({"model": "tiny", **LEAST[operation], **fields}).encode()


def sent(operation: Operation, **fields: Any) -> Any:
    """What the engine reads of a request with these fields."""
    return json.loads(stamped(operation, body_of(operation, **fields)).body)


def sent_raw(operation: Operation, body: bytes) -> Any:
    return json.loads(stamped(operation, body).body)
