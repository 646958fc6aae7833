"""The barrier that compose/ mounts into vLLM, loaded from its one file as vLLM loads it: no package is around it."""

from __future__ import annotations

import importlib.util
from types import ModuleType

from tests.engine.server import BARRIER


def load_barrier() -> ModuleType:
    spec = importlib.util.spec_from_file_location("saltgate_barrier", BARRIER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


barrier = load_barrier()
