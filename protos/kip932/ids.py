"""Identifiers: topics, partitions, share-partitions, offset ranges, the KIP's integer codes, and limits of requests.

Frozen values only. This module never does I/O and does not use protobuf.
"""

from __future__ import annotations

import base64
import binascii
import re
from functools import lru_cache
from typing import Final, NamedTuple

from kip932.errors import InvalidRequestError

# Acknowledge types (CL-23). A client sends GAP for an offset that holds no record.
ACK_GAP: Final = 0
ACK_ACCEPT: Final = 1
ACK_RELEASE: Final = 2
ACK_REJECT: Final = 3
ACK_RENEW: Final = 4
#: The names of the acknowledge types that are counted; gaps are not (PL-413).
ACK_NAMES: Final = {ACK_ACCEPT: "accept", ACK_RELEASE: "release", ACK_REJECT: "reject", ACK_RENEW: "renew"}
ACK_TYPE_MAX: Final = max(ACK_NAMES)

#: Used in place of a delay: the group's back-off policy determines the delay (PL-930).
POLICY_DELAY: Final = -1

# Record delivery states (PL-101). ACQUIRED is never persisted.
STATE_AVAILABLE: Final = 0
STATE_ACQUIRED: Final = 1
STATE_ACKNOWLEDGED: Final = 2
STATE_ARCHIVING: Final = 3
STATE_ARCHIVED: Final = 4
#: The KIP's names of the delivery states.
STATE_NAMES: Final = {
    STATE_AVAILABLE: "Available",
    STATE_ACQUIRED: "Acquired",
    STATE_ACKNOWLEDGED: "Acknowledged",
    STATE_ARCHIVING: "Archiving",
    STATE_ARCHIVED: "Archived",
}
TERMINAL_STATES: Final = frozenset({STATE_ACKNOWLEDGED, STATE_ARCHIVED})

# Share acquire modes (KIP-1206).
ACQUIRE_BATCH_OPTIMIZED: Final = 0
ACQUIRE_RECORD_LIMIT: Final = 1

# FindCoordinator key types (GC-130).
KEY_TYPE_GROUP: Final = 0
KEY_TYPE_TRANSACTION: Final = 1
KEY_TYPE_SHARE: Final = 2

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

# Config resource types (CM-23).
RESOURCE_TOPIC: Final = 2
RESOURCE_BROKER: Final = 4
RESOURCE_GROUP: Final = 32

# ListOffsets timestamps (CM-45).
OFFSET_LATEST: Final = -1
OFFSET_EARLIEST: Final = -2
OFFSET_MAX_TIMESTAMP: Final = -3

# Join and leave epochs, of heartbeats and of share sessions.
EPOCH_JOIN: Final = 0
EPOCH_LEAVE: Final = -1

# Limits of one request (CM-62): servers refuse more, so the client splits its requests. In order: the most partitions
# that a topic may have, the acknowledged ranges that a leader processes in 50 ms, and one batch for each of those
# partitions.
REQUEST_PARTITIONS_MAX: Final = 10_000
ACKNOWLEDGED_RANGES_MAX: Final = 5_000
PRODUCED_BATCHES_MAX: Final = 10_000
#: Batches of one partition in one Produce (CM-113). This many fit into one flush, which is confirmed well within a
#: lease.
PARTITION_BATCHES_MAX: Final = 512
# Limits of one record batch (CM-112), for leaders and for decoding clients. BATCH_PLAIN_BYTES_MAX limits the bytes of
# decompressed records, both of one batch and of all compressed batches of one Produce.
BATCH_RECORDS_MAX: Final = 100_000
#: Fields of all records in a batch: keys, values, headers, timestamps.
BATCH_FIELDS_MAX: Final = 1_000_000
BATCH_PLAIN_BYTES_MAX: Final = 64 * 1024 * 1024
#: The value of `batch_formats` for Kafka's record batches: their magic (CM-222).
BATCH_FORMAT_KAFKA: Final = 2
#: State batches of one write: of one share-partition (the most records that it may have in flight), and in total.
SHARE_PARTITION_BATCHES_MAX: Final = 10_000
STATE_BATCHES_MAX: Final = 50_000
#: Topics that one request creates, grows or deletes; the server processes them in one step.
CHANGED_TOPICS_MAX: Final = 1_000
#: Groups that one request describes, and partitions that a share session fetches from one leader.
REQUEST_GROUPS_MAX: Final = 1_000
SESSION_PARTITIONS_MAX: Final = 50_000
#: Configs of all resources, or of all topics, in one request together.
REQUEST_CONFIGS_MAX: Final = 10_000
# Offsets of one ExplainRecord (PL-826): the answer may have a sentence for each.
EXPLAINED_OFFSETS_MAX: Final = 1_000
#: Rows of one ListShareProgress, and how many if the request does not say (PL-951).
PROGRESS_ROWS_MAX: Final = 5_000
PROGRESS_ROWS: Final = 1_000
#: Topics of one ReadTopicStartOffsets (SC-116).
STARTS_TOPICS_MAX: Final = 100
#: Characters of a group id, and of a coordinator key: `<group>:<topic id>:<partition>`.
GROUP_ID_MAX: Final = 255
#: Bytes of a transactional id (CM-152), and ids in one DescribeTransactions (CM-157).
TRANSACTIONAL_ID_MAX: Final = 255
REQUEST_TRANSACTIONS_MAX: Final = 100
COORDINATOR_KEY_MAX: Final = GROUP_ID_MAX + 1 + 22 + 1 + 11

#: The largest offset at which a log may end. It is far below the limit of int64, so that sums of offsets fit.
OFFSET_MAX: Final = 2**62

NULL_TOPIC_ID: Final = bytes(16)
TOPIC_ID_BYTES: Final = 16
_INT32_MAX: Final = 2**31 - 1
_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
#: The rule for topic names, worded to follow "a name has".
TOPIC_NAME_RULE: Final = "1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-', and is not '.' or '..'"


class TopicPartition(NamedTuple):
    """A partition by its topic's name."""

    topic: str
    partition: int


class TopicIdPartition(NamedTuple):
    """A partition by its topic's id (16 bytes). A topic that is created again has another id."""

    topic_id: bytes
    partition: int

    @property
    def text(self) -> str:
        """`<topic id text>:<partition>`, as store keys and log lines write it."""
        return f"{topic_id_text(self.topic_id)}:{self.partition}"


class SharePartitionKey(NamedTuple):
    """(group, topic id, partition): the unit of share-group state (SC-1)."""

    group_id: str
    topic_id: bytes
    partition: int

    @property
    def text(self) -> str:
        """Coordinator key text `<group>:<topic id>:<partition>`."""
        return f"{self.group_id}:{topic_id_text(self.topic_id)}:{self.partition}"

    @property
    def topic_partition(self) -> TopicIdPartition:
        """The partition without the group."""
        return TopicIdPartition(self.topic_id, self.partition)


def topic_id_text(topic_id: bytes) -> str:
    """Kafka's UUID text: URL-safe base64 of the 16 bytes without padding, 22 characters (SC-1)."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def parse_topic_id(text: str) -> bytes:
    """The 16 bytes of a topic id text. Raises ValueError for anything but 22 characters of URL-safe base64."""
    if len(text) != 22 or not re.fullmatch(r"[A-Za-z0-9_-]{22}", text):
        raise ValueError(f"topic id {text!r} is not 22 characters of URL-safe base64")
    try:
        return base64.urlsafe_b64decode(text + "==")
    except binascii.Error as error:
        raise ValueError(f"topic id {text!r} is not URL-safe base64") from error


def parse_share_key(text: str) -> SharePartitionKey:
    """Parse a coordinator key from the right, since a group id may contain colons (SC-2). Raises
    InvalidRequestError."""
    parts = text.rsplit(":", 2)
    if len(parts) != 3:
        raise InvalidRequestError(f"share key {text!r} has {len(parts)} parts; expected <group>:<topic id>:<partition>")
    group_id, id_text, partition_text = parts
    if not group_id.strip():
        raise InvalidRequestError(f"share key {text!r} has a blank group; expected <group>:<topic id>:<partition>")
    try:
        topic_id = parse_topic_id(id_text)
    except ValueError as error:
        raise InvalidRequestError(f"share key {text!r}: {error}") from error
    if not re.fullmatch(r"-?[0-9]{1,10}", partition_text) or not -_INT32_MAX - 1 <= int(partition_text) <= _INT32_MAX:
        raise InvalidRequestError(f"share key {text!r}: partition {partition_text!r} is not a 32-bit integer")
    return SharePartitionKey(group_id, topic_id, int(partition_text))


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: signed 32-bit, over UTF-16 code units (SC-3)."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(data[::2], data[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def shard_index(text: str, shards: int) -> int:
    """The index of the shard, of `shards`, that owns the key `text` (SC-3, GC-1): abs(Java hash) modulo `shards`, where
    abs(−2³¹) is 0."""
    value = java_hash(text)
    return 0 if value == -(1 << 31) else abs(value) % shards


@lru_cache(maxsize=65_536)
def state_shard(key: SharePartitionKey, shards: int) -> int:
    """Return the shard that has a share-partition's state (SC-3); cached, since hashing the text takes long."""
    return shard_index(key.text, shards)


def possible_topic_name(name: str) -> bool:
    """Return whether a topic can have this name (CM-21)."""
    return bool(_TOPIC_NAME.fullmatch(name)) and name not in {".", ".."}


def valid_topic_name(name: str) -> bool:
    """Return whether a user may give `name` to a topic (CM-21); names beginning with `__` are reserved."""
    return possible_topic_name(name) and not name.startswith("__")
