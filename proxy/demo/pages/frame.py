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
input { width: 100%; padding: .625rem .75rem; font: inherit; color: inherit; background: transparent;
  border: 1px solid var(--line); border-radius: .375rem; }
button { width: 100%; margin-top: 1rem; padding: .625rem .75rem; font: inherit; font-weight: 600; cursor: pointer;
  border: 1px solid var(--accent); border-radius: .375rem; color: var(--on-accent); background: var(--accent); }
button.quiet { color: var(--accent); background: transparent; }
input:focus-visible, button:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
.bad { color: var(--bad); font-weight: 600; }
.note { margin: 1.5rem 0 0; font-size: .875rem; color: var(--muted); }
.code { font-family: ui-monospace, monospace; font-weight: 700; letter-spacing: .1em; white-space: nowrap; }
"""

_STYLE_HASH: Final = b64encode(hashlib.sha256(STYLE.encode("utf-8")).digest()).decode("ascii")


def frame(title: str, body: str) -> str:
    """A whole page. `body` is HTML whose values are escaped already; `title` is text."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)} · saltgate</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n<h1>{escape(title)}</h1>\n{body}\n</main>\n</body>\n</html>\n"
    )


def page_headers(*, form_targets: tuple[str, ...] = ()) -> Mapping[str, str]:
    """The page's headers. `form_targets` are origins that the answer to a form may redirect to.

    Browsers hold `form-action` against redirects too, so the client's origin has to be named. The referrer stays within
    the origin: with `no-referrer` a browser would send `Origin: null` with our own forms.
    """
    form_action = " ".join(("'self'", *form_targets))
    policy = (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action {form_action}; "
        "frame-ancestors 'none'; base-uri 'none'"
    )
    return {
        "Content-Security-Policy": policy,
        "Cache-Control": "no-store",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }
