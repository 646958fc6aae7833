"""The file with the tokens: nobody else's eyes, nobody else's file, whole at every moment."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.cli.sign_in import SignInFailed
from proxy.cli.sign_in.kept import MAXIMUM_BYTES, KeptSignIn, SignIns

GATE = "https://llm.example.com"
KEPT = KeptSignIn(
    gate=GATE,
    issuer="https://sso.example.com",
    client_id="saltgate-cli",
    resource=None,
    subject="u-alice-0001",
    access_token="access-secret",
    refresh_token="refresh-secret",
    expires_at=1000.0,
    lifetime=300.0,
)


@pytest.fixture
def sign_ins(tmp_path: Path) -> SignIns:
    return SignIns(tmp_path / "home" / ".local" / "state" / "saltgate")


@pytest.fixture
def kept(sign_ins: SignIns) -> Path:
    sign_ins.keep(KEPT, as_last=True)
    (path,) = sign_ins.folder.glob("*.json")
    return path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_kept_is_found_under_its_gate_alone(sign_ins: SignIns, kept: Path) -> None:
    assert sign_ins.find(GATE) == KEPT
    assert sign_ins.last_gate() == GATE
    for other in ("https://llm.example.com:8443", "https://LLM.example.com", "http://llm.example.com"):
        assert sign_ins.find(other) is None
    assert kept.name.startswith("llm.example.com-")


def test_where_nobody_signed_in_there_is_nothing_and_nothing_is_made(sign_ins: SignIns) -> None:
    assert sign_ins.find(GATE) is None
    assert sign_ins.last_gate() is None
    sign_ins.forget(GATE)
    assert not sign_ins.folder.parent.exists()


def test_nobody_else_can_look_whatever_the_umask(sign_ins: SignIns) -> None:
    before = os.umask(0)
    try:
        sign_ins.keep(KEPT, as_last=True)
        with sign_ins.refreshing(GATE) as ours:
            assert ours
    finally:
        os.umask(before)
    assert (mode(sign_ins.folder), mode(sign_ins.folder.parent)) == (0o700, 0o700)
    assert {mode(path) for path in sign_ins.folder.iterdir()} == {0o600}
    assert len(list(sign_ins.folder.iterdir())) == 3


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o660, 0o622, 0o601])
def test_a_file_that_others_can_read_or_write_is_not_used(sign_ins: SignIns, kept: Path, bits: int) -> None:
    kept.chmod(bits)
    with pytest.raises(SignInFailed, match=f"chmod go-rwx {kept}"):
        sign_ins.find(GATE)


@pytest.mark.parametrize("bits", [0o750, 0o705, 0o701, 0o720])
def test_a_folder_that_others_can_enter_is_not_used(sign_ins: SignIns, kept: Path, bits: int) -> None:
    sign_ins.folder.chmod(bits)
    for use in (
        lambda: sign_ins.find(GATE),
        lambda: sign_ins.keep(KEPT, as_last=True),
        lambda: sign_ins.forget(GATE),
        sign_ins.last_gate,
    ):
        with pytest.raises(SignInFailed, match=f"chmod go-rwx {sign_ins.folder}"):
            use()


def test_a_link_in_the_files_place_is_not_followed(sign_ins: SignIns, kept: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(kept.read_bytes())
    elsewhere.chmod(0o600)
    kept.unlink()
    kept.symlink_to(elsewhere)
    with pytest.raises(SignInFailed):
        sign_ins.find(GATE)
    sign_ins.keep(replace(KEPT, access_token="new"), as_last=False)
    assert not kept.is_symlink()
    assert b"access-secret" in elsewhere.read_bytes()
    assert b"new" not in elsewhere.read_bytes()


def test_a_link_in_the_locks_place_is_not_followed(sign_ins: SignIns, kept: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    kept.with_suffix(".lock").symlink_to(victim)
    with pytest.raises(SignInFailed), sign_ins.refreshing(GATE):
        pass
    assert not victim.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("what", ["file", "folder", "link"])
def test_what_belongs_to_another_user_is_not_used(sign_ins: SignIns, kept: Path, tmp_path: Path, what: str) -> None:
    if what == "file":
        os.chown(kept, 12345, 12345)
    elif what == "folder":
        os.chown(sign_ins.folder, 12345, 12345)
    else:
        elsewhere = sign_ins.folder.rename(tmp_path / "elsewhere")
        sign_ins.folder.symlink_to(elsewhere)
        assert sign_ins.find(GATE) == KEPT  # his own link is his own choice
        os.chown(sign_ins.folder, 12345, 12345, follow_symlinks=False)
    with pytest.raises(SignInFailed, match="belongs to another user"):
        sign_ins.find(GATE)


def test_his_own_link_to_a_folder_that_others_can_enter_is_not_used(
    sign_ins: SignIns, kept: Path, tmp_path: Path
) -> None:
    elsewhere = sign_ins.folder.rename(tmp_path / "elsewhere")
    sign_ins.folder.symlink_to(elsewhere)
    elsewhere.chmod(0o755)
    with pytest.raises(SignInFailed, match="open to others"):
        sign_ins.find(GATE)


def test_a_pipe_is_not_waited_for_and_a_huge_file_not_read(sign_ins: SignIns, kept: Path) -> None:
    kept.unlink()
    os.mkfifo(kept, 0o600)
    with pytest.raises(SignInFailed, match="no file of saltgate's"):
        sign_ins.find(GATE)
    kept.unlink()
    kept.write_bytes(b" " * (MAXIMUM_BYTES + 1))
    kept.chmod(0o600)
    with pytest.raises(SignInFailed, match="no file of saltgate's"):
        sign_ins.find(GATE)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b'{"format": 2}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_a_damaged_file_is_told_with_the_remedy(sign_ins: SignIns, kept: Path, content: bytes) -> None:
    kept.write_bytes(content)
    with pytest.raises(SignInFailed, match=f"saltgate login --gate {GATE}"):
        sign_ins.find(GATE)
    sign_ins.keep(KEPT, as_last=True)
    assert sign_ins.find(GATE) == KEPT


@pytest.mark.parametrize(
    "change",
    [
        (b'"lifetime": 300.0', b'"lifetime": "300"'),
        (b'"expires_at": 1000.0', b'"expires_at": true'),
        (b'"access_token": "access-secret"', b'"access_token": null'),
        (b'"refresh_token": "refresh-secret"', b'"refresh_token": 1'),
        (b'"lifetime": 300.0', b'"lifetime": 300.0, "more": 1'),
        (b'"gate": "https://llm.example.com"', b'"gate": "https://evil.example"'),
    ],
)
def test_a_file_of_another_form_or_gate_is_not_used(sign_ins: SignIns, kept: Path, change: tuple[bytes, bytes]) -> None:
    before = kept.read_bytes()
    assert change[0] in before
    kept.write_bytes(before.replace(*change))
    with pytest.raises(SignInFailed, match="damaged"):
        sign_ins.find(GATE)


def test_a_disk_that_is_full_leaves_the_old_file_whole(sign_ins: SignIns, kept: Path) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(SignInFailed, match="too large"):
            sign_ins.keep(replace(KEPT, access_token="new"), as_last=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert sign_ins.find(GATE) == KEPT
    assert not list(sign_ins.folder.glob(".*"))


def test_one_at_a_time_refreshes(sign_ins: SignIns) -> None:
    with sign_ins.refreshing(GATE) as ours:
        assert ours
        with sign_ins.refreshing(GATE) as second:
            assert not second
        with sign_ins.refreshing("https://other.example") as another:
            assert another
    with sign_ins.refreshing(GATE) as again:
        assert again


def test_what_is_forgotten_is_gone_from_the_disk(sign_ins: SignIns, kept: Path) -> None:
    sign_ins.forget(GATE)
    assert sign_ins.find(GATE) is None
    assert not any(b"secret" in path.read_bytes() for path in sign_ins.folder.iterdir())


def test_no_token_is_in_a_representation() -> None:
    assert "secret" not in repr(KEPT)


@pytest.mark.parametrize(
    ("now", "min_validity", "fresh"),
    [(900, 60, True), (941, 60, False), (1000, 0, False), (849, 10_000, True), (851, 10_000, False)],
)
def test_a_token_is_fresh_as_long_as_is_asked_or_half_its_life(now: float, min_validity: float, fresh: bool) -> None:
    assert KEPT.is_fresh(now, min_validity) is fresh
