"""The pages that people see, as functions that return HTML, and the answers that they come in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final
from urllib.parse import urlencode

from proxy.account.session import Listed
from proxy.desk import PageAnswer
from proxy.frame import content_security_policy, frame
from proxy.identity import Identity
from proxy.refusals import Refusal

_LISTED_AT_MOST: Final = 100

SIGN_IN: Final = "/auth/login"


def html_page(
    page: str, *, status: int = 200, headers: tuple[tuple[str, str], ...] = (), refusal: Refusal | None = None
) -> PageAnswer:
    """A page of our own. Nothing of it comes from elsewhere, its forms go nowhere else, and nobody can frame it."""
    policy = (
        ("Content-Security-Policy", content_security_policy()),
        ("Cross-Origin-Opener-Policy", "same-origin"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
    )
    return PageAnswer(
        status=status,
        body=page.encode(),
        content_type="text/html; charset=utf-8",
        headers=(*policy, *headers),
        refusal=refusal,
    )


def see_other(location: str, *headers: tuple[str, str]) -> PageAnswer:
    """Go there with GET (RFC 9110 section 15.4.4)."""
    return PageAnswer(status=303, headers=(("Location", location), *headers))


def sign_in_address(return_to: str, issuer: str | None = None) -> str:
    """Where a sign-in begins."""
    chosen = {} if issuer is None else {"issuer": issuer}
    return f"{SIGN_IN}?{urlencode({**chosen, 'return_to': return_to})}"


def choice_page(issuers: Iterable[str], return_to: str) -> str:
    """Where to sign in, when there are several issuers."""
    links = "".join(
        f'<a class="button" href="{escape(sign_in_address(return_to, issuer))}">{escape(_shown(issuer))}</a>'
        for issuer in issuers
    )
    return frame("Sign in", f"<p>Where do you have your account?</p>{links}")


def refusal_page(title: str, message: str) -> str:
    """What went wrong, and the way on."""
    return frame(
        title,
        f'<p class="bad" role="alert">{escape(message)}</p><a class="button" href="{SIGN_IN}">Sign in</a>',
    )


def signed_out_page(*, issuer: str | None, leads_on: str | None) -> str:
    """The session here is over. `leads_on` is where the browser goes by itself, to sign out at the issuer, too."""
    if leads_on is not None:
        return frame(
            "Signing out",
            '<p role="status">You are signed out here. Your browser goes on to your identity provider.</p>'
            f'<a class="button" href="{escape(leads_on)}">Go on</a>',
            leads_on=leads_on,
        )
    there = (
        ""
        if issuer is None
        else f'<p class="note">Your identity provider, {escape(_shown(issuer))}, may still know you.</p>'
    )
    return frame(
        "You are signed out",
        f'<p role="status">Nobody is signed in here.</p><a class="button" href="{SIGN_IN}">Sign in</a>{there}',
    )


def account_page(
    *, name: str, identity: Identity, memberships: Sequence[tuple[str, str]], sections: Sequence[str], form_token: str
) -> str:
    """Who somebody is, what he may use, and what is his. `sections` are HTML."""
    body = (
        f"{_who(identity)}{_memberships(memberships, identity)}{''.join(sections)}"
        '<section aria-labelledby="out"><h2 id="out">Sign out</h2>'
        f'<form method="post" action="/auth/logout">{hidden(form_token)}'
        '<button type="submit">Sign out</button></form></section>'
    )
    return frame(name, body, wide=True)


def sessions_section(sessions: Sequence[Listed], *, current: str, form_token: str) -> str:
    """The person's own sessions, each with a way to end it. `current` is the key of the one that looks at the page."""
    items = "".join(_session_item(session, current=current, form_token=form_token) for session in reversed(sessions))
    others = (
        f'<form method="post" action="/account/sessions">{hidden(form_token)}'
        '<button class="quiet" type="submit" name="session" value="others">End all other sessions</button></form>'
        if len(sessions) > 1
        else ""
    )
    return section("sessions", "Where you are signed in", f"<ul>{items}</ul>{others}")


def to_admin_pages_form(form_token: str, origin: str) -> str:
    """The button that leads to the pages of the admin listener, which is at `origin`."""
    return (
        f'<form method="post" action="/account/admin">{hidden(form_token)}'
        f'<button class="quiet" type="submit">See what happens at {escape(_shown(origin))}</button></form>'
    )


def leads_to_admin_page(address: str) -> str:
    """`address` is good once, for a minute."""
    return frame(
        "To the administrators' pages",
        '<p role="status">Your browser goes on by itself. This way is good once, for a minute.</p>'
        f'<a class="button" href="{escape(address)}">Go on</a>',
        leads_on=address,
    )


def section(anchor: str, title: str, body: str) -> str:
    """A part of the account page. `body` is HTML whose values are escaped already."""
    return f'<section aria-labelledby="{anchor}"><h2 id="{anchor}">{escape(title)}</h2>{body}</section>'


def hidden(form_token: str) -> str:
    """What every form of the account page carries."""
    return f'<input type="hidden" name="form_token" value="{escape(form_token)}">'


def _who(identity: Identity) -> str:
    groups = ", ".join(sorted(identity.groups)[:_LISTED_AT_MOST]) or "none"
    if not identity.groups_complete:
        groups += " (your identity provider did not tell all of them)"
    rows = (("Identity provider", identity.issuer), ("Subject", identity.subject), ("Groups", groups))
    return "<dl>" + "".join(f"<dt>{escape(term)}</dt><dd>{escape(told)}</dd>" for term, told in rows) + "</dl>"


def _memberships(memberships: Sequence[tuple[str, str]], identity: Identity) -> str:
    if not memberships:
        return section(
            "projects",
            "Projects",
            f"<p>You are a member of no project. Ask your administrator to add user:{escape(identity.subject)}.</p>",
        )
    shown = memberships[:_LISTED_AT_MOST]
    items = "".join(f'<li><span class="code">{escape(w)}/{escape(p)}</span></li>' for w, p in shown)
    more = '<p class="muted">And more.</p>' if len(memberships) > len(shown) else ""
    return section("projects", "Projects", f"<ul>{items}</ul>{more}")


def _session_item(session: Listed, *, current: str, form_token: str) -> str:
    started = datetime.fromtimestamp(session.started_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    told = f"<span>{escape(session.browser)}, since {started}</span>"
    if session.key == current:
        return f'<li>{told}<span class="muted">this one</span></li>'
    return (
        f'<li>{told}<form method="post" action="/account/sessions">{hidden(form_token)}'
        f'<button class="quiet" type="submit" name="session" value="{escape(session.handle)}" '
        f'aria-label="End the session of {escape(session.browser)} since {started}">End</button></form></li>'
    )


def _shown(issuer: str) -> str:
    return issuer.partition("://")[2] or issuer
