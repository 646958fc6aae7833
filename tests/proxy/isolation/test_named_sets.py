"""The named sets: each entry finds what it says, and leaves what only looks like it."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.isolation import narrowing
from proxy.isolation.narrowing import NAMED_SETS
from proxy.isolation.personal_data import PERSONAL_DATA
from proxy.isolation.secrets_in_text import SECRETS

ENTRIES = {entry.finds: entry.detector for entry in (*PERSONAL_DATA, *SECRETS)}
DOCUMENT = Path(narrowing.__file__).with_suffix(".md")
# In parts, so that no scanner of repositories takes them for real ones.
JWT = "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0." + "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"

FOUND = {
    "e-mail addresses": (
        "anna@klinik.de", "Write to <anna.maria+x@sub.klinik.co.uk>.", "info@müller.de", "用户@例子.广告", "a@b.io,",
        "git@github.com and anna@klinik.de", "ANNA@KLINIK.DE",
    ),
    "phone numbers in international form": (
        "+49 171 1234567", "Call +1 (415) 555-2671.", "tel:+442079460958", "+49/171/12 34 567", "+86 138-0013-8000",
    ),
    "IBANs": (
        "DE89370400440532013000", "DE89 3704 0044 0532 0130 00 and more", "gb82 west 1234 5698 7654 32",
        "FR1420041010050500013M02606", "IBAN:NO9386011117947", "DE89-3704-0044-0532-0130-00",
    ),
    "payment cards": (
        "4111111111111111", "4111 1111 1111 1111", "4111-1111-1111-1111", "card5555555555554444.", "3782 822463 10005",
        "378282246310005", "6011.1111.1111.1117", "30569309025904", "2223003122003222", "4222222222222",
        "In 2024 4111 1111 1111 1111", "9999 9999 4111 1111 1111 1111", "1234567890123456 and 4111111111111111",
    ),
    "US social security numbers": ("078-05-1120", "SSN 078-05-1120.", "000-12-3456 078-05-1120"),
    "UK national insurance numbers": ("AB123456C", "AB 12 34 56 C"),
    "Spanish DNI and NIE": ("12345678Z", "12345678-Z", "X1234567L", "X-1234567-L"),
    "Italian fiscal codes": ("RSSMRA85T10A562S", "rssmra85t10a562s"),
    "French NIR": ("255081416802538", "2 55 08 14 168 025 38"),
    "Brazilian CPF": ("529.982.247-25", "CPF:529.982.247-25"),
    "Chinese resident ids": ("11010519491231002X", "11010519491231002x"),
    "private keys": (
        "-----BEGIN PRIVATE " + "KEY-----", "-----BEGIN RSA PRIVATE " + "KEY-----",
        "-----BEGIN OPENSSH PRIVATE " + "KEY-----", "-----BEGIN ENCRYPTED PRIVATE " + "KEY-----",
        "-----BEGIN PGP PRIVATE " + "KEY BLOCK-----", "PuTTY-User-" + "Key-File-3: ssh-ed25519",
        "AGE-SECRET-" + "KEY-1" + "QZ" * 29,
    ),
    "JSON web tokens": (JWT, f"token={JWT}"),
    "AWS access keys": ("AKIA" + "IOSFODNN7EXAMPLE", "aws_access_key_id=ASIA" + "IOSFODNN7EXAMPLE"),
    "GitHub and GitLab tokens": ("ghp_" + "a1" * 18, "github_pat_" + "a1" * 20, "glpat-" + "a1" * 10),
    "Slack tokens and webhooks": ("xoxb-" + "1234567890-abc", "https://hooks.slack" + ".com/services/T0000ABCD/B00/x"),
    "Google keys": ("AIza" + "a1b2c" * 7, "GOCSPX-" + "a1b2" * 7, "ya29." + "a1b2" * 7),
    "OpenAI, Anthropic and Hugging Face keys": (
        "sk-" + "a1B2" * 12, "sk-proj-" + "a1_-" * 12, "sk-ant-api03-" + "a1_-" * 12, "hf_" + "aB" * 17,
    ),
    "Stripe, npm and PyPI keys": ("sk_live_" + "a1" * 12, "rk_test_" + "a1" * 12, "npm_" + "a1" * 18),
    "saltgate's access tokens": ("sgp_" + "a1B2" * 8,),
    "credentials of HTTP": (
        "Authorization: Basic dXNlcjpwYXNz", '"authorization": "Bearer abcdefgh"', "bearer " + "a1" * 16,
    ),
    "passwords in URLs": ("postgres://app:s3cr3t@db.internal/app", "redis://:hunter2@cache:6379"),
    "named passwords and keys": (
        "password: hunter2x", "PASSWORD=hunter2x", '"api_key": "k3yk3yk3y"', "Passwort ist: Kennwort: geh31m!",
        "client secret => abc123def", "db_password := 'tr0ub4dor'", "密码: abc123", "passwd=a1b2c3;",
        "password: 12345678",
        "password: $VAR, password: hunter2x",
    ),
}  # fmt: skip

LEFT = {
    "e-mail addresses": (
        "git@github.com:a/b.git", "you@example.com", "a@b.test", "a @ b.de", "@decorator", "a@b", "x@2", "me@localhost",
    ),
    "phone numbers in international form": (
        "1+4917112345678", "+12345", "+0491711234567", "+2024-01-02 10", "+" + "1" * 18, "++4917112345678", "C++ 2024",
    ),
    "IBANs": ("DE89370400440532013001", "XX89370400440532013000", "DE8937040044053201300", "AB12 3456 7890 1234 5678"),
    "payment cards": (
        "4111111111111112", "1234567890123452", "4111 1111 1111", "0000000000000000", "41111111111111111111",
        "4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1", "1700000000000",
    ),
    "US social security numbers": ("000-12-3456", "666-12-3456", "900-12-3456", "078-00-1120", "078-05-0000",
        "1078-05-1120", "078-05-1120-1", "078051120"),
    "UK national insurance numbers": ("QQ123456C", "AB123456E", "XAB123456C", "AB123456CD"),
    "Spanish DNI and NIE": ("12345678A", "X1234567A", "123456789Z", "a12345678Z"),
    "Italian fiscal codes": ("RSSMRA85T10A562T", "XRSSMRA85T10A562S"),
    "French NIR": ("255081416802539", "355081416802538", "255001416802538"),
    "Brazilian CPF": ("529.982.247-26", "111.111.111-11", "52998224725"),
    "Chinese resident ids": ("110105194912310021", "11010519491331002X", "011010519491231002X"),
    "private keys": ("-----BEGIN PUBLIC " + "KEY-----", "-----BEGIN CERTIFICATE-----", "a private key"),
    "JSON web tokens": ("eyJhbGciOiJIUzI1NiJ9", "eyJhbGci.eyJz.x", "x" + JWT),
    "AWS access keys": ("AKIA", "XAKIA" + "IOSFODNN7EXAMPLE", "AKIA" + "iosfodnn7example"),
    "GitHub and GitLab tokens": ("ghp_short", "xghp_" + "a1" * 18, "glpat-x"),
    "Slack tokens and webhooks": ("xoxb-", "https://slack.com/services/T0000ABCD"),
    "Google keys": ("AIza", "AIzaSy", "ya29.x"),
    "OpenAI, Anthropic and Hugging Face keys": ("risk-" + "a1B2" * 12, "sk-", "sk-learn", "hf_hub_download", "ask-me"),
    "Stripe, npm and PyPI keys": ("sk_live_", "npm_config_registry", "pypi-publish"),
    "saltgate's access tokens": ("sgp_", "sgp_short", "xsgp_" + "a1B2" * 8),
    "credentials of HTTP": ("Authorization: Bearer <token>", "authorization: required", "bearer of bad news"),
    "passwords in URLs": (
        "https://example.org/a:b@c", "http://user@host/", "postgres://user:password@host", "https://$U:$P@host",
        "postgres://user:<password>@host", "http://host:8080/",
    ),
    "named passwords and keys": (
        "password: correct horse", "password = os.environ['X1']", "password=$PASSWORD1", "password: <your-password1>",
        "the password is secret", "password: 123", "secret: {{ vault.x1 }}", "password: xxxx1234", "version: 1.2.3.4.5",
        "api_key=your_key_123", "passwords1: hunter2",
    ),
}  # fmt: skip


def cases(table: dict[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(finds, text) for finds, texts in table.items() for text in texts]


@pytest.mark.parametrize(("finds", "text"), cases(FOUND))
def test_an_entry_finds_what_it_says(finds: str, text: str) -> None:
    assert ENTRIES[finds].is_in(text.encode())
    assert ENTRIES[finds].is_in(f"before\n{text}\nbehind — ".encode())


@pytest.mark.parametrize(("finds", "text"), cases(LEFT))
def test_an_entry_leaves_what_only_looks_like_it(finds: str, text: str) -> None:
    assert not ENTRIES[finds].is_in(text.encode())


def test_every_entry_is_tried_both_ways_and_told_in_the_document() -> None:
    assert set(FOUND) == set(LEFT) == set(ENTRIES)
    document = DOCUMENT.read_text(encoding="utf-8")
    for name, entries in NAMED_SETS.items():
        assert f"`{name}`" in document
        for entry in entries:
            assert f"| {entry.finds} | {entry.why} |" in document
