"""What all pages share: the frame, the style, and the headers that keep a page to itself."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Mapping
from html import escape
from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; --text: #1c2024; --muted: #5a6169; --page: #f3f4f6; --card: #fff; --line: #8b929a;
  --accent: #0b5cad; --on-accent: #fff; --bad: #a3161a; }
@media (prefers-color-scheme: dark) { :root { --text: #eceef0; --muted: #aab1b9; --page: #14171a; --card: #1e2226;
  --line: #7d858e; --accent: #7db7f5; --on-accent: #0a1a2b; --bad: #ff9a94; } }
* { box-sizing: border-box; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; padding: 1rem; background: var(--page);
  color: var(--text); font: 1rem/1.5 system-ui, sans-serif; }
main { width: 100%; max-width: 25rem; padding: 2rem; background: var(--card); border-radius: .75rem;
  box-shadow: 0 1px 4px rgb(0 0 0 / .2); }
h1 { margin: 0 0 .75rem; font-size: 1.375rem; line-height: 1.25; }
p { margin: 0 0 1rem; }
label { display: block; margin: 1rem 0 .25rem; font-weight: 600; }
input, select { width: 100%; padding: .625rem .75rem; font: inherit; color: inherit; background: transparent;
  border: 1px solid var(--line); border-radius: .375rem; }
button { width: 100%; margin-top: 1rem; padding: .625rem .75rem; font: inherit; font-weight: 600; cursor: pointer;
  border: 1px solid var(--accent); border-radius: .375rem; color: var(--on-accent); background: var(--accent); }
button.quiet { color: var(--accent); background: transparent; }
input:focus-visible, select:focus-visible, button:focus-visible {
  outline: 3px solid var(--accent); outline-offset: 2px; }
.bad { color: var(--bad); font-weight: 600; }
.note { margin: 1.5rem 0 0; font-size: .875rem; color: var(--muted); }
a { color: var(--accent); }
a:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
a.button { display: block; margin-top: 1rem; padding: .625rem .75rem; font-weight: 600; text-align: center;
  text-decoration: none; border: 1px solid var(--accent); border-radius: .375rem; color: var(--on-accent);
  background: var(--accent); overflow-wrap: anywhere; }
main.wide { max-width: 44rem; }
section { margin-top: 2rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h2 { margin: 0 0 .75rem; font-size: 1.125rem; line-height: 1.25; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem; margin: 0; }
dt { color: var(--muted); }
dd { margin: 0; overflow-wrap: anywhere; }
ul { margin: 0; padding: 0; list-style: none; }
li { display: flex; flex-wrap: wrap; align-items: center; justify-content: space-between; gap: .25rem 1rem;
  padding: .375rem 0; overflow-wrap: anywhere; }
li button, button.small { width: auto; margin: 0; padding: .25rem .75rem; }
.muted { color: var(--muted); }
.code { font-family: ui-monospace, monospace; font-weight: 700; letter-spacing: .1em; white-space: nowrap; }
"""

_STYLE_HASH: Final = b64encode(hashlib.sha256(STYLE.encode("utf-8")).digest()).decode("ascii")


def frame(title: str, body: str, *, wide: bool = False, leads_on: str | None = None) -> str:
    """A whole page. `body` is HTML whose values are escaped already; `title` is text. The browser goes on by itself to
    the address `leads_on`: told in the page, for a header so long is more than many a proxy in front of us takes.
    """
    kind = ' class="wide"' if wide else ""
    refresh = "" if leads_on is None else f'<meta http-equiv="refresh" content="0;url={escape(leads_on)}">\n'
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"{refresh}<title>{escape(title)} · saltgate</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main{kind}>\n<h1>{escape(title)}</h1>\n{body}\n</main>\n</body>\n</html>\n"
    )


def content_security_policy(*, form_targets: tuple[str, ...] = ()) -> str:
    """No script, no frame around it, nothing but our style; forms go to this site and where `form_targets` say.

    Browsers hold `form-action` against redirects too, so the origin that one leads to has to be named.
    """
    form_action = " ".join(("'self'", *form_targets))
    return (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action {form_action}; "
        "frame-ancestors 'none'; base-uri 'none'"
    )


def page_headers(*, form_targets: tuple[str, ...] = ()) -> Mapping[str, str]:
    """The page's headers. `form_targets` are origins that the answer to a form may redirect to.

    The referrer stays within the origin: with `no-referrer` a browser would send `Origin: null` with our own forms.
    """
    return {
        "Content-Security-Policy": content_security_policy(form_targets=form_targets),
        "Cache-Control": "no-store",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }
