"""A group shard's commands, replies and effects. Frozen values without behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from group_coordinator.core.member import Member
from group_coordinator.core.views import Assignment
from kip932.errors import KafkaError
from kip932.ids import TopicIdPartition


class Heartbeat(NamedTuple):
    """ShareGroupHeartbeat, after the checks of `validation` (GC-12…GC-18, GC-23a). None means unchanged.

    `principal`: the caller; "" if unknown. `refused`: the error for a leave, unless the caller is the principal that
    joined (GC-23b)."""

    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None = None
    subscribed: tuple[str, ...] | None = None
    client_id: str = ""
    client_host: str = ""
    principal: str = ""
    refused: KafkaError | None = None


class HeartbeatReply(NamedTuple):
    """The reply to a heartbeat. `rebalanced`: it bumped the group epoch, which is counted (GC-24e, GC-152)."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Assignment | None
    rebalanced: bool = False


class SessionExpired(NamedTuple):
    """A member's session clock ran out (GC-30, GC-33)."""

    group_id: str
    member_id: str


class ConnectionLost(NamedTuple):
    """The partition leader `leader` lost the stream of the member's session `ago_ms` ago (GC-36). Reply: whether the
    member's heartbeat is expected now."""

    group_id: str
    member_id: str
    leader: str
    ago_ms: int


class ConnectionBack(NamedTuple):
    """The member has opened a session again, after a leader lost one (GC-37). Reply: whether that changed anything."""

    group_id: str
    member_id: str


class InitializationFinished(NamedTuple):
    """The outcome of an `InitializeState` (GC-75, GC-76, GC-76a, OP-17).

    A partition in none of the lists has an unknown outcome: it stays in initialising and is retried (GC-72). `fenced`:
    those with a larger state epoch at the share coordinator; the largest is `stored_epoch`. Reply: whether another
    round was ordered. `call_id`: that of the `InitializeState`.
    """

    group_id: str
    attempt: int
    succeeded: tuple[TopicIdPartition, ...] = ()
    failed: tuple[TopicIdPartition, ...] = ()
    fenced: tuple[TopicIdPartition, ...] = ()
    stored_epoch: int = -1
    fenced_rounds: int = 0
    call_id: int = 0


class Describe(NamedTuple):
    """Describe one group (GC-125, GC-126)."""

    group_id: str


class ListAll(NamedTuple):
    """List every group of the shard (GC-121)."""


class OffsetsQuery(NamedTuple):
    """List the initialised share-partitions of a group (GC-110)."""

    group_id: str


class Sweep(NamedTuple):
    """Drop deleted topics from the lists, if the image is known to be new enough (GC-79, GC-80).

    `complete_since_ms`: the image has everything that was in the metadata log at this time (by the deadline clock).
    """

    complete_since_ms: int
    limit: int = 100


class RepairCheck(NamedTuple):
    """Order a check of the summaries of groups that have not been checked for a repair interval (GC-82)."""

    limit: int = 100


class Repair(NamedTuple):
    """The share coordinator has lost the state of `lost`, as read while the group was at `group_epoch` (GC-82)."""

    group_id: str
    group_epoch: int
    lost: tuple[TopicIdPartition, ...]


class RequireEmpty(NamedTuple):
    """Refuse early a group that `AlterOffsets` would refuse: it has members, or is being changed (GC-101)."""

    group_id: str


class AlterOffsets(NamedTuple):
    """Set start offsets of an empty group, or of a new one (GC-101…GC-105). `call_id` identifies the waiting caller."""

    group_id: str
    offsets: Mapping[TopicIdPartition, int]
    call_id: int


class DeleteGroup(NamedTuple):
    """Delete an empty group with all its state (GC-91…GC-93). `complete_since_ms`: see `Sweep`."""

    group_id: str
    complete_since_ms: int
    call_id: int


class DeleteOffsets(NamedTuple):
    """Delete the state of topics of an empty group (GC-96…GC-99)."""

    group_id: str
    topic_names: tuple[str, ...]
    call_id: int


class DeletionFinished(NamedTuple):
    """The outcome of a `DeleteState`: the topics with a partition that was not deleted (GC-92, GC-98).

    `stored_epoch`: the largest state epoch of the partitions whose deletion was fenced, since their epoch is above the
    group's; −1 when none was.
    """

    group_id: str
    attempt: int
    failed: frozenset[bytes] = frozenset()
    stored_epoch: int = -1


class CallEnded(NamedTuple):
    """An administrator's call ended without an outcome to note: it timed out, or failed as a whole (GC-108)."""

    group_id: str
    attempt: int


class ResumeDeletions(NamedTuple):
    """Resume interrupted deletions, and forget deleted groups after their retention (OP-6, GC-93). `complete_since_ms`:
    see `Sweep`. `loading`: the shard was just loaded; if deletions wait for the image, order a sweep."""

    complete_since_ms: int
    limit: int = 100
    loading: bool = False


class ExpireEmpty(NamedTuple):
    """Start deleting groups that have been empty for too long (GC-46). `complete_since_ms`: see `Sweep`. At most
    `checks_max` groups are checked, and at most `limit` deletions are started. Reply: those groups, with their age in
    ms."""

    complete_since_ms: int
    checks_max: int = 200
    limit: int = 20


class ProgressSeen(NamedTuple):
    """The progress of an empty group, read while it was at `group_epoch` (GC-46): (partition, start offset, delivery
    complete count) of each share-partition."""

    group_id: str
    group_epoch: int
    progress: tuple[tuple[TopicIdPartition, int, int], ...]


Command = (
    Heartbeat
    | SessionExpired
    | ConnectionLost
    | ConnectionBack
    | InitializationFinished
    | Describe
    | ListAll
    | OffsetsQuery
    | Sweep
    | RepairCheck
    | Repair
    | RequireEmpty
    | AlterOffsets
    | DeleteGroup
    | DeleteOffsets
    | DeletionFinished
    | CallEnded
    | ResumeDeletions
    | ExpireEmpty
    | ProgressSeen
)


class ListedGroup(NamedTuple):
    """One row of ListGroups; `members` is None for a group in quarantine."""

    group_id: str
    state: str
    members: int | None


class DescribedGroup(NamedTuple):
    """One group as ShareGroupDescribe shows it; `topic_names`: topic id → name, for each assigned topic that exists
    (GC-126)."""

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor_name: str
    members: tuple[Member, ...]
    topic_names: Mapping[bytes, str]


class SweepReply(NamedTuple):
    """`changed`: how many groups changed. `more`: the limit was reached, so sweep again. `lagging`: the image may be
    too old."""

    changed: int
    more: bool
    lagging: bool


class AlterationBegun(NamedTuple):
    """`under_way`: an `InitializeState` was ordered, and the caller is notified of its end. `refused`: errors by
    partition."""

    under_way: bool
    refused: Mapping[TopicIdPartition, KafkaError]


class DeletionBegun(NamedTuple):
    """`under_way`: a `DeleteState` was ordered, and the caller is notified of its end; else the call is done.

    For offsets, by topic name (GC-97): `accepted` has the ids of topics being deleted, `refused` the others' errors.
    """

    under_way: bool
    accepted: Mapping[str, bytes] = {}
    refused: Mapping[str, KafkaError] = {}


class ResumeReply(NamedTuple):
    """`more`: the limit was reached, so resume again. `waiting`: a deletion waits until the image is known to be new
    enough."""

    more: bool
    waiting: bool


class InitializeState(NamedTuple):
    """Effect: call InitializeShareGroupState for (partition, start offset) pairs; the outcome returns as
    InitializationFinished.

    `call_id` not 0: an administrator's call, whose outcome is always returned, since its caller waits (GC-103).
    """

    group_id: str
    attempt: int
    state_epoch: int
    partitions: tuple[tuple[TopicIdPartition, int], ...]
    fenced_rounds: int = 0
    call_id: int = 0


class DeleteState(NamedTuple):
    """Effect: call DeleteShareGroupState.

    `attempt` 0: the partitions' topics were deleted, and no outcome is needed (OP-5). Otherwise the outcome returns as
    DeletionFinished; `call_id` not 0: a caller waits for it.
    """

    group_id: str
    state_epoch: int
    partitions: tuple[TopicIdPartition, ...]
    attempt: int = 0
    call_id: int = 0


class SweepSoon(NamedTuple):
    """Effect: sweep as soon as the image is known to be new enough; deletions wait for that (OP-6)."""


class CheckSummaries(NamedTuple):
    """Effect: read these summaries and submit a `Repair` for those with state epoch 0 (GC-82). `watched`: also submit a
    `ProgressSeen`, if all could be read."""

    group_id: str
    group_epoch: int
    partitions: tuple[TopicIdPartition, ...]
    watched: bool = False


class MemberExpired(NamedTuple):
    """Effect: report that a member was removed because it did not heartbeat. `leader`: the leader that had lost its
    connection; None when its session time-out had passed. `waited_ms`: how long its heartbeat was awaited.
    `group_epoch`: the group epoch after the removal."""

    group_id: str
    member: Member
    leader: str | None
    waited_ms: int
    group_epoch: int


Effect = InitializeState | DeleteState | CheckSummaries | SweepSoon | MemberExpired
