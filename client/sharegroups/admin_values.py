"""The values that the admin client takes and returns; all but `GroupOffsets`, a dict, are immutable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, overload

from kip932.acls import Operation
from kip932.errors import KafkaError
from kip932.ids import RESOURCE_BROKER, RESOURCE_GROUP, RESOURCE_TOPIC, TopicPartition
from kip932.scram import ITERATIONS_DEFAULT, Mechanism

#: Operations of incremental_alter_configs.
OP_SET: Final = 0
OP_DELETE: Final = 1
OP_APPEND: Final = 2
OP_SUBTRACT: Final = 3
#: Obstacles in a `RecordExplanation` that are derived from the group's members; the leader reports the others.
GROUP_EMPTY: Final = "group_empty"
NOT_ASSIGNED: Final = "not_assigned"


class ConfigResource(NamedTuple):
    """The topic, node or group that configs belong to: `ConfigResource.topic("orders")`."""

    type: int
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        """A topic."""
        return cls(RESOURCE_TOPIC, name)

    @classmethod
    def broker(cls, name: str = "") -> ConfigResource:
        """A node; the empty name means all nodes."""
        return cls(RESOURCE_BROKER, name)

    @classmethod
    def group(cls, name: str) -> ConfigResource:
        """A group."""
        return cls(RESOURCE_GROUP, name)


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create."""

    name: str
    num_partitions: int = 1
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UserScramCredentialUpsertion:
    """A password to set for a user, who is the principal `User:` and this name. The password itself is not sent."""

    user: str
    password: str = field(repr=False)
    mechanism: Mechanism = Mechanism.SCRAM_SHA_256
    iterations: int = ITERATIONS_DEFAULT


@dataclass(frozen=True, slots=True)
class UserScramCredentialDeletion:
    """A password to remove from a user."""

    user: str
    mechanism: Mechanism = Mechanism.SCRAM_SHA_256


class ScramCredentialInfo(NamedTuple):
    """What is known about a user's password. `mechanism`: a number that this version does not know stays a number."""

    mechanism: int
    iterations: int


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition; leader and epoch are −1 without a live leader."""

    partition: int
    leader: int
    leader_epoch: int
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic; if `error` is set, only `name` is sure to have a value."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionDescription, ...]
    is_internal: bool = False
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the cluster. `kafka_address`: where it serves Kafka's own clients, as host:port; None if it does
    not."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    roles: tuple[str, ...] = ()
    kafka_address: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster and its live nodes."""

    cluster_id: str
    controller_id: int
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """The log of a partition: the bytes of its record batches, and how many records it has. `oldest_append_time_ms`:
    when the oldest batch was appended (ms since 1970), None for an empty log, or when that was not read. `is_estimate`:
    whether `size` is one. `offset_lag` and `is_future` are Kafka's; they are always 0 and False."""

    size: int
    offset_lag: int
    is_future: bool
    record_count: int
    oldest_append_time_ms: int | None
    is_estimate: bool


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A store node, which takes the place of Kafka's log directory, and the logs there of the leader that answered.

    `total_bytes` is the store node's memory limit and `usable_bytes` what is left before it; both are None without a
    limit. `used_bytes`: its memory that counts towards the limit. Each is None when it is not known. `error`: the store
    node cannot be read now, so the sizes are estimates."""

    error: KafkaError | None
    replica_infos: Mapping[TopicPartition, ReplicaInfo]
    total_bytes: int | None
    usable_bytes: int | None
    used_bytes: int | None


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One group of list_groups (GC-121). `members`: how many it has; None from an older node, or if it is unknown."""

    group_id: str
    state: str
    type: str
    members: int | None = None


class ListGroupsResult(Sequence[GroupListing]):
    """The groups of list_groups, sorted by id, and the reasons why some may be missing (GC-123).

    As a sequence it behaves like `all()`: iterating, `len` and indexing raise if a group may be missing.
    """

    def __init__(self, valid: Iterable[GroupListing], errors: Iterable[KafkaError] = ()) -> None:
        self._valid = tuple(valid)
        self._errors = tuple(errors)

    def all(self) -> tuple[GroupListing, ...]:
        """All groups. Raises the first of `errors()`, a KafkaError, if some may be missing."""
        if self._errors:
            raise self._errors[0]
        return self._valid

    def valid(self) -> tuple[GroupListing, ...]:
        """The groups that were found, even if others are missing."""
        return self._valid

    def errors(self) -> tuple[KafkaError, ...]:
        """One error for each reason why groups are missing; empty when none are.

        The reasons are shards of the group log that no node serves or whose node cannot serve them now, and nodes that
        do not answer.
        """
        return self._errors

    def __len__(self) -> int:
        return len(self.all())

    @overload
    def __getitem__(self, index: int) -> GroupListing: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[GroupListing, ...]: ...

    def __getitem__(self, index: int | slice) -> GroupListing | tuple[GroupListing, ...]:
        return self.all()[index]


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """One member; `assignment` maps topic names to partition numbers."""

    member_id: str
    client_id: str
    client_host: str
    rack_id: str | None
    member_epoch: int
    subscription: tuple[str, ...]
    assignment: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ShareGroupDescription:
    """One share group (GC-126).

    `authorized_operations`: the operations that the caller may perform on it; None when not asked for.
    """

    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[MemberDescription, ...]
    coordinator: Node | None
    authorized_operations: frozenset[Operation] | None = None


@dataclass(frozen=True, slots=True)
class ShareGroupOffset:
    """The start offset of a share-partition; unknown values are None (CL-46).

    `archived_by_limit` and `archived_by_reject` count records that will not be delivered again although no consumer
    accepted them: those at the delivery limit, and rejected ones. Both start at 0 when the group starts to consume the
    partition, and are reset with its offset. The other values are set if the backlog was requested: `in_flight` records
    are held by members, `waiting` ones can be delivered, `delayed` ones are not delivered until their delay is over.
    `oldest_age_ms` is the age of the oldest unfinished record. `dead_letters` counts those not written yet; the oldest
    has been waiting for `dead_letter_age_ms`.
    """

    start_offset: int
    leader_epoch: int | None
    lag: int | None
    archived_by_limit: int | None = None
    archived_by_reject: int | None = None
    in_flight: int | None = None
    waiting: int | None = None
    oldest_age_ms: int | None = None
    dead_letters: int | None = None
    dead_letter_age_ms: int | None = None
    delayed: int | None = None

    @property
    def archived(self) -> int | None:
        """The sum of `archived_by_limit` and `archived_by_reject`; None when either is unknown."""
        if self.archived_by_limit is None or self.archived_by_reject is None:
            return None
        return self.archived_by_limit + self.archived_by_reject


class GroupOffsets(dict[TopicPartition, ShareGroupOffset | None]):
    """The offsets of a group by partition, as list_share_group_offsets returns them; None without a start offset.

    `errors`: the other partitions, each with the error because of which it is left out (CL-46).
    """

    def __init__(
        self,
        offsets: Mapping[TopicPartition, ShareGroupOffset | None] | None = None,
        errors: Mapping[TopicPartition, KafkaError] | None = None,
    ) -> None:
        super().__init__(offsets or {})
        self.errors: Mapping[TopicPartition, KafkaError] = dict(errors or {})


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """The write that a record waits for.

    `running_ms`: how long it has been running; None while it waits for another write. `attempts`: how many times it was
    sent.
    """

    running_ms: int | None
    attempts: int


@dataclass(frozen=True, slots=True)
class RecordExplanation:
    """The state of a record for a group, and what prevents its delivery (CL-90).

    Neighbouring records with the same values share one explanation. Unknown values are None.

    `state`: available, acquired, pending, acknowledged, archiving, archived, finished, deleted, beyond_end, hole,
    not_initialized. `obstacle`: none, held, write_pending, window_full, not_fetched, no_state, start_not_set, loading,
    finished, delivery_limit, rejected, no_record, uncommitted, delayed, group_empty, not_assigned. `explanation`: the
    obstacle in words. `becomes`: the state of a pending record once its write is done. `reason`: why a member last
    gave it up, in the member's words; `reason_delivery_count`: the delivery count at that moment. `held_ms`: how long
    the member has held it in this delivery, renewals included; None from an older leader.
    """

    first_offset: int
    last_offset: int
    state: str
    obstacle: str
    explanation: str
    delivery_count: int | None = None
    member_id: str | None = None
    client_id: str | None = None
    client_host: str | None = None
    lock_remaining_ms: int | None = None
    lock_renewed: bool = False
    becomes: str | None = None
    write: PendingWrite | None = None
    append_time_ms: int | None = None
    delay_remaining_ms: int | None = None
    reason: str | None = None
    reason_delivery_count: int | None = None
    held_ms: int | None = None


@dataclass(frozen=True, slots=True)
class RecordsExplained:
    """Explanations of records of one share-partition, and the group's position in it (CL-90).

    `loaded`: whether the share-partition is in the leader's memory; if not, the other values are the stored ones.
    `end_offset`: the first offset that was never fetched. `in_flight`: the number of records that members hold, as in
    ShareGroupOffset; None from an older leader. `in_flight_offsets`: the number of offsets from the start offset to the
    last one fetched, finished ones included, limited by `max_record_locks` (PL-130). The group coordinator's values are
    None if it failed with `group_error`.

    `read_committed`: whether the group's isolation level is read_committed. `last_stable_offset`: the offset before
    which every transaction has ended; None from an older leader. `stable_kept_by`: the transactional id whose open
    transaction holds that offset back, None if there is none; `stable_kept_ms`: how long the transaction has been open.
    """

    group_id: str
    partition: TopicPartition
    leader: Node
    loaded: bool
    start_offset: int | None
    end_offset: int | None
    log_start_offset: int
    high_watermark: int
    in_flight_offsets: int
    max_record_locks: int
    delivery_count_limit: int
    fetching_members: int
    records: tuple[RecordExplanation, ...]
    group_state: str | None = None
    members: int | None = None
    assigned_members: int | None = None
    group_error: KafkaError | None = None
    in_flight: int | None = None
    read_committed: bool = False
    last_stable_offset: int | None = None
    stable_kept_by: str | None = None
    stable_kept_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """One record of a log (CL-92).

    `timestamp_ms`: set by its producer. `append_time_ms`: when the leader stored it; None from an older leader.
    """

    offset: int
    timestamp_ms: int
    append_time_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class UnreadableRecords:
    """A range of offsets, both ends inclusive, whose batch cannot be decoded."""

    first_offset: int
    last_offset: int
    error: KafkaError


@dataclass(frozen=True, slots=True)
class RecordsRead:
    """Records of one partition in offset order, and the start and end of its log (CL-92).

    `next_offset`: the offset to continue from; the requested offset when the log has no more records.
    """

    records: tuple[ReadRecord, ...]
    unreadable: tuple[UnreadableRecords, ...]
    next_offset: int
    log_start_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """One transactional id of list_transactions (CM-157).

    `open_ms`: how long its transaction has been open; None if none is open. `error`: why its stored state cannot be
    read; producer id and epoch are then −1. `coordinator`: the node that reported it.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    open_ms: int | None
    coordinator: int
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The record of one transactional id (CM-157).

    `started_ms` (ms since 1970) and `open_ms`, by the store's clock, are None when no transaction is open.
    `partitions`: the partitions of existing topics that may contain its records.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    open_ms: int | None
    partitions: tuple[TopicPartition, ...]
    coordinator: int


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One config; `synonyms` are (name, value, source number), the effective one first."""

    name: str
    value: str | None
    source: int
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[tuple[str, str | None, int], ...] = ()
    documentation: str | None = None


@dataclass(frozen=True, slots=True)
class AlterConfig:
    """One change: `AlterConfig("retention.ms", "60000")`, or with OP_DELETE and no value."""

    name: str
    value: str | None = None
    operation: int = OP_SET
