"""Chat UIs that hold one credential for all their people: behind it stands each time the person for whom they ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, Protocol

from config.settings import TrustedFront
from proxy.identity import Identity
from proxy.identity.assertion import asserted
from proxy.identity.claims import FRONT_PREFIX
from proxy.identity.reasons import Reason, invalid_token
from proxy.identity.shown import Shown
from proxy.refusals import CredentialRequired, InvalidRequest


class Callers(Protocol):
    """Whose credential it is."""

    async def identify(self, shown: Shown) -> Identity: ...


class Fronts:
    """The last door: whoever is no front end passes as himself, and a front end never does.

    A front end acts for the person whom its assertion names, or not at all: would it fall back on itself, one forgotten
    setting would make all its people one. An assertion that anybody else shows is no more than any other header.
    """

    def __init__(self, callers: Callers, fronts: Iterable[TrustedFront], *, clock: Callable[[], float]) -> None:
        """`clock` gives Unix seconds."""
        self._callers = callers
        self._by_caller = {(front.issuer, front.subject): front for front in fronts}
        self._clock = clock

    async def identify(self, shown: Shown) -> Identity:
        """Who is finally acted for. Raises as `Callers`, and a 401 Refusal or `InvalidRequest` for a front end that
        does not say it well.
        """
        caller = await self._callers.identify(shown)
        # Whatever kind of credential it was: nobody but this class makes a subject of this form.
        if caller.subject.startswith(FRONT_PREFIX):
            raise invalid_token(Reason.SUBJECT)
        front = self._by_caller.get((caller.issuer, caller.subject))
        return caller if front is None else self._person(front, caller, shown)

    def _person(self, front: TrustedFront, caller: Identity, shown: Shown) -> Identity:
        person = asserted(_assertion(front, shown), front, now=self._clock())
        open_to_both = frozenset(front.workspaces)
        if caller.workspaces is not None:
            open_to_both &= caller.workspaces
        # Replaced, not made anew: whatever limits the front end's own credential limits its people, too.
        return replace(
            caller,
            subject=person.subject,
            groups=frozenset(),
            groups_complete=True,
            expires_at=min(caller.expires_at, person.expires_at),
            client=f"{FRONT_PREFIX}{front.name}",
            method="front",
            actor=caller,
            workspaces=open_to_both,
        )


_MISSING: Final = (
    "This credential is that of a chat front end, which must say for whom it asks, and it did not. "
    "Have its operator turn on the forwarding of users, signed with the secret that this gateway knows."
)


def _assertion(front: TrustedFront, shown: Shown) -> str:
    name = front.header.lower()
    lines = [value for header, value in shown.headers if header.lower() == name]
    if len(lines) > 1:
        raise InvalidRequest("The request says twice for whom the chat front end asks. Send one assertion.")
    if not lines or not lines[0]:
        raise CredentialRequired(_MISSING, reason="assertion_missing")
    return lines[0]
