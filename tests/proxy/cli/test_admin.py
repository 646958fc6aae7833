"""`saltgate admin ticket`: a link for whoever may read the configuration."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import tomli_w

from proxy.cli import main
from proxy.ticket import opened, ticket_key
from tests.config.configuration import SALT_SECRET, changed
from tests.observability.audit.writing import unwritable, written

ORIGIN = "http://127.0.0.1:9080"


def told(
    folder: Path, capsys: pytest.CaptureFixture[str], key: str = "workers", value: object = 1, *, more: bool = True
) -> tuple[object, str, str]:
    (folder / "salt").write_bytes(SALT_SECRET + b"\n")
    (folder / "token").write_text("scraper")
    table = changed(key, value)
    if key != "workers" and more:
        table["admin"] = {"metrics_token": {"file": "token"}} | dict(table["admin"])  # type: ignore[call-overload]
    (folder / "saltgate.toml").write_text(tomli_w.dumps(table))
    with pytest.raises(SystemExit) as ended:
        main(["admin", "ticket", "-c", str(folder / "saltgate.toml")])
    output = capsys.readouterr()
    return ended.value.code, output.out, output.err


def test_it_prints_one_link_that_is_good_at_this_gate_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = told(tmp_path, capsys)
    assert (code, err) == (0, "")
    address, _, ticket = out.strip().partition("#")
    assert address == f"{ORIGIN}/sign-in"
    keys, now = [ticket_key(b"another"), ticket_key(SALT_SECRET)], time.time()
    found = opened(ticket, keys, audience=ORIGIN, now=now)
    assert found is not None
    assert (found.holder.name, found.holder.identity) == ("operator", b"")
    assert opened(ticket, keys, audience="http://127.0.0.1:9081", now=now) is None
    assert SALT_SECRET.decode() not in out
    assert told(tmp_path, capsys)[1] != out


def test_off_loopback_it_needs_the_address_of_the_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = told(tmp_path, capsys, "admin.listen", "0.0.0.0:9080")
    assert (code, out) == (2, "")
    assert err.startswith("saltgate: admin.url: is required off loopback")


def test_a_faulty_configuration_gives_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = told(tmp_path, capsys, "admin.url", "http://admin.example.com")
    assert (code, out) == (2, "")
    assert "admin.url" in err


def test_the_audit_tells_of_a_link_before_it_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "audit").symlink_to(tmp_path / "real")
    (tmp_path / "audit-key").write_bytes(b"fedcba9876543210fedcba9876543210")
    audit = {"directory": "audit", "keys": [{"id": "a1", "secret": {"file": "audit-key"}}]}
    code, out, _ = told(tmp_path, capsys, "audit", audit, more=False)
    assert code == 0
    lines = [line for line in written(tmp_path / "audit") if line["event"] == "admin.ticket_made"]
    assert [line["state"] for line in lines] == ["begun", "done"]
    assert not any(out.partition("#")[2].strip() in str(line) for line in lines)
    with unwritable(tmp_path / "audit"):
        code, out, err = told(tmp_path, capsys, "audit", audit, more=False)
    assert (code, out) == (1, "")
    assert "audit" in err
