"""What the store contains about groups: the records of the group log and of the share state, replayed outside all
processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from group_coordinator.codec import GroupLogCodec
from group_coordinator.core import records
from group_coordinator.core.group import Group, replayed
from group_coordinator.core.records import DeletedGroup, Record
from kip932.ids import SharePartitionKey
from tests.simulation.rebuild import Rebuilding, Rebuilt
from tests.twin.data import Data

_ANY: Final = -9


@dataclass(frozen=True)
class StoredGroup:
    """A group in the group log. `initializing`: partition → (start offset, state epoch); `topics`: by name."""

    epoch: int
    members: tuple[str, ...]
    initialized: Mapping[str, tuple[int, ...]]
    initializing: Mapping[str, Mapping[int, tuple[int, int | None]]]
    deleting: tuple[str, ...]
    dropping: bool


@dataclass(frozen=True)
class Stored:
    """All groups, the stored epochs of deleted ones, and the share state: (state epoch, start offset) by partition."""

    groups: Mapping[str, StoredGroup]
    deleted: Mapping[str, int]
    states: Mapping[str, tuple[int, int]]

    def without_epochs(self) -> Stored:
        """Return the contents without epochs, to compare runs that do not increment them equally often."""
        groups = {
            key: replace(
                group,
                epoch=_ANY,
                initializing={
                    topic: {index: (start, _ANY) for index, (start, _) in entries.items()}
                    for topic, entries in group.initializing.items()
                },
            )
            for key, group in self.groups.items()
        }
        return Stored(groups, dict.fromkeys(self.deleted, _ANY), {k: (_ANY, at) for k, (_, at) in self.states.items()})

    def require_epochs(self) -> None:
        """Check that the group of every state exists and has reached the state's epoch (INV-12, GC-102)."""
        for key, (epoch, _) in self.states.items():
            group_id = key.split(":")[0]
            assert epoch <= self.groups[group_id].epoch, (key, self)


def stored(data: Data, names: Mapping[bytes, str]) -> Stored:
    """Replay the streams of a store; `names`: topic names by id."""
    groups, deleted = _groups(data)
    reading = Rebuilding()
    for key, stream in sorted(data.streams.items()):
        if key.startswith("{sgs:"):
            reading.read(stream.fields)
    reading.finish()
    assert not reading.torn, reading.torn
    return Stored(
        {key: _shown(group, names) for key, group in groups.items()},
        deleted,
        {_text(key, names): _kept(state) for key, state in sorted(reading.states.items())},
    )


def _groups(data: Data) -> tuple[dict[str, Group], dict[str, int]]:
    groups: dict[str, Group] = {}
    deleted: dict[str, int] = {}
    for key, stream in sorted(data.streams.items()):
        if not key.startswith("{gc:"):
            continue
        for fields in stream.fields:
            named = dict(zip(fields[::2], fields[1::2], strict=True))
            record = GroupLogCodec().decode(named[b"t"].decode(), named.get(b"r", b""))
            if record is not None:
                _apply(record.record if isinstance(record, records.ColdCopy) else record, groups, deleted)
    return groups, deleted


def _apply(record: Record, groups: dict[str, Group], deleted: dict[str, int]) -> None:
    assert not isinstance(record, records.ColdCopy)
    group_id = record.group_id
    if isinstance(record, DeletedGroup):
        deleted[group_id] = record.epoch
    elif isinstance(record, records.Tombstone) and record.kind == records.DELETED:
        deleted.pop(group_id, None)
    else:
        group = replayed(groups.get(group_id), record)
        if group is None:
            groups.pop(group_id, None)
        else:
            groups[group_id] = group


def _shown(group: Group, names: Mapping[bytes, str]) -> StoredGroup:
    topics = {names[topic_id]: topic for topic_id, topic in group.states.topics.items()}
    return StoredGroup(
        group.epoch,
        tuple(sorted(group.members)),
        {name: topic.initialized for name, topic in topics.items() if topic.initialized},
        {
            name: {index: (entry.start_offset, entry.state_epoch) for index, entry in topic.initializing.items()}
            for name, topic in topics.items()
            if topic.initializing
        },
        tuple(sorted(names[topic_id] for topic_id in group.states.deleting)),
        group.states.dropping,
    )


def _kept(state: Rebuilt) -> tuple[int, int]:
    assert not state.batches, "no member has consumed anything"
    return state.state_epoch, state.start_offset


def _text(key: SharePartitionKey, names: Mapping[bytes, str]) -> str:
    return f"{key.group_id}:{names[key.topic_id]}-{key.partition}"
