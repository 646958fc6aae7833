"""Writes `reference.md` from the settings and their comments: `python -m config.generate_reference`."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Iterator
from dataclasses import MISSING, Field
from pathlib import Path
from types import UnionType
from typing import Annotated, Final, Literal, Union, get_args, get_origin, get_type_hints

from config import settings, values
from config.overrides import PREFIX
from config.person import GATE_VARIABLE
from config.presets import CLIENTS_REQUIRED, PRESETS
from config.schema import is_list, member
from config.secret import Secret

REFERENCE: Final = Path(__file__).with_name("reference.md")

_PREFACE: Final = f"""# The configuration, key by key

This page is made from `config/settings.py` by `python -m config.generate_reference`. An example is
`config/saltgate.example.toml`; `saltgate check -c FILE` tells every fault of a file in one run.

- The file is TOML. An unknown key is a fault.
- A **duration** is written with its unit: `"500ms"`, `"30s"`, `"5m"`, `"24h"`.
- A **size** is `"64KiB"`, `"32MiB"`, `"1GiB"` or a number of bytes.
- A **secret** is `{{ file = "…" }}` or `{{ env = "…" }}`, never in the file itself; it is the bytes there, less one
  trailing newline.
- A **path** begins at the folder of the file.
- Overrides by environment are named `{PREFIX}<SECTION>__<KEY>`, with items of a list by index, and hold TOML or bare
  text: `{PREFIX}PUBLIC__LISTEN=0.0.0.0:8080`, `{PREFIX}ENGINES__0__URLS=["http://10.0.0.7:8000"]`. To move a secret,
  override it as a whole: `{PREFIX}ISOLATION__KEYS__0__SECRET={{ env = "SALT" }}`. Every other `{PREFIX}…` variable
  but `{GATE_VARIABLE}`, which tells people's own commands their gate, is ignored with one warning.
"""
_FORMS: Final = (
    (values.Duration, "duration"),
    (values.DurationOrZero, "duration, may be 0"),
    (values.KeepAliveInterval, "duration"),
    (values.Size, "size"),
    (values.ScanLimit, "size"),
    (values.WriteBuffer, "size"),
    (values.Share, "number"),
    (values.Count, "whole number"),
    (values.AtLeastOne, "whole number, 1 or more"),
    (values.Flag, "true or false"),
    (values.ClaimPath, "list of strings"),
    (values.ClaimPaths, "list of strings, or of such lists"),
    (values.PathBeside, "path"),
    (values.ReadableFile, "path of a file"),
    (values.SecretValue, "secret"),
)


def reference() -> str:
    """The whole page."""
    sections = _sections(settings.Settings, "", "")
    return "\n".join([_PREFACE, *sections, *_preset_table()])


def _sections(kind: type, path: str, heading: str) -> Iterator[str]:
    """A section's own keys as a table, then the sections inside it."""
    if heading:
        yield f"## `{heading}`\n\n{inspect.getdoc(kind)}\n"
    yield from _key_table(kind)
    for field in dataclasses.fields(kind):
        inner, listed = _section_inside(kind, field.name)
        if inner is not None:
            inner_path = f"{path}{field.name}"
            yield from _sections(inner, f"{inner_path}.", f"[[{inner_path}]]" if listed else f"[{inner_path}]")


def _key_table(kind: type) -> Iterator[str]:
    own = [field for field in dataclasses.fields(kind) if _section_inside(kind, field.name)[0] is None]
    if not own:
        return
    hints = get_type_hints(kind, include_extras=True)
    meanings = _meanings(kind)
    yield "| key | value | default | meaning |\n| --- | --- | --- | --- |"
    for field in own:
        form = _form(hints[field.name])
        yield _row(f"`{field.name}`", form, _default(field, form), meanings[field.name])
    yield ""


def _section_inside(kind: type, key: str) -> tuple[type | None, bool]:
    """The section under a key, if there is one, and whether there may be several."""
    inner = member(kind, key)
    listed = is_list(inner)
    if listed:
        inner = member(inner, "0")
    if isinstance(inner, type) and dataclasses.is_dataclass(inner) and inner is not Secret:
        return inner, listed
    return None, False


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _form(hint: object) -> str:
    """How a value is written."""
    for known, form in _FORMS:
        if hint == known:
            return form
    match get_origin(hint):
        case origin if origin is Annotated:
            return _form(get_args(hint)[0])
        case origin if origin in (Union, UnionType):
            return _form(get_args(hint)[0])
        case origin if origin is Literal:
            return " or ".join(f"`{_written(choice)}`" for choice in get_args(hint))
        case origin if origin is tuple:
            return "list of strings"
        case _:
            return "string"


def _default(field: Field[object], form: str) -> str:
    if field.default is MISSING:
        return "**required**"
    return "" if field.default is None else f"`{_written(field.default, form)}`"


def _written(value: object, form: str = "") -> str:
    """A value as the file would have it."""
    match value:
        case bool():
            return str(value).lower()
        case float() if form.startswith("duration") and value != int(value):
            return f'"{round(value * 1000)}ms"'
        case float() if form.startswith("duration"):
            return f'"{_with_unit(value, (("h", 3600), ("m", 60), ("s", 1)))}"'
        case int() if form == "size":
            return f'"{_with_unit(value, (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024), ("B", 1)))}"'
        case str():
            return f'"{value}"'
        case tuple() | list():
            return f"[{', '.join(map(_written, value))}]"
        case _:
            return str(value)


def _with_unit(amount: float, units: tuple[tuple[str, int], ...]) -> str:
    smallest = units[-1]  # in which also nothing is written
    unit, factor = next((one for one in units if amount >= one[1] and amount % one[1] == 0), smallest)
    return f"{int(amount / factor)}{unit}"


def _meanings(kind: type) -> dict[str, str]:
    """The comment on each field, or the lines of comment above it, here or where the section takes it from."""
    found: dict[str, str] = {}
    for section in reversed(kind.__mro__):
        if dataclasses.is_dataclass(section):
            found |= _own_meanings(section)
    return found


def _own_meanings(kind: type) -> dict[str, str]:
    lines = inspect.getsource(kind).splitlines()
    body = ast.parse("\n".join(lines)).body[0]
    if not isinstance(body, ast.ClassDef):
        raise TypeError(f"{kind} is no class")
    found = {}
    for statement in body.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            found[statement.target.id] = _comment(lines, statement)
    return found


def _comment(lines: list[str], statement: ast.AnnAssign) -> str:
    above: list[str] = []
    number = statement.lineno - 2
    while lines[number].lstrip().startswith("# "):
        above.insert(0, lines[number].strip().removeprefix("# "))
        number -= 1
    # ast counts columns in bytes.
    behind = lines[(statement.end_lineno or statement.lineno) - 1].encode()[statement.end_col_offset or 0 :].decode()
    return " ".join([*above, behind.strip().removeprefix("# ")]).strip()


def _preset_table() -> Iterator[str]:
    yield "## What `kind` fills in at an issuer\n"
    yield "Keys that the file sets win. A cell that is empty leaves the default.\n"
    columns = ("token_types", "payload_type", "subject", "groups", "allow_id_token_claims")
    yield _row("kind", *(f"`{column}`" for column in columns), "note")
    yield _row(*("---" for _ in range(len(columns) + 2)))
    for kind, preset in PRESETS.items():
        cells = (f"`{_written(preset[column])}`" if column in preset else "" for column in columns)
        yield _row(kind, *cells, "`clients` required" if kind in CLIENTS_REQUIRED else "")
    yield ""


if __name__ == "__main__":
    REFERENCE.write_text(reference(), encoding="utf-8")
