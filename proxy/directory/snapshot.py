"""What the directory said at one moment, immutable; and the next moment, with only what changed parsed anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from proxy.directory.endings import NOTHING_ENDED, Endings
from proxy.directory.model import Directory, DirectoryFaults, Fault, Member, Workspace, workspace_from_json
from proxy.directory.records import Records
from proxy.isolation.ring import Ring


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`blocks` names the refused members of each issuer; `ring` is None where it is missing or cannot be read."""

    directory: Directory
    blocks: Mapping[str, frozenset[Member]]
    ring: Ring | None
    generation: int
    endings: Endings = NOTHING_ENDED


@dataclass(frozen=True, slots=True)
class Reading:
    """A snapshot with the bytes it was parsed from. `faults` are the records that it had to leave out."""

    snapshot: Snapshot
    documents: Mapping[str, bytes]
    workspace_faults: Mapping[str, tuple[Fault, ...]]
    record_faults: tuple[Fault, ...]

    @property
    def faults(self) -> tuple[Fault, ...]:
        return (*self.record_faults, *(fault for faults in self.workspace_faults.values() for fault in faults))


NOTHING_READ = Reading(Snapshot(Directory.of(()), {}, None, 0), {}, {}, ())


def read(records: Records, previous: Reading) -> Reading:
    """The reading of `records`. Only workspaces whose bytes differ from the previous reading are parsed.

    A malformed workspace is left out with its fault, also where an earlier form of it was well: an old membership must
    not outlive the record that may have ended it. The others serve.
    """
    documents = {name: document for name, document in records.workspaces.items() if name not in records.unsafe}
    changes: dict[str, Workspace | None] = dict.fromkeys(previous.documents.keys() - documents.keys())
    faults = {name: found for name, found in previous.workspace_faults.items() if name in documents}
    for name, document in documents.items():
        if previous.documents.get(name) != document:
            changes[name], found = _parsed(name, document)
            faults.pop(name, None)
            if found:
                faults[name] = found
    directory = previous.snapshot.directory.changed(changes) if changes else previous.snapshot.directory
    snapshot = Snapshot(directory, records.blocks, records.ring, records.generation, records.endings)
    if directory is previous.snapshot.directory and snapshot == previous.snapshot:
        snapshot = previous.snapshot  # the same object: who compares by identity sees no change where there is none
    return Reading(snapshot, documents, faults, records.faults)


def _parsed(name: str, document: bytes) -> tuple[Workspace | None, tuple[Fault, ...]]:
    try:
        return workspace_from_json(name, document), ()
    except DirectoryFaults as error:
        return None, error.faults
