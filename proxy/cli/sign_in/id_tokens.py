"""The identity provider's word for who signed in (ID token), checked with its keys before anything is kept."""

from __future__ import annotations

from proxy.cli.sign_in import SignInFailed
from proxy.cli.sign_in.issuer import Endpoints, Tokens
from proxy.cli.sign_in.web import Web, shown
from proxy.identity.id_token import IdTokenClaims, IdTokenRefusedError, id_token_claims
from proxy.identity.keys import ALGORITHMS, KeysRefusedError, NoSuchKeyError, key_set
from proxy.identity.token import compact_token
from proxy.refusals import InvalidToken


async def signed_in_person(
    web: Web, endpoints: Endpoints, client_id: str, tokens: Tokens, *, nonce: str | None, now: float
) -> IdTokenClaims | None:
    """Who signed in; None where no ID token came, as without the scope `openid`. Raises SignInFailed."""
    if tokens.id_token is None:
        return None
    try:
        token = compact_token(tokens.id_token)
        verified = key_set(await _keys(web, endpoints)).verified(token, algorithms=ALGORITHMS)
        return id_token_claims(
            verified,
            issuer=endpoints.issuer,
            client_id=client_id,
            nonce=nonce,
            access_token=tokens.access_token,
            algorithm=token.algorithm,
            now=now,
        )
    except IdTokenRefusedError as error:
        why = f"its {error} is wrong"
    except InvalidToken as refusal:
        why = refusal.reason
    except (NoSuchKeyError, KeysRefusedError):
        why = "no key of the issuer fits"
    raise SignInFailed(
        f"the ID token of {shown(endpoints.issuer)} is not believed: {why}; "
        "check this machine's clock, else tell the gate's owner"
    )


async def _keys(web: Web, endpoints: Endpoints) -> bytes:
    if endpoints.jwks is None:
        raise NoSuchKeyError
    answer = await web.get(endpoints.jwks)
    if answer.status != 200:
        raise NoSuchKeyError
    return answer.body
