"""A chat front end at the door: it is let in for the person whom it names, and never as itself."""

from __future__ import annotations

import dataclasses

import pytest

from config.settings import TrustedFront
from proxy.identity import Identity
from proxy.identity.fronts import Fronts
from proxy.identity.shown import Shown
from proxy.refusals import CredentialRequired, InvalidRequest, InvalidToken
from tests.parts.assertions import HEADER, SERVICE, assertion, front
from tests.proxy.identity.judging import ISSUER, NOW, fixed_clock

SERVICE_ACCOUNT = Identity(ISSUER, SERVICE, frozenset({"services"}), False, NOW + 60, "webui", "jwt")
ALICE = Identity(ISSUER, "u-alice-0001", frozenset({"eng"}), True, NOW + 60, "webui")


@dataclasses.dataclass(frozen=True)
class Known:
    """What the credential proved, whatever kind it is of."""

    caller: Identity

    async def identify(self, shown: Shown) -> Identity:
        return self.caller


def fresh(subject: str = "alice", **more: str | bytes) -> str:
    return assertion(subject, now=NOW, **more)  # type: ignore[arg-type]  # named by the tests


async def passed(
    caller: Identity, *lines: tuple[str, str], fronts: tuple[TrustedFront, ...] = (front(issuer=ISSUER),)
) -> Identity:
    shown = Shown(headers=lines, method="POST", path="/v1/chat/completions", workspace="acme")
    return await Fronts(Known(caller), fronts, clock=fixed_clock).identify(shown)


async def test_the_person_is_finally_acted_for_and_the_front_is_the_actor() -> None:
    person = await passed(SERVICE_ACCOUNT, (HEADER, fresh()))
    assert (person.issuer, person.subject) == (ISSUER, "front:webui/alice")
    assert (person.groups, person.groups_complete) == (frozenset(), True)
    assert person.actor == SERVICE_ACCOUNT
    assert person.workspaces == frozenset({"acme"})
    assert (person.client, person.method) == ("front:webui", "front")


async def test_the_header_may_have_any_case_and_another_name() -> None:
    assert (await passed(SERVICE_ACCOUNT, (HEADER.lower(), fresh()))).subject == "front:webui/alice"
    other = front(issuer=ISSUER, header="X-Person")
    assert (await passed(SERVICE_ACCOUNT, ("x-person", fresh()), fronts=(other,))).subject == "front:webui/alice"
    with pytest.raises(CredentialRequired):
        await passed(SERVICE_ACCOUNT, (HEADER, fresh()), fronts=(other,))


async def test_it_is_over_when_the_credential_or_the_assertion_is() -> None:
    assert (await passed(SERVICE_ACCOUNT, (HEADER, fresh()))).expires_at == NOW + 60
    lasting = dataclasses.replace(SERVICE_ACCOUNT, expires_at=NOW + 3600)
    assert (await passed(lasting, (HEADER, fresh()))).expires_at == NOW + 300


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [(HEADER, "")],
        # What Open WebUI falls back to where it cannot sign, and what proxies send.
        [("X-OpenWebUI-User-Id", "alice"), ("X-OpenWebUI-User-Email", "a@b.test"), ("X-OpenWebUI-User-Role", "admin")],
        [("X-Forwarded-User", "alice"), ("X-Remote-User", "alice"), ("Remote-User", "alice")],
        [("X-User-Jwt", assertion("alice", now=NOW))],
        [("Cookie", f"{HEADER}={assertion('alice', now=NOW)}")],
    ],
)
async def test_a_front_that_does_not_say_for_whom_is_refused_and_never_acts_as_itself(
    lines: list[tuple[str, str]],
) -> None:
    with pytest.raises(CredentialRequired) as refused:
        await passed(SERVICE_ACCOUNT, *lines)
    assert refused.value.reason == "assertion_missing"


async def test_a_front_with_a_wrong_assertion_is_refused_and_never_acts_as_itself() -> None:
    with pytest.raises(InvalidToken) as refused:
        await passed(SERVICE_ACCOUNT, (HEADER, fresh(secret=b"x" * 32)))
    assert refused.value.reason == "assertion_signature"


async def test_two_assertions_are_refused_even_when_equal() -> None:
    with pytest.raises(InvalidRequest):
        await passed(SERVICE_ACCOUNT, (HEADER, fresh()), (HEADER.upper(), fresh()))
    with pytest.raises(InvalidRequest):
        await passed(SERVICE_ACCOUNT, (HEADER, fresh()), (HEADER, ""))


async def test_an_assertion_of_anybody_else_says_nothing_also_a_good_one() -> None:
    assert await passed(ALICE, (HEADER, fresh("bob"))) == ALICE
    assert await passed(ALICE, (HEADER, "rubbish"), (HEADER, "twice")) == ALICE


async def test_a_service_account_of_the_same_name_at_another_issuer_is_no_front() -> None:
    other = dataclasses.replace(SERVICE_ACCOUNT, issuer=ISSUER + "/")
    assert await passed(other, (HEADER, fresh())) == other


async def test_a_subject_that_only_looks_like_a_fronts_is_no_front() -> None:
    for subject in (SERVICE.upper(), SERVICE + " ", SERVICE[:-1]):
        other = dataclasses.replace(SERVICE_ACCOUNT, subject=subject)
        assert await passed(other, (HEADER, fresh())) == other


@pytest.mark.parametrize("subject", ["front:webui/alice", "front:", "front:unknown/x"])
async def test_no_credential_of_any_kind_makes_its_holder_one_of_a_fronts_people(subject: str) -> None:
    """Were it an opaque token or a personal access token: by their own names nobody is `front:…`."""
    posing = dataclasses.replace(ALICE, subject=subject, method="introspection")
    for fronts in ((), (front(issuer=ISSUER),)):
        with pytest.raises(InvalidToken) as refused:
            await passed(posing, (HEADER, fresh()), fronts=fronts)
        assert refused.value.reason == "subject"


async def test_one_front_cannot_speak_with_the_word_of_another() -> None:
    first = front(issuer=ISSUER)
    second = front(name="mobile", issuer=ISSUER, subject="service-account-mobile", secret=b"m" * 32)
    caller = dataclasses.replace(SERVICE_ACCOUNT, subject="service-account-mobile")
    with pytest.raises(InvalidToken):
        await passed(caller, (HEADER, fresh()), fronts=(first, second))
    person = await passed(caller, (HEADER, fresh(secret=b"m" * 32)), fronts=(first, second))
    assert person.subject == "front:mobile/alice"


async def test_the_same_assertion_may_be_shown_again_until_it_is_too_old() -> None:
    """Open WebUI makes one for each request, but what it sends again after a lost connection must not fail."""
    text = fresh()
    first = await passed(SERVICE_ACCOUNT, (HEADER, text))
    assert await passed(SERVICE_ACCOUNT, (HEADER, text)) == first
    shown = Shown(headers=((HEADER, text),), method="POST", path="/v1/models", workspace=None)
    later = Fronts(Known(SERVICE_ACCOUNT), (front(issuer=ISSUER),), clock=lambda: NOW + 300)
    with pytest.raises(InvalidToken) as refused:
        await later.identify(shown)
    assert refused.value.reason == "assertion_too_old"


async def test_what_limits_the_fronts_own_credential_limits_its_people() -> None:
    limited = dataclasses.replace(SERVICE_ACCOUNT, workspaces=frozenset({"acme", "globex"}))
    two = front(issuer=ISSUER, workspaces=("acme", "initech"))
    assert (await passed(limited, (HEADER, fresh()), fronts=(two,))).workspaces == frozenset({"acme"})
