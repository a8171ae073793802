"""A group shard's commands, answers and effects. Frozen values without behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from group_coordinator.core.member import Member
from group_coordinator.core.views import Assignment
from kip932.errors import KafkaError
from kip932.ids import TopicIdPartition


class Heartbeat(NamedTuple):
    """ShareGroupHeartbeat, after the checks of `validation` (GC-12…GC-18, GC-23a). None means unchanged."""

    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None = None
    subscribed: tuple[str, ...] | None = None
    client_id: str = ""
    client_host: str = ""


class HeartbeatReply(NamedTuple):
    """A heartbeat's answer. `rebalanced`: it bumped the group epoch; the meter counts that (GC-24e, GC-152)."""

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

    A partition in no list has an unknown outcome: it stays in initialising and is retried by GC-72. `fenced`: the share
    coordinator has a larger state epoch for them; the largest is `stored_epoch`. Reply: whether that ordered another
    round. `call_id`: of the `InitializeState`.
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
    """Which share-partitions of a group are initialised (GC-110)."""

    group_id: str


class Sweep(NamedTuple):
    """Drop deleted topics from the lists, if the image is known to be new enough (GC-79, GC-80).

    `complete_since_ms`: the image has everything that was in the metadata log at this moment of the deadline clock.
    """

    complete_since_ms: int
    limit: int = 100


class RepairCheck(NamedTuple):
    """Order a check of the summaries of groups not checked for one repair interval (GC-82)."""

    limit: int = 100


class Repair(NamedTuple):
    """The share coordinator has no state for `lost`; read while the group was at `group_epoch` (GC-82)."""

    group_id: str
    group_epoch: int
    lost: tuple[TopicIdPartition, ...]


class RequireEmpty(NamedTuple):
    """Refuse now what `AlterOffsets` would refuse: a group with members, or one that is being changed (GC-101)."""

    group_id: str


class AlterOffsets(NamedTuple):
    """Set start offsets of an empty group, or of a new one (GC-101…GC-105). `call_id` names the caller that waits."""

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

    `stored_epoch`: the largest state epoch of those that refused because theirs is above the group's; −1: none did.
    """

    group_id: str
    attempt: int
    failed: frozenset[bytes] = frozenset()
    stored_epoch: int = -1


class CallEnded(NamedTuple):
    """An administrator's call ended without an outcome to note: it was cut off, or it failed as a whole (GC-108)."""

    group_id: str
    attempt: int


class ResumeDeletions(NamedTuple):
    """Go on with interrupted deletions, and forget deleted groups after their time (OP-6, GC-93). `complete_since_ms`:
    see `Sweep`. `loading`: the shard was just loaded; what waits for the image then asks for a sweep."""

    complete_since_ms: int
    limit: int = 100
    loading: bool = False


class ExpireEmpty(NamedTuple):
    """Begin the deletion of groups that were empty for too long (GC-46). `complete_since_ms`: see `Sweep`. At most
    `looks` groups are looked at, and at most `limit` deletions begin. Reply: those groups, with their age in ms."""

    complete_since_ms: int
    looks: int = 200
    limit: int = 20


class ProgressSeen(NamedTuple):
    """What is finished of each share-partition, (partition, start offset, count), read while the group was at
    `group_epoch` (GC-46)."""

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
    """One row of ListGroups."""

    group_id: str
    state: str


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
    """How many groups changed. `more`: the limit was reached, sweep again; `lagging`: the image may be too old."""

    changed: int
    more: bool
    lagging: bool


class AlterationBegun(NamedTuple):
    """`under_way`: an `InitializeState` was ordered, and the caller is told its end. `refused`: by partition."""

    under_way: bool
    refused: Mapping[TopicIdPartition, KafkaError]


class DeletionBegun(NamedTuple):
    """`under_way`: a `DeleteState` was ordered, and the caller is told its end; else all is done.

    For offsets, by topic name: the ids of what is being deleted, and the errors of the rest (GC-97).
    """

    under_way: bool
    accepted: Mapping[str, bytes] = {}
    refused: Mapping[str, KafkaError] = {}


class ResumeReply(NamedTuple):
    """`more`: the limit was reached, resume again; `waiting`: a deletion waits until the image is known to be new
    enough."""

    more: bool
    waiting: bool


class InitializeState(NamedTuple):
    """Effect: InitializeShareGroupState, with (partition, start offset) pairs; answer: InitializationFinished.

    `call_id` not 0: an administrator's call, whose answer always comes, and whose caller waits (GC-103).
    """

    group_id: str
    attempt: int
    state_epoch: int
    partitions: tuple[tuple[TopicIdPartition, int], ...]
    fenced_rounds: int = 0
    call_id: int = 0


class DeleteState(NamedTuple):
    """Effect: DeleteShareGroupState.

    `attempt` 0: of partitions whose topic was deleted; it needs no answer (OP-5). Else answer: DeletionFinished;
    `call_id` not 0: a caller waits for it.
    """

    group_id: str
    state_epoch: int
    partitions: tuple[TopicIdPartition, ...]
    attempt: int = 0
    call_id: int = 0


class SweepSoon(NamedTuple):
    """Effect: sweep as soon as the image is known to be new enough; deletions wait for that (OP-6)."""


class CheckSummaries(NamedTuple):
    """Effect: read these summaries; answer: a `Repair` for those with state epoch 0 (GC-82). `watched`: also a
    `ProgressSeen`, when all could be read."""

    group_id: str
    group_epoch: int
    partitions: tuple[TopicIdPartition, ...]
    watched: bool = False


class MemberExpired(NamedTuple):
    """Effect: a member was removed because it did not heartbeat; tell it. `leader`: which one had lost its connection;
    None: its session time-out had passed. `waited_ms`: for how long its heartbeat was awaited. `group_epoch`: that
    which the removal made."""

    group_id: str
    member: Member
    leader: str | None
    waited_ms: int
    group_epoch: int


Effect = InitializeState | DeleteState | CheckSummaries | SweepSoon | MemberExpired
