"""The verifier under a coverage-guided fuzzer: no crash, and no identity that the claims do not prove.

`make fuzz-tokens` runs it for an hour; `python -m tests.proxy.identity.token_fuzz --seconds 60` as long as it is told.
Needs `atheris`. The first byte of an input chooses what the rest is: a whole token, the header of one, or a payload as
if the issuer's key had signed it, so that what is behind the signature is reached. Ends with the input at the first
fault.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["proxy.identity"]):
    from proxy.identity import Identity
    from proxy.identity.claims import identify
    from proxy.identity.confirmation import bearer
    from proxy.identity.keys import key_set
    from proxy.identity.reasons import Reason, invalid_token
    from proxy.identity.token import VerifiedToken, compact_token, strict_json
    from proxy.identity.token import base64url as decoded
    from proxy.refusals import Refusal

from tests.parts.tokens import base64url
from tests.proxy.identity.judging import ISSUER, NOW, RULES, mint

MINT = mint("ES256")
KEYS = key_set(json.dumps(MINT.jwks()).encode())
TOKEN = MINT.token()
HEADER, PAYLOAD, _ = TOKEN.split(".")


def one_input(data: bytes) -> None:
    """Raises AssertionError for an identity that should not be, and whatever the verifier itself raises."""
    match data[:1]:
        case b"t":
            _refused(data[1:].decode("latin-1"))
        case b"h":
            _refused(f"{base64url(data[1:])}.{PAYLOAD}.{base64url(b'0' * 64)}")
        case _:
            _judged(data[1:])


def _refused(text: str) -> None:
    """A token that nobody signed proves nobody."""
    try:
        token = compact_token(text)
        KEYS.verified(token, algorithms=RULES.algorithms)
    except (Refusal, LookupError):
        return
    if text == TOKEN:
        return
    raise AssertionError("an unsigned token was verified")


def _judged(payload: bytes) -> None:
    """The payload as if the issuer's key had signed it."""
    try:
        claims = strict_json(payload)
    except ValueError:
        return
    if not isinstance(claims, dict):
        return
    try:
        issuer = claims.get("iss")
        if not isinstance(issuer, str):
            raise invalid_token(Reason.ISSUER)
        identity = bearer(identify(VerifiedToken(issuer, "at+jwt", claims), rules=RULES, now=NOW))
    except Refusal:
        return
    _check(identity, json.loads(payload))


def _check(identity: Identity, claims: dict[str, object]) -> None:
    """What must be true of the claims of anybody who is let in, said once more and in other words."""
    audience, expires_at = claims["aud"], claims["exp"]
    assert identity.issuer == claims["iss"] == ISSUER
    assert identity.subject == claims["sub"]
    assert audience == "saltgate" or (isinstance(audience, list) and "saltgate" in audience)
    assert isinstance(expires_at, int | float)
    assert not isinstance(expires_at, bool)
    assert NOW - RULES.leeway < expires_at <= NOW + RULES.max_lifetime + RULES.leeway
    assert claims.keys().isdisjoint({"nonce", "at_hash", "c_hash", "events", "cnf"})
    named = claims.get("groups", [])
    assert isinstance(named, list)
    assert identity.groups == frozenset(named)


def _seeds(folder: Path) -> None:
    payload = json.dumps(strict_json(decoded(PAYLOAD))).encode()
    header = decoded(HEADER)
    extras = (
        b', "nonce": "n", "cnf": {"jkt": "x"}, "groups": ["a"], "hasgroups": true, "_claim_names": {"groups": "s"}}'
    )
    for number, seed in enumerate(
        (b"t" + TOKEN.encode(), b"h" + header, b"p" + payload, b"p" + payload[:-1] + extras, b"t..", b"p{}")
    ):
        (folder / str(number)).write_bytes(seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        _seeds(Path(name))
        words = [sys.argv[0], f"-max_total_time={arguments.seconds}", "-max_len=4096", "-print_final_stats=1", name]
        atheris.Setup(words, one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
