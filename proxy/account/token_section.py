"""Personal access tokens on the account page: made, listed and revoked by forms. A new one is shown once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Final

from proxy.account.cookies import fresh_value
from proxy.account.pace import Pace
from proxy.account.pages import hidden, html_page, section, see_other, sign_in_address
from proxy.account.persons import Person
from proxy.account.return_to import ACCOUNT
from proxy.account.store import SessionStore
from proxy.account.token_pages import LONGEST_NAME, checked_name
from proxy.account.tokens import AccountTokens, NewToken, Wish
from proxy.account.visitors import Visitor, Visitors
from proxy.desk import PageAnswer, Visit
from proxy.directory.membership import admit
from proxy.directory.token_store import OwnedToken
from proxy.frame import frame
from proxy.refusals import InvalidRequest, Refusal

_DAY_SECONDS: Final = 24 * 3600
_DAYS: Final = (7, 30, 90, 365)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSection:
    """The section and the clerks of its forms. `default_lifetime` and `max_lifetime` are those of `[tokens]`, in
    seconds. A browser and a program of one person share `pace`.
    """

    tokens: AccountTokens
    sessions: SessionStore
    visitors: Visitors
    public_url: str
    pace: Pace
    default_lifetime: float
    max_lifetime: float

    async def __call__(self, visitor: Visitor) -> str:
        """The person's tokens, each with a way to revoke it, and a form for a new one."""
        person = _person(visitor)
        items = "".join(_item(token, visitor.form_token) for token in await self.tokens.owned(person, person.owner))
        listed = f"<ul>{items}</ul>" if items else '<p class="muted">You have none.</p>'
        return section("tokens", "Personal access tokens", f"{_EXPLAINED}{listed}{self._form(visitor.form_token)}")

    async def make(self, visit: Visit) -> PageAnswer:
        """POST /account/tokens/make: a page that shows the new token."""
        _, fields = self.visitors.own_form(visit)
        visitor = await self.visitors.visitor(visit)
        if visitor is None:
            return see_other(sign_in_address(ACCOUNT))
        person = _person(visitor)
        self.pace.take(person.owner)
        wish = Wish(checked_name(fields.get("name", "")), self._lifetime(fields.get("days", "")), None)
        made = await self._made_once(person, wish, f"token form {visitor.form_token} {fields.get('once', '')}")
        if made is None:
            return see_other(ACCOUNT)
        page = _made_page(
            made.token.text(), made.record.name, _minute(made.record.expires), base_url=f"{self.public_url}/v1"
        )
        return html_page(page)

    async def _made_once(self, person: Person, wish: Wish, form: str) -> NewToken | None:
        """The new token; None where this form has made one: whoever loads its page anew wants no second, which would be
        good for months and in nobody's mind.
        """
        if not await self.sessions.first_time(form, seconds=self.sessions.absolute):
            return None
        try:
            return await self.tokens.create(person, wish)
        except Refusal:
            await self.sessions.forget(form)
            raise

    async def revoke(self, visit: Visit) -> PageAnswer:
        """POST /account/tokens/end: back to the account, where it is no longer."""
        _, fields = self.visitors.own_form(visit)
        visitor = await self.visitors.visitor(visit)
        if visitor is None:
            return see_other(sign_in_address(ACCOUNT))
        person = _person(visitor)
        self.pace.take(person.owner)
        await self.tokens.revoke(person, fields.get("id", ""))
        return see_other(ACCOUNT)

    def _lifetime(self, days: str) -> int:
        """Of the choices that the form has, in seconds."""
        if days not in map(str, self._choices()):
            raise InvalidRequest("Choose one of the lifetimes on the page.", param="days", reason="lifetime")
        return int(days) * _DAY_SECONDS

    def _choices(self) -> tuple[int, ...]:
        return tuple(days for days in _DAYS if days * _DAY_SECONDS <= self.max_lifetime) or (
            max(int(self.max_lifetime // _DAY_SECONDS), 1),
        )

    def _form(self, form_token: str) -> str:
        default = max((d for d in self._choices() if d * _DAY_SECONDS <= self.default_lifetime), default=0)
        options = "".join(
            f'<option value="{days}"{" selected" if days == default else ""}>{days} days</option>'
            for days in self._choices()
        )
        return (
            f'<form method="post" action="/account/tokens/make">{hidden(form_token)}'
            f'<input type="hidden" name="once" value="{fresh_value()}">'
            '<label for="token-name">Name of a new token</label>'
            f'<input id="token-name" name="name" maxlength="{LONGEST_NAME}" required autocomplete="off">'
            f'<label for="token-days">It ends after</label><select id="token-days" name="days">{options}</select>'
            '<button class="quiet" type="submit">Make a token</button></form>'
        )


_EXPLAINED: Final = "<p>For programs that take only a fixed key. A token may do what you may.</p>"


def _person(visitor: Visitor) -> Person:
    identity = visitor.session.identity
    return Person(identity, frozenset(admit(visitor.snapshot, identity)), visitor.snapshot)


def _item(token: OwnedToken, form_token: str) -> str:
    record = token.record
    used = "never used" if not token.used else f"last used {_day(token.used)}"
    told = f"{escape(record.name)} (sgp_{escape(record.id)}…), until {_day(record.expires)}, {used}"
    return (
        f'<li><span>{told}</span><form method="post" action="/account/tokens/end">{hidden(form_token)}'
        f'<button class="quiet" type="submit" name="id" value="{escape(record.id)}" '
        f'aria-label="Revoke {escape(record.name)}">Revoke</button></form></li>'
    )


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")


def _minute(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _made_page(token: str, name: str, until: str, *, base_url: str) -> str:
    """The only page that ever holds a token's secret; it is not kept by the browser (`no-store`)."""
    body = (
        f'<p role="status">This is the token {escape(name)}. Copy it now: it is shown this once.</p>'
        f"<p>It is good until {until}, unless you revoke it before.</p>"
        f'<p><input readonly aria-label="The token" value="{escape(token)}" autocomplete="off" spellcheck="false"></p>'
        f'<p>Programs take it as their API key, with the base URL <span class="code">{escape(base_url)}</span>.</p>'
        '<a class="button" href="/account">Done</a>'
    )
    return frame("Your new token", body, wide=True)
