"""Contract section 7: the salt of a unit, by the published vectors and by properties."""

from __future__ import annotations

import hmac
import re
import struct
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from itertools import permutations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from proxy.isolation.salt import Salt, SaltKey, is_salt, salt_for, salt_within
from proxy.isolation.unit import (
    CollectionUnit,
    DeploymentUnit,
    ProbeUnit,
    ProjectUnit,
    TeamUnit,
    Unit,
    UserUnit,
    WorkspaceUnit,
    fields,
)

KEY = SaltKey("k1", b"0123456789abcdef0123456789abcdef")

# Whatever UTF-8 can carry: an issuer or subject is not ours to spell, and a name rule may be forgotten one day.
HOSTILE = [
    "",
    "a",
    "aa",
    "a/a",
    "acme",
    "acme/apollo",
    "project",
    "sg1",
    "0",
    "1",
    "\0",
    "\0\0\0\x04",
    "\0\0\0\x04acme",
]
# The same to the eye, not to the machine: composed and decomposed, a full-width letter, a ligature, invisible ones.
HOSTILE += ["\u00e9", "e\u0301", "\uff41", "a\ufe0f", "a\u200b", "\u202ea", "\ud7ff", "\uffff", "\U0010ffff", "x" * 300]
TEXTS = st.one_of(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), st.sampled_from(HOSTILE))
EPOCHS = st.integers(0, 2**64)
UNITS: st.SearchStrategy[Unit | ProbeUnit] = st.one_of(
    st.builds(DeploymentUnit),
    st.builds(WorkspaceUnit, TEXTS),
    st.builds(TeamUnit, TEXTS, TEXTS),
    st.builds(ProjectUnit, TEXTS, TEXTS),
    st.builds(CollectionUnit, TEXTS, TEXTS),
    st.builds(UserUnit, TEXTS, TEXTS, TEXTS, TEXTS),
    st.builds(ProbeUnit, TEXTS),
)


@pytest.mark.parametrize(
    ("unit", "epoch", "value", "fingerprint"),
    [
        (ProjectUnit("acme", "apollo"), 0, "sg1-k1-vGNDhPk7IIs2LU95llaQxLA6r8VYZztZihOV2DlSM4M", "baa6d2677094"),
        (ProjectUnit("acme", "apollo"), 1, "sg1-k1-11bG5V1GVNZPQxAQikL8iTcxqZu6VJ070xp7KDdr7tM", "9fbc22b89516"),
        (DeploymentUnit(), 0, "sg1-k1-qUgOoCXM8LmW34Id6Bo4lnFymXr5wLJS6nrYXb1w-T8", "9c0dd53eeae0"),
        (
            UserUnit("acme", "apollo", "https://sso.example.com/realms/acme", "u-älice"),
            7,
            "sg1-k1-TVDXcB24ixMmagn-KQ2lVHOtMwgWhbrLv7ATz9s8iVM",
            "f10ea622e21c",
        ),
    ],
)
def test_the_published_vectors_hold(unit: Unit, epoch: int, value: str, fingerprint: str) -> None:
    salt = salt_for(unit, epoch=epoch, key=KEY)
    assert (salt.value, salt.fingerprint) == (value, fingerprint)
    assert (salt.unit, salt.epoch, salt.key_id) == (unit, epoch, "k1")


@given(UNITS, EPOCHS, UNITS, EPOCHS)
def test_two_different_units_or_epochs_never_have_the_same_salt(
    one: Unit | ProbeUnit, one_epoch: int, other: Unit | ProbeUnit, other_epoch: int
) -> None:
    assume((one, one_epoch) != (other, other_epoch))
    assert salt_for(one, epoch=one_epoch, key=KEY).value != salt_for(other, epoch=other_epoch, key=KEY).value


@given(st.lists(TEXTS, min_size=1, max_size=3), TEXTS, EPOCHS, st.data())
def test_a_boundary_between_fields_cannot_be_moved(
    names: list[str], moved: str, epoch: int, data: st.DataObject
) -> None:
    """The same characters in the same order, cut at another place."""
    assume(moved)
    before, after = data.draw(st.sampled_from(names)), data.draw(TEXTS)
    makers = (TeamUnit, ProjectUnit, CollectionUnit)
    for make in makers:
        one, other = make(before + moved, after), make(before, moved + after)
        assert salt_for(one, epoch=epoch, key=KEY).value != salt_for(other, epoch=epoch, key=KEY).value
    one_user = UserUnit("w", "p", before + moved, after)
    other_user = UserUnit("w", "p", before, moved + after)
    assert salt_for(one_user, epoch=epoch, key=KEY).value != salt_for(other_user, epoch=epoch, key=KEY).value


def encoded(parts: Sequence[str]) -> bytes:
    """The message as the contract writes it, made a second time."""
    return b"".join(struct.pack(">I", len(part.encode())) + part.encode() for part in parts)


def decoded(message: bytes) -> list[str]:
    """The fields that a message holds. There is but one way to read it."""
    parts = []
    while message:
        (length,) = struct.unpack(">I", message[:4])
        parts.append(message[4 : 4 + length].decode())
        message = message[4 + length :]
    return parts


@given(UNITS, EPOCHS)
def test_the_message_is_the_contracts_and_can_be_read_back_so_no_two_units_share_one(
    unit: Unit | ProbeUnit, epoch: int
) -> None:
    """What can be decoded was encoded injectively: this proves it for all pairs at once, not only for drawn ones."""
    parts = ["sg1", *fields(unit), str(epoch)]
    tag = hmac.digest(KEY.secret, encoded(parts), "sha256")
    assert salt_for(unit, epoch=epoch, key=KEY).value == f"sg1-k1-{urlsafe_b64encode(tag).decode().rstrip('=')}"
    assert decoded(encoded(parts)) == parts
    assert unit_of(parts[1:-1]) == unit
    assert int(parts[-1]) == epoch


def unit_of(parts: list[str]) -> Unit | ProbeUnit:
    """The unit whose fields these are: the kind and the number of fields leave one choice."""
    kinds = {
        "deployment": DeploymentUnit,
        "workspace": WorkspaceUnit,
        "team": TeamUnit,
        "project": ProjectUnit,
        "collection": CollectionUnit,
        "user": UserUnit,
        "probe": ProbeUnit,
    }
    made: Unit | ProbeUnit = kinds[parts[0]](*parts[1:])
    return made


@given(st.lists(st.sampled_from(HOSTILE), min_size=4, max_size=4, unique=True), EPOCHS)
def test_names_that_look_alike_or_hold_separators_are_all_different(names: list[str], epoch: int) -> None:
    """Every choice and order of the same hostile texts, in every kind of unit, at two epochs: all salts differ."""
    units: list[Unit] = [DeploymentUnit(), *map(WorkspaceUnit, names)]
    units += [
        kind(one, other) for kind in (TeamUnit, ProjectUnit, CollectionUnit) for one, other in permutations(names, 2)
    ]
    units += [UserUnit(*order) for order in permutations(names)]
    salts = {salt_for(unit, epoch=e, key=KEY).value for unit in units for e in (epoch, epoch + 1)}
    assert len(salts) == 2 * len(units)


@pytest.mark.parametrize("unit", [WorkspaceUnit("\ud800"), UserUnit("acme", "apollo", "https://sso", "u-\udfff")])
def test_what_has_no_utf8_has_no_salt(unit: Unit) -> None:
    """A lone surrogate, which JSON can spell, would else become whatever an encoder puts in its place."""
    with pytest.raises(UnicodeEncodeError):
        salt_for(unit, epoch=0, key=KEY)


@given(UNITS, EPOCHS)
def test_the_same_unit_epoch_and_key_always_have_the_same_salt(unit: Unit | ProbeUnit, epoch: int) -> None:
    again = SaltKey(KEY.id, bytes(bytearray(KEY.secret)))
    assert salt_for(unit, epoch=epoch, key=KEY) == salt_for(unit, epoch=epoch, key=again)


@given(UNITS, EPOCHS, st.from_regex(r"\A[A-Za-z0-9_-]{1,32}\Z"))
def test_every_salt_has_a_form_that_vllm_accepts(unit: Unit | ProbeUnit, epoch: int, key_id: str) -> None:
    salt = salt_for(unit, epoch=epoch, key=SaltKey(key_id, KEY.secret))
    assert re.fullmatch(r"sg1-[A-Za-z0-9_-]{1,32}-[A-Za-z0-9_-]{43}", salt.value)
    assert len(salt.value) <= 128
    assert re.fullmatch(r"[0-9a-f]{12}", salt.fingerprint)


def test_another_secret_or_another_key_id_gives_another_salt_and_fingerprint() -> None:
    unit = ProjectUnit("acme", "apollo")
    keys = (KEY, SaltKey("k1", b"x" * 32), SaltKey("k2", KEY.secret))
    salts = [salt_for(unit, epoch=0, key=key) for key in keys]
    assert len({salt.value for salt in salts}) == len({salt.fingerprint for salt in salts}) == 3


@pytest.mark.parametrize("length", [0, 1, 31])
def test_a_key_under_32_bytes_cannot_be_made(length: int) -> None:
    with pytest.raises(ValueError, match="32 or more"):
        SaltKey("k1", b"x" * length)


def test_neither_salt_nor_secret_shows_in_any_text_of_what_holds_them() -> None:
    salt = salt_for(ProjectUnit("acme", "apollo"), epoch=0, key=KEY)
    shown = f"{salt} {salt!r} {KEY} {KEY!r} {[salt]} {(KEY,)}"
    assert salt.value not in shown
    assert salt.value.rpartition("-")[2] not in shown
    assert KEY.secret.decode() not in shown
    assert salt.fingerprint in shown


def test_a_refused_short_key_does_not_tell_its_secret() -> None:
    with pytest.raises(ValueError, match="k1") as refused:
        SaltKey("k1", b"too-short-secret")
    assert "too-short-secret" not in str(refused.value)


def test_a_salt_is_immutable() -> None:
    salt = salt_for(DeploymentUnit(), epoch=0, key=KEY)
    with pytest.raises(AttributeError):
        salt.value = "sg1-k1-forged"  # type: ignore[misc]
    assert isinstance(salt, Salt)


# The salt of a saltgate in front (contract section 7).


def test_the_published_vector_of_a_gate_in_front_holds() -> None:
    inner = salt_for(ProjectUnit("acme", "apollo"), epoch=0, key=KEY)
    salt = salt_within(inner, "sg1-k1-11bG5V1GVNZPQxAQikL8iTcxqZu6VJ070xp7KDdr7tM", KEY)
    assert (salt.value, salt.fingerprint) == ("sg1-k1-6--0xZXQOLZYSlh_mAL9177qb3aEpVFdwl-MHl8G5kY", "b16ff3dc7843")
    assert (salt.unit, salt.epoch, salt.key_id) == (inner.unit, 0, "k1")


@given(unit=UNITS, epoch=EPOCHS, other=TEXTS)
def test_a_salt_within_another_has_a_salts_form_and_is_never_a_units_own(
    unit: Unit | ProbeUnit, epoch: int, other: str
) -> None:
    own = salt_for(unit, epoch=epoch, key=KEY)
    within = salt_within(own, other, KEY)
    assert is_salt(own.value)
    assert is_salt(within.value)
    assert within.value != own.value
    assert salt_within(own, within.value, KEY).value != within.value


@given(one=st.tuples(UNITS, EPOCHS, TEXTS), two=st.tuples(UNITS, EPOCHS, TEXTS))
def test_a_salt_within_differs_where_the_unit_or_the_salt_in_front_does(
    one: tuple[Unit | ProbeUnit, int, str], two: tuple[Unit | ProbeUnit, int, str]
) -> None:
    values = {salt_within(salt_for(unit, epoch=epoch, key=KEY), other, KEY).value for unit, epoch, other in (one, two)}
    assert len(values) == len({one, two})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sg1-",
        "tenant-a",
        "sg1--" + "A" * 43,
        "sg1-k1-" + "A" * 42,
        "sg1-k1-" + "A" * 44,
        "sg1-k1-" + "A" * 42 + "B",
        "sg1-k1-" + "A" * 43 + "\n",
        "sg2-k1-" + "A" * 43,
        "sg1-" + "k" * 33 + "-" + "A" * 43,
    ],
)
def test_what_has_not_a_salts_exact_form_is_none(text: str) -> None:
    assert not is_salt(text)
