"""Which client is calling an endpoint for programs (RFC 6749 section 2.3)."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from urllib.parse import unquote_plus

from proxy.demo.provider.clients import Client, Grant
from proxy.demo.provider.errors import OAuthError
from proxy.demo.provider.parameters import Parameters


def authenticated_client(authorization: Sequence[str], parameters: Parameters, clients: Mapping[str, Client]) -> Client:
    """The client, by `client_secret_basic`, `client_secret_post`, or by its id alone where it is a public one.

    `authorization` holds the values of the header lines. Raises OAuthError `invalid_client`, the same for a client that
    is unknown and a secret that is wrong; `invalid_request` where a request authenticates in two ways.
    """
    if not authorization:
        return _client(parameters.get("client_id"), parameters.get("client_secret"), clients)
    if len(authorization) > 1 or parameters.get("client_secret") is not None:
        raise OAuthError("invalid_request", "authenticate the client in one way only")
    client_id, secret = _basic(authorization[0])
    if parameters.get("client_id") not in (None, client_id):
        raise OAuthError("invalid_request", "client_id is not the authenticated client")
    return _client(client_id, secret, clients)


def allowed_grant(client: Client, grant_type: str) -> Grant:
    """The grant type that the client asks for, if it may (RFC 6749 section 5.2)."""
    try:
        grant = Grant(grant_type)
    except ValueError as error:
        raise OAuthError("unsupported_grant_type", "this grant type is not supported") from error
    if grant not in client.grants:
        raise OAuthError("unauthorized_client", "this client may not use this grant type")
    return grant


def bearer_token(authorization: Sequence[str]) -> str:
    """The one bearer token (RFC 6750 section 2.1)."""
    scheme, _, token = authorization[0].partition(" ") if len(authorization) == 1 else ("", "", "")
    if scheme.lower() != "bearer" or not token:
        raise OAuthError("invalid_token", "send one Authorization: Bearer header", status=401)
    return token


def _client(client_id: str | None, secret: str | None, clients: Mapping[str, Client]) -> Client:
    client = clients.get(client_id) if client_id is not None else None
    if client is None:
        raise _invalid_client()
    if client.is_public and secret is None:
        return client
    if secret is None or not client.secret_is(secret):
        raise _invalid_client()
    return client


def _basic(header: str) -> tuple[str, str]:
    scheme, _, encoded = header.partition(" ")
    try:
        client_id, colon, secret = b64decode(encoded, validate=True).decode("utf-8").partition(":")
    except ValueError as error:
        raise _invalid_client() from error
    if scheme.lower() != "basic" or not colon:
        raise _invalid_client()
    return unquote_plus(client_id), unquote_plus(secret)


def _invalid_client() -> OAuthError:
    return OAuthError("invalid_client", "the client is unknown, or its authentication failed", status=401)
