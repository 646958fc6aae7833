"""What a browser is sent here for, decided without I/O (RFC 6749 section 4.1.1, OIDC Core section 3.1.2.1)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final
from urllib.parse import urlencode

from proxy.demo.provider.clients import Client, Grant
from proxy.demo.provider.errors import PageRefusal, RedirectRefusal, ReturnAddress
from proxy.demo.provider.parameters import Parameters

SCOPES: Final = ("openid", "profile", "groups", "offline_access")
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)  # SHA-256 in unpadded base64url (RFC 7636 section 4.2)


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """A sound request: the client is known, the address is its own, and a PKCE challenge is there."""

    client: Client
    to: ReturnAddress
    challenge: str
    scope: frozenset[str]
    nonce: str | None
    prompt: frozenset[str]
    max_age_seconds: int | None
    login_hint: str | None


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """A device that waits for a person to allow it (RFC 8628)."""

    client: Client
    device_code: str
    user_code: str


@dataclass(frozen=True, slots=True)
class LogoutRequest:
    """A person who is asked whether to sign out (OIDC RP-Initiated Logout). `location` is where to go then."""

    location: str | None


Wish = AuthorizationRequest | DeviceRequest | LogoutRequest


class Step(Enum):
    """What the person has to do next."""

    SIGN_IN = "sign in"
    CONFIRM = "confirm"
    NOTHING = "nothing"


def authorization_request(parameters: Parameters, clients: Mapping[str, Client]) -> AuthorizationRequest:
    """Check the request, the address first: before that nothing may be sent there (RFC 9700 section 4.11.2)."""
    client, to = _return_address(parameters, clients)
    _refuse_unsupported(parameters, client, to)
    return AuthorizationRequest(
        client=client,
        to=to,
        challenge=_challenge(parameters, to),
        scope=parameters.words("scope") & frozenset(SCOPES),
        nonce=parameters.get("nonce"),
        prompt=_prompt(parameters, to),
        max_age_seconds=_max_age(parameters, to),
        login_hint=parameters.get("login_hint"),
    )


def next_step(request: AuthorizationRequest, *, signed_in_at: float | None, now: float) -> Step:
    """What is needed before a code may go out. Raises RedirectRefusal where `prompt=none` forbids it.

    A public client's identity cannot be assured, so it never gets a code without the person's doing (RFC 8252 8.6).
    """
    if not _is_fresh(request, signed_in_at, now):
        return _asking(Step.SIGN_IN, request, "login_required")
    if request.client.is_public or "consent" in request.prompt:
        return _asking(Step.CONFIRM, request, "interaction_required")
    return Step.NOTHING


def location_with(uri: str, parameters: Mapping[str, str | None]) -> str:
    """`uri` with the parameters that have a value added to its query."""
    query = urlencode({name: value for name, value in parameters.items() if value is not None})
    if not query:
        return uri
    return f"{uri}{'&' if '?' in uri else '?'}{query}"


def _return_address(parameters: Parameters, clients: Mapping[str, Client]) -> tuple[Client, ReturnAddress]:
    client = clients.get(parameters.get("client_id") or "")
    if client is None:
        raise PageRefusal("The program that sent you here is not known to this sign-in service.")
    redirect_uri = parameters.get("redirect_uri")
    if redirect_uri is None or not client.may_redirect_to(redirect_uri):
        raise PageRefusal("The program that sent you here wants the answer at an address that is not its own.")
    return client, ReturnAddress(redirect_uri, parameters.get("state"))


def _refuse_unsupported(parameters: Parameters, client: Client, to: ReturnAddress) -> None:
    if Grant.AUTHORIZATION_CODE not in client.grants:
        raise RedirectRefusal(to, "unauthorized_client", "this client may not use the authorization code grant")
    if parameters.get("request") is not None:
        raise RedirectRefusal(to, "request_not_supported", "request objects are not supported")
    if parameters.get("request_uri") is not None:
        raise RedirectRefusal(to, "request_uri_not_supported", "request_uri is not supported")
    if parameters.get("response_type") != "code":
        raise RedirectRefusal(to, "unsupported_response_type", "response_type must be code")
    if parameters.get("response_mode") not in (None, "query"):
        raise RedirectRefusal(to, "invalid_request", "response_mode must be query")
    if parameters.get("resource") not in (None, client.audience):
        raise RedirectRefusal(to, "invalid_target", "this client has tokens for one resource only")


def _challenge(parameters: Parameters, to: ReturnAddress) -> str:
    challenge = parameters.get("code_challenge")
    if challenge is None:
        raise RedirectRefusal(to, "invalid_request", "code_challenge is required (RFC 7636)")
    if parameters.get("code_challenge_method") != "S256" or _CHALLENGE.fullmatch(challenge) is None:
        raise RedirectRefusal(to, "invalid_request", "code_challenge_method must be S256, with its 43 characters")
    return challenge


def _prompt(parameters: Parameters, to: ReturnAddress) -> frozenset[str]:
    prompt = parameters.words("prompt")
    if "none" in prompt and len(prompt) > 1:
        raise RedirectRefusal(to, "invalid_request", "prompt=none goes with no other")
    return prompt


def _max_age(parameters: Parameters, to: ReturnAddress) -> int | None:
    text = parameters.get("max_age")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise RedirectRefusal(to, "invalid_request", "max_age is a number of seconds")
    return int(text)


def _is_fresh(request: AuthorizationRequest, signed_in_at: float | None, now: float) -> bool:
    if signed_in_at is None or request.prompt & {"login", "select_account"}:
        return False
    return request.max_age_seconds is None or now - signed_in_at <= request.max_age_seconds


def _asking(step: Step, request: AuthorizationRequest, error: str) -> Step:
    if "none" in request.prompt:
        raise RedirectRefusal(request.to, error, "the person has to be asked, and prompt=none forbids it")
    return step
