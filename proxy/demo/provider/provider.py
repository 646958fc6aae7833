"""The provider itself, without HTTP: what it knows, and how each request changes that.

Nothing here waits, so no two requests ever see a change half done. Only a password's check happens elsewhere (it takes
tens of milliseconds): `web.py` makes it and comes back with the person.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from proxy.demo.provider.address import LoopbackAddress
from proxy.demo.provider.authorization import SCOPES, AuthorizationRequest, DeviceRequest, Wish
from proxy.demo.provider.clients import Client, Grant
from proxy.demo.provider.errors import OAuthError
from proxy.demo.provider.expiring import ExpiringMap
from proxy.demo.provider.keys import SigningKeys
from proxy.demo.provider.parameters import Parameters
from proxy.demo.provider.people import Attempts, Person
from proxy.demo.provider.tokens import (
    ACCESS_TOKEN_TYPE,
    ID_TOKEN_TYPE,
    Lifetimes,
    OwnToken,
    TokenResponse,
    access_token_claims,
    challenge_of,
    id_token_claims,
    new_grant_id,
    own_token,
    person_claims,
    read_refresh_token,
    refresh_token,
    sign,
)

_MOST_REMEMBERED: Final = 1024  # of each kind
_USER_CODE_LETTERS: Final = "BCDFGHJKLMNPQRSTVWXZ"  # RFC 8628 section 6.1: no vowels, nothing that looks like a digit
_SLOW_DOWN_SECONDS: Final = 5.0  # RFC 8628 section 3.5


@dataclass(frozen=True, slots=True)
class Session:
    """A person who is signed in at a browser. Times are Unix seconds."""

    id: str = field(repr=False)
    person: Person
    signed_in_at: float


@dataclass(frozen=True, slots=True)
class SignIn:
    """A page that a browser was shown, and what its form will decide.

    `browser` is the cookie that the form must come with: a page elsewhere can post the form, but not the cookie.
    `shown` is the session whose person the page named, so that nobody consents in another's name.
    """

    id: str = field(repr=False)
    browser: str = field(repr=False)
    wish: Wish
    shown: str | None = field(default=None, repr=False)


class DeviceState(Enum):
    PENDING = "pending"
    DENIED = "denied"
    ALLOWED = "allowed"


@dataclass(frozen=True, slots=True)
class DeviceAuthorization:
    """The answer of the device authorization endpoint (RFC 8628 section 3.2)."""

    device_code: str = field(repr=False)
    user_code: str
    expires_in: int
    interval: int


@dataclass(frozen=True, slots=True)
class _Code:
    """An authorization code. It stays known after its use, so that a second use is seen (RFC 6749 section 4.1.2)."""

    request: AuthorizationRequest
    session: Session
    grant_id: str
    expires_at: float
    spent: bool = False


@dataclass(frozen=True, slots=True)
class _Device:
    client: Client
    user_code: str
    scope: frozenset[str]
    expires_at: float
    interval: float
    polled_at: float | None = None
    state: DeviceState = DeviceState.PENDING
    session: Session | None = None


@dataclass(frozen=True, slots=True)
class _Granted:
    """What a person allowed a client. `generation` is that of the one refresh token that is good now."""

    client_id: str
    session: Session
    scope: frozenset[str]
    expires_at: float
    generation: int = 0


class Provider:
    """One OpenID Provider, at one loopback address. `clock` gives Unix seconds."""

    def __init__(
        self,
        address: LoopbackAddress,
        *,
        people: Iterable[Person],
        clients: Iterable[Client],
        keys: SigningKeys,
        clock: Callable[[], float],
        lifetimes: Lifetimes | None = None,
        attempts: Attempts | None = None,
    ) -> None:
        self.address = address
        self.issuer = address.origin
        self.clock = clock
        self.lifetimes = lifetimes or Lifetimes()
        self.attempts = attempts or Attempts()
        self.people = {person.username: person for person in people}
        self.clients = {client.id: client for client in clients}
        self._refuse_ambiguous_subjects()
        self._keys = keys
        self._refresh_secret = secrets.token_bytes(32)
        self._sign_ins: ExpiringMap[str, SignIn] = ExpiringMap(_MOST_REMEMBERED)
        self._sessions: ExpiringMap[str, Session] = ExpiringMap(_MOST_REMEMBERED)
        self._codes: ExpiringMap[str, _Code] = ExpiringMap(_MOST_REMEMBERED)
        self._devices: ExpiringMap[str, _Device] = ExpiringMap(_MOST_REMEMBERED)
        self._user_codes: ExpiringMap[str, str] = ExpiringMap(_MOST_REMEMBERED)
        self._grants: ExpiringMap[str, _Granted] = ExpiringMap(_MOST_REMEMBERED)

    # --- keys

    @property
    def keys(self) -> SigningKeys:
        """The keys that sign and those that still verify."""
        return self._keys.kept(now=self.clock(), keep_seconds=self.lifetimes.access_token)

    def use_keys(self, keys: SigningKeys) -> None:
        """Sign with these from now on; `proxy.demo.provider.server.rotate_keys` makes them."""
        self._keys = keys

    # --- the person at the browser

    def session(self, session_id: str | None) -> Session | None:
        return self._sessions.get(session_id, now=self.clock()) if session_id is not None else None

    def start_session(self, person: Person) -> Session:
        """A new session, under an id that nobody can have known before (no fixation)."""
        now = self.clock()
        session = Session(secrets.token_urlsafe(32), person, now)
        self._sessions.put(session.id, session, expires_at=now + self.lifetimes.session, now=now)
        return session

    def end_session(self, session: Session) -> None:
        """Sign out: the session and every refresh token that came of it end; access tokens end by themselves."""
        now = self.clock()
        self._sessions.pop(session.id, now=now)
        for grant_id in self._grants.keys():  # noqa: SIM118 - a copy, since entries go
            granted = self._grants.get(grant_id, now=now)
            if granted is not None and granted.session.id == session.id:
                self._grants.pop(grant_id, now=now)

    def begin(self, browser: str, wish: Wish, *, shown: Session | None = None) -> SignIn:
        """Remember what the page that is now shown will decide."""
        now = self.clock()
        sign_in = SignIn(secrets.token_urlsafe(32), browser, wish, shown.id if shown is not None else None)
        self._sign_ins.put(sign_in.id, sign_in, expires_at=now + self.lifetimes.sign_in, now=now)
        return sign_in

    def sign_in(self, sign_in_id: str, browser: str | None) -> SignIn | None:
        """The page's form came back; None where it is over, or not from the browser that was shown the page."""
        sign_in = self._sign_ins.get(sign_in_id, now=self.clock())
        if sign_in is None or browser is None or not secrets.compare_digest(sign_in.browser.encode(), browser.encode()):
            return None
        return sign_in

    def finish(self, sign_in: SignIn) -> bool:
        """Take the form, once. False where it was taken before."""
        return self._sign_ins.pop(sign_in.id, now=self.clock()) is not None

    # --- authorization code

    def issue_code(self, request: AuthorizationRequest, session: Session) -> str:
        now = self.clock()
        code = secrets.token_urlsafe(32)
        entry = _Code(request, session, new_grant_id(), now + self.lifetimes.code)
        # Known as long as what it was exchanged for may live.
        self._codes.put(code, entry, expires_at=now + self.lifetimes.grant, now=now)
        return code

    def exchange_code(self, client: Client, parameters: Parameters) -> TokenResponse:
        """RFC 6749 section 4.1.3 with RFC 7636 section 4.5.

        A code is spent by the first presentation of its own client, whatever comes of it; a second one revokes what the
        first brought.
        """
        now, code_text = self.clock(), parameters.required("code")
        redirect_uri, verifier = parameters.required("redirect_uri"), parameters.required("code_verifier")
        code = self._codes.get(code_text, now=now)
        if code is None or code.request.client.id != client.id:
            raise OAuthError("invalid_grant", "the code is unknown or not this client's")
        if code.spent:
            self._grants.pop(code.grant_id, now=now)
            raise OAuthError("invalid_grant", "the code was used before; what it brought is revoked")
        self._codes.put(code_text, replace(code, spent=True), expires_at=now + self.lifetimes.grant, now=now)
        _refuse_unfit(code, redirect_uri, verifier, now)
        granted = self._grant(client, code.session, code.request.scope, code.grant_id)
        return self._tokens(client, granted, code.grant_id, nonce=code.request.nonce)

    # --- refresh and revocation

    def refresh(self, client: Client, parameters: Parameters) -> TokenResponse:
        """RFC 6749 section 6. Each refresh token works once; an earlier one that comes again ends the grant."""
        now = self.clock()
        read = read_refresh_token(parameters.required("refresh_token"), self._refresh_secret)
        granted = self._grants.get(read[0], now=now) if read is not None else None
        if read is None or granted is None or granted.client_id != client.id:
            raise OAuthError("invalid_grant", "the refresh token is unknown, expired or not this client's")
        grant_id, generation = read
        if generation != granted.generation:
            self._grants.pop(grant_id, now=now)
            raise OAuthError("invalid_grant", "the refresh token was used before; sign in again")
        scope = parameters.words("scope") or granted.scope
        if not scope <= granted.scope:
            raise OAuthError("invalid_scope", "a refresh cannot widen the scope")
        granted = replace(granted, generation=generation + 1)
        self._grants.put(grant_id, granted, expires_at=granted.expires_at, now=now)
        return self._tokens(client, replace(granted, scope=scope), grant_id, nonce=None)

    def revoke(self, client: Client, token: str) -> None:
        """RFC 7009: the token's whole grant ends. A token that is unknown is as good as revoked (section 2.2)."""
        now, grant_id = self.clock(), self._grant_of(token)
        granted = self._grants.get(grant_id, now=now) if grant_id is not None else None
        if grant_id is None or granted is None:
            return
        if granted.client_id != client.id:
            raise OAuthError("invalid_grant", "the token was issued to another client")
        self._grants.pop(grant_id, now=now)

    # --- client credentials

    def service_token(self, client: Client, parameters: Parameters) -> TokenResponse:
        """RFC 6749 section 4.4; the subject is the client itself (RFC 9068 section 2.2)."""
        if parameters.get("resource") not in (None, client.audience):
            raise OAuthError("invalid_target", "this client has tokens for one resource only")
        claims = access_token_claims(
            self.issuer,
            client,
            subject=client.id,
            groups=client.groups,
            scope=frozenset(),
            grant_id=new_grant_id(),
            signed_in_at=None,
            now=self.clock(),
            lifetime=self.lifetimes.access_token,
        )
        token = sign(claims, token_type=ACCESS_TOKEN_TYPE, key=self._keys.signing(client.algorithm))
        return TokenResponse(token, int(self.lifetimes.access_token), "")

    # --- devices

    def authorize_device(self, client: Client, scope: frozenset[str]) -> DeviceAuthorization:
        """RFC 8628 section 3.1: a code for the device, and a short one for the person to type."""
        now, lifetime = self.clock(), self.lifetimes.device_code
        device_code, user_code = secrets.token_urlsafe(32), self._new_user_code(now)
        device = _Device(client, user_code, scope & frozenset(SCOPES), now + lifetime, self.lifetimes.device_interval)
        self._put_device(device_code, device)
        self._user_codes.put(user_code, device_code, expires_at=now + lifetime, now=now)
        return DeviceAuthorization(device_code, user_code, int(lifetime), int(device.interval))

    def device_wish(self, typed: str) -> DeviceRequest | None:
        """The waiting device whose code a person typed, in whatever case and with or without the dash."""
        now = self.clock()
        letters = "".join(letter for letter in typed.upper() if letter in _USER_CODE_LETTERS)
        user_code = f"{letters[:4]}-{letters[4:]}"
        device_code = self._user_codes.get(user_code, now=now)
        device = self._devices.get(device_code, now=now) if device_code is not None else None
        if device_code is None or device is None or device.state is not DeviceState.PENDING:
            return None
        return DeviceRequest(device.client, device_code, user_code)

    def answer_device(self, wish: DeviceRequest, session: Session | None) -> bool:
        """Allow the device for the session's person, or deny it. False where it is too late."""
        now = self.clock()
        device = self._devices.get(wish.device_code, now=now)
        if device is None or device.state is not DeviceState.PENDING or now >= device.expires_at:
            return False
        state = DeviceState.DENIED if session is None else DeviceState.ALLOWED
        self._put_device(wish.device_code, replace(device, state=state, session=session))
        self._user_codes.pop(wish.user_code, now=now)
        return True

    def poll_device(self, client: Client, parameters: Parameters) -> TokenResponse:
        """RFC 8628 section 3.4. Asking sooner than the interval is answered `slow_down`, and makes it longer."""
        now, device_code = self.clock(), parameters.required("device_code")
        device = self._devices.get(device_code, now=now)
        if device is None or device.client.id != client.id:
            raise OAuthError("invalid_grant", "the device code is unknown or not this client's")
        if now >= device.expires_at:
            raise OAuthError("expired_token", "nobody allowed this device in time; start again")
        self._refuse_hurry(device_code, device, now)
        self._put_device(device_code, replace(device, polled_at=now))
        if device.state is DeviceState.DENIED:
            raise OAuthError("access_denied", "the person said no")
        if device.session is None:
            raise OAuthError("authorization_pending", "the person has not answered yet")
        self._devices.pop(device_code, now=now)
        grant_id = new_grant_id()
        return self._tokens(client, self._grant(client, device.session, device.scope, grant_id), grant_id, nonce=None)

    # --- what tokens are good for here

    def userinfo(self, access_token: str) -> dict[str, object]:
        """The claims of the person whose token this is (OIDC Core section 5.3)."""
        token = own_token(access_token, self.keys, token_type=ACCESS_TOKEN_TYPE, issuer=self.issuer)
        now = self.clock()
        if token is None or now >= token.expires_at:
            raise OAuthError("invalid_token", "the access token is not of this provider, or expired", status=401)
        granted = self._grants.get(_grant_id_of(token), now=now)
        if granted is None:
            raise OAuthError("invalid_token", "the access token was revoked, or is no person's", status=401)
        if "openid" not in token.scope:
            raise OAuthError("insufficient_scope", "userinfo needs the scope openid", status=403)
        return person_claims(granted.session.person, token.scope)

    def logout_hint(self, id_token: str) -> OwnToken | None:
        """Whose ID token this is. An expired one is as good a hint (OIDC RP-Initiated Logout section 2)."""
        return own_token(id_token, self.keys, token_type=ID_TOKEN_TYPE, issuer=self.issuer)

    # --- inside

    def _refuse_ambiguous_subjects(self) -> None:
        if ambiguous := {person.subject for person in self.people.values()} & set(self.clients):
            raise ValueError(f"{sorted(ambiguous)} names a person and a client (RFC 9068 section 5)")

    def _grant(self, client: Client, session: Session, scope: frozenset[str], grant_id: str) -> _Granted:
        now = self.clock()
        if self.session(session.id) is None:
            raise OAuthError("invalid_grant", "the person signed out meanwhile")
        granted = _Granted(client.id, session, scope, now + self.lifetimes.grant)
        self._grants.put(grant_id, granted, expires_at=granted.expires_at, now=now)
        return granted

    def _tokens(self, client: Client, granted: _Granted, grant_id: str, *, nonce: str | None) -> TokenResponse:
        now, session, key = self.clock(), granted.session, self._keys.signing(client.algorithm)
        claims = access_token_claims(
            self.issuer,
            client,
            subject=session.person.subject,
            groups=session.person.groups,
            scope=granted.scope,
            grant_id=grant_id,
            signed_in_at=session.signed_in_at,
            now=now,
            lifetime=self.lifetimes.access_token,
        )
        access_token = sign(claims, token_type=ACCESS_TOKEN_TYPE, key=key)
        return TokenResponse(
            access_token=access_token,
            expires_in=int(self.lifetimes.access_token),
            scope=" ".join(sorted(granted.scope)),
            id_token=self._id_token(client, granted, access_token, nonce) if "openid" in granted.scope else None,
            refresh_token=self._refresh_token(client, grant_id, granted),
        )

    def _id_token(self, client: Client, granted: _Granted, access_token: str, nonce: str | None) -> str:
        claims = id_token_claims(
            self.issuer,
            client,
            granted.session.person,
            access_token=access_token,
            scope=granted.scope,
            nonce=nonce,
            signed_in_at=granted.session.signed_in_at,
            now=self.clock(),
            lifetime=self.lifetimes.access_token,
        )
        return sign(claims, token_type=ID_TOKEN_TYPE, key=self._keys.signing(client.algorithm))

    def _refresh_token(self, client: Client, grant_id: str, granted: _Granted) -> str | None:
        if Grant.REFRESH_TOKEN not in client.grants:
            return None
        return refresh_token(grant_id, granted.generation, self._refresh_secret)

    def _grant_of(self, token: str) -> str | None:
        read = read_refresh_token(token, self._refresh_secret)
        if read is not None:
            return read[0]
        own = own_token(token, self.keys, token_type=ACCESS_TOKEN_TYPE, issuer=self.issuer)
        return _grant_id_of(own) if own is not None else None

    def _put_device(self, device_code: str, device: _Device) -> None:
        # Known for a while after its end, so that the device hears `expired_token` and not that it never was.
        expires_at = device.expires_at + self.lifetimes.device_code
        self._devices.put(device_code, device, expires_at=expires_at, now=self.clock())

    def _refuse_hurry(self, device_code: str, device: _Device, now: float) -> None:
        if device.polled_at is None or now - device.polled_at >= device.interval:
            return
        slower = replace(device, polled_at=now, interval=device.interval + _SLOW_DOWN_SECONDS)
        self._put_device(device_code, slower)
        raise OAuthError("slow_down", f"wait {int(slower.interval)} s between two polls")

    def _new_user_code(self, now: float) -> str:
        while True:
            letters = "".join(secrets.choice(_USER_CODE_LETTERS) for _ in range(8))
            user_code = f"{letters[:4]}-{letters[4:]}"
            if self._user_codes.get(user_code, now=now) is None:
                return user_code


def _refuse_unfit(code: _Code, redirect_uri: str, verifier: str, now: float) -> None:
    if now >= code.expires_at:
        raise OAuthError("invalid_grant", "the code expired")
    if redirect_uri != code.request.to.redirect_uri:
        raise OAuthError("invalid_grant", "redirect_uri is not that of the authorization request")
    if not secrets.compare_digest(challenge_of(verifier), code.request.challenge):
        raise OAuthError("invalid_grant", "code_verifier does not fit the code_challenge")


def _grant_id_of(token: OwnToken) -> str:
    return token.jti.partition(".")[0]
