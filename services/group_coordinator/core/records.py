"""The records of the group log as frozen values: Kafka's types 10–15, our own types 90 and 91, and tombstones (GC-46,
GC-59a, GC-60…GC-63, GC-93).

Assignments and lists in a record never change after it was built. In-memory fields are not persisted; a record read
from the log has their defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from group_coordinator.core.lifecycle import Lifecycle
from group_coordinator.core.views import Assignment

MEMBER: Final = 10
GROUP: Final = 11
TARGET_META: Final = 12
TARGET: Final = 13
CURRENT: Final = 14
STATE: Final = 15
DELETED: Final = 90
SERVED: Final = 91

# Member states (GC-60); share members are always STABLE.
STABLE: Final = 0
UNKNOWN_STATE: Final = 127
KNOWN_STATES: Final = frozenset({0, 1, 2})

# Why a member's records were tombstoned (PM-20 X6).
REASON_LEFT: Final = "left"
REASON_EXPIRED: Final = "expired"
REASON_ADMIN: Final = "admin"


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    """Type 10: a member's subscription, client, host and rack; `subscribed` is sorted and has no duplicates.
    `principal`: the principal that joined; "" if unknown (GC-23b)."""

    group_id: str
    member_id: str
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed: tuple[str, ...]
    principal: str = ""


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """Type 11: group epoch and metadata hash; `member_count` is for readers of the log only (PM-20 X7).

    `used_ms`: an empty group's last use, in its shard's served time; None when not known (GC-46).
    """

    group_id: str
    epoch: int
    metadata_hash: int
    member_count: int
    used_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TargetMetadata:
    """Type 12: the epoch of the target assignment, and when (wall clock) it was computed; 0 means compute it at once.

    `basis`: the assignable partitions it was computed from; in-memory only; None when not known (GC-24c).
    `computed_by`: the value of `assignors.computed_by` at that time; "" when not known.
    """

    group_id: str
    epoch: int
    timestamp_ms: int
    basis: Assignment | None = None
    computed_by: str = ""


@dataclass(frozen=True, slots=True)
class TargetMember:
    """Type 13: one member's target."""

    group_id: str
    member_id: str
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """Type 14: the assignment that a member was last given, and its epochs."""

    group_id: str
    member_id: str
    epoch: int
    previous_epoch: int
    state: int
    assigned: Assignment


@dataclass(frozen=True, slots=True)
class StateMetadata:
    """Type 15: the three complete lists (GC-63); the entries' `since_ms` and `attempt` are in-memory only."""

    group_id: str
    lifecycle: Lifecycle


@dataclass(frozen=True, slots=True)
class DeletedGroup:
    """Type 90: the epoch at which a group was deleted, and when (wall clock). It is not part of a group (GC-93)."""

    group_id: str
    epoch: int
    deleted_at_ms: int


@dataclass(frozen=True, slots=True)
class ServedTime:
    """Type 91: how long the shard has been served, by all its owners (GC-46). It belongs to no group."""

    served_ms: int
    group_id: str = ""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Deletes a key: `kind` is the record type; `member_id` is empty for types 11, 12, 15 and 90; `reason`: see X6."""

    kind: int
    group_id: str
    member_id: str = ""
    reason: str = ""


Value = (
    MemberMetadata
    | GroupMetadata
    | TargetMetadata
    | TargetMember
    | CurrentAssignment
    | StateMetadata
    | DeletedGroup
    | ServedTime
)


@dataclass(frozen=True, slots=True)
class ColdCopy:
    """A live record that compaction rewrote; readers of the log do not count it as an event (CM-18)."""

    record: Value


Record = Value | Tombstone | ColdCopy


class InconsistentLogError(Exception):
    """The log has a record that no coordinator writes; the shard must not be served (GC-64…GC-67)."""
