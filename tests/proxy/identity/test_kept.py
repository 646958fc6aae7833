"""An identity that is kept comes back as it was, or not at all."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from proxy.identity import Identity
from proxy.identity.kept import identity_from_json, identity_to_json

WHOLE = Identity("https://i", "u", frozenset({"b", "a"}), False, 5.5, "c", "session", "s", 4.0)


@pytest.mark.parametrize("identity", [WHOLE, Identity("https://i", "u", frozenset(), True, 1.0)])
def test_it_comes_back_as_it_was(identity: Identity) -> None:
    assert identity_from_json(json.loads(json.dumps(identity_to_json(identity)))) == identity


@pytest.mark.parametrize("member", sorted(identity_to_json(WHOLE)))
@pytest.mark.parametrize("value", [{}, ["x", 7], True])
def test_what_was_changed_is_none_or_has_less(member: str, value: object) -> None:
    kept = json.loads(json.dumps(identity_to_json(WHOLE))) | {member: value}
    if member == "groups" and isinstance(value, list):
        assert not identity_from_json(kept).groups_complete
    elif member != "groups_complete" or value is not True:
        with pytest.raises(ValueError, match="no identity"):
            identity_from_json(kept)


def test_what_a_personal_token_proves_is_not_kept_and_so_never_widened() -> None:
    for limited in (replace(WHOLE, token_id="t"), replace(WHOLE, projects=frozenset({("acme", "apollo")}))):
        with pytest.raises(ValueError, match="personal access token"):
            identity_to_json(limited)


def test_for_whom_a_front_end_speaks_is_not_kept_and_so_never_widened() -> None:
    for limited in (replace(WHOLE, actor=WHOLE), replace(WHOLE, workspaces=frozenset({"acme"}))):
        with pytest.raises(ValueError, match="front end"):
            identity_to_json(limited)


def test_nothing_that_an_identity_has_is_lost_without_a_word() -> None:
    refused = {"token_id", "projects", "actor", "workspaces"}
    assert set(identity_to_json(WHOLE)) | refused == {field.name for field in fields(Identity)}
