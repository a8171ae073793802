"""What the handlers of Produce, Fetch and ListOffsets see of the process: its logs, and hints about other leaders."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from kip932.errors import FencedLeaderEpochError, InvalidRequestError, KafkaError, NotLeaderOrFollowerError
from kip932.ids import TOPIC_ID_BYTES, TopicIdPartition, topic_id_text
from partition_leader.topic_log.topic_log import TopicLog
from shard_runtime.rpc.binding import CallContext


class Leader(NamedTuple):
    """A partition's leader according to the hints (CM-14)."""

    node_id: int
    epoch: int
    host: str
    port: int


class LogDirectory(Protocol):
    """The topic logs of this node. No call waits. Handlers return the errors per partition."""

    def log(self, partition: TopicIdPartition) -> TopicLog:
        """Return the log, if this node leads it now. Raises UnknownTopicIdError, UnknownTopicOrPartitionError (no such
        partition), NotLeaderOrFollowerError (another node leads it, or it is still loading: name `leader` in the
        response)."""
        ...

    def leader(self, partition: TopicIdPartition) -> Leader | None:
        """Return the leader according to the hints; None if none is known."""
        ...

    def max_message_bytes(self, topic_id: bytes) -> int:
        """Return `max.message.bytes` of the topic (CM-23)."""
        ...

    def refusal(self, caller: CallContext, topic_id: bytes) -> KafkaError | None:
        """Return the error for a caller that is not authorized to do what its RPC does to the topic (CM-61), otherwise
        None. With access control an id without a name is refused, too. Call it before using the log."""
        ...


class GroupBacklog(NamedTuple):
    """The work that a share group has left in a partition (PL-827). `waiting`: None when its share-partition is not
    loaded. `oldest_age_ms`: None if everything is finished, or if it was not determined. `dead_letters`: those not
    written yet (PL-920); None if not loaded. `delayed`: records whose delay has not ended (PL-938); None if not loaded.
    `empty`: offsets from the stored start to the high watermark that currently hold nothing for the group; None if
    there is no start."""

    in_flight: int
    waiting: int | None
    oldest_age_ms: int | None
    dead_letters: int | None = None
    dead_letter_age_ms: int | None = None
    delayed: int | None = None
    empty: int | None = None


class ReadAllowance:
    """How many more reads of the store one request may cause."""

    def __init__(self, reads: int) -> None:
        self._left = reads

    def take(self) -> bool:
        """Count one more read; return whether it is allowed."""
        self._left -= 1
        return self._left >= 0


class GroupProgress(Protocol):
    """The progress of share groups in the partitions of this node."""

    async def of(
        self,
        group_id: str,
        partition: TopicIdPartition,
        topic_log: TopicLog,
        *,
        stored_start: int,
        allowance: ReadAllowance,
    ) -> GroupBacklog:
        """Return a group's progress without changing it. `stored_start`: the group's stored start offset, −1 if it has
        none. Raises KafkaError."""
        ...


def checked_topic_id(topic_id: bytes) -> bytes:
    """Return a valid topic id. Raises InvalidRequestError for any other, which ends the call: INVALID_ARGUMENT (CM
    §1)."""
    if len(topic_id) != TOPIC_ID_BYTES:
        raise InvalidRequestError(f"a topic id has {len(topic_id)} bytes; expected {TOPIC_ID_BYTES}")
    return topic_id


def check_leader_epoch(topic_log: TopicLog, partition: TopicIdPartition, known: int | None) -> None:
    """Compare the caller's leader epoch (None or −1: unchecked) with the log's.

    Raises FencedLeaderEpochError if the caller's is older, NotLeaderOrFollowerError if it is newer.
    """
    if known is None or known in {-1, topic_log.epoch}:
        return
    name = f"{topic_id_text(partition.topic_id)}-{partition.partition}"
    if known < topic_log.epoch:
        raise FencedLeaderEpochError(f"{name}: leader epoch {known} is old; it is {topic_log.epoch} now")
    raise NotLeaderOrFollowerError(f"{name}: leader epoch {known} is not known here; this node led {topic_log.epoch}")
