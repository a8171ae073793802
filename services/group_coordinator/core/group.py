"""One share group as a frozen value: epochs, members, targets, and the states of its share-partitions.

Every replayed record makes a new value that shares all unchanged parts with the old one. So the old value serves as the
undo token, and values derived from an unchanged part stay valid, since it is the same object. This module has the rules
of replay (GC-64…GC-69a); it does not decide what to write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Final

from group_coordinator.core import records
from group_coordinator.core.lifecycle import Lifecycle
from group_coordinator.core.member import NO_EPOCH, Member
from group_coordinator.core.records import InconsistentLogError, Record, Tombstone
from group_coordinator.core.views import Assignment, canonical

EMPTY: Final = "Empty"
GROUP_STABLE: Final = "Stable"
#: The state shown of a group that has damaged entries (GC-158).
GROUP_UNKNOWN: Final = "Unknown"
NO_LIFECYCLE: Final = Lifecycle()


@dataclass(frozen=True, slots=True)
class Subscription:
    """How many members subscribe to each topic name, over a whole group."""

    names: Mapping[str, int] = field(default_factory=dict)

    def changed(self, old: tuple[str, ...], new: tuple[str, ...]) -> Subscription:
        """The counts after one member's subscription changed from `old` to `new`."""
        if old == new:
            return self
        names = dict(self.names)
        for name in new:
            names[name] = names.get(name, 0) + 1
        for name in old:
            names[name] = names.get(name, 0) - 1
        return Subscription({name: count for name, count in names.items() if count > 0})

    def homogeneous(self, members: int) -> bool:
        """Return whether all members subscribe to every subscribed name; True without any subscription (GC-51)."""
        return all(count == members for count in self.names.values())


NO_SUBSCRIPTION: Final = Subscription()


@dataclass(frozen=True, slots=True)
class Group:
    """A share group; `epoch` is GE, `assignment_epoch` AE, `assignment_ms` AT, `targets` TA of the specification.

    `basis`: the assignable partitions from which the current target was computed; None after a load (GC-24c).
    `computed_by`: the assignor that computed it (`assignors.computed_by`), "" when not known. `lifecycle`: None when
    there is no STATE record. `used_ms`: see `records.GroupMetadata`.
    """

    group_id: str
    epoch: int = 1
    metadata_hash: int = 0
    assignment_epoch: int = 1
    assignment_ms: int = 0
    members: Mapping[str, Member] = field(default_factory=dict)
    targets: Mapping[str, Assignment] = field(default_factory=dict)
    subscription: Subscription = NO_SUBSCRIPTION
    lifecycle: Lifecycle | None = None
    basis: Assignment | None = None
    computed_by: str = ""
    used_ms: int | None = None

    @property
    def state(self) -> str:
        """Empty without members, else Stable; a share group has no other state (GC-40)."""
        return GROUP_STABLE if self.members else EMPTY

    @property
    def states(self) -> Lifecycle:
        """The lifecycle lists; empty ones without a STATE record."""
        return self.lifecycle if self.lifecycle is not None else NO_LIFECYCLE

    @property
    def has_targets(self) -> bool:
        """Return whether any member has a target that is not empty (OP-19)."""
        return any(self.targets.values())

    def target_basis(self) -> Assignment:
        """The partitions from which the current target was computed; after a load, the union of all targets
        (GC-24c)."""
        if self.basis is not None:
            return self.basis
        union: dict[bytes, set[int]] = {}
        for target in self.targets.values():
            for topic_id, indexes in target.items():
                union.setdefault(topic_id, set()).update(indexes)
        return canonical({topic_id: tuple(sorted(indexes)) for topic_id, indexes in union.items()})

    def with_member(self, member: Member) -> Group:
        """The group with a member added or replaced."""
        old = self.members.get(member.member_id)
        subscription = self.subscription.changed(old.subscribed if old else (), member.subscribed)
        return _changed(self, members={**self.members, member.member_id: member}, subscription=subscription)

    def without_member(self, member_id: str) -> Group:
        """The group without a member."""
        members = dict(self.members)
        member = members.pop(member_id)
        return _changed(self, members=members, subscription=self.subscription.changed(member.subscribed, ()))


_FIELDS: Final = tuple(each.name for each in fields(Group))
_values: Final = attrgetter(*_FIELDS)


def _changed(group: Group, **changes: Any) -> Group:
    """Like `dataclasses.replace`, in half the time: a load makes one value for each stored record."""
    return Group(**{**dict(zip(_FIELDS, _values(group), strict=True)), **changes})


def replayed(group: Group | None, record: Record) -> Group | None:
    """Return the group after replaying one record, or None when it does not exist. Raises InconsistentLogError
    (GC-64)."""
    if isinstance(record, records.ColdCopy):
        return replayed(group, record.record)
    if isinstance(record, Tombstone):
        return None if group is None else _BURIED[record.kind](group, record.member_id)
    result: Group = _APPLIED[type(record)](Group(record.group_id) if group is None else group, record)
    return result


def _member_of(group: Group, member_id: str) -> Member:
    return group.members.get(member_id) or Member(member_id)


def _member(group: Group, record: records.MemberMetadata) -> Group:
    return group.with_member(_member_of(group, record.member_id).described_by(record))


def _metadata(group: Group, record: records.GroupMetadata) -> Group:
    return _changed(group, epoch=record.epoch, metadata_hash=record.metadata_hash, used_ms=record.used_ms)


def _target_metadata(group: Group, record: records.TargetMetadata) -> Group:
    return _changed(
        group,
        assignment_epoch=record.epoch,
        assignment_ms=record.timestamp_ms,
        basis=record.basis,
        computed_by=record.computed_by,
    )


def _target(group: Group, record: records.TargetMember) -> Group:
    return _changed(group, targets={**group.targets, record.member_id: record.assignment})


def _current(group: Group, record: records.CurrentAssignment) -> Group:
    member = _member_of(group, record.member_id)
    return group.with_member(member.holding(record.epoch, record.previous_epoch, record.state, record.assigned))


def _state(group: Group, record: records.StateMetadata) -> Group:
    return _changed(group, lifecycle=record.lifecycle)


def _bury_member(group: Group, member_id: str) -> Group:
    member = group.members.get(member_id)
    if member is None:
        return group
    if member.epoch != NO_EPOCH or member_id in group.targets:
        raise InconsistentLogError(
            f"group {group.group_id}: the log removes member {member_id}, found at epoch {member.epoch}"
            f"{' with a target' if member_id in group.targets else ''}; expected epoch -1 and no target"  # GC-65
        )
    return group.without_member(member_id)


def _bury_group(group: Group, _: str) -> Group | None:
    if group.members or group.targets or group.assignment_epoch != NO_EPOCH:
        raise InconsistentLogError(
            f"group {group.group_id}: the log removes it, found {len(group.members)} members, {len(group.targets)} "
            f"targets, assignment epoch {group.assignment_epoch}; expected none, none, -1"  # GC-66
        )
    return None


def _bury_target_metadata(group: Group, _: str) -> Group:
    if group.targets:
        raise InconsistentLogError(
            f"group {group.group_id}: the log removes its target epoch, found {len(group.targets)} targets; "
            "expected none"  # GC-67
        )
    return _changed(group, assignment_epoch=NO_EPOCH, assignment_ms=0, basis=None, computed_by="")


def _bury_target(group: Group, member_id: str) -> Group:
    if member_id not in group.targets:
        return group
    return _changed(group, targets={key: target for key, target in group.targets.items() if key != member_id})


def _bury_current(group: Group, member_id: str) -> Group:
    member = group.members.get(member_id)
    return group if member is None else group.with_member(member.holding(NO_EPOCH, NO_EPOCH, records.STABLE, {}))


def _bury_state(group: Group, _: str) -> Group:
    return _changed(group, lifecycle=None)


_APPLIED: Final[dict[type[Any], Callable[[Group, Any], Group]]] = {
    records.MemberMetadata: _member,
    records.GroupMetadata: _metadata,
    records.TargetMetadata: _target_metadata,
    records.TargetMember: _target,
    records.CurrentAssignment: _current,
    records.StateMetadata: _state,
}
_BURIED: Final[dict[int, Callable[[Group, str], Group | None]]] = {
    records.MEMBER: _bury_member,
    records.GROUP: _bury_group,
    records.TARGET_META: _bury_target_metadata,
    records.TARGET: _bury_target,
    records.CURRENT: _bury_current,
    records.STATE: _bury_state,
}
