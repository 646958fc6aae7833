"""Labels as both text formats write them between the braces."""

from __future__ import annotations

from observability.layouts import Labels


def label_text(names: Labels, values: Labels) -> str:
    return ",".join([f'{name}="{escaped(value)}"' for name, value in zip(names, values, strict=True)])


def escaped(text: str) -> str:
    """As a label's value or a help text."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
