"""The vocabulary of profiles: what is said of an engine kind, line by line, each with its reason and its source.

The kinds themselves are in `kinds/`. A profile is data: `generate_fields.py` makes the auditors' table from it.
"""
# ruff: noqa: A005 - imported as proxy.engines.profile; nothing here is run with this folder on the path

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from proxy.engines.remote import Elsewhere
from proxy.engines.rules import Drops, Rule, brings_media
from proxy.refusals import Dialect

MAX_MODEL_CHARACTERS: Final = 256


class Operation(Enum):
    """What a caller asks of a model. Each has its own protocol for bodies, answers and events."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    RESPONSES = "responses"
    MESSAGES = "messages"
    COUNT_TOKENS = "count_tokens"
    EMBEDDINGS = "embeddings"

    # There is one object of each, and each request looks in many tables: Enum's own hash is a call of Python's.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class Line:
    """What happens to one field, why, and where the engine's side of it was read."""

    rule: Rule
    reason: str
    source: str


def lines(reason: str, source: str, rules: Mapping[str, Rule]) -> dict[str, Line]:
    """One line for each of several fields that share reason and source."""
    return {name: Line(rule, reason, source) for name, rule in rules.items()}


def drops(source: str, reasons: Mapping[str, str]) -> dict[str, Line]:
    """One line for each field that is left out."""
    return {name: Line(Drops(), reason, source) for name, reason in reasons.items()}


@dataclass(frozen=True, slots=True)
class SaltPlaces:
    """Every place where an engine reads a salt; all get the same one.

    `members` are paths in the body, and what a client wrote under the first name of a path goes. `header` is sent
    once.
    """

    members: tuple[tuple[str, ...], ...]
    source: str
    header: str | None = None


@dataclass(frozen=True, slots=True)
class MediaPlace:
    """The field whose messages may hold images in their parts, each of which gets an identity of ours; and how many.

    `elsewhere` says which addresses may stand in the place of images, each of at most `most_bytes`.
    """

    field: str
    most: int
    most_bytes: int
    elsewhere: Elsewhere | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One exact method and path, and its table of fields.

    `salt` is None where the engine answers without computing a prompt: there is no cache whose border it could be, and
    nothing to prove. `streams`: it has a `stream` field. `usage_on_demand`: a stream tells its usage only when
    `stream_options` asks (chat and completions). `constants` are sent whatever the client says. `id_prefix` precedes
    the gate's request id in the body's `request_id`; None where the engine has no such field. `hides` are members of a
    whole answer that are not the client's, `hides_in_choices` those of each of its choices, with the reason. `media`
    is None where no images may come. Raises ValueError where the table lets images pass in a field that is not the
    one where they get their identity.
    """

    operation: Operation
    method: str
    path: str
    dialect: Dialect
    fields: Mapping[str, Line] = field(repr=False)
    salt: SaltPlaces | None
    streams: bool = True
    usage_on_demand: bool = False
    constants: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    id_prefix: str | None = None
    hides: Mapping[str, str] = field(default_factory=dict, repr=False)
    hides_in_choices: Mapping[str, str] = field(default_factory=dict, repr=False)
    media: MediaPlace | None = None
    path_bytes: bytes = field(init=False, repr=False, compare=False)
    operation_name: str = field(init=False, repr=False, compare=False)
    salted_names: frozenset[str] = field(init=False, repr=False, compare=False)
    """Of the members in which its engine, or any engine, reads a salt: nothing of a client's goes up under them."""

    def __post_init__(self) -> None:
        places = () if self.salt is None else self.salt.members
        object.__setattr__(self, "path_bytes", self.path.encode("ascii"))
        object.__setattr__(self, "operation_name", self.operation.value)
        object.__setattr__(self, "salted_names", frozenset({"cache_salt", *(path[0] for path in places)}))
        bringing = [name for name, line in self.fields.items() if brings_media(line.rule)]
        if bringing != ([] if self.media is None else [self.media.field]):
            raise ValueError(f"{self.path}: {bringing} may hold images that would get no identity")


@dataclass(frozen=True, slots=True)
class Profile:
    """One engine kind. `title` and `version` are for people: its name, and what of it was read.

    `reports_reuse` and `reuses_prefixes` complete "the engine does not report reused tokens: …" and "the same salt
    reused nothing: …" for an operator. `counts_in_metrics`: its /metrics tell in vLLM's names how many prefix caches it
    has, whether they are on, and how many tokens they gave.
    """

    kind: str
    title: str
    version: str
    endpoints: tuple[Endpoint, ...]
    reports_reuse: str
    reuses_prefixes: str
    counts_in_metrics: bool = False
    _by_operation: Mapping[Operation, Endpoint] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_operation", {endpoint.operation: endpoint for endpoint in self.endpoints})

    def endpoint(self, operation: Operation) -> Endpoint | None:
        """The kind's endpoint for an operation; None where it has none that may be used."""
        return self._by_operation.get(operation)

    @property
    def takes_images(self) -> bool:
        """Whether images may come at one of its endpoints."""
        return any(endpoint.media is not None for endpoint in self.endpoints)

    @property
    def salted(self) -> tuple[Endpoint, ...]:
        """The endpoints that carry a salt, and are therefore to be proven."""
        return tuple(endpoint for endpoint in self.endpoints if endpoint.salt is not None)
