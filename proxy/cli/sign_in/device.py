"""Signing in without a browser at hand (RFC 8628): the person types a code on any device, the program asks now and
then whether that has happened.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from proxy.cli.sign_in import SignInFailed
from proxy.cli.sign_in.issuer import Endpoints, Refused, Tokens, ask_for_tokens, refusal_of
from proxy.cli.sign_in.timekeeper import Timekeeper
from proxy.cli.sign_in.web import Unreachable, Web, checked_address
from proxy.identity.native_sign_in import NativeSignIn
from proxy.identity.token import Json

GRANT_TYPE: Final = "urn:ietf:params:oauth:grant-type:device_code"
DEFAULT_INTERVAL: Final = 5.0  # RFC 8628 section 3.2
SHORTEST_INTERVAL: Final = 1.0
SLOW_DOWN_SECONDS: Final = 5.0  # section 3.5
LONGEST_WAIT: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCode:
    """What the person types and where, as it may be shown on a terminal; `complete` is the address with the code in it.

    Seconds.
    """

    device_code: str = field(repr=False)
    user_code: str
    address: str
    complete: str | None
    expires_in: float
    interval: float


async def sign_in_by_device(
    web: Web, endpoints: Endpoints, sign_in: NativeSignIn, show: Callable[[DeviceCode], None], time: Timekeeper
) -> Tokens:
    """The tokens, as soon as the person has allowed it. Raises SignInFailed."""
    if endpoints.device is None:
        raise SignInFailed(f"{sign_in.issuer} has no sign-in by code; use --browser")
    code = await _device_code(web, endpoints.device, sign_in)
    show(code)
    return await _polled(web, endpoints, sign_in, code, time)


async def _device_code(web: Web, endpoint: str, sign_in: NativeSignIn) -> DeviceCode:
    form = {"client_id": sign_in.client_id, "scope": " ".join(sign_in.scopes)}
    if sign_in.resource is not None:
        form["resource"] = sign_in.resource
    if "offline_access" in sign_in.scopes:
        form["prompt"] = "consent"  # OpenID Connect Core 1.0 section 11; who does not know it here ignores it
    answer = await web.post(endpoint, form)
    if answer.status != 200:
        raise refusal_of(answer, sign_in.issuer)
    return _parsed(answer.members(), sign_in.issuer)


# What is shown on a terminal must not be able to draw on it.
_USER_CODE: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z .-]{0,62}")
_ADDRESS: Final = re.compile(r"[!-~]{1,2048}")
_DEVICE_CODE: Final = re.compile(r"[ -~]{1,8192}")


def _parsed(members: Mapping[str, Json], issuer: str) -> DeviceCode:
    expires_in, interval = members.get("expires_in"), members.get("interval", DEFAULT_INTERVAL)
    if not _is_positive(expires_in) or not (_is_positive(interval) or interval == 0):
        raise _broken(issuer)
    assert isinstance(expires_in, int | float)
    assert isinstance(interval, int | float)
    complete = members.get("verification_uri_complete")
    return DeviceCode(
        device_code=_text(members.get("device_code"), _DEVICE_CODE, issuer),
        user_code=_text(members.get("user_code"), _USER_CODE, issuer),
        address=_page(members.get("verification_uri"), issuer),
        complete=None if complete is None else _page(complete, issuer),
        # Bounded first: JSON has whole numbers that no float can hold.
        expires_in=float(min(expires_in, LONGEST_WAIT)),
        interval=float(min(max(interval, SHORTEST_INTERVAL), LONGEST_WAIT)),
    )


def _is_positive(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _page(value: Json, issuer: str) -> str:
    """A page for the person's password: the same rule as for every address that is asked."""
    text = _text(value, _ADDRESS, issuer)
    checked_address(text)
    return text


def _text(value: Json, form: re.Pattern[str], issuer: str) -> str:
    if not isinstance(value, str) or not form.fullmatch(value):
        raise _broken(issuer)
    return value


def _broken(issuer: str) -> SignInFailed:
    return SignInFailed(f"{issuer} gave no code that can be used; tell its owner, or use --browser")


async def _polled(web: Web, endpoints: Endpoints, sign_in: NativeSignIn, code: DeviceCode, time: Timekeeper) -> Tokens:
    form = {"grant_type": GRANT_TYPE, "client_id": sign_in.client_id, "device_code": code.device_code}
    if sign_in.resource is not None:
        form["resource"] = sign_in.resource
    interval, deadline = code.interval, time.seconds() + code.expires_in
    while time.seconds() + interval < deadline:
        await time.pause(interval)
        try:
            return await ask_for_tokens(web, endpoints, form)
        except Refused as refused:
            if refused.error == "slow_down":
                interval += SLOW_DOWN_SECONDS
            elif refused.error != "authorization_pending":
                raise
        except Unreachable:
            interval *= 2  # section 3.5: exponential backoff
    raise SignInFailed("the code was not used in time; run saltgate login again")
