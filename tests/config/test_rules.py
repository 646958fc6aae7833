"""What must hold between values: each row is a rule, and the key that it complains about (contract section 3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.config.configuration import changed, faults, good_table

PUBLIC = {"listen": "0.0.0.0:8080", "url": "https://llm.example.com"}
ENGINE = {"name": "main", "urls": ["http://127.0.0.1:8000"]}
AUDIT_KEY = {"id": "a1", "secret": {"env": "LONG"}}
AUDIT = {"directory": "audit", "keys": [AUDIT_KEY]}
MEDIA = ENGINE | {"media": True}
ISSUER = {"issuer": "https://sso.example.com", "audiences": ["saltgate"]}
KEY = {"id": "k1", "secret": {"file": "salt"}}


@pytest.mark.parametrize(
    ("section", "value", "key", "remedy"),
    [
        # nothing is open by default
        ("engines", None, "engines", "[[engines]]"),
        ("engines", [], "engines", "[[engines]]"),
        ("issuers", None, "issuers", "[[issuers]]"),
        ("issuers", [], "issuers", "no mode without sign-in"),
        ("issuers", [{"issuer": "https://a"}], "issuers.0.audiences", "`aud`"),
        ("issuers", [ISSUER | {"audiences": []}], "issuers.0.audiences", "`aud`"),
        ("issuers", [ISSUER | {"audiences": [""]}], "issuers.0.audiences.0", "not empty"),
        ("directory", None, "directory", "[directory]"),
        ("isolation", None, "isolation", "[[isolation.keys]]"),
        ("isolation", {}, "isolation.keys", "saltgate keys new"),
        ("isolation", {"keys": []}, "isolation.keys", "saltgate keys new"),
        ("isolation", {"keys": [{"id": "k1"}]}, "isolation.keys.0.secret", "{ file"),
        # keys
        ("isolation", {"keys": [{"id": "k1", "secret": {"env": "SHORT"}}]}, "isolation.keys.0.secret", "31 bytes"),
        ("isolation", {"keys": [KEY, KEY]}, "isolation.keys.1.id", "isolation.keys.0.id"),
        ("isolation", {"keys": [KEY | {"id": ""}]}, "isolation.keys.0.id", "1 to 32"),
        ("isolation", {"keys": [KEY | {"id": "a.b"}]}, "isolation.keys.0.id", "1 to 32"),
        ("isolation", {"keys": [KEY | {"id": "a\n"}]}, "isolation.keys.0.id", "1 to 32"),
        ("isolation", {"keys": [KEY | {"id": "é"}]}, "isolation.keys.0.id", "1 to 32"),
        ("isolation", {"keys": [KEY | {"id": "a" * 33}]}, "isolation.keys.0.id", "1 to 32"),
        # issuers
        ("issuers", [ISSUER | {"algorithms": []}], "issuers.0.algorithms", "is empty"),
        ("issuers", [ISSUER | {"algorithms": ["HS256"]}], "issuers.0.algorithms.0", "symmetric"),
        ("issuers", [ISSUER | {"algorithms": ["RS256", "hs512"]}], "issuers.0.algorithms.1", "symmetric"),
        ("issuers", [ISSUER | {"algorithms": ["none"]}], "issuers.0.algorithms.0", "not accepted"),
        ("issuers", [ISSUER | {"algorithms": ["None"]}], "issuers.0.algorithms.0", "not accepted"),
        ("issuers", [ISSUER | {"algorithms": ["rs256"]}], "issuers.0.algorithms.0", "not accepted"),
        ("issuers", [ISSUER | {"clients": ["saltgate"]}], "issuers.0.audiences.0", "`clients`"),
        ("issuers", [ISSUER | {"clients": []}], "issuers.0.clients", "any may come"),
        ("issuers", [ISSUER | {"kind": "dex"}], "issuers.0.clients", "required for dex"),
        ("issuers", [ISSUER | {"kind": "authentik"}], "issuers.0.clients", "required for authentik"),
        ("issuers", [ISSUER | {"token_types": []}], "issuers.0.token_types", "is empty"),
        # limits
        ("engines", [ENGINE | {"capacity": {"requests": 0}}], "engines.0.capacity.requests", "1 or more"),
        ("engines", [ENGINE | {"capacity": {"waiting": -1}}], "engines.0.capacity.waiting", "0 or more"),
        ("engines", [ENGINE | {"capacity": {"wait": "601s"}}], "engines.0.capacity.wait", "10m"),
        ("engines", [ENGINE | {"capacity": {"wait": "0s"}}], "engines.0.capacity.wait", "above zero"),
        ("engines", [ENGINE | {"capacity": {"queue": 1}}], "engines.0.capacity.queue", "unknown"),
        ("workers", 1025, "workers", "1024 at most"),
        ("capacity", {"requests": 0}, "capacity.requests", "1 or more"),
        # personal access tokens
        ("tokens", {"max_lifetime": "8761h"}, "tokens.max_lifetime", "8760h"),
        ("tokens", {"max_lifetime": "59s", "default_lifetime": "1s"}, "tokens.max_lifetime", "1m"),
        ("tokens", {"default_lifetime": "2161h", "max_lifetime": "2160h"}, "tokens.default_lifetime", "max_lifetime"),
        ("tokens", {"per_owner": 1001}, "tokens.per_owner", "1000"),
        ("tokens", {"per_owner": 0}, "tokens.per_owner", "1 or more"),
        ("tokens", {"groups_max_age": "0s"}, "tokens.groups_max_age", "above zero"),
        (
            "admin",
            {"administrators": [{"issuer": "https://other.example.com", "members": ["user:a"]}]},
            "admin.administrators.0.issuer",
            "[[issuers]]",
        ),
        (
            "admin",
            {"administrators": [{"issuer": ISSUER["issuer"], "members": ["user:a", "alice"]}]},
            "admin.administrators.0.members.1",
            "user:SUBJECT",
        ),
        (
            "admin",
            {"administrators": [{"issuer": ISSUER["issuer"], "members": []}]},
            "admin.administrators.0.members",
            "at least one",
        ),
        # sign-in
        ("issuers", [ISSUER | {"login": {}}], "issuers.0.login", "`native_client_id`"),
        ("issuers", [ISSUER | {"login": {"client_id": "saltgate"}}], "issuers.0.login.client_id", "ID tokens"),
        (
            "issuers",
            [ISSUER | {"clients": ["ui"], "login": {"native_client_id": "cli"}}],
            "issuers.0.login.native_client_id",
            "add it there",
        ),
        (
            "issuers",
            [ISSUER | {"login": {"native_client_id": "cli", "native_scopes": ["offline_access"]}}],
            "issuers.0.login.native_scopes",
            "openid",
        ),
        (
            "issuers",
            [ISSUER | {"login": {"client_id": "web", "client_secret": {"env": "TWO_LINES"}}}],
            "issuers.0.login.client_secret",
            "line breaks",
        ),
        (
            "issuers",
            [ISSUER | {"login": {"native_client_id": "cli", "callback": "acme"}}],
            "issuers.0.login.callback",
            "belongs to `client_id`",
        ),
        *(
            (
                "issuers",
                [ISSUER | {"login": {"client_id": "web", "callback": callback}}],
                "issuers.0.login.callback",
                "small letters",
            )
            for callback in ("Acme", "a/b", "..", "a b", "a%2f", "x" * 64, "a\n")
        ),
        (
            "issuers",
            [
                ISSUER | {"login": {"client_id": "web", "callback": "acme"}},
                {"issuer": "https://b.example", "audiences": ["x"], "login": {"client_id": "web", "callback": "acme"}},
            ],
            "issuers.1.login.callback",
            "another issuer's",
        ),
        ("sessions", {"absolute": "721h"}, "sessions.absolute", "720h"),
        ("sessions", {"idle": "2h", "absolute": "1h"}, "sessions.idle", "longer than"),
        ("sessions", {"idle": "0s"}, "sessions.idle", "above zero"),
        ("issuers", [ISSUER | {"subject": []}], "issuers.0.subject", "is empty"),
        ("issuers", [ISSUER | {"groups": [[]]}], "issuers.0.groups.0", "is empty"),
        ("issuers", [ISSUER | {"leeway": "6m"}], "issuers.0.leeway", "clocks"),
        ("issuers", [ISSUER | {"max_lifetime": "0s"}], "issuers.0.max_lifetime", "above zero"),
        ("issuers", [ISSUER | {"issuer": "http://sso.example.com"}], "issuers.0.issuer", "https://"),
        ("issuers", [ISSUER | {"issuer": "http://127.0.0.1.example.com"}], "issuers.0.issuer", "https://"),
        ("issuers", [ISSUER | {"issuer": "http://127.0.0.1@example.com"}], "issuers.0.issuer", "user and password"),
        ("issuers", [ISSUER | {"issuer": "http://localhost.example.com"}], "issuers.0.issuer", "https://"),
        ("issuers", [ISSUER | {"issuer": "http://0.0.0.0"}], "issuers.0.issuer", "https://"),
        ("issuers", [ISSUER | {"issuer": "https://a?b"}], "issuers.0.issuer", "query"),
        ("issuers", [ISSUER | {"issuer": "https://a?"}], "issuers.0.issuer", "query"),
        ("issuers", [ISSUER | {"issuer": "https://a#b"}], "issuers.0.issuer", "query"),
        ("issuers", [ISSUER | {"issuer": "https://a\tb"}], "issuers.0.issuer", "http"),
        ("issuers", [ISSUER | {"issuer": "https://a:99999"}], "issuers.0.issuer", "http"),
        ("issuers", [ISSUER | {"issuer": "https://[::1"}], "issuers.0.issuer", "http"),
        ("issuers", [ISSUER | {"issuer": "file:///etc/passwd"}], "issuers.0.issuer", "http"),
        ("issuers", [ISSUER | {"jwks_uri": "http://sso.example.com/jwks"}], "issuers.0.jwks_uri", "https://"),
        ("issuers", [ISSUER | {"jwks_uri": "file:///etc/passwd"}], "issuers.0.jwks_uri", "http"),
        ("issuers", [ISSUER | {"jwks_uri": "https://a/jwks#b"}], "issuers.0.jwks_uri", "fragment"),
        ("issuers", [ISSUER | {"kind": "local"}], "issuers.0.issuer", "this machine only"),
        ("issuers", [ISSUER, ISSUER], "issuers.1.issuer", "issuers.0.issuer"),
        # engines
        ("engines", [ENGINE | {"urls": []}], "engines.0.urls", "is empty"),
        ("engines", [ENGINE | {"urls": ["ftp://a"]}], "engines.0.urls.0", "unix:/path"),
        ("engines", [ENGINE | {"urls": ["http://a/v1"]}], "engines.0.urls.0", "adds the path"),
        ("engines", [ENGINE | {"urls": ["http://a?x"]}], "engines.0.urls.0", "adds the path"),
        ("engines", [ENGINE | {"urls": ["http://u:p@a"]}], "engines.0.urls.0", "user and password"),
        ("engines", [ENGINE | {"urls": ["http://"]}], "engines.0.urls.0", "with a host"),
        ("engines", [ENGINE | {"urls": ["unix:run/a"]}], "engines.0.urls.0", "absolute"),
        ("engines", [ENGINE, ENGINE], "engines.1.name", "engines.0.name"),
        (
            "engines",
            [ENGINE | {"models": ["m"]}, ENGINE | {"name": "b", "models": ["n", "m"]}],
            "engines.1.models.1",
            "engines.0.models.0",
        ),
        ("engines", [ENGINE | {"proof": "off", "urls": ["http://10.0.0.1"]}], "engines.0.proof", "loopback"),
        ("engines", [ENGINE | {"media": True, "kind": "sglang"}], "engines.0.media", "vllm"),
        ("engines", [ENGINE | {"media": True, "kind": "dynamo", "proof": "warn"}], "engines.0.media", "vllm"),
        ("engines", [ENGINE | {"media": True, "proof": "warn"}], "engines.0.media", "strict"),
        ("engines", [ENGINE | {"media": True, "proof": "off"}], "engines.0.media", "strict"),
        ("engines", [ENGINE | {"media": "yes"}], "engines.0.media", ""),
        ("engines", [ENGINE | {"media_hosts": ["a.example"]}], "engines.0.media_hosts", "`media = true`"),
        ("engines", [ENGINE | {"media_private_hosts": ["minio"]}], "engines.0.media_private_hosts", "`media = true`"),
        ("engines", [MEDIA | {"media_hosts": []}], "engines.0.media_hosts", "is empty"),
        ("engines", [MEDIA | {"media_hosts": "a.example"}], "engines.0.media_hosts", "write a list"),
        ("engines", [MEDIA | {"media_hosts": ["*.example"]}], "engines.0.media_hosts.0", "no wildcards"),
        ("engines", [MEDIA | {"media_hosts": ["a.example", "A.example"]}], "engines.0.media_hosts.1", "small letters"),
        ("engines", [MEDIA | {"media_hosts": ["https://a.example"]}], "engines.0.media_hosts.0", "nothing else"),
        ("engines", [MEDIA | {"media_hosts": ["a.example:443"]}], "engines.0.media_hosts.0", ":443"),
        ("engines", [MEDIA | {"media_hosts": ["localhost"]}], "engines.0.media_hosts.0", "media_private_hosts"),
        ("engines", [MEDIA | {"media_hosts": ["10.0.0.1"]}], "engines.0.media_hosts.0", "media_private_hosts"),
        (
            "engines",
            [MEDIA | {"media_private_hosts": ["169.254.169.254"]}],
            "engines.0.media_private_hosts.0",
            "link-local",
        ),
        ("engines", [MEDIA | {"media_hosts": ["a.b", "a.b"]}], "engines.0.media_hosts.1", "engines.0.media_hosts.0"),
        (
            "engines",
            [MEDIA | {"media_hosts": ["a.b"], "media_private_hosts": ["a.b"]}],
            "engines.0.media_private_hosts.0",
            "engines.0.media_hosts.0",
        ),
        (
            "engines",
            [MEDIA | {"media_hosts": ["a.b"], "media_private_ca": "salt"}],
            "engines.0.media_private_ca",
            "media_private_hosts",
        ),
        ("timeouts", {"media": "0s"}, "timeouts.media", "above zero"),
        # timeouts
        ("timeouts", {"keep_alive": "ping"}, "timeouts.keep_alive", "comment"),
        ("timeouts", {"keep_alive_interval": "999ms"}, "timeouts.keep_alive_interval", "1s"),
        ("engines", [ENGINE | {"timeouts": {"idle": "0s"}}], "engines.0.timeouts.idle", "above zero"),
        ("engines", [ENGINE | {"timeouts": {"request": "1s"}}], "engines.0.timeouts.request", "unknown key"),
        (
            "engines",
            [ENGINE | {"timeouts": {"keep_alive_interval": "0s"}}],
            "engines.0.timeouts.keep_alive_interval",
            "1s",
        ),
        ("engines", [ENGINE | {"model_timeouts": [{}]}], "engines.0.model_timeouts.0.models", "required"),
        (
            "engines",
            [ENGINE | {"model_timeouts": [{"models": ["a"]}, {"models": ["b", "a"]}]}],
            "engines.0.model_timeouts.1.models.1",
            "engines.0.model_timeouts.0.models.0",
        ),
        (
            "engines",
            [ENGINE | {"models": ["a"], "model_timeouts": [{"models": ["A"]}]}],
            "engines.0.model_timeouts.0.models.0",
            "none of this engine's",
        ),
        ("engines", [ENGINE | {"proof": "off", "urls": ["unix:/a", "http://b"]}], "engines.0.proof", "loopback"),
        ("engines", [ENGINE | {"api_key": {"env": "TWO_LINES"}}], "engines.0.api_key", "line breaks"),
        # listeners
        ("public", {"write_buffer": "4095B"}, "public.write_buffer", "4KiB"),
        ("public", {"write_buffer": "17MiB"}, "public.write_buffer", "16MiB"),
        ("public", {"listen": "8080"}, "public.listen", "address and a port"),
        ("public", {"listen": "::1:8080"}, "public.listen", "address and a port"),
        ("public", {"listen": "127.0.0.1:65536"}, "public.listen", "address and a port"),
        ("public", {"listen": "http://127.0.0.1:80"}, "public.listen", "address and a port"),
        ("public", {"listen": "unix:a.sock"}, "public.listen", "absolute"),
        ("public", {"listen": "0.0.0.0:8080"}, "public.url", "required"),
        ("public", {"listen": ":8080"}, "public.listen", "address and a port"),
        ("public", {"listen": "unix:/run/gate.sock"}, "public.url", "required"),
        ("public", PUBLIC | {"url": "http://llm.example.com"}, "public.url", "must be https://"),
        ("public", PUBLIC | {"url": "https://llm.example.com/llm"}, "public.url", "without a path"),
        ("public", PUBLIC | {"url": "https://llm.example.com?a"}, "public.url", "without a path"),
        ("public", PUBLIC | {"url": "llm.example.com"}, "public.url", "http"),
        ("admin", {"listen": "0.0.0.0:9080"}, "admin.metrics_token", "required off loopback"),
        ("admin", {"listen": "[::]:9080"}, "admin.metrics_token", "required off loopback"),
        ("admin", {"listen": "unix:/run/admin.sock"}, "admin.listen", "address and a port"),
        ("admin", {"listen": "127.0.0.1:8080"}, "admin.listen", "port of their own"),
        ("admin", {"metrics_token": {"env": "TWO_LINES"}}, "admin.metrics_token", "line breaks"),
        # directory
        ("directory", {}, "directory", "exactly one"),
        ("directory", {"redis": "redis://a", "file": "d.toml", "state": "s"}, "directory", "exactly one"),
        ("directory", {"file": "d.toml"}, "directory.state", "required with `file`"),
        ("directory", {"redis": "redis://a", "state": "s"}, "directory.state", "leave it out"),
        ("directory", {"redis": "http://a"}, "directory.redis", "redis://"),
        ("directory", {"redis": "redis://:pw@a"}, "directory.redis", "`password`"),
        ("directory", {"redis": "rediss://a?ssl_cert_reqs=none"}, "directory.redis", "always checked"),
        ("directory", {"redis": "rediss://a/0?ssl_check_hostname=false"}, "directory.redis", "always checked"),
        ("directory", {"redis": "redis://a:1/0?"}, "directory.redis", "always checked"),
        ("directory", {"redis": "unix:///a?ssl_cert_reqs=none"}, "directory.redis", "unix:///path"),
        ("directory", {"redis": "unix:///a?db=1&password=x"}, "directory.redis", "unix:///path"),
        # gates in front
        ("gates", [{"issuer": "https://sso.example.com"}], "gates.0.subject", "required"),
        ("gates", [{"issuer": "https://sso.example.com/", "subject": "a"}], "gates.0.issuer", "none of [[issuers]]"),
        ("gates", [{"issuer": "https://sso.example.com", "subject": ""}], "gates.0.subject", "not empty"),
        # telemetry
        ("telemetry", {"otlp_endpoint": "http://u:p@a:4318"}, "telemetry.otlp_endpoint", "user and password"),
        ("telemetry", {"otlp_endpoint": "a:4318"}, "telemetry.otlp_endpoint", "http"),
        # audit
        ("audit", {"directory": "a"}, "audit.keys", "saltgate keys new"),
        ("audit", AUDIT | {"keys": [AUDIT_KEY | {"secret": {"env": "SHORT"}}]}, "audit.keys.0.secret", "31 bytes"),
        ("audit", AUDIT | {"keys": [AUDIT_KEY, AUDIT_KEY]}, "audit.keys.1.id", "audit.keys.0.id"),
        ("audit", AUDIT | {"keys": [{"id": "a b", "secret": {"env": "LONG"}}]}, "audit.keys.0.id", "A-Z"),
        (
            "audit",
            AUDIT | {"keys": [AUDIT_KEY | {"secret": {"file": "salt"}}]},
            "audit.keys.0.secret",
            "isolation.keys",
        ),
        ("audit", AUDIT | {"sync_interval": "11s"}, "audit.sync_interval", "10s"),
        ("audit", AUDIT | {"segment_size": "1KiB"}, "audit.segment_size", "64KiB"),
        ("audit", AUDIT | {"retention": "1h"}, "audit.retention", "segment_age"),
        ("audit", AUDIT | {"otlp": True}, "audit.otlp", "otlp_endpoint"),
        ("audit", AUDIT | {"on_failure": "ignore"}, "audit.on_failure", "refuse"),
    ],
)
def test_a_broken_rule_is_one_fault_at_its_key_with_the_remedy(
    tmp_path: Path, section: str, value: object, key: str, remedy: str
) -> None:
    environment = {"LONG": "y" * 32, "SHORT": "x" * 31, "TWO_LINES": "a\nb"}
    found = faults(tmp_path, changed(section, value), environment)
    assert list(found) == [key]
    assert remedy in found[key]


@pytest.mark.parametrize(
    ("section", "value"),
    [
        ("public", PUBLIC),
        ("public", {"listen": "0.0.0.0:8080", "url": "http://localhost:8080"}),
        ("public", {"listen": "localhost:8080"}),
        ("public", {"listen": "[::1]:8080"}),
        ("public", {"listen": "127.9.9.9:0"}),
        ("public", {"listen": "unix:/run/gate.sock", "url": "https://llm.example.com/"}),
        ("admin", {"listen": "0.0.0.0:9080", "metrics_token": {"env": "TOKEN"}}),
        ("engines", [ENGINE | {"urls": ["http://a:1/", "https://vllm_main:8000", "unix:/run/a.sock"]}]),
        ("engines", [ENGINE | {"urls": ["http://[::1]:1", "unix:/a", "http://localhost"], "proof": "off"}]),
        ("engines", [ENGINE | {"models": ["m"]}, ENGINE | {"name": "b", "models": ["n"]}]),
        ("engines", [ENGINE | {"media": True}, ENGINE | {"name": "b", "kind": "sglang", "media": False}]),
        ("engines", [MEDIA | {"media_hosts": ["images.example.com", "cdn.example.com:8443"]}]),
        ("engines", [MEDIA | {"media_private_hosts": ["localhost:9000", "10.0.0.1", "[::1]:1"]}]),
        ("engines", [MEDIA | {"media_private_hosts": ["minio:9000"], "media_private_ca": "salt"}]),
        ("engines", [MEDIA | {"media_hosts": ["a.b"]}, MEDIA | {"name": "b", "media_hosts": ["a.b"]}]),
        ("issuers", [ISSUER | {"issuer": "http://127.0.0.1:9090/realms/a"}]),
        ("issuers", [ISSUER | {"issuer": "http://[::1]:9090", "kind": "local"}]),
        ("issuers", [ISSUER, ISSUER | {"issuer": "https://sso.example.com/"}]),
        ("issuers", [ISSUER | {"algorithms": ["PS256", "ES512", "EdDSA", "Ed25519"]}]),
        ("issuers", [ISSUER | {"jwks_uri": "https://login.example.com/keys?appid=1"}]),
        ("directory", {"redis": "unix:///run/redis.sock?db=1", "username": "gate", "password": {"env": "TOKEN"}}),
        ("directory", {"redis": "rediss://[::1]:6380/3"}),
        ("gates", [{"issuer": "https://sso.example.com", "subject": "service-account-gate"}]),
        ("isolation", {"keys": [KEY, KEY | {"id": "k2"}]}),
        ("isolation", {"keys": [KEY | {"id": "A" * 32}]}),
    ],
)
def test_what_no_rule_forbids_loads(tmp_path: Path, section: str, value: object) -> None:
    assert faults(tmp_path, changed(section, value), {"TOKEN": "t0ken"}) == {}


def test_the_local_issuer_is_refused_on_a_public_listener(tmp_path: Path) -> None:
    table = good_table() | {"public": PUBLIC, "issuers": [ISSUER | {"issuer": "http://127.0.0.1:1", "kind": "local"}]}
    assert list(faults(tmp_path, table)) == ["issuers.0.kind"]


def test_a_wildcard_and_an_address_on_one_port_are_one_listener(tmp_path: Path) -> None:
    table = good_table() | {"public": PUBLIC, "admin": {"listen": "127.0.0.1:8080"}}
    assert list(faults(tmp_path, table)) == ["admin.listen"]


def test_two_ports_that_the_system_chooses_are_apart(tmp_path: Path) -> None:
    table = good_table() | {"public": {"listen": "127.0.0.1:0"}, "admin": {"listen": "127.0.0.1:0"}}
    assert faults(tmp_path, table) == {}


def test_no_fault_repeats_a_password_of_a_url(tmp_path: Path) -> None:
    table = changed("engines.0.urls", ["http://u:hunter2@a"]) | {"directory": {"redis": "redis://:hunter2@a"}}
    found = faults(tmp_path, table)
    assert set(found) == {"engines.0.urls.0", "directory.redis"}
    assert "hunter2" not in str(found)


def test_one_trailing_slash_of_a_base_address_is_taken_off(tmp_path: Path) -> None:
    assert "adds the path" in faults(tmp_path, changed("engines.0.urls", ["http://a//"]))["engines.0.urls.0"]


def test_a_limit_in_all_that_leaves_a_worker_nothing_is_a_fault(tmp_path: Path) -> None:
    table = good_table() | {"workers": 4, "capacity": {"requests": 3}}
    assert "less than `workers` (4)" in faults(tmp_path, table)["capacity.requests"]
    table = good_table() | {"workers": 4, "engines": [ENGINE | {"capacity": {"requests": 3}}]}
    assert "less than `workers` (4)" in faults(tmp_path, table)["engines.0.capacity.requests"]
    assert not faults(tmp_path, table | {"workers": 0})
