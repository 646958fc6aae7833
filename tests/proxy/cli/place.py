"""A folder with a configuration, and saltgate's commands run in it, in this process."""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from config.load import load
from proxy.cli import directory, keys
from proxy.directory.changes import Deed, make_ring
from proxy.directory.connect import open_store
from proxy.isolation.ring import Ring

ISSUER = "https://sso.example.com/realms/acme"
FILE = f"""
[workspaces.acme]
issuer = "{ISSUER}"
unit = "workspace"
[workspaces.acme.projects.apollo]
members = ["user:alice", "group:eng"]
team = "red"
[workspaces.acme.projects.ares]
unit = "user"
[workspaces.acme.teams.red]
members = ["user:alice", "user:carol"]
[workspaces.acme.collections.handbook]
projects = ["apollo"]
"""


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    out: str
    err: str


class Place:
    """A folder with a configuration, and the commands run in it."""

    def __init__(self, folder: Path, directory_section: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.configuration = folder / "saltgate.toml"
        self._capsys = capsys
        self._section = directory_section
        self.configure(directory_section)
        (folder / "salt").write_text("x" * 43)
        (folder / "people.toml").write_text(FILE)

    def configure(
        self,
        directory_section: str | None = None,
        *,
        issuers: tuple[str, ...] = (ISSUER,),
        keys: tuple[str, ...] = ("2026-11",),
        isolation: str = "",
    ) -> None:
        """Writes the configuration anew. Without a section the directory stays where it is."""
        listed = "".join(f'[[issuers]]\nissuer = "{issuer}"\naudiences = ["saltgate"]\n' for issuer in issuers)
        secrets = "".join(f'[[isolation.keys]]\nid = "{key}"\nsecret = {{ file = "salt" }}\n' for key in keys)
        self.configuration.write_text(
            f'[[engines]]\nname = "main"\nurls = ["http://127.0.0.1:8000"]\n{listed}'
            f"[directory]\n{directory_section or self._section}\n[isolation]\n{isolation}\n{secrets}"
        )

    def make_ring(self, ring: Ring) -> None:
        asyncio.run(self._change(make_ring(ring)))

    async def _change(self, deed: Deed) -> None:
        settings = load(self.configuration, {}).settings
        store = open_store(settings.directory, removal=None)
        try:
            await store.change(deed)
        finally:
            await store.close()

    def directory(self, *words: str) -> Answer:
        return self._run(directory, *words, "-c", str(self.configuration))

    def keys(self, *words: str) -> Answer:
        return self._run(keys, *words)

    def rotate(self, *words: str) -> Answer:
        return self.keys("rotate", *words, "-c", str(self.configuration))

    def listed(self) -> dict[str, Any]:
        """What `keys list --json` says."""
        answer = self.keys("list", "--json", "-c", str(self.configuration))
        document: dict[str, Any] = json.loads(answer.out)
        assert answer.code == (0 if document["ring"] else 1)
        return document

    def shown(self) -> dict[str, dict[str, object]]:
        answer = self.directory("show", "--json")
        assert answer.code == 0
        return {unit["unit"]: unit for unit in json.loads(answer.out)["units"]}

    def borders(self, unit: str) -> list[dict[str, object]]:
        """Where the border of a project runs: for any model, then for those with an exception."""
        found = self.shown()[unit]["borders"]
        assert isinstance(found, list)
        return found

    def _run(self, module: ModuleType, *words: str) -> Answer:
        parser = argparse.ArgumentParser()
        module.add_arguments(parser)
        try:
            code = module.run(parser.parse_args([str(word) for word in words]))
        except SystemExit as usage:
            code = usage.code
        captured = self._capsys.readouterr()
        return Answer(code, captured.out, captured.err)
