"""The pure way of one token, without an issuer to ask: parsed, verified with the mint's keys, judged."""

from __future__ import annotations

import dataclasses
import json

from config.settings import Issuer
from proxy.identity import Identity
from proxy.identity.claims import identify
from proxy.identity.confirmation import bearer
from proxy.identity.keys import NoSuchKeyError, key_set
from proxy.identity.reasons import Reason, invalid_token
from proxy.identity.token import compact_token
from tests.parts.tokens import TokenMint

NOW = 1_900_000_000.0
ISSUER = "https://sso.example.test/realms/acme"
RULES = Issuer(issuer=ISSUER, audiences=("saltgate",), algorithms=("RS256", "ES256"))


def fixed_clock() -> float:
    return NOW


def mint(*algorithms: str) -> TokenMint:
    """A mint whose clock stands at NOW."""
    return TokenMint(issuer=ISSUER, algorithms=algorithms or ("RS256", "ES256"), clock=fixed_clock)


def judged(token: str, mint: TokenMint, rules: Issuer = RULES, **changes: object) -> Identity:
    """The identity that the token proves at NOW under the rules. `changes` replace fields of the rules."""
    rules = dataclasses.replace(rules, **changes)  # type: ignore[arg-type]  # named by the tests, checked at run time
    parsed = compact_token(token)
    try:
        verified = key_set(json.dumps(mint.jwks()).encode()).verified(parsed, algorithms=rules.algorithms)
    except NoSuchKeyError:
        raise invalid_token(Reason.UNKNOWN_KEY) from None
    return bearer(identify(verified, rules=rules, now=NOW))
