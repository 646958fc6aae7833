"""The parameters of a request, read once and strictly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl

from proxy.demo.provider.errors import OAuthError

_MOST_PARAMETERS = 40


@dataclass(frozen=True, slots=True)
class Parameters:
    """Names and values, each name once. An empty value counts as left out (RFC 6749 section 3.1)."""

    values: Mapping[str, str]

    def get(self, name: str) -> str | None:
        return self.values.get(name) or None

    def required(self, name: str) -> str:
        value = self.get(name)
        if value is None:
            raise OAuthError("invalid_request", f"{name} is missing")
        return value

    def words(self, name: str) -> frozenset[str]:
        """A space-delimited list (RFC 6749 section 3.3)."""
        return frozenset((self.get(name) or "").split())


def parse_parameters(text: str) -> Parameters:
    """A query or form body. Raises OAuthError where it is malformed, or a name comes twice (RFC 6749 section 3.1)."""
    if not text.isascii():
        raise OAuthError("invalid_request", "the parameters are not urlencoded")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MOST_PARAMETERS)
    except ValueError as error:
        raise OAuthError("invalid_request", "the parameters are not UTF-8, or too many") from error
    values = dict(pairs)
    if len(values) != len(pairs):
        raise OAuthError("invalid_request", "a parameter comes twice")
    return Parameters(values)
