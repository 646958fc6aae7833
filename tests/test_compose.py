"""compose/ says what it promises: who reaches whom, who is let in, and that nothing secret is in it. Without Docker."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from config.load import load
from config.settings import Issuer, Login, Settings
from proxy.directory.model import directory_from_toml
from proxy.routes import Page

pytestmark = pytest.mark.slow

COMPOSE: Final = Path(__file__).parents[1] / "compose"
BASE: Final = COMPOSE / "compose.yaml"
OVERLAYS: Final = sorted(COMPOSE.glob("compose.*.yaml"))
FILES: Final = [BASE, *OVERLAYS]
OBSERVABILITY: Final = COMPOSE / "compose.observability.yaml"
SETTINGS: Final = sorted((COMPOSE / "gateway").glob("*.toml"))

Json = dict[str, Any]

each_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)


class _ComposeLoader(yaml.SafeLoader):
    """YAML with the tags by which an overlay takes away (`!reset`) or replaces (`!override`) what the base says."""


def _nothing(loader: _ComposeLoader, node: yaml.Node) -> None:
    return None


def _plain(loader: _ComposeLoader, node: yaml.Node) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    assert isinstance(node, yaml.MappingNode)
    return loader.construct_mapping(node, deep=True)


_ComposeLoader.add_constructor("!reset", _nothing)
_ComposeLoader.add_constructor("!override", _plain)


def composition(file: Path) -> Json:
    read: Json = yaml.load(file.read_text(), _ComposeLoader)  # a SafeLoader
    return read


def services(file: Path) -> Iterator[tuple[str, Json]]:
    return ((name, service) for name, service in composition(file)["services"].items() if service is not None)


def base_service(name: str) -> Json:
    found: Json = composition(BASE)["services"][name]
    return found


def command_of(service: Json) -> set[str]:
    return set(service.get("command", []))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of secrets, made as the service `authority` makes it."""
    folder = tmp_path_factory.mktemp("secrets")
    _make(folder)
    return folder


def _make(folder: Path) -> None:
    subprocess.run(["sh", str(COMPOSE / "authority" / "make.sh"), str(folder)], check=True, capture_output=True)


def loaded(file: Path, secrets: Path, folder: Path) -> Settings:
    """The settings of a file of compose/gateway, its secrets taken from `secrets` instead of /run/secrets."""
    copy = folder / file.name
    copy.write_text(file.read_text().replace("/run/secrets", str(secrets)))
    return load(copy, {}).settings


class TestWhoReachesWhom:
    @pytest.mark.parametrize(("network", "guarded"), [("engine", "vllm"), ("directory", "redis")])
    def test_a_guarded_network_has_no_way_out_and_only_saltgate_in_it(self, network: str, guarded: str) -> None:
        assert composition(BASE)["networks"][network] == {"internal": True}
        members = {
            name for file in FILES for name, service in services(file) if network in (service.get("networks") or ())
        }
        assert members - {guarded} == ({"gateway"} if network == "engine" else {"gateway", "directory"})
        assert base_service(guarded)["networks"] == [network]

    @each_file
    def test_no_overlay_opens_a_guarded_network(self, file: Path) -> None:
        networks = composition(file).get("networks", {})
        assert all(networks[name] == {"internal": True} for name in ("engine", "directory") if name in networks)
        for name, service in services(file):
            if name in {"vllm", "redis"}:
                assert set(service.get("networks") or ()) <= {"engine", "directory"}
                assert "network_mode" not in service

    @each_file
    def test_what_is_published_is_on_this_machine_alone(self, file: Path) -> None:
        published = {name: service["ports"] for name, service in services(file) if "ports" in service}
        assert set(published) <= {"gateway", "keycloak", "grafana"}
        assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)

    def test_the_admin_listener_is_not_published(self) -> None:
        assert base_service("gateway")["ports"] == ["127.0.0.1:8080:8080"]

    def test_the_engine_and_redis_let_in_only_who_shows_a_certificate(self) -> None:
        assert {"--ssl-cert-reqs=2", "--ssl-ca-certs=/run/secrets/authority"} <= command_of(base_service("vllm"))
        redis = (COMPOSE / "redis" / "redis.conf").read_text().splitlines()
        assert {"port 0", "tls-auth-clients yes", "tls-ca-cert-file /run/secrets/authority"} <= set(redis)


class TestContainers:
    @each_file
    def test_every_service_gives_up_all_capabilities(self, file: Path) -> None:
        base = composition(BASE)["services"]
        for name, service in services(file):
            whole = base.get(name, {}) | service
            assert whole["cap_drop"] == ["ALL"], name
            assert whole["security_opt"] == ["no-new-privileges:true"], name

    @pytest.mark.parametrize("name", ["gateway", "directory", "redis", "authority"])
    def test_what_holds_secrets_is_nobody_special_and_cannot_write_into_its_image(self, name: str) -> None:
        service = base_service(name)
        assert service["read_only"] is True
        assert not service["user"].startswith(("0", "root"))

    @pytest.mark.parametrize("image", ["gateway", "engine"])
    def test_an_image_of_ours_does_not_run_as_root(self, image: str) -> None:
        users = re.findall(r"^USER (\S+)$", (COMPOSE / image / "Dockerfile").read_text(), re.MULTILINE)
        assert users[-1:] == ["65532:65532"]

    def test_the_gateways_image_installs_only_what_has_a_known_hash(self) -> None:
        text = (COMPOSE / "gateway" / "Dockerfile").read_text().replace("\\\n", " ")
        installs = re.findall(r"pip(?: --python \S+)? install +([^&]*)", text)
        assert len(installs) == 3
        assert all("--require-hashes" in install or "--no-index" in install for install in installs)
        assert "PYTHONSAFEPATH=1" in text
        assert 'ENTRYPOINT ["saltgate"]' in text

    @pytest.mark.parametrize("image", ["gateway", "engine"])
    def test_nothing_goes_into_a_build_but_what_it_copies(self, image: str) -> None:
        dockerfile = COMPOSE / image / "Dockerfile"
        ignored = dockerfile.with_name("Dockerfile.dockerignore").read_text().splitlines()
        assert "*" in ignored
        let_in = {line.removeprefix("!") for line in ignored if line.startswith("!")}
        copies = re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile.read_text(), re.MULTILINE)
        assert let_in == {source for copy in copies for source in copy.split()}
        assert all((COMPOSE.parent / source).exists() for source in let_in)

    @each_file
    def test_an_image_is_named_with_its_version(self, file: Path) -> None:
        images = [service["image"] for _, service in services(file) if "image" in service]
        tags = [image.rpartition(":")[2] for image in images]
        assert all(":" in image for image in images)
        assert all(re.fullmatch(r"local|v?\d+\.\d+(\.\d+)?(-alpine)?", tag) for tag in tags), tags

    @each_file
    def test_every_file_that_is_mounted_is_there(self, file: Path) -> None:
        configs = composition(file).get("configs", {}).values()
        assert all((COMPOSE / config["file"]).is_file() for config in configs)
        mounts = [mount for _, service in services(file) for mount in service.get("volumes", ())]
        assert all((COMPOSE / mount.split(":")[0]).is_dir() for mount in mounts if mount.startswith("."))

    def test_a_gateway_that_is_stopped_has_time_to_drain(self, made: Path, tmp_path: Path) -> None:
        grace = int(base_service("gateway")["stop_grace_period"].removesuffix("s"))
        assert grace > loaded(COMPOSE / "gateway" / "saltgate.toml", made, tmp_path).drain.limit


class TestEngine:
    @pytest.mark.parametrize("file", [BASE, COMPOSE / "compose.gpu.yaml"], ids=lambda file: file.name)
    def test_the_engine_caches_by_a_hash_that_holds_and_tells_what_it_reused(self, file: Path) -> None:
        command = command_of(dict(services(file))["vllm"])
        assert {
            "--enable-prefix-caching",
            "--prefix-caching-hash-algo=sha256",
            "--enable-prompt-tokens-details",
            "--ssl-cert-reqs=2",
            "--ssl-ca-certs=/run/secrets/authority",
        } <= command
        assert any(flag.startswith("--max-num-queued-reqs=") for flag in command)

    @pytest.mark.parametrize("file", [BASE, COMPOSE / "compose.gpu.yaml"], ids=lambda file: file.name)
    def test_the_engine_has_saltgates_barrier_inside(self, file: Path) -> None:
        assert "--middleware=saltgate_barrier.Barrier" in command_of(dict(services(file))["vllm"])
        (mount,) = base_service("vllm")["configs"]
        place = Path(mount["target"])
        assert base_service("vllm")["environment"]["PYTHONPATH"] == str(place.parent)
        assert place.name == "saltgate_barrier.py"
        assert composition(BASE)["configs"][mount["source"]] == {"file": f"./engine/{place.name}"}
        overlay = dict(services(file))["vllm"]
        assert file == BASE or not {"configs", "environment"} & set(overlay)

    @pytest.mark.parametrize("file", [BASE, COMPOSE / "compose.gpu.yaml"], ids=lambda file: file.name)
    def test_the_engine_has_no_door_beside_the_gated_ones(self, file: Path) -> None:
        service = dict(services(file))["vllm"]
        doors = ("--grpc", "--enable-scale-out", "--tokens-only", "--kv-transfer-config", "--enable-lora", "--trust-")
        assert not any(flag.startswith(doors) for flag in command_of(service))
        switches = {
            "VLLM_SERVER_DEV_MODE",
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING",
            "VLLM_ENABLE_RESPONSES_API_STORE",
            "VLLM_MEDIA_CACHE",
            "VLLM_USE_RUST_FRONTEND",
        }
        assert not switches & set(service.get("environment", {}))

    def test_the_schema_that_the_proof_reads_stays_on(self) -> None:
        assert "--disable-fastapi-docs" not in command_of(base_service("vllm"))


class TestSettings:
    @pytest.mark.parametrize("file", SETTINGS, ids=lambda file: file.name)
    def test_the_configuration_has_no_fault(self, file: Path, made: Path, tmp_path: Path) -> None:
        settings = loaded(file, made, tmp_path)
        assert settings.public.tls is not None
        assert settings.admin.metrics_token is not None
        assert all(engine.proof == "strict" and engine.client_cert for engine in settings.engines)

    def test_the_variation_without_redis_differs_in_the_directory_alone(self, made: Path, tmp_path: Path) -> None:
        base, other = [
            loaded(COMPOSE / "gateway" / f"saltgate{kind}.toml", made, tmp_path) for kind in ("", ".file-directory")
        ]
        assert other.directory.file is not None
        (issuer,) = base.issuers
        assert issuer.login is not None
        # Who signs in with a browser is to be known to all workers at once: that needs Redis.
        at_command_lines = replace(issuer.login, client_id=None, client_secret=None)
        assert other.issuers == (replace(issuer, login=at_command_lines),)
        assert replace(other, directory=base.directory, issuers=base.issuers) == base

    def test_overlays_override_only_keys_that_exist(self, made: Path, tmp_path: Path) -> None:
        variables = {
            name: value
            for file in FILES
            for name, value in dict(services(file)).get("gateway", {}).get("environment", {}).items()
        }
        copy = tmp_path / "saltgate.toml"
        copy.write_text((COMPOSE / "gateway" / "saltgate.toml").read_text().replace("/run/secrets", str(made)))
        loaded_once = load(copy, variables)
        assert loaded_once.settings.telemetry.otlp_endpoint is not None
        assert loaded_once.warnings == ()

    def test_browser_and_gate_know_the_issuer_by_one_name(self, made: Path, tmp_path: Path) -> None:
        (issuer,) = loaded(COMPOSE / "gateway" / "saltgate.toml", made, tmp_path).issuers
        keycloak = base_service("keycloak")
        host, port = re.fullmatch(r"https://([^:/]+):(\d+)/realms/acme", issuer.issuer).groups()  # type: ignore[union-attr]
        assert keycloak["environment"]["KC_HOSTNAME"] == f"https://{host}:{port}"
        assert keycloak["networks"]["front"]["aliases"] == [host]
        assert keycloak["ports"] == [f"127.0.0.1:{port}:{port}"]
        assert "front" in base_service("gateway")["networks"]


class TestRealm:
    realm: Final[Json] = json.loads((COMPOSE / "keycloak" / "acme-realm.json").read_text())

    def test_each_accepted_client_gets_saltgate_as_audience(self, made: Path, tmp_path: Path) -> None:
        (issuer,) = loaded(COMPOSE / "gateway" / "saltgate.toml", made, tmp_path).issuers
        clients = {client["clientId"]: client for client in self.realm["clients"]}
        for name in issuer.clients or ():
            audiences = {
                mapper["config"].get("included.client.audience")
                for mapper in clients[name]["protocolMappers"]
                if mapper["config"]["access.token.claim"] == "true"
            }
            assert set(issuer.audiences) <= audiences

    def test_people_sign_in_with_clients_of_the_realm(self, made: Path, tmp_path: Path) -> None:
        issuer, login = _signed_in_at(made, tmp_path)
        clients = {client["clientId"]: client for client in self.realm["clients"]}
        native, web = clients[login.native_client_id], clients[login.client_id]
        assert login.native_client_id in (issuer.clients or ())
        assert native["publicClient"]
        assert native["attributes"]["oauth2.device.authorization.grant.enabled"] == "true"
        assert native["redirectUris"] == ["http://127.0.0.1/*"]
        assert not web["publicClient"]
        assert web["secret"] == "${SALTGATE_WEB_CLIENT_SECRET}"
        assert login.client_secret is not None
        assert login.client_secret.source == f"file {made / 'web-client-secret'}"
        script = base_service("keycloak")["entrypoint"][-1]
        assert 'export SALTGATE_WEB_CLIENT_SECRET="$$(< /run/secrets/web-client-secret)"' in script
        for client in (native, web):
            assert client["standardFlowEnabled"]
            assert client["attributes"]["pkce.code.challenge.method"] == "S256"

    def test_no_token_of_the_pages_client_opens_the_gate(self, made: Path, tmp_path: Path) -> None:
        issuer, login = _signed_in_at(made, tmp_path)
        (web,) = (client for client in self.realm["clients"] if client["clientId"] == login.client_id)
        assert login.client_id not in (issuer.clients or ())
        assert not any("included.client.audience" in mapper["config"] for mapper in web["protocolMappers"])

    def test_the_pages_client_knows_the_gate_where_browsers_and_keycloak_reach_it(
        self, made: Path, tmp_path: Path
    ) -> None:
        public = loaded(COMPOSE / "gateway" / "saltgate.toml", made, tmp_path).public
        _, login = _signed_in_at(made, tmp_path)
        (web,) = (client for client in self.realm["clients"] if client["clientId"] == login.client_id)
        assert web["redirectUris"] == [f"{public.url}{Page.CALLBACK.value[1]}"]
        assert web["attributes"]["post.logout.redirect.uris"] == f"{public.url}{Page.SIGNED_OUT.value[1]}"
        assert web["frontchannelLogout"] is False
        assert web["attributes"]["backchannel.logout.url"] == f"{public.url}{Page.BACK_CHANNEL_LOGOUT.value[1]}"
        # Of Keycloak's container the name is the gateway, on the port where it listens, and its certificate is trusted.
        host, port = str(public.url).removeprefix("https://").split(":")
        assert base_service("gateway")["networks"]["front"]["aliases"] == [host]
        assert public.listen.endswith(f":{port}")
        assert set(base_service("gateway")["networks"]) & set(base_service("keycloak")["networks"]) == {"front"}
        assert base_service("keycloak")["environment"]["KC_TRUSTSTORE_PATHS"] == "/run/secrets/authority"
        assert "authority" in base_service("keycloak")["secrets"]

    def test_groups_are_in_what_each_sign_in_goes_by(self, made: Path, tmp_path: Path) -> None:
        issuer, login = _signed_in_at(made, tmp_path)
        clients = {client["clientId"]: client for client in self.realm["clients"]}
        for name, token in ((login.client_id, "id.token.claim"), (login.native_client_id, "access.token.claim")):
            named = {
                mapper["config"]["claim.name"]
                for mapper in clients[name]["protocolMappers"]
                if mapper["protocolMapper"] == "oidc-group-membership-mapper" and mapper["config"][token] == "true"
            }
            assert {(group,) for group in named} <= set(issuer.groups)
            assert named

    def test_nobody_can_sign_in_as_the_audience(self) -> None:
        (audience,) = (client for client in self.realm["clients"] if client["clientId"] == "saltgate")
        assert not any(
            audience[flow] for flow in audience if flow.endswith(("FlowEnabled", "Enabled")) and flow != "enabled"
        )

    def test_no_client_takes_a_persons_password(self) -> None:
        assert not any(
            client["directAccessGrantsEnabled"] or client["implicitFlowEnabled"] for client in self.realm["clients"]
        )

    def test_every_secret_of_the_realm_comes_from_outside(self) -> None:
        passwords = [c["value"] for user in self.realm["users"] for c in user.get("credentials", ())]
        client_secrets = [client["secret"] for client in self.realm["clients"] if "secret" in client]
        script = base_service("keycloak")["entrypoint"][-1]
        for value in (*passwords, *client_secrets):
            name = re.fullmatch(r"\$\{(\w+)\}", value)
            assert name is not None
            assert f'export {name[1]}="$$(< /run/secrets/' in script

    def test_the_directory_names_people_and_groups_of_the_realm(self, made: Path, tmp_path: Path) -> None:
        (issuer,) = loaded(COMPOSE / "gateway" / "saltgate.toml", made, tmp_path).issuers
        known = {f"user:{user['id']}" for user in self.realm["users"]}
        known |= {f"group:{group['name']}" for group in self.realm["groups"]}
        directory = directory_from_toml((COMPOSE / "directory" / "directory.toml").read_text())
        for workspace in directory.workspaces.values():
            assert workspace.issuer == issuer.issuer
            members = [project.members for project in workspace.projects.values()]
            members += [team.members for team in workspace.teams.values()]
            assert {str(member) for some in members for member in some} <= known


def _signed_in_at(secrets: Path, folder: Path) -> tuple[Issuer, Login]:
    (issuer,) = loaded(COMPOSE / "gateway" / "saltgate.toml", secrets, folder).issuers
    assert issuer.login is not None
    return issuer, issuer.login


class TestSecrets:
    def test_every_secret_that_is_mounted_is_made_and_every_one_made_is_mounted(self, made: Path) -> None:
        declared = {name: secret for file in FILES for name, secret in composition(file).get("secrets", {}).items()}
        assert all(secret == {"file": f"./secrets/{name}"} for name, secret in declared.items())
        assert set(declared) == {path.name for path in made.iterdir()}
        used = {name for file in FILES for _, service in services(file) for name in service.get("secrets", ())}
        assert used == set(declared)

    def test_the_folder_is_its_owners_alone(self, made: Path) -> None:
        assert made.stat().st_mode & 0o777 == 0o700

    def test_made_again_nothing_changes(self, tmp_path: Path) -> None:
        _make(tmp_path)
        (tmp_path / "metrics-token").unlink()
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        _make(tmp_path)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != "metrics-token"} == before
        assert re.fullmatch(r"[A-Za-z0-9_-]{43}\n", (tmp_path / "metrics-token").read_text())

    @pytest.mark.parametrize(
        ("certificate", "purpose", "host"),
        [
            ("gateway", "sslserver", "llm.localhost"),
            ("keycloak", "sslserver", "sso.localhost"),
            ("engine", "sslserver", "vllm"),
            ("redis", "sslserver", "redis"),
            ("gateway-client", "sslclient", "gateway"),
        ],
    )
    def test_a_certificate_is_for_its_host_and_use(self, made: Path, certificate: str, purpose: str, host: str) -> None:
        assert _is_good(made, f"{certificate}-certificate", purpose, "-verify_hostname", host)

    @pytest.mark.parametrize("certificate", ["gateway", "keycloak"])
    def test_what_a_browser_reaches_cannot_pass_for_the_gateway_at_the_engine(
        self, made: Path, certificate: str
    ) -> None:
        assert not _is_good(made, f"{certificate}-certificate", "sslclient")

    def test_the_authority_can_vouch_for_no_other_name_and_its_key_is_gone(self, made: Path) -> None:
        shown = ["openssl", "x509", "-in", str(made / "authority"), "-noout", "-ext", "nameConstraints"]
        text = subprocess.run(shown, check=True, capture_output=True, text=True).stdout
        assert set(re.findall(r"DNS:(\S+)", text)) == {"localhost", "keycloak", "redis", "vllm", "gateway"}
        assert "X509v3 Name Constraints: critical" in text
        assert not list(made.glob("authority?*"))

    def test_what_is_made_is_never_committed(self) -> None:
        rules = (COMPOSE / "secrets" / ".gitignore").read_text().splitlines()
        assert [rule for rule in rules if not rule.startswith("#")] == ["*", "!.gitignore"]

    def test_no_other_file_of_the_composition_holds_a_secret(self) -> None:
        for path in COMPOSE.rglob("*"):
            if path.is_file() and path.suffix != ".png" and path.parent.name not in ("secrets", "__pycache__"):
                text = re.sub(r"--hash=sha256:\w+", "", path.read_text())
                assert "PRIVATE KEY" not in text, path
                words = re.findall(r"(?<![\w./-])[A-Za-z0-9_+/-]{40,}(?![\w./-])", text)
                assert not [word for word in words if re.search(r"\d.*[A-Z]|[A-Z].*\d", word)], path


class TestObservability:
    def test_prometheus_shows_the_token_that_saltgate_wants(self) -> None:
        configuration = composition(COMPOSE / "prometheus" / "prometheus.yaml")
        (job,) = configuration["scrape_configs"]
        assert job["authorization"]["credentials_file"] == "/run/secrets/metrics-token"
        assert job["static_configs"] == [{"targets": ["gateway:9080"]}]
        mounted = {Path(one["target"]).name for one in dict(services(OBSERVABILITY))["prometheus"]["configs"]}
        assert mounted == {"prometheus.yaml", *configuration["rule_files"]}

    def test_the_collector_has_every_part_that_a_pipeline_names(self) -> None:
        collector = composition(COMPOSE / "collector" / "collector.yaml")
        for pipeline in collector["service"]["pipelines"].values():
            for kind in ("receivers", "processors", "exporters"):
                assert set(pipeline[kind]) <= set(collector[kind])


def _is_good(secrets: Path, certificate: str, purpose: str, *checks: str) -> bool:
    command = ["openssl", "verify", "-CAfile", str(secrets / "authority"), "-purpose", purpose, *checks]
    return subprocess.run([*command, str(secrets / certificate)], check=False, capture_output=True).returncode == 0
