"""Why the provider says no. Three ways to say it, by who may hear it."""

from __future__ import annotations

from dataclasses import dataclass


class OAuthError(Exception):
    """The answer of an endpoint that programs call (RFC 6749 section 5.2, RFC 7009 2.2.1, RFC 8628 3.5)."""

    def __init__(self, error: str, description: str, *, status: int = 400) -> None:
        super().__init__(f"{error}: {description}")
        self.error = error
        self.description = description
        self.status = status


class PageRefusal(Exception):  # noqa: N818 - an answer, not a fault of the program
    """Told to the person on a page, never by a redirect: no address is proven to be the client's (RFC 6749 4.1.2.1)."""

    def __init__(self, message: str, *, status: int = 400, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class ReturnAddress:
    """Where a client wants its answer. Made only after the address was found among the client's own."""

    redirect_uri: str
    state: str | None


class RedirectRefusal(Exception):  # noqa: N818 - an answer, not a fault of the program
    """Told to the client, at an address that is its own (RFC 6749 section 4.1.2.1)."""

    def __init__(self, to: ReturnAddress, error: str, description: str) -> None:
        super().__init__(f"{error}: {description}")
        self.to = to
        self.error = error
        self.description = description
