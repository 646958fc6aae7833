"""What an operator may write into `[[fronts]]`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.config.configuration import SALT_SECRET, faults, good_table, loaded

ISSUER = "https://sso.example.com"
FRONT: dict[str, object] = {
    "name": "webui",
    "issuer": ISSUER,
    "subject": "service-account-webui",
    "workspaces": ["acme"],
    "secret": {"env": "WEBUI"},
}
OTHER = FRONT | {"name": "mobile", "subject": "service-account-mobile", "secret": {"env": "MOBILE"}}
SECRETS = {"WEBUI": "w" * 32, "MOBILE": "m" * 32, "SHORT": "s" * 31, "SALT": SALT_SECRET.decode()}


def without(key: str) -> dict[str, object]:
    return {name: value for name, value in FRONT.items() if name != key}


@pytest.mark.parametrize(
    ("fronts", "key", "remedy"),
    [
        ([without("name")], "fronts.0.name", "required"),
        ([without("issuer")], "fronts.0.issuer", "required"),
        ([without("subject")], "fronts.0.subject", "required"),
        ([without("workspaces")], "fronts.0.workspaces", "required"),
        ([without("secret")], "fronts.0.secret", "required"),
        ([FRONT | {"workspaces": []}], "fronts.0.workspaces", "at least one"),
        ([FRONT | {"workspaces": ["acme", "*"]}], "fronts.0.workspaces.1", "no workspace's name"),
        ([FRONT | {"name": "web/ui"}], "fronts.0.name", "1 to 32"),
        ([FRONT | {"name": "WebUI"}], "fronts.0.name", "1 to 32"),
        ([FRONT | {"name": "w" * 33}], "fronts.0.name", "1 to 32"),
        ([FRONT | {"name": "webui\n"}], "fronts.0.name", "1 to 32"),
        ([FRONT, OTHER | {"name": "webui"}], "fronts.1.name", "fronts.0.name"),
        ([FRONT | {"issuer": ISSUER + "/"}], "fronts.0.issuer", "none of [[issuers]]"),
        ([FRONT | {"subject": "front:webui/root"}], "fronts.0.subject", "own service account"),
        ([FRONT, OTHER | {"subject": "service-account-webui"}], "fronts.1.subject", "fronts.0"),
        ([FRONT | {"secret": "w" * 32}], "fronts.0.secret", "never in the file"),
        ([FRONT | {"secret": {"env": "SHORT"}}], "fronts.0.secret", "31 bytes"),
        ([FRONT, OTHER | {"secret": {"env": "WEBUI"}}], "fronts.1.secret", "fronts.0.secret"),
        ([FRONT | {"secret": {"env": "SALT"}}], "fronts.0.secret", "isolation.keys.0.secret"),
        ([FRONT | {"header": "Authorization"}], "fronts.0.header", "meaning of its own"),
        ([FRONT | {"header": "X-Saltgate-Unit"}], "fronts.0.header", "meaning of its own"),
        ([FRONT | {"header": "X-Api-Key"}], "fronts.0.header", "meaning of its own"),
        ([FRONT | {"header": "X User"}], "fronts.0.header", "no header's name"),
        ([FRONT | {"header": "X-Ü"}], "fronts.0.header", "no header's name"),
        ([FRONT | {"assertion_issuer": ""}], "fronts.0.assertion_issuer", "not empty"),
        ([FRONT | {"subject_claim": []}], "fronts.0.subject_claim", "empty"),
        ([FRONT | {"algorithms": ["HS512"]}], "fronts.0.algorithms", "unknown key"),
    ],
)
def test_a_broken_rule_is_one_fault_at_its_key_with_the_remedy(
    tmp_path: Path, fronts: list[dict[str, object]], key: str, remedy: str
) -> None:
    found = faults(tmp_path, good_table() | {"fronts": fronts}, SECRETS)
    assert list(found) == [key]
    assert remedy in found[key]


def test_a_service_account_is_a_gate_or_a_front_and_not_both(tmp_path: Path) -> None:
    gates = [{"issuer": ISSUER, "subject": "service-account-webui"}]
    found = faults(tmp_path, good_table() | {"fronts": [FRONT], "gates": gates}, SECRETS)
    assert list(found) == ["fronts.0.subject"]
    assert "gates.0" in found["fronts.0.subject"]


def test_several_fronts_load_and_show_no_secret(tmp_path: Path) -> None:
    settings = loaded(tmp_path, good_table() | {"fronts": [FRONT, OTHER]}, SECRETS).settings
    assert [front.header for front in settings.fronts] == ["X-OpenWebUI-User-Jwt"] * 2
    assert [front.subject_claim for front in settings.fronts] == [("sub",)] * 2
    assert "w" * 32 not in repr(settings)


def test_no_fault_repeats_a_secret(tmp_path: Path) -> None:
    table = good_table() | {"fronts": [FRONT | {"secret": {"env": "SHORT"}}, OTHER | {"secret": "plain-secret"}]}
    assert "s" * 31 not in str(faults(tmp_path, table, SECRETS))
    assert "plain-secret" not in str(faults(tmp_path, table, SECRETS))


def test_the_front_that_the_documentation_shows_loads(tmp_path: Path) -> None:
    shown = (Path(__file__).parents[2] / "proxy" / "clients.md").read_text(encoding="utf-8")
    (block,) = [text for text in re.findall(r"```toml\n(.*?)```", shown, re.DOTALL) if "[[fronts]]" in text]
    table = tomllib.loads(block)
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "webui").write_bytes(b"w" * 43 + b"\n")
    issuers = [{"issuer": table["fronts"][0]["issuer"], "audiences": ["saltgate"]}]
    assert faults(tmp_path, good_table() | table | {"issuers": issuers}) == {}
