"""Decides deletions of groups, deletions of a group's offsets for whole topics, and how to resume interrupted ones
(GC-90…GC-99, OP-5, OP-6).

A deletion has two writes, with the call that deletes state between them. The first write moves the topics to
`deleting`; the last one deletes the group, or removes the topics from `deleting`. After a crash, the topics still in
`deleting` show what to resume. Pure functions of one group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from group_coordinator.core import records
from group_coordinator.core.admin_calls import AdminKind
from group_coordinator.core.commands import DeleteState, DeletionBegun
from group_coordinator.core.group import Group
from group_coordinator.core.heartbeat import Draft
from group_coordinator.core.lifecycle import UNKNOWN_NAME, Lifecycle
from group_coordinator.core.records import DeletedGroup, Record, Tombstone
from group_coordinator.core.views import TopicsView
from kip932.errors import (
    CoordinatorLoadInProgressError,
    KafkaError,
    NonEmptyGroupError,
    UnknownTopicOrPartitionError,
)
from kip932.ids import TopicIdPartition

#: A group's tombstones that name no member, in the order in which they must be replayed (GC-65…GC-67).
_BEFORE_MEMBERS: Final = (records.TARGET_META,)
_AFTER_MEMBERS: Final = (records.STATE, records.GROUP)


def require_empty(group: Group) -> None:
    """Raise NON_EMPTY_GROUP for a group with members (GC-45, GC-91, GC-96, GC-101)."""
    if group.members:
        raise NonEmptyGroupError(
            f"group {group.group_id} has {len(group.members)} members; expected none: stop its consumers, or wait "
            "until their sessions have expired, and try again"
        )


def group_deletion(group: Group, view: TopicsView, fresh: bool) -> tuple[Lifecycle, tuple[TopicIdPartition, ...]]:
    """Step 1 of deleting a group: its lists with every topic in deleting, and the partitions to delete (GC-91).

    `fresh`: the image has everything that was in the metadata log when the shard was loaded; otherwise a topic that it
    lacks may exist.
    """
    states = group.states
    found: dict[bytes, set[int]] = {
        topic_id: {*topic.initialized, *topic.initializing} for topic_id, topic in states.topics.items()
    }
    for topic_id in states.deleting:
        topic = view.by_id(topic_id)
        if topic is not None:
            found.setdefault(topic_id, set()).update(range(topic.partitions))
        elif not fresh:
            raise CoordinatorLoadInProgressError(
                f"the state of a topic of group {group.group_id} is being deleted, and the cluster's metadata was not "
                "read again since this node took the group over; try again"
            )
    names = {topic_id: topic.name if (topic := view.by_id(topic_id)) else UNKNOWN_NAME for topic_id in found}
    return Lifecycle(deleting=names, dropping=True), _partitions(found)


def offsets_deletion(
    group: Group, view: TopicsView, names: Sequence[str]
) -> tuple[Lifecycle, tuple[TopicIdPartition, ...], DeletionBegun]:
    """Step 1 of deleting a group's offsets: its lists, the partitions to delete, and the reply by topic (GC-97)."""
    states = group.states
    found: dict[bytes, set[int]] = {}
    accepted: dict[str, bytes] = {}
    refused: dict[str, KafkaError] = {}
    for name in names:
        topic = view.by_name(name)
        if topic is None:
            refused[name] = UnknownTopicOrPartitionError(
                f"topic {name} does not exist; expected a topic of the cluster"
            )
            continue
        state = states.topics.get(topic.topic_id)
        if topic.topic_id in states.deleting:
            wanted = set(range(topic.partitions))
        elif state is not None and state.initialized:
            # Include entries of an alteration whose outcome is unknown; else it would be retried after the deletion
            # (GC-99).
            wanted = {*state.initialized, *state.initializing}
        else:
            refused[name] = UnknownTopicOrPartitionError(
                f"group {group.group_id} has no offsets of topic {name}, so there is nothing to delete"
            )
            continue
        found[topic.topic_id] = wanted
        accepted[name] = topic.topic_id
    moved = states.moved_to_deleting({topic_id: name for name, topic_id in accepted.items()}) if accepted else states
    return moved, _partitions(found), DeletionBegun(bool(accepted), accepted, refused)


def interrupted(group: Group, view: TopicsView) -> tuple[AdminKind, tuple[TopicIdPartition, ...]] | None:
    """The remaining work of an interrupted deletion; None when nothing can be done now (OP-6).

    The caller has checked that the view is new enough (GC-80). Topics known to be deleted have left the lists by then;
    a topic that is only absent from the image delays the group, as in `upkeep.swept`.
    """
    states = group.states
    if group.members or any(topic.initializing for topic in states.topics.values()):
        return None
    if not (states.deleting or states.dropping) or any(view.by_id(topic_id) is None for topic_id in states.deleting):
        return None
    found = {
        topic_id: set(range(topic.partitions)).difference(state.initialized if state is not None else ())
        for topic_id in states.deleting
        if (topic := view.by_id(topic_id)) is not None
        for state in (states.topics.get(topic_id),)
    }
    # While a group is being deleted, only `deleting` has entries; other entries mean that it is in use again.
    kind = AdminKind.DELETE_GROUP if states.dropping and not states.topics else AdminKind.DELETE_OFFSETS
    return kind, _partitions(found)


def erased(group: Group, before: DeletedGroup | None, wall_ms: int) -> list[Record]:
    """Step 3 of deleting a group: its tombstones in order, and the record that keeps its epoch (GC-93, GC-63a).

    `before`: the record still kept for the id. Its epoch may be higher than the group's, if a build that does not know
    the record created the group again, from epoch 1.
    """
    group_id = group.group_id
    members = sorted({*group.members, *group.targets})
    found: list[Record] = []
    for member_id in members:
        for kind in (records.CURRENT, records.TARGET):
            found.append(Tombstone(kind, group_id, member_id, records.REASON_ADMIN))
    found.extend(Tombstone(kind, group_id, reason=records.REASON_ADMIN) for kind in _BEFORE_MEMBERS)
    found.extend(Tombstone(records.MEMBER, group_id, member_id, records.REASON_ADMIN) for member_id in members)
    found.extend(Tombstone(kind, group_id, reason=records.REASON_ADMIN) for kind in _AFTER_MEMBERS)
    epoch = group.epoch if before is None else max(group.epoch, before.epoch)
    return [*found, DeletedGroup(group_id, epoch, wall_ms)]


def ordered(
    group: Group, states: Lifecycle, partitions: tuple[TopicIdPartition, ...], attempt: int, call_id: int
) -> Draft:
    """The draft of a deletion's step 1: the lists, and the order to delete state (GC-92, GC-98)."""
    draft = Draft(group)
    if states is not group.states:
        draft.write(records.StateMetadata(group.group_id, states))
    draft.effects.append(DeleteState(group.group_id, group.epoch, partitions, attempt, call_id))
    return draft


def epoch_risen(group: Group, stored_epoch: int) -> list[Record]:
    """The record that raises an empty group to the state epoch that fenced its deletion (GC-92). The group's log had
    lost its tail; without this record, the state could not be deleted until a member joins. A group with members needs
    no record: their heartbeats raise its epoch (GC-76)."""
    if group.members or stored_epoch <= group.epoch:
        return []
    return [records.GroupMetadata(group.group_id, stored_epoch, group.metadata_hash, 0, group.used_ms)]


def offsets_deleted(group: Group, topic_ids: Collection[bytes]) -> Draft:
    """End of step 2: topics whose state was deleted leave `deleting` (GC-98). A topic that a member uses again has
    already left it."""
    draft = Draft(group)
    states = group.states.deleted(topic_ids)
    if states is not group.states:
        draft.write(records.StateMetadata(group.group_id, states))
    return draft


class DeletedGroups:
    """The epochs of recently deleted groups; only replay changes them (GC-93)."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[str, DeletedGroup] = {}

    def get(self, group_id: str) -> DeletedGroup | None:
        """Return the record kept for a group id, or None."""
        return self._found.get(group_id)

    def put(self, group_id: str, deleted: DeletedGroup | None) -> None:
        """Set the record kept for a group id; None removes it."""
        if deleted is not None:
            self._found[group_id] = deleted
        else:
            self._found.pop(group_id, None)

    def born(self, group_id: str, keep_ms: int, wall_ms: int) -> Group:
        """Return a new group with that id. Its epoch continues from that of a group deleted within `keep_ms`."""
        deleted = self._found.get(group_id)
        if deleted is None or wall_ms - deleted.deleted_at_ms >= keep_ms:
            return Group(group_id)
        return Group(group_id, epoch=deleted.epoch)

    def expired(self, keep_ms: int, wall_ms: int) -> Iterator[Tombstone]:
        """Yield tombstones for records that were kept for `keep_ms`."""
        for group_id, deleted in self._found.items():
            if wall_ms - deleted.deleted_at_ms >= keep_ms:
                yield Tombstone(records.DELETED, group_id)


def _partitions(found: Mapping[bytes, Iterable[int]]) -> tuple[TopicIdPartition, ...]:
    return tuple(TopicIdPartition(topic_id, index) for topic_id in sorted(found) for index in sorted(found[topic_id]))
