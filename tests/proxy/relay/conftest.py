from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping

import pytest
import uvloop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], AbstractEventLoop]]:
    """The loop that serves in production: when it closes, pauses and buffers differs from asyncio's own."""
    return {"uvloop": uvloop.new_event_loop}
