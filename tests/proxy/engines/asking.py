"""Requests as clients write them, and what becomes of them on the way to the engine."""

from __future__ import annotations

import json
from typing import Any

from proxy.engines.body import read_body
from proxy.engines.kinds import PROFILES, VLLM
from proxy.engines.profile import Endpoint, Operation
from proxy.engines.stamp import StampedRequest, stamp
from proxy.isolation.salt import SaltKey, salt_for
from proxy.isolation.unit import ProjectUnit

SALT = salt_for(ProjectUnit("acme", "apollo"), epoch=0, key=SaltKey("k1", b"0123456789abcdef0123456789abcdef"))

ENDPOINT: dict[Operation, Endpoint] = {endpoint.operation: endpoint for endpoint in VLLM.endpoints}
SALTED: tuple[Operation, ...] = tuple(endpoint.operation for endpoint in VLLM.salted)
# Every endpoint of every kind that carries a salt.
EVERYWHERE: list[tuple[str, Operation]] = [
    (kind, endpoint.operation) for kind, profile in PROFILES.items() for endpoint in profile.salted
]

# The least that each endpoint takes, less the model.
LEAST: dict[Operation, dict[str, Any]] = {
    Operation.CHAT: {"messages": [{"role": "user", "content": "Hi"}]},
    Operation.COMPLETIONS: {"prompt": "Hi"},
    Operation.RESPONSES: {"input": "Hi"},
    Operation.MESSAGES: {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8},
    Operation.COUNT_TOKENS: {"messages": [{"role": "user", "content": "Hi"}]},
    Operation.EMBEDDINGS: {"input": "Hi"},
}


def endpoint_of(kind: str, operation: Operation) -> Endpoint:
    endpoint = PROFILES[kind].endpoint(operation)
    assert endpoint is not None
    return endpoint


def stamped(operation: Operation, body: bytes, kind: str = "vllm") -> StampedRequest:
    return stamp(read_body(endpoint_of(kind, operation), body), SALT, request_id="r-1", show_reuse=True)


def body_of(operation: Operation, **fields: Any) -> bytes:
    return json.dumps({"model": "tiny", **LEAST[operation], **fields}).encode()


def sent(operation: Operation, **fields: Any) -> Any:
    """What the engine reads of a request with these fields."""
    return sent_to("vllm", operation, **fields)


def sent_to(kind: str, operation: Operation, **fields: Any) -> Any:
    return json.loads(stamped(operation, body_of(operation, **fields), kind).body)


def sent_raw(operation: Operation, body: bytes) -> Any:
    return json.loads(stamped(operation, body).body)
