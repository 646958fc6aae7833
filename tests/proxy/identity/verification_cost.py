"""What checking a token costs, measured here: `python -m tests.proxy.identity.verification_cost`.

Time of this process's processor for `TrustedIssuers.identify`, from the text of a token to the identity: parsing,
signature, claims. Cold is a token that was not seen before; cached one that was verified a moment ago; refused a cold
one whose signature is wrong.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import structlog

from proxy.identity.issuers import TrustedIssuers, open_issuers
from proxy.refusals import InvalidToken
from tests.parts.tokens import IssuerServer, TokenMint

ALGORITHMS: Final = ("RS256", "RS512", "PS256", "ES256", "ES384", "ES512", "EdDSA")
TOKENS: Final = 150
ROUNDS: Final = 7


async def microseconds(issuers: TrustedIssuers, tokens: Sequence[str]) -> float:
    """Of the processor, for each of the tokens."""
    began = time.thread_time()
    for token in tokens:
        with suppress(InvalidToken):
            await issuers.identify(token)
    return (time.thread_time() - began) * 1e6 / len(tokens)


def forged(token: str) -> str:
    """The token with another signature of the same length."""
    head, _, signature = token.rpartition(".")
    return f"{head}.{signature[:20]}{'A' if signature[20] != 'A' else 'B'}{signature[21:]}"


async def measured(algorithm: str) -> tuple[float, float, float]:
    """Cold, cached and refused."""
    mint = TokenMint(algorithms=(algorithm,))
    cold, cached, refused = [], [], []
    async with (
        IssuerServer(mint) as server,
        open_issuers((server.settings(algorithms=(algorithm,)),), clock=time.time) as issuers,
    ):
        await issuers.identify(mint.token())
        for number in range(ROUNDS):
            tokens = [mint.token(jti=f"{number}-{each}") for each in range(TOKENS)]
            refused.append(await microseconds(issuers, [forged(token) for token in tokens]))
            cold.append(await microseconds(issuers, tokens))
            cached.append(await microseconds(issuers, tokens))
    return min(cold), min(cached), min(refused)


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("error"))
    print("| algorithm | cold | cached | refused |")
    print("|---|---|---|---|")
    for algorithm in ALGORITHMS:
        cold, cached, refused = asyncio.run(measured(algorithm))
        print(f"| {algorithm} | {cold:.0f} µs | {cached:.1f} µs | {refused:.0f} µs |")


if __name__ == "__main__":
    main()
