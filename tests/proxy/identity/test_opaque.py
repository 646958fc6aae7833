"""Which issuer is asked about an opaque token: the one it may be of, and never another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from config.settings import Issuer
from proxy.identity.confirmation import bearer
from proxy.identity.opaque import OpaqueTokens, open_introspection
from proxy.identity.reasons import Reason
from proxy.refusals import DirectoryUnavailable, InvalidToken, IssuerUnavailable, Refusal, ScopeRequired
from tests.parts.introspection_server import IntrospectionServer, http

ACME, GLOBEX, WITHOUT = "https://a.example", "https://g.example", "https://without.example"
KEY = b"the same in all workers of a deployment"
WORKSPACES = {"acme": ACME, "hooli": ACME, "globex": GLOBEX, "initech": WITHOUT, "orphan": "https://nobody.example"}


@asynccontextmanager
async def opened(*settings: Issuer) -> AsyncIterator[OpaqueTokens]:
    async with open_introspection(settings, issuer_of_workspace=WORKSPACES.get, key=KEY, clock=time.time) as opaque:
        yield opaque


@pytest.fixture
async def acme() -> AsyncIterator[IntrospectionServer]:
    async with IntrospectionServer() as server:
        server.active["of-acme"] = server.claims("u-alice-0001")
        yield server


@pytest.fixture
async def globex() -> AsyncIterator[IntrospectionServer]:
    async with IntrospectionServer() as server:
        server.active["of-globex"] = server.claims("u-mallory-0009")
        yield server


@pytest.fixture
async def both(acme: IntrospectionServer, globex: IntrospectionServer) -> AsyncIterator[OpaqueTokens]:
    without = Issuer(issuer=WITHOUT, audiences=("saltgate",))
    async with opened(acme.issuer(name=ACME), globex.issuer(name=GLOBEX), without) as opaque:
        yield opaque


async def refusal(opaque: OpaqueTokens, token: str, workspace: str | None) -> Refusal:
    with pytest.raises(Refusal) as caught:
        bearer(await opaque.judged(token, workspace))
    return caught.value


async def test_only_the_issuer_of_the_named_workspace_is_asked(
    both: OpaqueTokens, acme: IntrospectionServer, globex: IntrospectionServer
) -> None:
    identity = bearer(await both.judged("of-acme", "acme"))
    assert (identity.issuer, identity.subject) == (ACME, "u-alice-0001")
    assert (acme.asked, globex.asked) == (["of-acme"], [])


async def test_a_token_of_one_issuer_under_a_workspace_of_another_is_refused_and_not_passed_on(
    both: OpaqueTokens, acme: IntrospectionServer, globex: IntrospectionServer
) -> None:
    assert (await refusal(both, "of-globex", "acme")).reason == Reason.INACTIVE.value
    assert globex.asked == []
    assert acme.asked == ["of-globex"]


async def test_that_a_token_was_good_at_one_issuer_makes_it_no_better_at_another(both: OpaqueTokens) -> None:
    assert (bearer(await both.judged("of-globex", "globex"))).issuer == GLOBEX
    assert isinstance(await refusal(both, "of-globex", "acme"), InvalidToken)
    assert (bearer(await both.judged("of-globex", "globex"))).issuer == GLOBEX


async def test_without_a_workspace_and_with_several_issuers_nobody_is_asked_and_the_remedy_told(
    both: OpaqueTokens, acme: IntrospectionServer, globex: IntrospectionServer
) -> None:
    found = await refusal(both, "of-acme", None)
    assert isinstance(found, ScopeRequired)
    assert "OpenAI-Organization" in found.message
    assert (acme.asked, globex.asked) == ([], [])


async def test_without_a_workspace_the_only_issuer_with_introspection_is_asked(acme: IntrospectionServer) -> None:
    async with opened(acme.issuer(name=ACME), Issuer(issuer=GLOBEX, audiences=("saltgate",))) as opaque:
        assert (bearer(await opaque.judged("of-acme", None))).subject == "u-alice-0001"


@pytest.mark.parametrize("workspace", ["nobody-of-this-name", "initech", "orphan", "", "ACME", "acme/", "\udcff"])
@pytest.mark.parametrize("token", ["of-acme", "of-globex", "wrong"])
async def test_a_workspace_without_introspection_is_refused_as_a_wrong_token_is_and_the_token_goes_nowhere(
    both: OpaqueTokens, acme: IntrospectionServer, globex: IntrospectionServer, workspace: str, token: str
) -> None:
    wrong = await refusal(both, "another-wrong-one", "acme")
    found = await refusal(both, token, workspace)
    assert (type(found), found.message, found.reason, found.retry_after) == (
        type(wrong),
        wrong.message,
        wrong.reason,
        wrong.retry_after,
    )
    assert token not in acme.asked + globex.asked
    # It cost a question as well: the time tells nothing.
    assert len(acme.asked) + len(globex.asked) == 2


@pytest.mark.parametrize("workspace", ["nobody-of-this-name", "orphan", "initech"])
async def test_a_token_is_not_tried_at_whoever_has_introspection(
    acme: IntrospectionServer, globex: IntrospectionServer, workspace: str
) -> None:
    async with opened(acme.issuer(name=ACME), globex.issuer(name=GLOBEX)) as opaque:
        for token in ("of-acme", "of-globex"):
            assert (await refusal(opaque, token, workspace)).reason == Reason.INACTIVE.value
    assert not {"of-acme", "of-globex"} & {*acme.asked, *globex.asked}


async def test_the_second_time_too_it_is_as_quick_as_for_a_wrong_token(
    both: OpaqueTokens, acme: IntrospectionServer, globex: IntrospectionServer
) -> None:
    for _ in range(3):
        await refusal(both, "wrong", "no-such-workspace")
    assert len(acme.asked) + len(globex.asked) == 1
    await refusal(both, "wrong-2", "no-such-workspace")
    assert len(acme.asked) + len(globex.asked) == 2


@pytest.mark.parametrize("second", ["hooli", "no-such-workspace", "nobody-of-this-name", "globex"])
@pytest.mark.parametrize("first", ["acme", "no-such-workspace"])
async def test_a_refusal_under_one_workspace_makes_none_quicker_under_another(
    both: OpaqueTokens, acme: IntrospectionServer, globex: IntrospectionServer, first: str, second: str
) -> None:
    """Who knows one workspace of an issuer would else find its others, by a wrong token that was just refused."""
    await refusal(both, "wrong", first)
    await refusal(both, "wrong", second)
    assert len(acme.asked) + len(globex.asked) == (1 if first == second else 2)


async def test_at_once_too_a_wrong_token_is_asked_about_under_each_workspace(
    both: OpaqueTokens, acme: IntrospectionServer, globex: IntrospectionServer
) -> None:
    names = ("acme", "hooli", "no-such-workspace")
    await asyncio.gather(*(refusal(both, "wrong", name) for name in names * 3))
    assert len(acme.asked) + len(globex.asked) == len(names)


async def test_a_good_token_is_asked_about_once_for_all_workspaces(
    both: OpaqueTokens, acme: IntrospectionServer
) -> None:
    for name in ("acme", "hooli", "acme"):
        assert (bearer(await both.judged("of-acme", name))).issuer == ACME
    assert acme.asked == ["of-acme"]


async def test_one_workspace_that_does_not_exist_always_asks_the_same_issuer(
    both: OpaqueTokens, acme: IntrospectionServer, globex: IntrospectionServer
) -> None:
    for number in range(8):
        await refusal(both, f"wrong-{number}", "no-such-workspace")
    assert sorted((len(acme.asked), len(globex.asked))) == [0, 8]


async def test_a_workspace_that_does_not_exist_asks_the_same_issuer_on_every_worker(
    both: OpaqueTokens, acme: IntrospectionServer, globex: IntrospectionServer
) -> None:
    """Else, while one of the two is slow or away, a name that is so here and not there would be nobody's."""
    async with opened(*(one.rules for one in both.introspectors)) as next_worker:
        for number in range(16):
            before = len(acme.asked)
            for worker in (both, next_worker):
                await refusal(worker, "wrong", f"no-such-{number}")
            assert len(acme.asked) - before in {0, 2}
    assert acme.asked
    assert globex.asked


async def test_while_all_issuers_are_away_a_workspace_that_does_not_exist_is_503_as_well(
    both: OpaqueTokens, acme: IntrospectionServer, globex: IntrospectionServer
) -> None:
    acme.raw = globex.raw = http(b"", status="503 Service Unavailable")
    found = [await refusal(both, "wrong", workspace) for workspace in ("acme", "globex", "initech", "no-such")]
    assert {(type(one), one.message, one.reason) for one in found} == {
        (IssuerUnavailable, found[0].message, "introspection_failed")
    }


async def test_an_issuer_that_calls_the_stand_in_active_lets_nobody_in(
    both: OpaqueTokens, acme: IntrospectionServer, globex: IntrospectionServer
) -> None:
    for server in (acme, globex):
        await asyncio.sleep(0)
        server.raw = http(b'{"active":true,"sub":"u-alice-0001","aud":"saltgate","exp":%d}' % (time.time() + 300))
    assert isinstance(await refusal(both, "wrong", "no-such-workspace"), InvalidToken)


@pytest.mark.parametrize("workspace", ["acme", "no-such-workspace", "orphan"])
async def test_where_there_is_one_issuer_only_its_people_are_told_the_same_of_all_workspaces_not_theirs(
    acme: IntrospectionServer, workspace: str
) -> None:
    async with opened(acme.issuer(name=ACME)) as opaque:
        assert (bearer(await opaque.judged("of-acme", workspace))).subject == "u-alice-0001"


@pytest.mark.parametrize("workspace", [None, "acme", "no-such-workspace"])
async def test_where_no_issuer_has_introspection_opaque_tokens_are_not_accepted(workspace: str | None) -> None:
    async with opened(Issuer(issuer=ACME, audiences=("saltgate",))) as opaque:
        assert (await refusal(opaque, "of-acme", workspace)).reason == Reason.OPAQUE.value


async def test_without_a_directory_nobody_is_asked(acme: IntrospectionServer, globex: IntrospectionServer) -> None:
    def away(_: str) -> str | None:
        raise DirectoryUnavailable("away")

    settings = (acme.issuer(name=ACME), globex.issuer(name=GLOBEX))
    async with open_introspection(settings, issuer_of_workspace=away, key=KEY, clock=time.time) as opaque:
        with pytest.raises(DirectoryUnavailable):
            bearer(await opaque.judged("of-acme", "acme"))
    assert acme.asked == []


async def test_one_issuer_that_hangs_does_not_keep_another_waiting(
    both: OpaqueTokens, acme: IntrospectionServer, globex: IntrospectionServer
) -> None:
    globex.behaviour = "hang"
    hanging: Sequence[asyncio.Future[object]] = [
        asyncio.ensure_future(both.judged(f"hang-{number}", "globex")) for number in range(300)
    ]
    assert (bearer(await both.judged("of-acme", "acme"))).subject == "u-alice-0001"
    globex.behaviour = "answer"
    globex.release()
    await asyncio.gather(*hanging, return_exceptions=True)
