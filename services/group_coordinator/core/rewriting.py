"""Keys of the group log, and a key's newest live record, computed from a group's value (CM-18).

A key is (record type, group id, member id or ""). Tombstones have no copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from group_coordinator.core import records
from group_coordinator.core.group import Group
from group_coordinator.core.member import NO_EPOCH
from group_coordinator.core.records import ColdCopy, Record, Tombstone, Value

Key = tuple[int, str, str]

_KINDS: Final[dict[type[Any], int]] = {
    records.MemberMetadata: records.MEMBER,
    records.GroupMetadata: records.GROUP,
    records.TargetMetadata: records.TARGET_META,
    records.TargetMember: records.TARGET,
    records.CurrentAssignment: records.CURRENT,
    records.StateMetadata: records.STATE,
    records.DeletedGroup: records.DELETED,
    records.ServedTime: records.SERVED,
}


def kind_of(record: Record) -> int:
    """Return the record's type number."""
    if isinstance(record, Tombstone):
        return record.kind
    return _KINDS[type(record.record if isinstance(record, ColdCopy) else record)]


def anchor_key(record: Record) -> Key:
    """Return the key of which the record is a copy or the tombstone."""
    value = record.record if isinstance(record, ColdCopy) else record
    return (kind_of(value), value.group_id, getattr(value, "member_id", ""))


def live_record(group: Group, kind: int, member_id: str = "") -> Value | None:
    """Return the record with the group's current value of a key; None when the key has no live value."""
    return _LIVE[kind](group, member_id)


def _member(group: Group, member_id: str) -> Value | None:
    member = group.members.get(member_id)
    return None if member is None else member.metadata(group.group_id)


def _current(group: Group, member_id: str) -> Value | None:
    member = group.members.get(member_id)
    return None if member is None or member.epoch == NO_EPOCH else member.current(group.group_id)


def _target(group: Group, member_id: str) -> Value | None:
    target = group.targets.get(member_id)
    return None if target is None else records.TargetMember(group.group_id, member_id, target)


def _metadata(group: Group, _: str) -> Value:
    return records.GroupMetadata(group.group_id, group.epoch, group.metadata_hash, len(group.members), group.used_ms)


def _target_metadata(group: Group, _: str) -> Value | None:
    if group.assignment_epoch == NO_EPOCH:
        return None
    return records.TargetMetadata(
        group.group_id, group.assignment_epoch, group.assignment_ms, group.basis, group.computed_by
    )


def _state(group: Group, _: str) -> Value | None:
    return None if group.lifecycle is None else records.StateMetadata(group.group_id, group.lifecycle)


_LIVE: Final[dict[int, Callable[[Group, str], Value | None]]] = {
    records.MEMBER: _member,
    records.GROUP: _metadata,
    records.TARGET_META: _target_metadata,
    records.TARGET: _target,
    records.CURRENT: _current,
    records.STATE: _state,
}
