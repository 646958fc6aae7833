"""What the provider says of itself (OIDC Discovery section 3, RFC 8414 section 2)."""

from __future__ import annotations

from typing import Final

from proxy.demo.provider.authorization import SCOPES
from proxy.demo.provider.clients import Grant
from proxy.demo.provider.keys import ALGORITHMS

DISCOVERY_PATHS: Final = ("/.well-known/openid-configuration", "/.well-known/oauth-authorization-server")
_ENDPOINTS: Final = {
    "authorization_endpoint": "/authorize",
    "token_endpoint": "/token",
    "jwks_uri": "/jwks",
    "userinfo_endpoint": "/userinfo",
    "device_authorization_endpoint": "/device_authorization",
    "revocation_endpoint": "/revoke",
    "end_session_endpoint": "/logout",
}
_CLIENT_AUTHENTICATION: Final = ["client_secret_basic", "client_secret_post", "none"]


def metadata(issuer: str) -> dict[str, object]:
    """The document at both well-known addresses."""
    return {
        "issuer": issuer,
        **{name: issuer + path for name, path in _ENDPOINTS.items()},
        "scopes_supported": list(SCOPES),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": [grant.value for grant in Grant],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": list(ALGORITHMS),
        "token_endpoint_auth_methods_supported": _CLIENT_AUTHENTICATION,
        "revocation_endpoint_auth_methods_supported": _CLIENT_AUTHENTICATION,
        "code_challenge_methods_supported": ["S256"],
        "prompt_values_supported": ["none", "login", "consent", "select_account"],
        "claims_supported": ["sub", "name", "preferred_username", "groups", "auth_time"],
        "claims_parameter_supported": False,
        "request_parameter_supported": False,
        "request_uri_parameter_supported": False,
        "authorization_response_iss_parameter_supported": True,
    }
