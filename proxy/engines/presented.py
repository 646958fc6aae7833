"""The salt that another saltgate presents: the one place where a client's `cache_salt` is read at all."""

from __future__ import annotations

from typing import Final

from proxy.engines.body import OpenBody
from proxy.engines.members import STRING, kind, read_text
from proxy.isolation.salt import is_salt
from proxy.refusals import InvalidRequest

SALT_MEMBER: Final = "cache_salt"


def presented_salt(opened: OpenBody) -> str:
    """The salt in the body of a caller who is known to be a saltgate. Raises InvalidRequest where there is none.

    One that is missing or of another form is refused, never taken for "no border of its own": whoever is configured as
    a gate and does not stamp would put all its callers into one cache.
    """
    raw = opened.members.get(SALT_MEMBER)
    text = read_text(raw, SALT_MEMBER) if raw is not None and kind(raw) == STRING else ""
    if not is_salt(text):
        raise InvalidRequest(
            "This caller is configured as a saltgate ([[gates]]), so each request must carry the salt that it stamped.",
            param=SALT_MEMBER,
            reason="gate_without_salt",
        )
    return text
