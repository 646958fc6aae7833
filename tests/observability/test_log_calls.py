"""Whatever our own code logs comes through: no field of a line is one that redaction drops without a word."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from observability.redaction import is_safe_key
from observability.request_line import RequestLine

ROOT: Final = Path(__file__).parents[2]
LEVELS: Final = frozenset({"debug", "info", "warning", "error", "critical", "exception", "log", "bind"})


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a logger. `fields` are its keywords; None where it also has some that stand elsewhere (`**fields`)."""

    where: str
    event: str
    fields: frozenset[str | None]


def calls(source: str, where: str) -> Iterator[Call]:
    """Of loggers, and of names that were given one of their methods."""
    tree = ast.parse(source)
    loggers = {"structlog"}
    for node in ast.walk(tree):  # outer statements come before inner ones
        match node:
            case ast.Assign(value=value, targets=targets) if _is_of(value, loggers):
                loggers |= {_name(target) for target in targets}
            case ast.AnnAssign(value=ast.expr() as value, target=target) if _is_of(value, loggers):
                loggers.add(_name(target))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_of(node.func, loggers) and _logs(node):
            fields = frozenset(keyword.arg for keyword in node.keywords)
            event = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else ""
            yield Call(f"{where}:{node.lineno}", str(event), fields - {"exc_info"})


def _is_of(node: ast.AST, loggers: set[str]) -> bool:
    """Whether it is a logger, or a method of one, or a choice of such."""
    match node:
        case ast.Name() | ast.Attribute() if _name(node) in loggers:
            return True
        case ast.Call(func=ast.Name("getattr"), args=[of, *_]) | ast.Attribute(value=of) | ast.Call(func=of):
            return _is_of(of, loggers)
        case ast.IfExp(body=one, orelse=other):
            return _is_of(one, loggers) or _is_of(other, loggers)
        case _:
            return False


def _name(node: ast.AST) -> str:
    return ast.unparse(node)


def _logs(call: ast.Call) -> bool:
    return bool(call.keywords or call.args) and (not isinstance(call.func, ast.Attribute) or call.func.attr in LEVELS)


OURS: Final = [
    call
    for room in ("proxy", "observability", "config")
    for file in sorted((ROOT / room).rglob("*.py"))
    for call in calls(file.read_text(encoding="utf-8"), str(file.relative_to(ROOT)))
]


def test_no_field_of_ours_is_dropped() -> None:
    fields = {(call.where, call.event, field) for call in OURS for field in call.fields if field is not None}
    assert {field for field in fields if not is_safe_key(field[2])} == set()


def test_no_field_is_hidden_from_this_test() -> None:
    """But for the lines of libraries, and a request's for people: those are made of fields that stand elsewhere."""
    hidden = {call.where.partition(":")[0] for call in OURS if None in call.fields}
    assert hidden <= {"observability/logs.py"}


def test_no_field_of_a_requests_line_is_dropped_when_it_is_written_for_people() -> None:
    assert [name for name in RequestLine.__struct_fields__ if not is_safe_key(name)] == []


def test_calls_are_found_in_whatever_way_a_logger_is_held() -> None:
    source = """
import structlog
_log = structlog.get_logger("a")
class It:
    def __init__(self):
        self._log: Logger = structlog.get_logger().bind(bound=1)
    def does(self, loud):
        self._log.info("one", a=1)
        level = _log.error if loud else _log.info
        level("two", b=1)
        structlog.get_logger().error("three", c=1, exc_info=error)
        getattr(self._log, loud)("four", d=1)
        _log.warning("five", **fields)
        other.info("six", e=1)
"""
    assert {call.event: set(call.fields) for call in calls(source, "x")} == {
        "": {"bound"}, "one": {"a"}, "two": {"b"}, "three": {"c"}, "four": {"d"}, "five": {None},
    }  # fmt: skip


def test_the_calls_of_the_gate_are_among_them() -> None:
    found = {"engine.version", "engine.proof", "salt_key_missing", "issuer_keys_changed", "token_verifier_fault"}
    assert found <= {call.event for call in OURS}
    assert len(OURS) > 60
