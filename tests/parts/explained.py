"""`saltgate explain` run beside real parts: a configuration in a folder, a token on standard input, the answer."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from config.load import load
from proxy.cli import explain
from proxy.directory.changes import fresh_ring, import_directory
from proxy.directory.connect import open_store
from proxy.directory.model import directory_from_toml

SECRET: Final = "0123456789abcdef0123456789abcdef"
BASE_EPOCH: Final = 1_700_000_000


@dataclass(frozen=True, slots=True)
class Answer:
    """How the command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, object]:
        """Of --json."""
        found: dict[str, object] = json.loads(self.out)
        return found

    @property
    def result(self) -> str:
        """Of --json: the unit, or the refusal that the caller would get."""
        refusals = self.document["refusals"]
        assert isinstance(refusals, list)
        return f"{refusals[0]['status']} {refusals[0]['code']}" if refusals else str(self.document["unit"])


class Explainer:
    """`file` is the configuration: write it, and fill the directory, before asking."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.file = folder / "saltgate.toml"
        self._capfd = capfd
        (folder / "salt.key").write_text(SECRET)

    async def fill(self, directory: str) -> None:
        """Import a directory file's text as the configuration's directory."""
        store = open_store(load(self.file).settings.directory, removal=None)
        try:
            await store.change(import_directory(directory_from_toml(directory), fresh_ring("k1", now=BASE_EPOCH)))
        finally:
            await store.close()

    async def explain(self, token: str | bytes, *words: str) -> Answer:
        """In a thread of its own: the parts live in this one's event loop."""
        parser = argparse.ArgumentParser()
        explain.add_arguments(parser)
        parsed = parser.parse_args(["-c", str(self.file), *words])
        data = token.encode() if isinstance(token, str) else token
        with _standard_input(data):
            code = await asyncio.to_thread(explain.run, parsed)
        captured = self._capfd.readouterr()
        shown = captured.out + captured.err
        assert SECRET not in shown
        assert "sg1-" not in shown
        text = data.decode("utf-8", "replace").strip()
        assert len(text) < 8 or (text not in shown and text.rpartition(".")[2] not in shown)
        return Answer(code, captured.out, captured.err)


@contextmanager
def _standard_input(data: bytes) -> Iterator[None]:
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(data))
    try:
        yield
    finally:
        sys.stdin = before
