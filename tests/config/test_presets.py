"""What an issuer's kind fills in (contract section 3, the table of presets)."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from config.presets import PRESETS
from config.settings import Issuer, IssuerKind
from tests.config.configuration import good_table, loaded


def issuer(folder: Path, **keys: object) -> Issuer:
    base: dict[str, object] = {"issuer": "https://sso.example.com", "audiences": ["saltgate"], "clients": ["chat-ui"]}
    return loaded(folder, good_table() | {"issuers": [base | keys]}).settings.issuers[0]


GROUPS = (("groups",),)
ANY_TYPE = ("at+jwt", "JWT", "")


@pytest.mark.parametrize(
    ("kind", "token_types", "subject", "groups"),
    [
        ("generic", ("at+jwt",), ("sub",), GROUPS),
        ("rfc9068", ("at+jwt",), ("sub",), GROUPS),
        ("keycloak", ANY_TYPE, ("sub",), (("groups",), ("realm_access", "roles"))),
        ("entra", ("JWT",), ("oid",), GROUPS),
        ("okta", ANY_TYPE, ("uid",), GROUPS),
        ("auth0", ("at+jwt", "JWT"), ("sub",), ()),
        ("authentik", ANY_TYPE, ("sub",), GROUPS),
        ("dex", ANY_TYPE, ("sub",), GROUPS),
        ("google", ("JWT",), ("sub",), ()),
    ],
)
def test_a_kind_fills_in_what_that_provider_sends(
    tmp_path: Path,
    kind: str,
    token_types: tuple[str, ...],
    subject: tuple[str, ...],
    groups: tuple[tuple[str, ...], ...],
) -> None:
    found = issuer(tmp_path, kind=kind)
    assert (found.token_types, found.subject, found.groups) == (token_types, subject, groups)


def test_every_kind_has_a_preset() -> None:
    assert set(PRESETS) == set(get_args(IssuerKind))


def test_only_keycloak_requires_a_payload_type(tmp_path: Path) -> None:
    kinds = {kind: issuer(tmp_path, kind=kind).payload_type for kind in PRESETS if kind != "local"}
    assert {kind: payload_type for kind, payload_type in kinds.items() if payload_type} == {"keycloak": "Bearer"}


def test_only_authentik_and_dex_are_forgiven_the_claims_of_id_tokens(tmp_path: Path) -> None:
    kinds = [kind for kind in PRESETS if kind != "local" and issuer(tmp_path, kind=kind).allow_id_token_claims]
    assert kinds == ["authentik", "dex"]


def test_a_key_that_is_written_wins_over_the_preset(tmp_path: Path) -> None:
    found = issuer(tmp_path, kind="keycloak", token_types=["JWT"], groups=["https://acme/groups"])
    assert (found.token_types, found.payload_type, found.groups) == (("JWT",), "Bearer", (("https://acme/groups",),))


def test_groups_are_one_path_or_a_list_of_paths(tmp_path: Path) -> None:
    assert issuer(tmp_path, groups=["realm_access", "roles"]).groups == (("realm_access", "roles"),)
    assert issuer(tmp_path, groups=[["a"], ["b", "c"]]).groups == (("a",), ("b", "c"))
    assert issuer(tmp_path, groups=[]).groups == ()
