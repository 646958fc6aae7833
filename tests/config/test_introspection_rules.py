"""What an operator may write into `[issuers.introspection]`."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.faults import ConfigurationFaults
from tests.config.configuration import changed, loaded

GOOD: dict[str, object] = {"client_id": "saltgate", "client_secret": {"file": "salt"}}
BY_KEY: dict[str, object] = {"client_id": "saltgate", "client_auth": "private_key_jwt", "client_key": {"file": "salt"}}


def faults(folder: Path, section: object, **issuer: object) -> list[str]:
    table = changed("issuers.0.introspection", section)
    table["issuers"][0] |= issuer  # type: ignore[index]
    with pytest.raises(ConfigurationFaults) as caught:
        loaded(folder, table)
    return [str(fault) for fault in caught.value.faults]


@pytest.mark.parametrize(
    "section",
    [
        GOOD,
        GOOD | {"client_auth": "client_secret_post"},
        GOOD | {"endpoint": "https://sso.example.com/introspect?realm=a"},
        GOOD | {"endpoint": "http://127.0.0.1:9000/introspect"},
        GOOD | {"cache": "30s"},
        GOOD | {"cache": "500ms"},
        GOOD | {"service_accounts": ["svc-batch"]},
        BY_KEY,
        BY_KEY | {"client_key_algorithm": "Ed25519", "client_key_id": "k"},
    ],
    ids=str,
)
def test_a_good_section_loads(tmp_path: Path, section: dict[str, object]) -> None:
    introspection = loaded(tmp_path, changed("issuers.0.introspection", section)).settings.issuers[0].introspection
    assert introspection is not None
    assert introspection.client_id == "saltgate"
    assert introspection.cache <= 30.0
    assert "0123456789abcdef" not in repr(introspection)


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({"client_secret": {"file": "salt"}}, "client_id"),
        ({"client_id": "saltgate"}, "client_secret"),
        ({"client_id": "saltgate", "client_auth": "client_secret_post"}, "client_secret"),
        ({"client_id": "saltgate", "client_auth": "private_key_jwt"}, "client_key"),
        (GOOD | {"client_key": {"file": "salt"}}, "client_key"),
        (BY_KEY | {"client_secret": {"file": "salt"}}, "client_secret"),
        (BY_KEY | {"client_key_algorithm": "HS256"}, "client_key_algorithm"),
        (BY_KEY | {"client_key_algorithm": "none"}, "client_key_algorithm"),
        (BY_KEY | {"client_key_algorithm": "EdDSA"}, "client_key_algorithm"),
        (GOOD | {"client_auth": "none"}, "client_auth"),
        (GOOD | {"client_secret": "in the file"}, "client_secret"),
        (GOOD | {"endpoint": "http://sso.example.com/introspect"}, "endpoint"),
        (GOOD | {"endpoint": "https://u:p@sso.example.com/introspect"}, "endpoint"),
        (GOOD | {"endpoint": "https://sso.example.com/introspect#x"}, "endpoint"),
        (GOOD | {"endpoint": "introspect"}, "endpoint"),
        (GOOD | {"cache": "31s"}, "cache"),
        (GOOD | {"cache": "0s"}, "cache"),
        (GOOD | {"service_accounts": []}, "service_accounts"),
        (GOOD | {"negative_cache": "1h"}, "negative_cache"),
    ],
    ids=str,
)
def test_a_faulty_one_is_told_at_its_key(tmp_path: Path, section: dict[str, object], key: str) -> None:
    assert [fault.partition(":")[0] for fault in faults(tmp_path, section)] == [f"issuers.0.introspection.{key}"]


def test_a_secret_that_no_header_could_carry_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "odd").write_bytes(b"two words")
    (fault,) = faults(tmp_path, GOOD | {"client_secret": {"file": "odd"}})
    assert fault.startswith("issuers.0.introspection.client_secret")
    assert "two words" not in fault


def test_a_service_account_must_be_an_accepted_client(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, GOOD | {"service_accounts": ["chat-ui", "svc-batch"]}, clients=["chat-ui"])
    assert fault.startswith("issuers.0.introspection.service_accounts.1")
