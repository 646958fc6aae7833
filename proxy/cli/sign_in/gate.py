"""What a gate says of itself: where its people sign in (RFC 9728)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from proxy.cli.sign_in import SignInFailed
from proxy.cli.sign_in.web import Web, checked_address, shown
from proxy.identity.native_sign_in import NativeSignIn, NoSignInError, sign_ins_in

METADATA_PATH: Final = "/.well-known/oauth-protected-resource"


async def sign_in_of(web: Web, gate: str, issuer: str | None) -> NativeSignIn:
    """How people sign in at the gate with this base URL; at the one `issuer` where that is named.

    Raises SignInFailed, also where there are several issuers and none is named.
    """
    chosen = _chosen(await _offered(web, gate), gate, issuer)
    # A gate elsewhere has no business with what listens on this machine alone.
    if checked_address(gate).scheme == "https" and checked_address(chosen.issuer).scheme != "https":
        raise SignInFailed(
            f"{gate} sends you to {shown(chosen.issuer)}, which is less protected; tell the gate's owner"
        )
    return chosen


async def _offered(web: Web, gate: str) -> Sequence[NativeSignIn]:
    answer = await web.get(gate + METADATA_PATH)
    metadata = answer.members()
    if answer.status != 200 or "resource" not in metadata:
        raise SignInFailed(f"{gate} answered {answer.status} and does not look like a saltgate; check the address")
    # RFC 9728 section 3.3, against another's document passed off as this gate's: a token for that one would come here.
    if metadata["resource"] != gate:
        named = metadata["resource"]
        raise SignInFailed(
            f"{gate} calls itself {shown(named) if isinstance(named, str) else 'something else'}; "
            "if you know that address, sign in there"
        )
    try:
        return sign_ins_in(metadata)
    except NoSignInError as error:
        raise SignInFailed(f"{gate} does not say rightly where to sign in: {error}; tell its owner") from None


def _chosen(offered: Sequence[NativeSignIn], gate: str, issuer: str | None) -> NativeSignIn:
    if not offered:
        raise SignInFailed(
            f"{gate} has no sign-in for the command line; its owner sets native_client_id under [issuers.login]"
        )
    fitting = [sign_in for sign_in in offered if issuer in (None, sign_in.issuer)]
    names = ", ".join(shown(sign_in.issuer) for sign_in in offered)
    if not fitting:
        raise SignInFailed(f"{gate} has no sign-in at that issuer; it has {names}")
    if len(fitting) > 1:
        raise SignInFailed(f"{gate} has several sign-ins; name one with --issuer: {names}")
    return fitting[0]
