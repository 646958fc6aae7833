"""Whether the URL that a proof names is the one that was asked (RFC 9449 section 4.3, RFC 3986 section 6.2). Pure."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

_PLAIN: Final = re.compile(r"[!-~]+")
_ESCAPED: Final = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED: Final = re.compile(r"[A-Za-z0-9._~-]")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def same_target(named: str, asked: str) -> bool:
    """Whether `named` is `asked` but for spelling, and for a query and fragment, which a proof may leave out or have.

    `asked` is an absolute URL of ours without query. Its dot segments are not removed as those of `named` are: nothing
    of ours has any, and who sends some has no proof for it.
    """
    written, ours = _split(named), _split(asked)
    if written is None or ours is None:
        return False
    # Escaped dots are dots: so the escapes go first.
    path = _without_dots(_plainly_escaped(written.path))
    return _origin(written) == _origin(ours) and path == (_plainly_escaped(ours.path) or "/")


def _split(text: str) -> SplitResult | None:
    """The parts; None for what is no absolute http URL. urlsplit drops control characters: they are refused first."""
    if not _PLAIN.fullmatch(text):
        return None
    try:
        parts = urlsplit(text)
        _ = parts.port  # which may be no number
    except ValueError:
        return None
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or "@" in parts.netloc:
        return None
    return parts


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    """`urlsplit` has lowered the scheme and the host already. An empty port is the default one."""
    return parts.scheme, parts.hostname, _DEFAULT_PORTS[parts.scheme] if parts.port is None else parts.port


def _plainly_escaped(path: str) -> str:
    """Escapes of what needs none are undone, and the others have capital digits."""

    def plain(match: re.Match[str]) -> str:
        character = chr(int(match[1], 16))
        return character if _UNRESERVED.fullmatch(character) else match[0].upper()

    return _ESCAPED.sub(plain, path)


def _without_dots(path: str) -> str:
    """RFC 3986 section 5.2.4, for an absolute path."""
    kept: list[str] = []
    segments = path.split("/")[1:] if path else []
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments and segments[-1] in {".", ".."}:
        kept.append("")
    return "/" + "/".join(kept)
