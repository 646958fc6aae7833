"""The door for personal access tokens: what it remembers, for how long, and what it says where it cannot ask."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from proxy.identity.personal import PersonalToken, new_personal_token
from proxy.identity.personal_records import Kept, Login, Owner, PersonalRules, TokenRecord
from proxy.identity.personal_tokens import LOOKED_UP_AT_ONCE, PersonalTokens
from proxy.refusals import DirectoryUnavailable, InvalidToken

ISSUER = "https://sso.example.com"
START = 1_000_000.0
MAX_STALE = 300.0


class Book:
    """Tokens in memory, that can be away, slow and counted."""

    def __init__(self) -> None:
        self.kept: dict[str, Kept] = {}
        self.asked: list[str] = []
        self.told: list[dict[str, int]] = []
        self.away = False
        self.gate: asyncio.Event | None = None
        self.at_once = 0
        self.most_at_once = 0

    def make(self, *, login: bool = True, subject: str = "alice") -> PersonalToken:
        token = new_personal_token()
        record = TokenRecord(
            id=token.id,
            digest=token.digest,
            owner=Owner(ISSUER, subject),
            name="ci",
            projects=None,
            created=int(START),
            expires=int(START) + 10_000,
        )
        self.kept[token.id] = Kept(record, Login(frozenset({"eng"}), True, START) if login else None)
        return token

    async def find(self, token_id: str) -> Kept | None:
        self.asked.append(token_id)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await (self.gate.wait() if self.gate is not None else asyncio.sleep(0))
        finally:
            self.at_once -= 1
        if self.away:
            raise DirectoryUnavailable("away")
        return self.kept.get(token_id)

    async def used(self, uses: Mapping[str, int]) -> None:
        if self.away:
            raise DirectoryUnavailable("away")
        self.told.append(dict(uses))


class Door:
    """The door with a clock of the test's."""

    def __init__(self, *, capacity: int = 100, max_stale: float = MAX_STALE) -> None:
        self.now = 0.0
        self.book = Book()
        self.tokens = PersonalTokens(
            self.book,
            PersonalRules(issuers=frozenset({ISSUER}), without_groups=frozenset(), groups_max_age=1e6),
            max_stale=max_stale,
            clock=lambda: START + self.now,
            monotonic=lambda: self.now,
            capacity=capacity,
        )

    async def subject(self, token: PersonalToken) -> str:
        return (await self.tokens.identify(token.text())).subject


async def test_a_token_is_looked_up_once_in_half_a_minute() -> None:
    door = Door()
    token = door.book.make()
    for door.now in (0.0, 1.0, 29.9):
        assert await door.subject(token) == "alice"
    assert len(door.book.asked) == 1
    door.now = 30.0
    assert await door.subject(token) == "alice"
    assert len(door.book.asked) == 2


async def test_a_token_that_is_remembered_does_not_suspend() -> None:
    door = Door()
    token = door.book.make()
    await door.subject(token)
    step = door.tokens.identify(token.text())
    with pytest.raises(StopIteration) as done:
        step.send(None)
    assert done.value.value.token_id == token.id


async def test_whoever_guesses_at_a_remembered_tokens_id_is_not_its_owner() -> None:
    door = Door()
    token = door.book.make()
    await door.subject(token)
    for _ in range(3):
        with pytest.raises(InvalidToken):
            await door.subject(PersonalToken(token.id, new_personal_token().secret))
    assert await door.subject(token) == "alice"


async def test_an_unknown_id_is_asked_each_time_so_that_a_new_token_works_at_once() -> None:
    door = Door()
    token = door.book.make()
    kept = door.book.kept.pop(token.id)
    for _ in range(2):
        with pytest.raises(InvalidToken):
            await door.subject(token)
    door.book.kept[token.id] = kept
    assert await door.subject(token) == "alice"
    assert len(door.book.asked) == 3


async def test_a_token_that_is_gone_is_forgotten_at_the_next_look() -> None:
    door = Door()
    token = door.book.make()
    await door.subject(token)
    del door.book.kept[token.id]
    door.now = 30.0
    with pytest.raises(InvalidToken):
        await door.subject(token)
    door.book.away = True
    with pytest.raises(DirectoryUnavailable):
        await door.subject(token)


async def test_an_expired_token_is_refused_from_memory_too() -> None:
    door = Door()
    token = door.book.make()
    kept = door.book.kept[token.id]
    door.book.kept[token.id] = replace(kept, record=replace(kept.record, expires=int(START) + 5))
    assert await door.subject(token) == "alice"
    door.now = 5.0
    with pytest.raises(Exception, match="expired"):
        await door.subject(token)


async def test_while_the_book_is_away_known_tokens_serve_until_max_stale_and_others_are_503() -> None:
    door = Door()
    token, other = door.book.make(), door.book.make()
    await door.subject(token)
    door.book.away = True
    for door.now in (40.0, 100.0, MAX_STALE):
        assert await door.subject(token) == "alice"
    with pytest.raises(DirectoryUnavailable):
        await door.subject(other)
    door.now = MAX_STALE + 0.1
    with pytest.raises(DirectoryUnavailable):
        await door.subject(token)
    door.book.away = False
    assert await door.subject(token) == "alice"


async def test_known_tokens_do_not_wait_for_a_book_that_just_did_not_answer() -> None:
    door = Door()
    token = door.book.make()
    await door.subject(token)
    door.book.away = True
    door.now = 40.0
    for _ in range(50):
        await door.subject(token)
    assert len(door.book.asked) == 2
    door.now = 41.0
    await door.subject(token)
    assert len(door.book.asked) == 3


async def test_many_requests_at_once_with_one_token_ask_few_times() -> None:
    door = Door()
    token = door.book.make()
    await asyncio.gather(*(door.subject(token) for _ in range(500)))
    assert len(door.book.asked) <= LOOKED_UP_AT_ONCE


async def test_a_flood_of_invented_tokens_is_bounded() -> None:
    door = Door()
    door.book.gate = asyncio.Event()
    flood = [asyncio.ensure_future(door.subject(new_personal_token())) for _ in range(200)]
    await asyncio.sleep(0.01)
    assert door.book.most_at_once == LOOKED_UP_AT_ONCE
    door.book.gate.set()
    answers = await asyncio.gather(*flood, return_exceptions=True)
    assert {type(answer) for answer in answers} == {InvalidToken}
    assert len(door.tokens._entries) == 0


async def test_a_caller_who_leaves_takes_no_place_with_him() -> None:
    door = Door()
    door.book.gate = asyncio.Event()
    leaving = [asyncio.ensure_future(door.subject(new_personal_token())) for _ in range(LOOKED_UP_AT_ONCE)]
    await asyncio.sleep(0.01)
    for task in leaving:
        task.cancel()
    await asyncio.gather(*leaving, return_exceptions=True)
    door.book.gate = None
    assert await door.subject(door.book.make()) == "alice"


async def test_memory_is_bounded() -> None:
    door = Door(capacity=3)
    for token in [door.book.make() for _ in range(10)]:
        await door.subject(token)
    assert len(door.tokens._entries) == 3
    assert len(door.tokens._uses) == 3


async def test_whose_groups_are_unknown_is_asked_about_again_soon() -> None:
    door = Door()
    token = door.book.make(login=False)
    assert (await door.tokens.identify(token.text())).groups_complete is False
    kept = door.book.kept[token.id]
    door.book.kept[token.id] = replace(kept, login=Login(frozenset({"eng"}), True, START))
    door.now = 1.0
    assert (await door.tokens.identify(token.text())).groups == frozenset({"eng"})


async def test_uses_are_told_together_and_once() -> None:
    door = Door()
    one, other = door.book.make(), door.book.make()
    for door.now in (0.0, 5.0):
        await door.subject(one)
        await door.subject(other)
    with pytest.raises(InvalidToken):
        await door.subject(new_personal_token())
    await door.tokens.tell_uses_now()
    await door.tokens.tell_uses_now()
    assert door.book.told == [{one.id: int(START) + 5, other.id: int(START) + 5}]


async def test_uses_that_could_not_be_told_are_told_later() -> None:
    door = Door()
    one, other = door.book.make(), door.book.make()
    await door.subject(one)
    await door.subject(other)
    door.book.away = True
    await door.tokens.tell_uses_now()
    door.now = 7.0
    await door.subject(one)
    door.book.away = False
    await door.tokens.tell_uses_now()
    assert door.book.told == [{one.id: int(START) + 7, other.id: int(START)}]


async def test_two_tokens_with_a_long_common_beginning_never_share_an_identity() -> None:
    door = Door()
    token = door.book.make()
    await door.subject(token)
    twin = PersonalToken(token.id, token.secret[:-1] + bytes([token.secret[-1] ^ 1]))
    assert twin.text()[:54] == token.text()[:54]
    with pytest.raises(InvalidToken):
        await door.subject(twin)
