"""An engine to try saltgate with: vLLM's protocol with a true prefix cache, and no model.

Start at `server.py` (the life of a request), then `engine.py` (prefill and decode), `cache.py` (block hashes and the
salt). `order.py` reads requests; `chat.py`, `completions.py`, `responses.py`, `messages.py`, `embeddings.py` each speak
one route.
"""

from __future__ import annotations

from proxy.demo.simulator.faults import Fault, FaultKind
from proxy.demo.simulator.process import serve
from proxy.demo.simulator.received import Received
from proxy.demo.simulator.server import Simulator
from proxy.demo.simulator.shape import ALL_ENDPOINTS, AT_ONCE, Endpoint, EngineShape, Flaws, Pace

__all__ = [
    "ALL_ENDPOINTS",
    "AT_ONCE",
    "Endpoint",
    "EngineShape",
    "Fault",
    "FaultKind",
    "Flaws",
    "Pace",
    "Received",
    "Simulator",
    "serve",
]
