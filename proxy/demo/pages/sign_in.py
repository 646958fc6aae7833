"""The pages of the embedded OpenID Provider: sign in, confirm, allow a device, sign out, and what went wrong."""

from __future__ import annotations

from html import escape

from proxy.frame import frame


def sign_in_page(sign_in_id: str, purpose: str, *, user_code: str | None, username: str, fault: str | None) -> str:
    """Username and password. `purpose` names who asks; `user_code` is the device's, to be compared by the person."""
    body = (
        f"{_fault(fault)}<p>{escape(purpose)}</p>{_device_code(user_code)}"
        '<form method="post" action="/sign-in">'
        f"{_hidden(sign_in_id)}"
        '<label for="username">Username</label>'
        f'<input id="username" name="username" value="{escape(username)}" autocomplete="username" '
        f'autocapitalize="none" spellcheck="false" maxlength="128" required'
        f"{_described(fault)}{'' if username else ' autofocus'}>"
        '<label for="password">Password</label>'
        '<input id="password" name="password" type="password" autocomplete="current-password" maxlength="256" '
        f"required{_described(fault)}{' autofocus' if username else ''}>"
        '<button type="submit">Sign in</button>'
        '<button class="quiet" type="submit" formaction="/confirm" formnovalidate name="choice" value="deny">'
        "Cancel</button>"
        "</form>"
        '<p class="note">This sign-in service runs on this computer only.</p>'
    )
    return frame("Sign in", body)


def confirm_page(sign_in_id: str, purpose: str, *, name: str, user_code: str | None) -> str:
    """Somebody who is signed in already is asked whether to go on."""
    body = (
        f"<p>{escape(purpose)}</p>{_device_code(user_code)}"
        '<form method="post" action="/confirm">'
        f"{_hidden(sign_in_id)}"
        f'<button type="submit" name="choice" value="allow">Continue as {escape(name)}</button>'
        '<button class="quiet" type="submit" name="choice" value="other">Use another account</button>'
        '<button class="quiet" type="submit" name="choice" value="deny">Cancel</button>'
        "</form>"
    )
    return frame("Continue?", body)


def device_page(*, user_code: str, fault: str | None) -> str:
    """Where a person types the code that a device shows (RFC 8628 section 3.3)."""
    body = (
        f"{_fault(fault)}<p>Type the code that your device or terminal shows.</p>"
        '<form method="post" action="/device">'
        '<label for="user_code">Code</label>'
        f'<input id="user_code" name="user_code" value="{escape(user_code)}" autocomplete="off" '
        f'autocapitalize="characters" spellcheck="false" maxlength="16" required autofocus{_described(fault)}>'
        '<button type="submit">Continue</button>'
        "</form>"
    )
    return frame("Allow a device", body)


def sign_out_page(sign_in_id: str, *, name: str) -> str:
    body = (
        f"<p>You are signed in as {escape(name)}.</p>"
        '<form method="post" action="/confirm">'
        f"{_hidden(sign_in_id)}"
        '<button type="submit" name="choice" value="allow">Sign out</button>'
        '<button class="quiet" type="submit" name="choice" value="deny">Stay signed in</button>'
        "</form>"
    )
    return frame("Sign out?", body)


def message_page(title: str, message: str) -> str:
    """A page that only tells something."""
    return frame(title, f'<p role="status">{escape(message)}</p>')


def _hidden(sign_in_id: str) -> str:
    return f'<input type="hidden" name="sign_in" value="{escape(sign_in_id)}">'


def _device_code(user_code: str | None) -> str:
    if user_code is None:
        return ""
    return (
        f'<p>Go on only if your own device shows the code <span class="code">{escape(user_code)}</span>. '
        "If somebody sent you here, cancel.</p>"
    )


def _fault(fault: str | None) -> str:
    return "" if fault is None else f'<p id="fault" class="bad" role="alert">{escape(fault)}</p>'


def _described(fault: str | None) -> str:
    return "" if fault is None else ' aria-describedby="fault" aria-invalid="true"'
