"""`saltgate check` tries whether the audit can be written, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

from config.secret import Secret
from config.settings import Audit, AuditKey
from proxy.cli.check_audit import audit_lines
from proxy.cli.lines import Level, Line


def settings(directory: Path | None, journal: Path | None = None) -> Audit:
    return Audit(directory=directory, journal=journal, keys=(AuditKey(id="a1", secret=Secret(b"k" * 32, "test")),))


async def checked(audit: Audit) -> list[Line]:
    return [line async for line in audit_lines(audit)]


async def test_a_directory_that_can_be_written_is_made_and_left_empty(tmp_path: Path) -> None:
    (line,) = await checked(settings(tmp_path / "a" / "audit"))
    assert line.level in (Level.OK, Level.WARNING)
    assert list((tmp_path / "a" / "audit").iterdir()) == []


async def test_what_cannot_be_written_is_a_fault_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for audit in (settings(tmp_path / "file"), settings(tmp_path / "audit", tmp_path / "file")):
        (line,) = await checked(audit)
        assert (line.level, f"{tmp_path / 'file'} cannot be written" in line.message) == (Level.FAULT, True)
        assert "nothing is served" in line.message


async def test_without_an_audit_nothing_is_looked_at() -> None:
    assert await checked(settings(None)) == []


async def test_what_is_nothing_of_an_audit_is_noted(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    assert [(line.level, line.about) for line in await checked(settings(tmp_path))][1:] == [(Level.NOTE, "notes.txt")]
