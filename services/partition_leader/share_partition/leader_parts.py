"""What a process passes to the hosts of share-partitions: a led topic-partition's log and lease, and shared
services."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kip932.ids import SharePartitionKey, TopicIdPartition
from partition_leader.share_partition.core.effects import Archived
from partition_leader.share_partition.core.share_partition import OPERATION_TIMEOUT_MS, SharePartition
from partition_leader.share_partition.core.status import DropReason
from partition_leader.share_partition.dead_letter_port import DeadLetterPost
from partition_leader.share_partition.deadlines import Deadlines
from partition_leader.share_partition.delay_reports import DelayReports
from partition_leader.topic_log.topic_log import TopicLog
from shard_runtime.clock import Clock
from shard_runtime.config.group_config import GroupConfig
from shard_runtime.ownership.lease import Lease
from share_persister.values import Persister


@dataclass(frozen=True, slots=True)
class LedPartition:
    """A topic-partition that this process leads: its log, and its lease."""

    log: TopicLog
    lease: Lease


@dataclass(frozen=True, slots=True)
class LeaderParts:
    """What hosts need from the process.

    `config` returns a group's effective configs under the current metadata. `lead` raises KafkaError for a partition
    that this process does not lead. `loaded` receives how many ms an object took to become ACTIVE or to fail. `dropped`
    counts dropped objects, and `archived` receives records that will not be delivered again. `letters` writes dead
    letters, `delays` reports delayed records. `ended` receives each object that is dropped, with its leader epoch
    (PL-952). `chance` returns random numbers in 0…1 (PL-936).
    """

    persister: Persister
    deadlines: Deadlines
    clock: Clock
    config: Callable[[str], GroupConfig]
    lead: Callable[[TopicIdPartition], LedPartition]
    loaded: Callable[[int], None]
    dropped: Callable[[DropReason], None]
    archived: Callable[[SharePartitionKey, Archived], None]
    letters: DeadLetterPost
    delays: DelayReports
    ended: Callable[[SharePartitionKey, SharePartition, int], None]
    operation_timeout_ms: int = OPERATION_TIMEOUT_MS
    chance: Callable[[], float] = float
