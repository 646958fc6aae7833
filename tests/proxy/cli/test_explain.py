"""`saltgate explain` on real parts: what becomes of a request, why, and what of it is never told."""

from __future__ import annotations

import asyncio
import hmac
import io
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from config.load import load
from proxy.cli import main
from proxy.cli.explain import READ_AT_MOST, authorization
from proxy.demo.simulator import AT_ONCE, EngineShape, Simulator
from proxy.directory.changes import block
from proxy.directory.connect import open_store, open_tokens
from proxy.directory.model import group, user
from proxy.directory.token_store import revocation
from proxy.identity.personal import new_personal_token
from proxy.identity.personal_records import Owner, TokenRecord
from proxy.isolation.salt import SaltKey, salt_for
from proxy.isolation.unit import TeamUnit
from tests.parts.explained import BASE_EPOCH, SECRET, Answer, Explainer
from tests.parts.gate_bed import chat, gate_bed
from tests.parts.introspection_server import SECRET as INTROSPECTION_SECRET
from tests.parts.introspection_server import IntrospectionServer
from tests.parts.redis_server import RedisServer
from tests.parts.tokens import IssuerServer, TokenMint

DIRECTORY = """
[workspaces.acme]
issuer = "{issuer}"
unit = "team"

[workspaces.acme.projects.apollo]
members = ["user:u-alice-0001", "group:eng"]
team = "red"
model_units = {{ large = "user" }}

[workspaces.acme.projects.ares]
members = ["user:u-bella-0007"]
team = "red"

[workspaces.acme.projects.hermes]
members = ["user:u-alice-0001"]
unit = "user"
models = ["tiny", "gone"]

[workspaces.acme.teams.red]
members = []

[workspaces.acme.collections.handbook]
projects = ["apollo", "ares"]

[workspaces.globex]
issuer = "{issuer}"

[workspaces.globex.projects.vault]
members = ["user:u-mallory-0009"]
"""
APOLLO = ("--workspace", "acme", "--project", "apollo")


@dataclass(frozen=True, slots=True)
class Bed:
    """A deployment around the command."""

    explainer: Explainer
    mint: TokenMint
    issuer: IssuerServer
    engine: Simulator

    async def json(self, *words: str, token: str | None = None) -> Answer:
        return await self.explainer.explain(token or self.mint.token(groups=()), "--json", *words)

    async def text(self, *words: str, token: str | None = None) -> Answer:
        return await self.explainer.explain(token or self.mint.token(groups=()), *words)

    def refusal(self, answer: Answer) -> dict[str, object]:
        """The first one."""
        refusals = answer.document["refusals"]
        assert isinstance(refusals, list)
        found: dict[str, object] = refusals[0]
        return found


@asynccontextmanager
async def deployed(
    folder: Path,
    capfd: pytest.CaptureFixture[str],
    *,
    directory: str = DIRECTORY,
    key: str = "k1",
    more: str = "",
    issuer_more: str = "",
) -> AsyncIterator[Bed]:
    shape = EngineShape(models=("tiny", "large"), pace=AT_ONCE)
    async with IssuerServer(TokenMint()) as issuer, Simulator(shape) as engine:
        explainer = Explainer(folder, capfd)
        more = more.replace("ISSUER", issuer.mint.issuer)
        configure(explainer.file, engine.url, issuer.mint.issuer, more=more, issuer_more=issuer_more)
        await explainer.fill(directory.format(issuer=issuer.mint.issuer))
        configure(explainer.file, engine.url, issuer.mint.issuer, key=key, more=more, issuer_more=issuer_more)
        yield Bed(explainer, issuer.mint, issuer, engine)


def configure(file: Path, engine: str, issuer: str, *, key: str = "k1", more: str = "", issuer_more: str = "") -> None:
    file.write_text(f"""
[[engines]]
name = "main"
urls = ["{engine}"]
{more}
[[issuers]]
issuer = "{issuer}"
audiences = ["saltgate"]
{issuer_more}
[directory]
file = "directory.toml"
state = "state"
[timeouts]
connect = "500ms"
[[isolation.keys]]
id = "{key}"
secret = {{ file = "salt.key" }}
""")


async def test_every_step_of_a_request_that_goes_through_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with deployed(tmp_path, capfd) as bed:
        answer = await bed.json(*APOLLO, "--model", "tiny", token=bed.mint.token(groups=("eng", "ops")))
        told = await bed.text(*APOLLO, "--model", "tiny", token=bed.mint.token(groups=("eng", "ops")))
    assert (answer.code, told.code, answer.err, told.err) == (0, 0, "", "")
    document = answer.document
    assert (document["ok"], document["refusals"], document["not_reached"]) == (True, [], [])
    identity = document["identity"]
    assert isinstance(identity, dict)
    assert identity["issuer"] == bed.mint.issuer
    assert (identity["subject"], identity["client"], identity["groups"]) == ("u-alice-0001", "chat-ui", ["eng", "ops"])
    assert document["memberships"] == ["acme/apollo", "acme/hermes"]
    assert document["unit"] == "team:acme/red"
    assert document["shared_by"] == (
        "everybody in the projects of team acme/red, also people of projects that they may not enter"
    )
    assert (document["projects"], document["not_entered"]) == (["acme/apollo", "acme/ares"], ["acme/ares"])
    salt = salt_for(TeamUnit("acme", "red"), epoch=BASE_EPOCH, key=SaltKey("k1", SECRET.encode()))
    assert (document["epoch"], document["key"], document["fingerprint"]) == (BASE_EPOCH, "k1", salt.fingerprint)
    model = document["model"]
    assert isinstance(model, dict)
    assert (model["engine"], model["proof"]) == ("main", "strict")
    assert "POST /v1/chat/completions" in model["endpoints"]
    for words in ("u-alice-0001", "chat-ui", "eng, ops", "because workspace acme has unit", salt.fingerprint, "main"):
        assert words in told.out
    assert "this caller may not enter acme/ares" in told.out
    assert told.out.endswith("Such a request would be let through.\n")


async def test_what_it_tells_is_what_the_gate_does(
    redis: RedisServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The same request through a whole gate: the engine gets the salt of the fingerprint that was told."""
    shape = EngineShape(models=("tiny", "large"), pace=AT_ONCE)
    asked: list[tuple[tuple[str, ...], dict[str, str], str]] = [
        (APOLLO, {"OpenAI-Project": "apollo"}, "tiny"),
        (APOLLO, {"OpenAI-Project": "apollo"}, "large"),
        ((*APOLLO, "--unit", "project"), {"OpenAI-Project": "apollo", "X-Saltgate-Unit": "project"}, "tiny"),
        ((*APOLLO, "--unit", "workspace"), {"OpenAI-Project": "apollo", "X-Saltgate-Unit": "workspace"}, "tiny"),
        (
            ("--collection", "handbook", *APOLLO),
            {"OpenAI-Project": "apollo", "X-Saltgate-Collection": "handbook"},
            "tiny",
        ),
        (("--project", "hermes"), {"OpenAI-Project": "hermes"}, "tiny"),
        (("--project", "hermes"), {"OpenAI-Project": "hermes"}, "large"),
        (("--project", "hermes"), {"OpenAI-Project": "hermes"}, "gone"),
        (("--project", "vault"), {"OpenAI-Project": "vault"}, "tiny"),
        ((), {}, "tiny"),
        (("--unit", "planet"), {"X-Saltgate-Unit": "planet"}, "tiny"),
    ]
    async with (
        Simulator(shape) as engine,
        gate_bed(redis.settings(), [engine.url], tmp_path, document=DIRECTORY) as bed,
    ):
        explainer = Explainer(tmp_path, capfd)
        configure(explainer.file, engine.url, bed.mint.issuer)
        text = explainer.file.read_text().replace('file = "directory.toml"\nstate = "state"', f'redis = "{redis.url}"')
        explainer.file.write_text(text)
        for words, headers, model in asked:
            engine.requests.clear()
            token = bed.token()
            status, _, body = await bed.post(
                document=chat(model=model), headers={"Authorization": f"Bearer {token}"} | headers
            )
            salts = [received.salt for received in engine.requests if received.salt]
            answer = await explainer.explain(token, "--json", "--model", model, *words)
            assert answer.code == (0 if status == 200 else 1), (words, body, answer.out)
            if status == 200:
                prints = {fingerprint(salt) for salt in salts}
                assert prints == {answer.document["fingerprint"]}, words
            else:
                assert answer.result == f"{status} {json.loads(body)['error']['code']}", words


def fingerprint(salt: str) -> str:
    """By the recipe of the contract, section 7."""
    key = hmac.digest(SECRET.encode(), b"saltgate fingerprint", "sha256")
    return hmac.digest(key, salt.encode(), "sha256").hex()[:12]


RULES = """
[[isolation.rules]]
name = "cards"
sets = ["personal-data"]
[[isolation.rules]]
name = "codenames"
words = ["falcon"]
unit = "project"
workspaces = ["acme"]
[[isolation.rules]]
name = "elsewhere"
words = ["falcon"]
workspaces = ["globex"]
"""


async def test_the_rules_of_the_workspace_are_told_with_the_narrowest_border_that_they_may_give(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with deployed(tmp_path, capfd, more=RULES) as bed:
        answer, told = await bed.json(*APOLLO), await bed.text(*APOLLO)
        narrow, told_narrow = await bed.json("--project", "hermes"), await bed.text("--project", "hermes")
        collection = await bed.json(*APOLLO, "--collection", "handbook")
    own = "user:acme/apollo/u-alice-0001"
    assert answer.document["unit"] == "team:acme/red"  # of a request in which nothing is found
    assert answer.document["rules"] == [
        {"name": "cards", "unit": own},
        {"name": "codenames", "unit": "project:acme/apollo"},
    ]
    assert answer.document["narrowest_unit"] == own
    shown = " ".join(told.out.split())
    assert f"cards ({own}), codenames (project:acme/apollo)" in shown
    assert f"the border is {own} at the narrowest" in shown
    assert "elsewhere" not in shown
    assert narrow.document["narrowest_unit"] == narrow.document["unit"] == "user:acme/hermes/u-alice-0001"
    assert "none of them makes this border narrower" in told_narrow.out
    assert collection.document["narrowest_unit"] == own


async def test_where_no_rule_holds_nothing_is_said_of_them(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    only_there = RULES[RULES.rindex("[[isolation.rules]]") :]
    async with deployed(tmp_path, capfd, more=only_there) as bed:
        answer, told = await bed.json(*APOLLO), await bed.text(*APOLLO)
    assert (answer.document["rules"], answer.document["narrowest_unit"]) == ([], None)
    assert "rules" not in told.out


GATE = """
[[gates]]
issuer = "ISSUER"
subject = "u-mallory-0009"
"""


async def test_of_a_gate_in_front_no_fingerprint_is_told_because_the_salt_depends_on_its_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with deployed(tmp_path, capfd, more=GATE) as bed:
        gate = bed.mint.token("u-mallory-0009", groups=())
        answer, told = await bed.json(token=gate), await bed.text(token=gate)
        person = await bed.json(*APOLLO)
    document = answer.document
    assert (document["ok"], document["unit"]) == (True, "project:globex/vault")
    assert (document["salt_depends_on_gate"], document["fingerprint"]) == (True, None)
    assert (document["epoch"], document["key"]) == (BASE_EPOCH, "k1")
    assert "fingerprint" not in told.out
    assert "depends on the salt that this caller, a saltgate ([[gates]]), stamped" in " ".join(told.out.split())
    assert person.document["salt_depends_on_gate"] is False
    assert person.document["fingerprint"] is not None


@pytest.mark.parametrize(
    ("words", "code", "reason", "step", "not_reached"),
    [
        ((), "scope_required", "scope_required", "scope", ["model", "unit", "salt"]),
        (("--project", "ares"), "not_a_member", "no_membership", "scope", ["model", "unit", "salt"]),
        (
            (*APOLLO, "--collection", "nope"),
            "not_a_member",
            "collection_not_listed",
            "scope",
            ["model", "unit", "salt"],
        ),
        (
            (*APOLLO, "--unit", "planet"),
            "invalid_request",
            "invalid_request",
            "request",
            ["scope", "model", "unit", "salt"],
        ),
        ((*APOLLO, "--unit", "workspace"), "unit_too_wide", "unit_too_wide", "unit", ["salt"]),
        ((*APOLLO, "--model", "nope"), "model_not_allowed", "model_not_allowed", "model", []),
        (("--project", "hermes", "--model", "gone"), "model_not_found", "model_not_found", "model", []),
    ],
)
async def test_a_refusal_is_told_with_its_reason_and_the_steps_that_were_not_reached(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    code: str,
    reason: str,
    step: str,
    not_reached: list[str],
) -> None:
    async with deployed(tmp_path, capfd) as bed:
        answer, told = await bed.json(*words), await bed.text(*words)
    assert (answer.code, told.code) == (1, 1)
    refusal = bed.refusal(answer)
    assert (refusal["code"], refusal["reason"], refusal["step"]) == (code, reason, step)
    assert answer.document["ok"] is False
    assert answer.document["not_reached"] == not_reached
    assert f"{refusal['status']} {code}, reason {reason}" in " ".join(told.out.split())
    assert told.out.splitlines()[-1].startswith(f"Such a request would be refused at the {step}:")


async def test_a_token_that_is_refused_is_told_by_its_reason_and_nothing_of_it_is_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with deployed(tmp_path, capfd) as bed:
        tokens = {
            "audience": bed.mint.token(audience="another"),
            "signature": bed.mint.token()[:-8] + "AAAAAAAA",
            "personal_form": "sgp_0123456789abcdef",
            "template": "{{LIBRECHAT_OPENID_TOKEN}}",
            "opaque": "0123456789abcdef0123456789",
            "too_long": "a" * 50_000,
            "white_space": f"{bed.mint.token()} x",
        }
        answers = {reason: await bed.json(token=token) for reason, token in tokens.items()}
        expired = await bed.json(token=bed.mint.token(iat=1_000_000_000, exp=1_000_000_060))
    assert {reason: bed.refusal(answer)["reason"] for reason, answer in answers.items()} == {r: r for r in tokens}
    assert bed.refusal(expired)["code"] == "token_expired"
    for answer in answers.values():
        assert answer.code == 1
        assert answer.document["identity"] is None
        assert answer.document["not_reached"] == ["scope", "model", "unit", "salt"]
        assert answer.document["memberships"] is None


async def test_a_personal_access_token_is_explained_as_its_owner_within_its_limit(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with deployed(tmp_path, capfd) as bed:
        token, now = new_personal_token(), int(time.time())
        record = TokenRecord(
            id=token.id,
            digest=token.digest,
            owner=Owner(bed.mint.issuer, "u-alice-0001"),
            name="ci",
            projects=(("acme", "apollo"),),
            created=now,
            expires=now + 60,
        )
        directory = load(bed.explainer.file).settings.directory
        tokens = open_tokens(directory)
        await tokens.create(record, limit=1)
        answer, told = await bed.json(*APOLLO, token=token.text()), await bed.text(*APOLLO, token=token.text())
        other = await bed.json("--workspace", "acme", "--project", "hermes", token=token.text())
        assert [each.used for each in await tokens.owned(record.owner)] == [None]
        store = open_store(directory, removal=None)
        await store.change(revocation([token.id], now=now, max_stale=300.0))
        await store.close()
        revoked = await bed.json(*APOLLO, token=token.text())
    identity = answer.document["identity"]
    assert isinstance(identity, dict)
    assert (identity["method"], identity["token_id"], identity["only_for"]) == ("pat", token.id, ["acme/apollo"])
    assert (answer.result, answer.document["memberships"]) == ("team:acme/red", ["acme/apollo"])
    assert f"by the personal access token {token.id}" in told.out
    assert "only for acme/apollo" in told.out
    assert "has not signed in" in told.out
    assert other.result == "403 not_a_member"
    assert (revoked.result, bed.refusal(revoked)["reason"]) == ("401 invalid_token", "personal_unknown")


async def test_groups_that_the_token_does_not_list_whole_are_unknown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with deployed(tmp_path, capfd) as bed:
        token = bed.mint.token(groups=("eng",), claims={"hasgroups": True})
        answer, told = await bed.json(*APOLLO, token=token), await bed.text(token=token)
    identity = answer.document["identity"]
    assert isinstance(identity, dict)
    assert (identity["groups"], identity["groups_named"]) == ("unknown", ["eng"])
    assert "groups unknown" in told.out
    assert told.code == 1
    assert "groups_incomplete" in told.out


async def test_a_blocked_person_is_told_to_be_with_the_memberships_that_do_not_help(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with deployed(tmp_path, capfd) as bed:
        store = open_store(load(bed.explainer.file).settings.directory, removal=None)
        await store.change(block(bed.mint.issuer, user("u-alice-0001")))
        await store.change(block(bed.mint.issuer, group("contractors")))
        await store.close()
        answer = await bed.json(*APOLLO)
    assert answer.result == "403 blocked"
    assert answer.document["memberships"] == ["acme/apollo", "acme/hermes"]


async def test_what_is_away_is_our_fault_and_why_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with deployed(tmp_path, capfd) as bed:
        running = bed.explainer.file.read_text()
        bed.explainer.file.write_text(running.replace(bed.engine.url, "http://127.0.0.1:1"))
        engine, unknown = await bed.json(*APOLLO, "--model", "tiny"), await bed.json(*APOLLO)
        token = bed.mint.token(groups=())
        await bed.issuer.stop()
        issuer = await bed.json(*APOLLO, token=token)
    assert engine.result == "503 engine_unavailable"
    assert engine.document["unit"] == "team:acme/red"  # the border does not rest on the engine
    assert engine.document["fingerprint"] is not None
    assert unknown.result == "503 engine_unavailable"
    assert "127.0.0.1" in str(engine.document["notes"])
    assert issuer.result == "503 issuer_unavailable"
    assert "issuer_keys_not_fetched" in issuer.err  # not among the answer


async def test_an_engine_that_is_configured_to_serve_the_model_and_is_away_is_unavailable(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with deployed(tmp_path, capfd, more='models = ["tiny"]') as bed:
        there = await bed.json(*APOLLO, "--model", "tiny")
        text = bed.explainer.file.read_text()
        bed.explainer.file.write_text(text.replace(bed.engine.url, "http://127.0.0.1:1"))
        away = await bed.json(*APOLLO, "--model", "tiny")
    assert there.code == 0
    assert away.result == "503 engine_unavailable"
    assert "can be reached" in str(bed.refusal(away)["message"])


async def test_who_shares_is_told_for_the_model_that_is_asked(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With `large` apollo keeps each person apart, so it does not share the team's cache."""
    async with deployed(tmp_path, capfd) as bed:
        token = bed.mint.token("u-bella-0007", groups=())
        any_model, large = await bed.json(token=token), await bed.json("--model", "large", token=token)
    assert (any_model.document["unit"], large.document["unit"]) == ("team:acme/red", "team:acme/red")
    assert any_model.document["projects"] == ["acme/apollo", "acme/ares"]
    assert large.document["projects"] == ["acme/ares"]


async def test_a_redis_that_is_away_is_503_with_its_place_in_the_notes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with deployed(tmp_path, capfd) as bed:
        text = bed.explainer.file.read_text()
        bed.explainer.file.write_text(
            text.replace('file = "directory.toml"\nstate = "state"', 'redis = "redis://127.0.0.1:1/0"')
        )
        answer = await bed.json(*APOLLO)
    assert answer.result == "503 directory_unavailable"
    assert answer.document["identity"] is not None
    assert "127.0.0.1:1" in str(answer.document["notes"])


async def test_a_ring_or_a_key_that_is_missing_is_salt_unavailable(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with deployed(tmp_path, capfd, key="other") as bed:
        missing = await bed.json(*APOLLO)
        text = bed.explainer.file.read_text().replace('state = "state"', 'state = "nowhere"')
        (tmp_path / "nowhere").mkdir()
        bed.explainer.file.write_text(text)
        ringless = await bed.json(*APOLLO)
    assert (bed.refusal(missing)["step"], bed.refusal(missing)["reason"]) == ("salt", "key_missing")
    assert missing.document["unit"] == "team:acme/red"
    assert missing.document["fingerprint"] is None
    assert bed.refusal(ringless)["reason"] == "ring_missing"


async def test_without_a_model_the_exceptions_are_named_and_a_model_has_its_own_border(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with deployed(tmp_path, capfd) as bed:
        told = await bed.text(*APOLLO)
        large = await bed.json(*APOLLO, "--model", "large")
    assert "another border may hold for large" in told.out
    assert "this scope may use large, tiny" in told.out or "this scope may use tiny, large" in told.out
    assert large.document["unit"] == "user:acme/apollo/u-alice-0001"
    assert large.document["shared_by"] == "only this person in this project (acme/apollo)"
    border = large.document["border"]
    assert isinstance(border, dict)
    assert (border["line"], border["policy"]) == ("model", "user")


async def test_names_that_would_rearrange_a_terminal_are_shown_by_their_numbers(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with deployed(tmp_path, capfd) as bed:
        answer = await bed.text(*APOLLO, token=bed.mint.token(groups=("x\u202egnp",)))
    assert "\u202e" not in answer.out
    assert "x\\u202egnp" in answer.out


async def test_a_token_may_say_bearer_and_end_in_a_newline(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with deployed(tmp_path, capfd) as bed:
        token = bed.mint.token(groups=())
        for shown in (f"{token}\n", f"Bearer {token}", f"  bearer {token}\r\n"):
            assert (await bed.explainer.explain(shown, *APOLLO)).code == 0
        assert (await bed.explainer.explain(f"Basic {token}", *APOLLO)).code == 1


THUMBPRINT = "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"


@pytest.mark.parametrize(
    ("cnf", "said"),
    [
        ({"jkt": THUMBPRINT}, "must also show a DPoP proof;"),
        ({"x5t#S256": THUMBPRINT}, "must also show its client certificate;"),
        ({"jkt": THUMBPRINT, "x5t#S256": THUMBPRINT}, "must also show a DPoP proof and its client certificate;"),
    ],
)
async def test_a_bound_token_is_explained_as_if_what_it_is_bound_to_were_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], cnf: dict[str, str], said: str
) -> None:
    async with deployed(tmp_path, capfd) as bed:
        answer = await bed.text(*APOLLO, token=bed.mint.token(groups=(), claims={"cnf": cnf}))
        unusable = await bed.json(*APOLLO, token=bed.mint.token(groups=(), claims={"cnf": cnf | {"kid": "1"}}))
    assert (answer.code, said in " ".join(answer.out.split())) == (0, True)
    assert (unusable.code, unusable.result) == (1, "401 invalid_token")


async def test_without_a_token_or_a_right_configuration_it_is_2(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with deployed(tmp_path, capfd) as bed:
        empty = await bed.explainer.explain(" \n")
        bed.explainer.file.write_text("[directory]\nnope = 1\n")
        faulty = await bed.text()
    assert (empty.code, empty.out) == (2, "")
    assert "standard input" in empty.err
    assert faulty.code == 2
    assert "nope" in faulty.err


class Endless(io.RawIOBase):
    """Standard input that never ends."""

    given = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        self.given += len(buffer)
        buffer[:] = b"a" * len(buffer)
        return len(buffer)


def test_what_never_ends_is_read_to_a_bound() -> None:
    raw = Endless()
    header = authorization(io.BufferedReader(raw))  # type: ignore[type-var]
    assert header is not None
    assert len(header[1]) <= READ_AT_MOST + len("Bearer ")
    assert raw.given < READ_AT_MOST + io.DEFAULT_BUFFER_SIZE * 2


@pytest.mark.parametrize("where", ["{token}", "--token {token}", "--token={token}", "--model tiny {token}"])
def test_a_token_on_the_command_line_is_refused_and_not_repeated(
    capsys: pytest.CaptureFixture[str], where: str
) -> None:
    token = TokenMint().token()
    with pytest.raises(SystemExit) as ended:
        main(["explain", "-c", "saltgate.toml", *where.format(token=token).split()])
    shown = capsys.readouterr()
    assert (ended.value.code, shown.out) == (2, "")
    assert "Secrets are never arguments" in shown.err
    assert token not in shown.err


@pytest.mark.process
async def test_the_real_command_reads_its_standard_input(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with deployed(tmp_path, capfd) as bed:
        command = ["-c", "from proxy.cli import main; main()", "explain", "-c", str(bed.explainer.file), *APOLLO]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        out, _ = await process.communicate(bed.mint.token(groups=()).encode())
    assert process.returncode == 0
    assert out.endswith(b"Such a request would be let through.\n")


async def test_an_opaque_token_is_explained_by_what_its_issuer_answers(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    token = "opaque-token-of-alice"
    async with IntrospectionServer() as server:
        server.active[token] = server.claims("u-alice-0001")
        (tmp_path / "introspection").write_text(INTROSPECTION_SECRET)
        section = (
            "[issuers.introspection]\n"
            f'client_id = "saltgate"\nclient_secret = {{ file = "introspection" }}\nendpoint = "{server.endpoint}"\n'
        )
        async with deployed(tmp_path, capfd, issuer_more=section) as bed:
            answer = await bed.json(*APOLLO, token=token)
            told = await bed.text(*APOLLO, token=token)
            unnamed = await bed.json("--project", "apollo", token=token)
            wrong = await bed.json(*APOLLO, token="opaque-token-of-nobody")
            server.raw, server.probes_too = b"HTTP/1.1 503 Away\r\nContent-Length: 0\r\n\r\n", True
            away = await bed.json(*APOLLO, token=token)
    identity = answer.document["identity"]
    assert isinstance(identity, dict)
    assert (identity["subject"], identity["method"], identity["client"]) == ("u-alice-0001", "introspection", "chat-ui")
    assert (answer.code, told.code, unnamed.code) == (0, 0, 0)
    assert "the issuer was asked about it" in told.out
    assert (wrong.result, away.result) == ("401 invalid_token", "503 issuer_unavailable")
    refusals = wrong.document["refusals"]
    assert isinstance(refusals, list)
    assert refusals[0]["reason"] == "inactive"
    assert INTROSPECTION_SECRET not in answer.out + told.out + away.out + away.err


async def test_an_opaque_token_of_nobody_named_leads_to_the_service_accounts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    token = "opaque-token-of-a-program"
    async with IntrospectionServer() as server:
        server.active[token] = {name: value for name, value in server.claims("gone").items() if name != "sub"}
        (tmp_path / "introspection").write_text(INTROSPECTION_SECRET)
        section = (
            "[issuers.introspection]\n"
            f'client_id = "saltgate"\nclient_secret = {{ file = "introspection" }}\nendpoint = "{server.endpoint}"\n'
        )
        async with deployed(tmp_path, capfd, issuer_more=section) as bed:
            refused = await bed.json(*APOLLO, token=token)
            assert (refused.result, bed.refusal(refused)["reason"]) == ("401 invalid_token", "no_subject")
            assert "`service_accounts` of [issuers.introspection]" in refused.out


async def test_an_opaque_token_without_introspection_is_told_what_is_missing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with deployed(tmp_path, capfd) as bed:
        answer = await bed.json(*APOLLO, token="opaque-token-of-alice")
    assert answer.result == "401 invalid_token"
    assert bed.refusal(answer)["reason"] == "opaque"
