"""What `saltgate check` says of the Redis user: whether it may do what is configured. Nothing is changed there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

from config.settings import Settings
from proxy.account.store import ONCE, SESSION, SESSIONS_IN, SESSIONS_OF
from proxy.cli.lines import Level, Line
from proxy.directory.redis_history import GATES, REQUESTS, SLOT
from proxy.directory.redis_rights import forbidden
from proxy.directory.redis_store import CHANGES, ENDINGS, GENERATION
from proxy.directory.redis_tokens import LOGIN, TOKENS_OF, token_keys
from proxy.directory.redis_transaction import Command
from proxy.directory.store import StoreUnavailable
from proxy.directory.used_proofs import PROOFS

_NAME: Final = "check"

# What is over, be it a session, a sign-in at the issuer or a token, is told to every worker.
_END: Final[tuple[Command, ...]] = (
    ("HSET", ENDINGS, _NAME, ""),
    ("HDEL", ENDINGS, _NAME),
    ("INCR", GENERATION),
    ("PUBLISH", CHANGES, ""),
)
_SIGN_IN: Final[tuple[Command, ...]] = (
    ("SET", SESSION + _NAME, "", "PX", 1),
    ("PEXPIRE", SESSION + _NAME, 1),
    ("DEL", SESSION + _NAME),
    ("SET", ONCE + _NAME, "", "NX", "PX", 1),
    *(
        command
        for index in (SESSIONS_OF + _NAME, SESSIONS_IN + _NAME)
        for command in (
            ("ZADD", index, 0, _NAME),
            ("ZREM", index, _NAME),
            ("ZREMRANGEBYSCORE", index, 0, 0),
            ("PEXPIRE", index, 1),
        )
    ),
    *_END,
)
_TOKENS: Final[tuple[Command, ...]] = (
    *(("SET", key, "", "EX", 1) for key in token_keys(_NAME)),
    ("DEL", *token_keys(_NAME)),
    ("ZADD", TOKENS_OF + _NAME, 0, _NAME),
    ("ZREM", TOKENS_OF + _NAME, _NAME),
    ("EXPIREAT", TOKENS_OF + _NAME, 0),
    ("SET", LOGIN + _NAME, "", "EX", 1),
    *_END,
)
_PROOF: Final[tuple[Command, ...]] = (("SET", PROOFS + _NAME, "", "NX", "EX", 1),)

_HISTORY: Final[tuple[Command, ...]] = (
    ("SET", SLOT + _NAME, "", "EX", 1),
    ("XADD", REQUESTS, "MAXLEN", "~", 1, "*", _NAME, ""),
    ("ZADD", GATES, 0, _NAME),
    ("ZREMRANGEBYSCORE", GATES, 0, 0),
    ("EXPIRE", GATES, 1),
    ("XRANGE", REQUESTS, "-", "+"),
    ("MGET", SLOT + _NAME),
)

_PAGE: Final = "proxy/directory/redis-layout.md"
_WRITE: Final = f"Give it `+@write +publish` on saltgate's keys and channel ({_PAGE})"


async def redis_lines(part: str, settings: Settings) -> AsyncIterator[Line]:
    """What the user of `[directory]` may not do though it is needed; nothing where the directory is a file."""
    if settings.directory.redis is None:
        return
    signs_in = any(issuer.login is not None and issuer.login.client_id is not None for issuer in settings.issuers)
    try:
        sessions = await forbidden(settings.directory, _SIGN_IN) if signs_in else ()
        tokens = await forbidden(settings.directory, _TOKENS)
        proofs = await forbidden(settings.directory, _PROOF)
        history = await forbidden(settings.directory, _HISTORY) if settings.history.redis else ()
    except StoreUnavailable as error:
        yield Line(Level.FAULT if signs_in else Level.WARNING, part, "Redis user", f"{error}")
        return
    if sessions:
        without = f"{_lacks(sessions)}: nobody can sign in with a browser ([issuers.login] `client_id`)"
        yield Line(Level.FAULT, part, "Redis user", f"{without}. {_WRITE}")
    if tokens:
        without = f"{_lacks(tokens)}: no personal access token can be made or revoked at /account"
        yield Line(Level.WARNING, part, "Redis user", f"{without}. {_WRITE}")
    if history:
        without = f"{_lacks(history)}: the history of the administrators' pages is not kept (`[history] redis`)"
        yield Line(Level.WARNING, part, "Redis user", f"{without}. {_WRITE}")
    if proofs:
        without = "it may not note which DPoP proofs have come: tokens bound by DPoP are answered with 503"
        remedy = f"Give it the selector `(~{PROOFS}* +set)` ({_PAGE})"
        yield Line(Level.WARNING, part, "Redis user", f"{without}. {remedy}")


def _lacks(commands: Sequence[str]) -> str:
    return f"it may not use {', '.join(commands)}"
