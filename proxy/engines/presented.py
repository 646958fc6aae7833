"""The salt that another saltgate presents: the one place where a client's `cache_salt` is read at all."""

from __future__ import annotations

from proxy.engines.members import STRING, kind, read_object, read_text
from proxy.engines.stamp import SALT_FIELD
from proxy.isolation.salt import is_salt
from proxy.refusals import InvalidRequest


def presented_salt(body: bytes) -> str:
    """The salt in a body of a caller who is known to be a saltgate. Raises InvalidRequest where there is none.

    One that is missing or of another form is refused, never taken for "no border of its own": whoever is configured as
    a gate and does not stamp would put all its callers into one cache.
    """
    raw = read_object(body, None).get(SALT_FIELD)
    text = read_text(raw, SALT_FIELD) if raw is not None and kind(raw) == STRING else ""
    if not is_salt(text):
        raise InvalidRequest(
            "This caller is configured as a saltgate ([[gates]]), so each request must carry the salt that it stamped.",
            param=SALT_FIELD,
            reason="gate_without_salt",
        )
    return text
