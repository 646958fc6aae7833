"""How an explanation is told: to people, and to programs. No token and no salt is in either."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

from proxy.cli.explanation import Explanation, Narrowing, Serving, Sharing, WithinSalt
from proxy.directory.membership import Named
from proxy.directory.model import Fault
from proxy.identity import Identity
from proxy.isolation.salt import Salt
from proxy.isolation.scope import Scope
from proxy.isolation.sharing import Border, Decision, because, listed, who_shares
from proxy.isolation.unit import ProjectUnit, Unit, UserUnit
from proxy.refusals import Refusal

_LABEL: Final = 13
_COLUMNS: Final = 100
_LISTED_AT_MOST: Final = 20
_UNKNOWN_GROUPS: Final = "unknown: the issuer has more of them than the token names"

_TOO_OLD_GROUPS: Final = "unknown: the owner has not signed in for [tokens] groups_max_age, or his issuer named not all"


def as_text(explanation: Explanation, *, model: str | None, notes: Iterable[str], faults: Iterable[Fault]) -> str:
    """A paragraph for each step. `notes` tell of what did not answer, `faults` of records left out."""
    lines = [*_paragraphs(explanation, model)]
    lines += [("note", note) for note in notes]
    lines += [("left out", f"{fault.key}: {fault.message}") for fault in faults]
    return "".join(map(_wrapped, lines)) + "\n" + _verdict(explanation) + "\n"


def as_json(explanation: Explanation, *, model: str | None, notes: Iterable[str], faults: Iterable[Fault]) -> str:
    """One document. What was refused or not reached is null, and named in `refusals` and `not_reached`."""
    salt = explanation.salt if isinstance(explanation.salt, Salt | WithinSalt) else None
    document = {
        "ok": not explanation.refusals,
        "refusals": [{"step": step} | refusal_document(refusal) for step, refusal in explanation.refusals],
        "not_reached": list(explanation.not_reached),
        "identity": _identity(explanation.identity),
        "memberships": None if explanation.memberships is None else _names(explanation.memberships),
        "scope": _scope(explanation.scope),
        "model": _model(explanation.model),
        "unit": str(explanation.unit.unit) if isinstance(explanation.unit, Decision) else None,
        "border": _border(explanation, model),
        "shared_by": who_shares(explanation.unit.unit) if isinstance(explanation.unit, Decision) else None,
        "projects": None if explanation.sharing is None else _names(explanation.sharing.projects),
        "not_entered": None if explanation.sharing is None else _names(explanation.sharing.not_entered),
        "rules": None if explanation.unit is None else _rules(explanation.narrowing),
        "narrowest_unit": explanation.narrowing and str(explanation.narrowing.narrowest),
        "epoch": salt and salt.epoch,
        "key": salt and salt.key_id,
        "fingerprint": salt.fingerprint if isinstance(salt, Salt) else None,
        "salt_depends_on_gate": isinstance(salt, WithinSalt),
        "notes": list(notes),
        "directory_faults": [{"key": fault.key, "message": fault.message} for fault in faults],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def border_document(border: Border, *, workspace: str, project: str, model: str | None) -> dict[str, object]:
    """Why a border is where it is, for programs."""
    return {
        "level": border.level.value,
        "policy": border.policy.value,
        "line": border.line.value,
        "turns": [{"cause": turn.cause.value, "to": turn.to.value} for turn in border.turns],
        "because": because(border, workspace=workspace, project=project, model=model),
    }


def refusal_document(refusal: Refusal) -> dict[str, object]:
    """What the caller would be told, and the finer reason that he would not."""
    return {
        "status": refusal.status,
        "code": refusal.code,
        "message": refusal.message,
        "reason": refusal.reason,
    }


def _identity(found: Identity | Refusal) -> dict[str, object] | None:
    if isinstance(found, Refusal):
        return None
    return {
        "issuer": found.issuer,
        "subject": found.subject,
        "client": found.client,
        "method": found.method,
        "groups": sorted(found.groups) if found.groups_complete else "unknown",
        "groups_named": sorted(found.groups),
        "expires_at": found.expires_at,
        "token_id": found.token_id,
        "only_for": None if found.projects is None else _names(sorted(found.projects)),
    }


def _scope(found: Scope | Refusal | None) -> dict[str, object] | None:
    if not isinstance(found, Scope):
        return None
    return {
        "workspace": found.workspace,
        "project": found.project,
        "team": found.team,
        "collection": found.collection,
        "narrower": found.narrower and found.narrower.value,
        "model_units": {model: level.value for model, level in sorted(found.model_units.items())},
        "models": None if found.models is None else sorted(found.models),
    }


def _model(found: Serving | tuple[str, ...] | Refusal | None) -> dict[str, object] | None:
    if found is None or isinstance(found, Refusal):
        return None
    if not isinstance(found, Serving):
        return {"name": None, "usable": list(found)}
    return {
        "name": found.model,
        "engine": found.engine,
        "proof": found.proof,
        "replicas": list(found.replicas),
        "endpoints": list(found.endpoints),
    }


def _border(explanation: Explanation, model: str | None) -> dict[str, object] | None:
    if not isinstance(explanation.unit, Decision) or not isinstance(explanation.scope, Scope):
        return None
    scope = explanation.scope
    return border_document(explanation.unit.border, workspace=scope.workspace, project=scope.project, model=model)


def _rules(narrowing: Narrowing | None) -> list[dict[str, str]]:
    return [{"name": name, "unit": str(unit)} for name, unit in narrowing.rules] if narrowing is not None else []


def _names(projects: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{workspace}/{project}" for workspace, project in projects]


def _paragraphs(explanation: Explanation, model: str | None) -> Iterator[tuple[str, str]]:
    for step, found in explanation.steps:
        if found is None:
            yield step, "not reached"
        elif isinstance(found, Refusal):
            yield step, f"refused: {found.status} {found.code}, reason {found.reason}. {found.message}"
        else:
            yield from _told(explanation, step, found, model)
        if step == "directory" and explanation.memberships is not None:
            yield "memberships", listed(_names(explanation.memberships), at_most=_LISTED_AT_MOST) or "none"


def _told(explanation: Explanation, step: str, found: object, model: str | None) -> Iterator[tuple[str, str]]:
    match found:
        case Identity():
            yield from _told_identity(found)
        case Scope():
            yield step, _told_scope(found)
        case Serving():
            yield from _told_serving(found)
        case Named():
            pass  # what the request names shows in the scope
        case tuple():
            yield step, f"none named; this scope may use {listed(found, at_most=_LISTED_AT_MOST) or 'none'}"
        case Decision():
            yield from _told_unit(explanation, found, model)
        case Salt():
            yield step, f"fingerprint {found.fingerprint}, epoch {found.epoch}, key {found.key_id}"
        case WithinSalt():
            yield step, _told_within(found)
        case _:
            pass  # so does what the directory says


def _told_identity(identity: Identity) -> Iterator[tuple[str, str]]:
    yield "identity", f"{identity.subject}, of {identity.issuer}"
    yield "", f"client {identity.client or 'not named'}; the token is good until {_time(identity.expires_at)}"
    if identity.method == "introspection":
        yield "", "an opaque token: the issuer was asked about it"
    if identity.token_id is not None:
        yield "", f"by the personal access token {identity.token_id}"
    if identity.projects is not None:
        yield "", f"only for {listed(_names(sorted(identity.projects)), at_most=_LISTED_AT_MOST) or 'nothing'}"
    groups = listed(sorted(identity.groups), at_most=_LISTED_AT_MOST) or "none"
    unknown = _UNKNOWN_GROUPS if identity.token_id is None else _TOO_OLD_GROUPS
    yield "", f"groups {groups if identity.groups_complete else unknown}"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _told_scope(scope: Scope) -> str:
    team = f", of team {scope.team}" if scope.team is not None else ""
    collection = f", asking about collection {scope.collection}" if scope.collection is not None else ""
    return f"{scope.workspace}/{scope.project}{team}{collection}"


def _told_serving(serving: Serving) -> Iterator[tuple[str, str]]:
    where = ", ".join(serving.replicas)
    yield "model", f"{serving.model}, at engine {serving.engine} ({where}): {', '.join(serving.endpoints)}"
    if serving.proof == "strict":
        yield "", "of these endpoints those that the running gate has proven; `saltgate check` tries them all"


def _told_unit(explanation: Explanation, decision: Decision, model: str | None) -> Iterator[tuple[str, str]]:
    scope = explanation.scope
    assert isinstance(scope, Scope)
    yield "unit", str(decision.unit)
    yield "", "because " + because(decision.border, workspace=scope.workspace, project=scope.project, model=model)
    if model is None and scope.model_units:
        yield (
            "",
            f"another border may hold for {listed(sorted(scope.model_units), at_most=_LISTED_AT_MOST)}: see --model",
        )
    yield "shared by", who_shares(decision.unit)
    if explanation.sharing is not None:
        yield from _told_sharing(explanation.sharing, decision.unit)
    yield from _told_narrowing(explanation.narrowing, decision.unit)


def _told_narrowing(narrowing: Narrowing | None, unit: Unit) -> Iterator[tuple[str, str]]:
    if narrowing is None:
        return
    rules = [f"{name} ({found})" for name, found in narrowing.rules]
    yield "rules", f"hold here and may narrow by content: {listed(rules, at_most=_LISTED_AT_MOST)}"
    narrowest = narrowing.narrowest
    if narrowest == unit:
        yield "", "none of them makes this border narrower"
        return
    yield (
        "",
        f"where they find something, or cannot look, the border is {narrowest} at the narrowest, with its own salt",
    )
    yield "", f"that is shared by {who_shares(narrowest)}"


def _told_within(salt: WithinSalt) -> str:
    return (
        "depends on the salt that this caller, a saltgate ([[gates]]), stamped: what it keeps apart is kept apart "
        f"inside the unit (epoch {salt.epoch}, key {salt.key_id}), and a request without its salt is refused"
    )


def _told_sharing(sharing: Sharing, unit: Unit) -> Iterator[tuple[str, str]]:
    if not isinstance(unit, ProjectUnit | UserUnit):
        yield "", f"projects {listed(_names(sharing.projects), at_most=_LISTED_AT_MOST)}"
    if sharing.not_entered:
        yield "", f"this caller may not enter {listed(_names(sharing.not_entered), at_most=_LISTED_AT_MOST)}"


def _wrapped(line: tuple[str, str]) -> str:
    label, text = line
    # A name may hold characters that would rearrange a terminal's line.
    visible = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)
    wrapped = textwrap.wrap(
        label.ljust(_LABEL) + visible,
        _COLUMNS,
        subsequent_indent=" " * _LABEL,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(wrapped) + "\n"


def _verdict(explanation: Explanation) -> str:
    if not explanation.refusals:
        return "Such a request would be let through."
    step, refusal = explanation.refusals[0]
    return f"Such a request would be refused at the {step}: {refusal.status} {refusal.code}."
