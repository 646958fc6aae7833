"""Why a request is not relayed, once, in the words of contract section 6.

A `Refusal` means that nothing was sent to an engine. Each class is one row of the table: its status and code are
the class's, the message says what to do about it, and `reason` is a finer word for the operator (`saltgate explain`,
the log) that never reaches the caller.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import ClassVar


class Dialect(Enum):
    """Whose error form the caller understands."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"


class Refusal(Exception):  # noqa: N818 - not an error of the program: an answer
    """A request that goes no further. `retry_after` is in whole seconds. `resend` is False where a client that sends
    the same again, as SDKs do by themselves after a 5xx, would hear the same again.
    """

    status: ClassVar[int]
    code: ClassVar[str]
    openai_type: ClassVar[str] = "invalid_request_error"
    anthropic_type: ClassVar[str] = "invalid_request_error"
    default_retry_after: ClassVar[int | None] = None
    resend: ClassVar[bool] = True

    def __init__(
        self, message: str, *, param: str | None = None, reason: str | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.reason = reason or self.code
        self.retry_after = retry_after if retry_after is not None else self.default_retry_after

    def document(self, dialect: Dialect) -> bytes:
        """The answer's body, UTF-8 JSON in the caller's form."""
        if dialect is Dialect.ANTHROPIC:
            error = {"type": self.anthropic_type, "message": self.message, "code": self.code}
            return json.dumps({"type": "error", "error": error}, ensure_ascii=False).encode()
        error_openai = {"message": self.message, "type": self.openai_type, "code": self.code, "param": self.param}
        return json.dumps({"error": error_openai}, ensure_ascii=False).encode()


class InvalidRequest(Refusal):
    status, code = 400, "invalid_request"


class DoubtfulFraming(InvalidRequest):
    """Where the request ends is not certain, so nothing after it on its connection is read (RFC 9112 section 11.2)."""


class ScopeRequired(Refusal):
    status, code = 400, "scope_required"


class Unauthenticated(Refusal):
    """The parent of every 401. `challenge_error` is RFC 6750's or RFC 9449's `error`, None where no credential was
    shown (RFC 6750 section 3); `challenge_description` goes with it, with nothing that a quoted string would escape.
    """

    status = 401
    openai_type = anthropic_type = "authentication_error"
    challenge_error: ClassVar[str | None] = "invalid_token"
    challenge_description: ClassVar[str] = ""


class CredentialRequired(Unauthenticated):
    code = "credential_required"
    challenge_error = None


class InvalidToken(Unauthenticated):
    code = "invalid_token"
    challenge_description = "The access token is not valid here"


class InvalidProof(Unauthenticated):
    """The token may be good, but the request does not show that its sender holds the key of it (RFC 9449)."""

    code = "invalid_token"
    challenge_error = "invalid_dpop_proof"
    challenge_description = "The DPoP proof is not valid for this request"


class TokenExpired(Unauthenticated):
    code = "token_expired"
    challenge_description = "The access token expired"


class Forbidden(Refusal):
    """The parent of every 403."""

    status = 403
    openai_type = anthropic_type = "permission_error"


class NotAMember(Forbidden):
    code = "not_a_member"


class UnitTooWide(Forbidden):
    code = "unit_too_wide"


class ModelNotAllowed(Forbidden):
    code = "model_not_allowed"


class Blocked(Forbidden):
    code = "blocked"


class EndpointNotAllowed(Refusal):
    status, code = 404, "endpoint_not_allowed"
    anthropic_type = "not_found_error"


class ModelNotFound(Refusal):
    status, code = 404, "model_not_found"
    anthropic_type = "not_found_error"


class BodyTooLarge(Refusal):
    status, code = 413, "body_too_large"
    anthropic_type = "request_too_large"


class UnsupportedMediaType(Refusal):
    status, code = 415, "unsupported_media_type"


class RateLimited(Refusal):
    status, code = 429, "rate_limited"
    openai_type = anthropic_type = "rate_limit_error"
    default_retry_after = 60


class EngineFailed(Refusal):
    """The engine broke before the first byte of its answer reached the client."""

    status, code = 502, "engine_failed"
    openai_type, anthropic_type = "server_error", "api_error"


class GrammarFailed(EngineFailed):
    """The engine failed on a request that carries a grammar or schema, and would fail on it again."""

    resend = False


class EngineTimeout(Refusal):
    status, code = 504, "engine_timeout"
    openai_type, anthropic_type = "server_error", "api_error"


class Unavailable(Refusal):
    """The parent of every 503: our fault, never the caller's, and worth a retry."""

    status = 503
    openai_type, anthropic_type = "server_error", "overloaded_error"
    default_retry_after = 5


class DirectoryUnavailable(Unavailable):
    code = "directory_unavailable"


class AuditUnavailable(Unavailable):
    """What nobody could be told of later is not done (`[audit] on_failure`)."""

    code = "audit_unavailable"


class SaltUnavailable(Unavailable):
    code = "salt_unavailable"


class IssuerUnavailable(Unavailable):
    code = "issuer_unavailable"


class EngineUnavailable(Unavailable):
    code = "engine_unavailable"


class EngineBusy(Unavailable):
    code = "engine_busy"


class Draining(Unavailable):
    code = "draining"


class GateError(Refusal):
    """A fault of saltgate itself. The message never tells details; the log does."""

    status, code = 500, "gate_error"
    openai_type, anthropic_type = "server_error", "api_error"
