"""A little traffic that goes on behind the demo's scene, so that the administrators' pages have something to show."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Mapping
from typing import Final

import aiohttp

from proxy.demo.cast import ALICE, BOB, CAROL, Role
from proxy.demo.scene import SceneFailed, ask, text_of

# What each project asks about again and again, and how long what is new about it is.
_SHARED_WORDS: Final = 900
_NEW_WORDS: Final = (5, 400)
_PAUSE_SECONDS: Final = (0.5, 3.0)
_PEOPLE: Final = (ALICE, ALICE, CAROL, BOB)
# So often somebody asks for a project that is not his, and is refused.
_ASTRAY: Final = 0.05


async def trickle(session: aiohttp.ClientSession, url: str, tokens: Mapping[str, str], *, model: str) -> None:
    """Ask now and then, until nobody answers for these tokens any more."""
    chance = random.Random()  # noqa: S311 - who asks next is no secret
    handbook = {role.project: text_of(_SHARED_WORDS) for role in _PEOPLE}
    while True:
        role = chance.choice(_PEOPLE)
        text = f"{handbook[role.project]} {text_of(chance.randint(*_NEW_WORDS))}"
        try:
            await ask(session, url, tokens, model=model, role=role, text=text)
        except SceneFailed:
            return
        if chance.random() < _ASTRAY:
            with contextlib.suppress(SceneFailed):
                await ask(session, url, tokens, model=model, role=_astray(role), text=text)
        await asyncio.sleep(chance.uniform(*_PAUSE_SECONDS))


def _astray(role: Role) -> Role:
    """The same person, in the other customer's project."""
    elsewhere = BOB if role.workspace != BOB.workspace else ALICE
    return Role(
        role.subject, role.username, role.password, role.name, role.groups, elsewhere.workspace, elsewhere.project
    )
