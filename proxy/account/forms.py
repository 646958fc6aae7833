"""What comes in a query or a form: each name once, or not at all. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from proxy.refusals import InvalidRequest

_MOST_FIELDS: Final = 32
_LONGEST_QUERY: Final = 16 * 1024


def parameters(text: str) -> Mapping[str, str]:
    """The parameters of a query (application/x-www-form-urlencoded). Raises InvalidRequest for what is none, and for a
    name that comes twice (RFC 6749 section 3.1): two readers could take two values.
    """
    if len(text) > _LONGEST_QUERY or not text.isascii():
        raise _malformed()
    try:
        pairs = parse_qsl(
            text, keep_blank_values=True, strict_parsing=bool(text), errors="strict", max_num_fields=_MOST_FIELDS
        )
    except ValueError:
        raise _malformed() from None
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InvalidRequest("A parameter comes twice. Go back and start again.", reason="parameter_twice")
    return found


def form(body: bytes) -> Mapping[str, str]:
    """The fields of a posted form. Raises InvalidRequest as `parameters` does."""
    # Bytes outside ASCII become characters outside ASCII, which are refused.
    return parameters(body.decode("latin-1"))


def _malformed() -> InvalidRequest:
    return InvalidRequest("The request cannot be read. Go back and start again.", reason="parameters")
