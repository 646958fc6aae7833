"""saltgate's own answers: refusals, the model list, the resource metadata."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from observability.record import Record
from proxy.challenges import challenges, tried_scheme
from proxy.cross_origin import preflight_lines
from proxy.desk import PageAnswer
from proxy.identity.credential import Scheme
from proxy.identity.dpop import ALGORITHMS
from proxy.identity.native_sign_in import MEMBER, NativeSignIn, member_of
from proxy.refusals import Dialect, DoubtfulFraming, Refusal, Unauthenticated
from proxy.relay.answer import Answer, answer_headers
from proxy.relay.request import Request
from proxy.routes import Preflight, resource_of

_JSON: Final = b"Content-Type: application/json\r\nCache-Control: no-store\r\n"


def refusal_answer(
    request: Request,
    refusal: Refusal,
    dialect: Dialect,
    record: Record,
    public_url: str,
    *,
    last: bool = False,
) -> Answer:
    """The refusal in the caller's form, with the headers that tell a program what to do, and its record.

    `last`: its connection ends with it, as it always does where the framing is in doubt.
    """
    record.refused(refusal.code, refusal.status, refusal.reason)
    answer = Answer(request, last=last or isinstance(refusal, DoubtfulFraming))
    lines = refusal_headers(
        refusal,
        public_url,
        tried=tried_scheme(request.headers.get("Authorization", "")),
        resource=resource_of(request.target),
    )
    answer.whole(refusal.status, _JSON + lines + answer_headers(record), refusal.document(dialect))
    return answer


def refusal_headers(refusal: Refusal, public_url: str, *, tried: Scheme = Scheme.BEARER, resource: str = "") -> bytes:
    """Retry-After (RFC 9110 section 10.2.3), the challenges of a 401, and the line by which the SDKs of OpenAI and
    Anthropic are told not to send the same again.
    """
    lines = b"" if refusal.resend else b"x-should-retry: false\r\n"
    if refusal.retry_after is not None:
        lines += b"Retry-After: %d\r\n" % refusal.retry_after
    if isinstance(refusal, Unauthenticated):
        lines += challenges(refusal, tried=tried, resource=resource, public_url=public_url)
    return lines


def metadata_document(
    request: Request,
    record: Record,
    resource: str,
    issuers: Sequence[str],
    sign_ins: Sequence[NativeSignIn],
    *,
    certificates: bool,
    last: bool,
) -> Answer:
    """The protected-resource metadata (RFC 9728 section 2): who issues the tokens that this resource accepts, what
    they may be bound to, and how people at a command line come by one. `certificates` is whether anybody can show us
    one.
    """
    document: dict[str, object] = {
        "resource": resource,
        "resource_name": "saltgate",
        "authorization_servers": list(issuers),
        "bearer_methods_supported": ["header"],
        "dpop_signing_alg_values_supported": list(ALGORITHMS),
        "tls_client_certificate_bound_access_tokens": certificates,
    }
    if sign_ins:  # section 3.2: what has no values is left out
        document[MEMBER] = member_of(sign_ins)
    return _answer_json(request, document, record, last=last)


def preflight_answer(request: Request, record: Record, asked: Preflight, *, last: bool) -> Answer:
    """What a browser may send for a page. With its own lines, so the ones for all answers are not repeated."""
    record.answered(200)
    record.ended("ok")
    request.page_lines = preflight_lines(asked.origin, asked.method, asked.headers)
    answer = Answer(request, last=last)
    answer.whole(200, answer_headers(record), b"")
    return answer


# No page may be framed, sniffed, kept or told to another site: what it shows is one person's. With `no-referrer`
# browsers would not tell the origin of our own forms either.
_PAGE: Final = (
    b"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: same-origin\r\n"
    b"X-Frame-Options: DENY\r\n"
)


def page_answer(request: Request, record: Record, page: PageAnswer, *, last: bool) -> Answer:
    """One of saltgate's own pages. `last`: its connection ends with it."""
    if page.refusal is None:
        record.answered(page.status)
        record.ended("ok")
    else:
        record.refused(page.refusal.code, page.status, page.refusal.reason)
    lines = "".join(f"{name}: {value}\r\n" for name, value in page.headers)
    if page.body is not None:
        lines += f"Content-Type: {page.content_type}\r\n"
    answer = Answer(request, last=last)
    answer.whole(page.status, _PAGE + lines.encode("ascii") + answer_headers(record), page.body or b"")
    return answer


def model_list(request: Request, record: Record, models: Sequence[str]) -> Answer:
    """What this scope may use, in OpenAI's form with Anthropic's members beside it."""
    document = {
        "object": "list",
        "data": [_model(model) for model in models],
        "has_more": False,
        "first_id": models[0] if models else None,
        "last_id": models[-1] if models else None,
    }
    return _answer_json(request, document, record)


def one_model(request: Request, record: Record, model: str) -> Answer:
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


def _answer_json(request: Request, document: object, record: Record, *, last: bool = False) -> Answer:
    record.answered(200)
    record.ended("ok")
    answer = Answer(request, last=last)
    answer.whole(200, _JSON + answer_headers(record), json.dumps(document, ensure_ascii=False).encode())
    return answer
