"""The named set "secrets": keys, tokens and passwords by the forms that their makers gave them.

A secret without a form of its own (a bare random word) is not found; a password is found by the name before it.
"""

from __future__ import annotations

import re
from typing import Final

from config.expressions import Expression
from proxy.isolation.detectors import Detector
from proxy.isolation.named_set import Entry

# A token's prefix begins a word: `sk-` in `risk-averse-…` is none.
_WORD: Final = r"(?:^|[^0-9A-Za-z_-])"


def _form(finds: str, why: str, pattern: str) -> Entry:
    return Entry(finds, why, Detector(Expression(pattern)))


_NAMES_OF_SECRETS: Final = (
    "password|passwd|passphrase|passcode|pwd|passwort|kennwort|mot de passe|contraseña|senha|пароль|密码|パスワード"
    "|secret|(?:api|access|auth|client|secret|private|signing|encryption)[ _-]?(?:key|token|secret)|credentials?"
)
# Values that are code, or a place for a value, and not the value.
_PLACEHOLDER: Final = re.compile(r"[<$%({\[*]|\.\.\.|x{4}|your|example|placeholder|changeme|redacted", re.IGNORECASE)
_VALUE: Final = re.compile(r"[:=>]+[ \t]*[\"'`]?([^\s\"'`,;]+)[\"'`]?[,;]?$")
_URL_PASSWORD: Final = re.compile(r"://[^\s:/@]*:([^\s/@]+)@")


def _is_password(value: str) -> bool:
    """Random enough to be one: with a digit, and no name of a place where the password is."""
    return any(map(str.isdigit, value)) and not _PLACEHOLDER.search(value)


def _assigns_password(match: str) -> bool:
    value = _VALUE.search(match)
    return value is not None and _is_password(value[1])


def _url_has_password(match: str) -> bool:
    value = _URL_PASSWORD.search(match)
    return value is not None and not _PLACEHOLDER.search(value[1]) and value[1].casefold() not in _NO_PASSWORDS


_NO_PASSWORDS: Final = frozenset({"password", "pass", "passwd", "pwd", "secret", "port"})

SECRETS: Final = (
    _form(
        "private keys",
        "RFC 7468 and OpenSSH's, PGP's, PuTTY's and age's own headers",
        "-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-[23]:"
        "|AGE-SECRET-KEY-1[0-9A-Z]{50}",
    ),
    _form(
        "JSON web tokens",
        'RFC 7519: two parts that begin with {" in base64url, and a signature',
        _WORD + r"eyJ[0-9A-Za-z_-]{8,}\.eyJ[0-9A-Za-z_-]{8,}\.[0-9A-Za-z_-]{16,}",
    ),
    _form("AWS access keys", "AKIA for keys that stay, ASIA for passing ones", _WORD + "A[KS]IA[0-9A-Z]{16}"),
    _form(
        "GitHub and GitLab tokens",
        "ghp_, gho_, ghu_, ghs_, ghr_, github_pat_, glpat-",
        _WORD + "(?:gh[pousr]_[0-9A-Za-z]{36}|github_pat_[0-9A-Za-z_]{22}|glpat-[0-9A-Za-z_-]{20})",
    ),
    _form(
        "Slack tokens and webhooks",
        "xoxb-, xoxp- and their kin, xapp-, and the address that needs no other secret",
        _WORD
        + r"(?:xox[abceoprs]-[0-9A-Za-z-]{10}|xapp-[0-9]-[0-9A-Za-z-]{10})|hooks\.slack\.com/services/T[0-9A-Z]{6}",
    ),
    _form(
        "Google keys",
        "AIza for API keys, GOCSPX- for clients, ya29. for access tokens",
        _WORD + r"(?:AIza[0-9A-Za-z_-]{35}|GOCSPX-[0-9A-Za-z_-]{20}|ya29\.[0-9A-Za-z_-]{20})",
    ),
    _form(
        "OpenAI, Anthropic and Hugging Face keys",
        "sk-, sk-proj-, sk-ant-, hf_",
        _WORD + "(?:sk-(?:(?:proj|svcacct|admin|ant|or)-[0-9A-Za-z_-]{16}|[0-9A-Za-z]{20})|hf_[0-9A-Za-z]{30})",
    ),
    _form(
        "Stripe, npm and PyPI keys",
        "sk_live_, rk_live_ and those of test mode, npm_, pypi-AgE",
        _WORD + "(?:[rs]k_(?:live|test)_[0-9A-Za-z]{16}|npm_[0-9A-Za-z]{36}|pypi-AgE[0-9A-Za-z_-]{50})",
    ),
    _form("saltgate's access tokens", "sgp_", _WORD + "sgp_[0-9A-Za-z_-]{16}"),
    _form(
        "credentials of HTTP",
        "RFC 6750 and RFC 7617: Authorization with its value; Bearer alone must be long",
        r"(?i)authorization[\"']?[ \t]*:[ \t]*[\"']?(?:basic|bearer|digest|token)[ \t]+[0-9A-Za-z._~+/=-]{8}"
        r"|\bbearer[ \t]+[0-9A-Za-z._~+/-]{32}",
    ),
    Entry(
        "passwords in URLs",
        "RFC 3986 section 3.2.1: user:password@",
        Detector(Expression(r"[A-Za-z][0-9A-Za-z+.-]{1,20}://[^\s:/@]*:[^\s/@]+@[0-9A-Za-z\[]"), _url_has_password),
    ),
    Entry(
        "named passwords and keys",
        "password = …, api_key: … and the like, in code, JSON and prose, where the value has a digit and is no code",
        Detector(
            Expression(
                rf"(?i)(?:{_NAMES_OF_SECRETS})[\"'`]?[ \t]*(?::|=|:=|=>)[ \t]*[\"'`]?[^\s\"'`,;]{{6,60}}[\"'`]?[,;]?"
            ),
            _assigns_password,
        ),
    ),
)
