"""A signed-in person's question to the gate's own pages, and its answer or refusal."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.cli.sign_in import SignInFailed
from proxy.cli.sign_in.web import Web, WebAnswer, shown
from proxy.identity.token import Json


class GateRefused(SignInFailed):
    """The gate answered with something else than 200 and 201. The message is the gate's own, which says what to do."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


async def ask_gate(
    web: Web, gate: str, access_token: str, path: str, *, method: str = "GET", document: object = None
) -> Mapping[str, Json]:
    """The members of the JSON object that the gate answers with. Raises GateRefused, Unreachable for no answer.

    `gate` is the base URL that was signed in at: a token goes nowhere else.
    """
    if document is None:
        answer = await web.get(gate + path, bearer=access_token)
    else:
        answer = await web.send(method, gate + path, document, bearer=access_token)
    if answer.status not in (200, 201):
        raise GateRefused(answer.status, f"{gate} says: {_message(answer)}")
    return answer.members()


def _message(answer: WebAnswer) -> str:
    match answer.members():
        case {"error": {"message": str(message)}}:
            return shown(message)
        case _:
            return f"status {answer.status}; check the gate's address"
