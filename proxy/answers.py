"""saltgate's own answers: refusals, the model list, the resource metadata."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from aiohttp import web

from observability.record import Record
from proxy.desk import PageAnswer
from proxy.identity.native_sign_in import MEMBER, NativeSignIn, member_of
from proxy.refusals import Dialect, DoubtfulFraming, Refusal, Unauthenticated
from proxy.relay.answer import Answer
from proxy.relay.relay import answer_headers
from proxy.routes import METADATA_PATH

_JSON: Final = b"Content-Type: application/json\r\nCache-Control: no-store\r\n"


def refusal_answer(
    request: web.BaseRequest, refusal: Refusal, dialect: Dialect, record: Record, public_url: str
) -> web.StreamResponse:
    """The refusal in the caller's form, with the headers that tell a program what to do, and its record."""
    record.refused(refusal.code, refusal.status, refusal.reason)
    answer = Answer(request, last=isinstance(refusal, DoubtfulFraming))
    headers = _JSON + refusal_headers(refusal, public_url) + answer_headers(record)
    answer.whole(refusal.status, headers, refusal.document(dialect))
    return answer


def refusal_headers(refusal: Refusal, public_url: str) -> bytes:
    """Retry-After (RFC 9110 section 10.2.3), the challenge of RFC 6750 section 3 with RFC 9728's pointer, and the line
    by which the SDKs of OpenAI and Anthropic are told not to send the same again.
    """
    lines = b"" if refusal.resend else b"x-should-retry: false\r\n"
    if refusal.retry_after is not None:
        lines += b"Retry-After: %d\r\n" % refusal.retry_after
    if isinstance(refusal, Unauthenticated):
        challenge = f'Bearer realm="saltgate", resource_metadata="{public_url}{METADATA_PATH}"'
        if refusal.challenge_error is not None:
            challenge += f', error="{refusal.challenge_error}"'
        lines += b"WWW-Authenticate: %b\r\n" % challenge.encode("ascii")
    return lines


def metadata_document(
    request: web.BaseRequest, record: Record, resource: str, issuers: Sequence[str], sign_ins: Sequence[NativeSignIn]
) -> web.StreamResponse:
    """The protected-resource metadata (RFC 9728 section 2): who issues the tokens that this resource accepts, and how
    people at a command line come by one.
    """
    document: dict[str, object] = {
        "resource": resource,
        "authorization_servers": list(issuers),
        "bearer_methods_supported": ["header"],
    }
    if sign_ins:  # section 3.2: what has no values is left out
        document[MEMBER] = member_of(sign_ins)
    return _answer_json(request, document, record)


# No page may be framed, sniffed, kept or told to another site: what it shows is one person's. With `no-referrer`
# browsers would not tell the origin of our own forms either.
_PAGE: Final = (
    b"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: same-origin\r\n"
    b"X-Frame-Options: DENY\r\n"
)


def page_answer(request: web.BaseRequest, record: Record, page: PageAnswer) -> web.StreamResponse:
    """One of saltgate's own pages."""
    if page.refusal is None:
        record.answered(page.status)
        record.ended("ok")
    else:
        record.refused(page.refusal.code, page.status, page.refusal.reason)
    lines = "".join(f"{name}: {value}\r\n" for name, value in page.headers)
    if page.body is not None:
        lines += f"Content-Type: {page.content_type}\r\n"
    answer = Answer(request)
    answer.whole(page.status, _PAGE + lines.encode("ascii") + answer_headers(record), page.body or b"")
    return answer


def model_list(request: web.BaseRequest, record: Record, models: Sequence[str]) -> web.StreamResponse:
    """What this scope may use, in OpenAI's form with Anthropic's members beside it."""
    document = {
        "object": "list",
        "data": [_model(model) for model in models],
        "has_more": False,
        "first_id": models[0] if models else None,
        "last_id": models[-1] if models else None,
    }
    return _answer_json(request, document, record)


def one_model(request: web.BaseRequest, record: Record, model: str) -> web.StreamResponse:
    """One model of the list."""
    return _answer_json(request, _model(model), record)


def _model(model: str) -> dict[str, object]:
    return {
        "id": model,
        "object": "model",
        "created": 0,
        "owned_by": "saltgate",
        "type": "model",
        "display_name": model,
        "created_at": "1970-01-01T00:00:00Z",
    }


def _answer_json(request: web.BaseRequest, document: object, record: Record) -> web.StreamResponse:
    record.answered(200)
    record.ended("ok")
    answer = Answer(request)
    answer.whole(200, _JSON + answer_headers(record), json.dumps(document, ensure_ascii=False).encode())
    return answer
