"""The pages in a real browser, beside invented data."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.parts.chromium_profiles import Chromium, open_chromium
from tests.proxy.pages.served import Desk, served_pages


@pytest.fixture
async def chromium(tmp_path: Path) -> AsyncIterator[Chromium]:
    async with open_chromium(tmp_path) as opened:
        yield opened


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async with served_pages() as served:
        yield served
