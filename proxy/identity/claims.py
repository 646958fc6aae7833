"""What a token's claims prove about its caller, by its issuer's rules (RFC 7519 section 4.1, RFC 9068 section 4).

One set of rules, whether the issuer signed the claims or answered with them when it was asked (`introspected`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Final

from config.settings import Issuer, Login
from proxy.identity import Identity
from proxy.identity.confirmation import Bound, bound
from proxy.identity.reasons import Reason, invalid_token
from proxy.identity.token import Json, VerifiedToken
from proxy.refusals import TokenExpired

MAXIMUM_SUBJECT_CHARACTERS: Final = 255  # OpenID Connect Core section 2, `sub`
FRONT_PREFIX: Final = "front:"
"""How the subject of everybody begins for whom a front end speaks, and of nobody else: `front:NAME/SUBJECT`."""
LATEST_TIME: Final = 253_402_300_799  # the end of the year 9999: later is a slip of units or of intent


def identify(token: VerifiedToken, *, rules: Issuer, now: float, sign_in_url: str | None = None) -> Identity | Bound:
    """The caller whom the token proves, at `now` in Unix seconds; `Bound` where the token alone does not prove him.

    Raises `TokenExpired` for a token that was good and is over, `InvalidToken` for one that breaks a rule; its `reason`
    names which. `expires_at` is the token's `exp`, without leeway. `sign_in_url` is our own page, for those issuers
    whose people may sign in there.
    """
    if token.issuer != rules.issuer:
        raise invalid_token(Reason.ISSUER)
    # Explicit typing (RFC 8725 section 3.11).
    if not is_accepted_type(token.type, rules.token_types):
        raise invalid_token(Reason.TYPE)
    return proved(token.claims, rules=rules, now=now, method="jwt", sign_in_url=sign_in_url)


def proved(
    claims: Mapping[str, Json],
    *,
    rules: Issuer,
    now: float,
    method: str,
    sign_in_url: str | None = None,
    unnamed: Reason = Reason.SUBJECT,
) -> Identity | Bound:
    """The caller whom claims prove that are the issuer's word for certain: signed by it, or answered when asked.

    All that holds whichever of the two it was. Raises as `identify`; `unnamed` is the reason where no subject is there.
    """
    _check_are_of_access_token(claims, rules)
    expires_at = _checked_times(claims, rules, now, sign_in_url)
    _check_audience(claims, rules)
    caller = Identity(
        issuer=rules.issuer,
        subject=claimed_subject(claims, rules.subject, unnamed),
        groups=claimed_groups(claims, rules),
        groups_complete=not groups_overflow(claims, rules),
        expires_at=expires_at,
        client=_client(claims, rules),
        method=method,
        session=claimed_session(claims),
        issued_at=numeric_date(claims, "iat", Reason.LIFETIME),
    )
    return bound(caller, claims)


def _check_are_of_access_token(claims: Mapping[str, Json], rules: Issuer) -> None:
    """None of the members that only other kinds of token carry."""
    if rules.payload_type is not None and _payload_type(claims) != rules.payload_type:
        raise invalid_token(Reason.NOT_AN_ACCESS_TOKEN)
    # Logout tokens and other security events (RFC 8417).
    if "events" in claims:
        raise invalid_token(Reason.NOT_AN_ACCESS_TOKEN)
    if not rules.allow_id_token_claims and any(name in claims for name in ("nonce", "at_hash", "c_hash")):
        raise invalid_token(Reason.NOT_AN_ACCESS_TOKEN)


def _payload_type(claims: Mapping[str, Json]) -> Json:
    """Keycloak's `typ`. It calls an access token "DPoP" in place of "Bearer" where it is bound to a key."""
    type_, confirmation = claims.get("typ"), claims.get("cnf")
    is_bound = type_ == "DPoP" and isinstance(confirmation, dict) and "jkt" in confirmation
    return "Bearer" if is_bound else type_


def is_accepted_type(type_: str | None, accepted: tuple[str, ...]) -> bool:
    """Compares media types as RFC 7515 section 4.1.9 has it: any case, `application/` may be left out."""
    if type_ is None:
        return "" in accepted
    short = type_.lower().removeprefix("application/")
    return bool(short) and any(short == name.lower() for name in accepted)


def _checked_times(claims: Mapping[str, Json], rules: Issuer, now: float, sign_in_url: str | None) -> float:
    """The token's `exp`, after all its times have been judged."""
    expires_at = numeric_date(claims, "exp", Reason.LIFETIME)
    if expires_at is None:
        raise invalid_token(Reason.LIFETIME)
    issued_at = numeric_date(claims, "iat", Reason.LIFETIME)
    not_before = numeric_date(claims, "nbf", Reason.NOT_YET_VALID)
    if issued_at is not None and not 0 < expires_at - issued_at <= rules.max_lifetime:
        raise invalid_token(Reason.LIFETIME)
    if max(issued_at or 0.0, not_before or 0.0) > now + rules.leeway:
        raise invalid_token(Reason.NOT_YET_VALID)
    if expires_at - now > rules.max_lifetime + rules.leeway:
        raise invalid_token(Reason.LIFETIME)
    if expires_at + rules.leeway <= now:
        raise _expired(now - expires_at, rules, sign_in_url)
    return expires_at


def numeric_date(claims: Mapping[str, Json], name: str, reason: Reason) -> float | None:
    """A NumericDate (RFC 7519 section 2), None where there is none. Raises `InvalidToken` for what is no time.

    A bool is no number, and the comparison also keeps NaN out.
    """
    if name not in claims:
        return None
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LATEST_TIME:
        raise invalid_token(reason)
    return float(value)


def _expired(seconds_ago: float, rules: Issuer, sign_in_url: str | None) -> TokenExpired:
    return TokenExpired(f"Your sign-in expired {_duration(seconds_ago)} ago. {_remedy(rules.login, sign_in_url)}")


def _remedy(login: Login | None, sign_in_url: str | None) -> str:
    """How a person of this issuer signs in again, by the ways that the deployment has."""
    at_page = sign_in_url if login is not None and login.client_id is not None else None
    if login is not None and login.native_client_id is not None:
        return "Run `saltgate login`." if at_page is None else f"Run `saltgate login`, or sign in at {at_page}."
    if at_page is not None:
        return f"Sign in again at {at_page}, or have your client refresh its token."
    return "Sign in again, or have your client refresh its token."


def _duration(seconds: float) -> str:
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        if seconds >= length or length == 1:
            count = max(int(seconds // length), 1)
            return f"{count} {unit}" if count == 1 else f"{count} {unit}s"
    raise AssertionError("a second divides everything")


def _check_audience(claims: Mapping[str, Json], rules: Issuer) -> None:
    value = claims.get("aud")
    audiences = [value] if isinstance(value, str) else value
    if not isinstance(audiences, list) or not all(isinstance(audience, str) for audience in audiences):
        raise invalid_token(Reason.AUDIENCE)
    if not any(audience in rules.audiences for audience in audiences):
        raise invalid_token(Reason.AUDIENCE)


_CONTROLS: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
_CONTROLS_AND_FORMATS: Final = _CONTROLS | {"Cf"}


def claimed_subject(claims: Mapping[str, Json], path: tuple[str, ...], unnamed: Reason = Reason.SUBJECT) -> str:
    """The claim that names the caller. No issuer's own people are named like those of a front end."""
    subject = named_subject(claims, path, unnamed)
    if subject.startswith(FRONT_PREFIX):
        raise invalid_token(Reason.SUBJECT)
    return subject


def named_subject(claims: Mapping[str, Json], path: tuple[str, ...], unnamed: Reason = Reason.SUBJECT) -> str:
    """The name at the path. Invisible characters would let two people look alike in a directory.

    Raises `InvalidToken` where none is there that can be a subject; where none is there at all, for `unnamed`.
    """
    value = _at(claims, path, Reason.SUBJECT)
    if isinstance(value, _Absent):
        raise invalid_token(unnamed)
    if not isinstance(value, str) or not 0 < len(value) <= MAXIMUM_SUBJECT_CHARACTERS:
        raise invalid_token(Reason.SUBJECT)
    if _holds(value, _CONTROLS_AND_FORMATS):
        raise invalid_token(Reason.SUBJECT)
    return value


def claimed_session(claims: Mapping[str, Json]) -> str | None:
    """The issuer's session (OpenID Connect Back-Channel Logout 1.0 section 2.1), where the token tells it."""
    value = claims.get("sid")
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= MAXIMUM_SUBJECT_CHARACTERS or _holds(value, _CONTROLS):
        raise invalid_token(Reason.SESSION)
    return value


_CLIENT_CLAIMS: Final = ("client_id", "azp", "cid", "appid")  # RFC 9068; OpenID Connect; Okta; Entra v1


def _client(claims: Mapping[str, Json], rules: Issuer) -> str | None:
    """The client that the token was issued to. Where several claims name one, each must be accepted."""
    named = [claims[name] for name in _CLIENT_CLAIMS if name in claims]
    clients = [client for client in named if isinstance(client, str) and client and not _holds(client, _CONTROLS)]
    if len(clients) != len(named):
        raise invalid_token(Reason.CLIENT)
    if rules.clients is not None and (not clients or any(client not in rules.clients for client in clients)):
        raise invalid_token(Reason.CLIENT)
    return clients[0] if clients else None


def claimed_groups(claims: Mapping[str, Json], rules: Issuer) -> frozenset[str]:
    """The groups at all of the issuer's paths together."""
    return frozenset(group for path in rules.groups for group in _names(_at(claims, path, Reason.GROUPS), path[-1]))


def _names(value: Json | _Absent, member: str) -> list[str]:
    if isinstance(value, _Absent):
        return []
    if isinstance(value, str) and member in {"scope", "scp"}:
        return value.split()  # RFC 8693 section 4.2: a space-delimited list
    if not isinstance(value, list):
        raise invalid_token(Reason.GROUPS)
    names = [name for name in value if isinstance(name, str) and name and not _holds(name, _CONTROLS)]
    if len(names) != len(value):
        raise invalid_token(Reason.GROUPS)
    return names


def groups_overflow(claims: Mapping[str, Json], rules: Issuer) -> bool:
    """Whether the issuer says that there are more groups than the token names (Entra's groups overage).

    The groups would be at an address that the token gives (`_claim_sources`), which is never asked.
    """
    if not rules.groups:
        return False
    elsewhere = claims.get("_claim_names", {})
    if not isinstance(elsewhere, dict) or any(path[0] in elsewhere for path in rules.groups):
        return True
    return claims.get("hasgroups", False) is not False


class _Absent:
    """No such claim. `null` is a claim, and a wrong one."""


_ABSENT: Final = _Absent()


def _at(claims: Mapping[str, Json], path: tuple[str, ...], reason: Reason) -> Json | _Absent:
    """The value at a path of literal names: a name may hold dots or be a URL, as Auth0's custom claims are."""
    value: Json | _Absent = claims.get(path[0], _ABSENT)
    for name in path[1:]:
        if isinstance(value, _Absent):
            return value
        if not isinstance(value, dict):
            raise invalid_token(reason)
        value = value.get(name, _ABSENT)
    return value


def _holds(text: str, categories: frozenset[str]) -> bool:
    return not (text.isascii() and text.isprintable()) and any(unicodedata.category(c) in categories for c in text)
