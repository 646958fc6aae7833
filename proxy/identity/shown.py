"""All that a request shows of its caller, before anything of it is judged."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """`headers` are the request's header lines, all of them, as they came.

    `method` and `path` are what a proof of possession must name (RFC 9449 section 4.3): the path as it was sent,
    without its query. `workspace` is the one that the request names, where it names one: it chooses who is asked about
    an opaque token. `certificate` is the client's, in DER, where it was shown to saltgate's own listener.
    """

    headers: tuple[tuple[str, str], ...] = field(repr=False)
    method: str
    path: str
    workspace: str | None
    certificate: bytes | None = field(default=None, repr=False)
