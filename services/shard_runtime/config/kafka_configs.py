"""The configs of topics, groups and brokers, declared once (group-coordinator.md §8, partition-leader.md §10, CM-23).

Declarations only: `effective_configs` looks values up and checks them, `process_settings` reads this process's values.
"""

from __future__ import annotations

from typing import Any, Final

from kip932.acls import ANY_PRINCIPAL, PRINCIPAL_TYPE
from kip932.ids import valid_topic_name
from kip932.setting import (
    AnySetting,
    ConfigType,
    Setting,
    boolean,
    duration_ms,
    integer,
    listing,
    string,
    table,
    unserved,
)
from shard_runtime.config.group_extensions import GROUP_EXTENSIONS

LATEST: Final = "latest"
EARLIEST: Final = "earliest"
BY_DURATION: Final = "by_duration:"
CONSUMED: Final = "consumed"

# ---- broker: group coordinator (GC-139a)

SESSION_TIMEOUT_MS = integer(
    "group.share.session.timeout.ms", 45_000, "After how long without a heartbeat a member is expired.",
    low=1, unit="ms",
)  # fmt: skip
MIN_SESSION_TIMEOUT_MS = integer(
    "group.share.min.session.timeout.ms", 45_000, "Least session timeout a group may set.", low=1, unit="ms"
)
MAX_SESSION_TIMEOUT_MS = integer(
    "group.share.max.session.timeout.ms", 60_000, "Greatest session timeout a group may set.", low=1, unit="ms"
)
HEARTBEAT_INTERVAL_MS = integer(
    "group.share.heartbeat.interval.ms", 5_000, "How often members send heartbeats.", low=1, unit="ms"
)
MIN_HEARTBEAT_INTERVAL_MS = integer(
    "group.share.min.heartbeat.interval.ms", 5_000, "Least heartbeat interval a group may set.", low=1, unit="ms"
)
MAX_HEARTBEAT_INTERVAL_MS = integer(
    "group.share.max.heartbeat.interval.ms", 15_000, "Greatest heartbeat interval a group may set.", low=1, unit="ms"
)
GROUP_MAX_SIZE = integer("group.share.max.size", 200, "How many members a share group may have.", low=1, high=1_000)
ASSIGNORS = listing(
    "group.share.assignors", ("simple",),
    "Exactly one, for groups that choose none: simple gives a partition to one member while there are not more members "
    "than partitions, shared to several, or module:Class of an assignor of your own.",  # GC-52a, GC-57
)  # fmt: skip
ASSIGNMENT_INTERVAL_MS = integer(
    "group.share.assignment.interval.ms", 1_000, "Least time between two assignments of a group.",
    low=0, unit="ms", dynamic=True,
    bounds=("group.share.min.assignment.interval.ms", "group.share.max.assignment.interval.ms"),
)  # fmt: skip
MIN_ASSIGNMENT_INTERVAL_MS = integer(
    "group.share.min.assignment.interval.ms", 0, "Least assignment interval a group may set.", low=0, unit="ms"
)
MAX_ASSIGNMENT_INTERVAL_MS = integer(
    "group.share.max.assignment.interval.ms", 15_000, "Greatest assignment interval a group may set.", low=0, unit="ms"
)
INITIALIZE_RETRY_INTERVAL_MS = integer(
    "group.share.initialize.retry.interval.ms", 30_000, "When an initialization that got no answer is tried again.",
    low=1, unit="ms", internal=True,
)  # fmt: skip
COMMIT_TIMEOUT_MS = integer(
    "offsets.commit.timeout.ms", 5_000, "How long a write of the group coordinator may wait for its commit.",
    low=1, unit="ms",
)  # fmt: skip
GROUP_SHARDS = integer(
    "offsets.topic.num.partitions", 50, "Shards of the group log; fixed for the life of a cluster.", low=1
)


SHARE_VERSION = integer(
    "share.version", 2, "Features: 0 none, 1 share groups, 2 dead-letter queues too.", low=0, high=2
)
DLQ_AUTO_CREATE = boolean(
    "errors.deadletterqueue.auto.create.topics.enable", False,
    "Whether a missing dead-letter topic is created, with num.partitions partitions.", dynamic=True,
)  # fmt: skip
DLQ_PREFIX = string(
    "errors.deadletterqueue.topic.name.prefix", "dlq.",
    "What the names of dead-letter topics begin with; empty for any name.", dynamic=True,
)  # fmt: skip

# ---- broker: access control (CM-61)


def super_users(text: str) -> frozenset[str]:
    """Return the principals in a value of `super.users`. Raises ValueError for one that is not `User:NAME`."""
    found = [each.strip() for each in text.split(";") if each.strip()]
    for each in found:
        if not each.startswith(f"{PRINCIPAL_TYPE}:") or each in {f"{PRINCIPAL_TYPE}:", ANY_PRINCIPAL}:
            raise ValueError(f"{each!r} is not User:NAME; expected principals with semicolons between them")
    return frozenset(found)


def _super_users(text: str) -> None:
    super_users(text)


ACCESS_CONTROL = boolean(
    "access.control.enable", False,
    "Whether access control entries decide what a caller may do; without it every caller may do everything.",
)  # fmt: skip
SUPER_USERS = string(
    "super.users", "",
    "Principals that may do everything whatever the entries say, User:NAME with semicolons between them. Other nodes' "
    "certificates belong here if they have another common name than this node's.",
    check=_super_users,
)  # fmt: skip

# ---- broker: partition leader (PL §10)

LOCK_DURATION_MS = integer(
    "group.share.record.lock.duration.ms", 30_000, "How long a record is locked for one delivery.",
    low=1_000, high=3_600_000, unit="ms",
)  # fmt: skip
MIN_LOCK_DURATION_MS = integer(
    "group.share.min.record.lock.duration.ms", 15_000, "Least lock duration a group may set.",
    low=1_000, high=30_000, unit="ms",
)  # fmt: skip
MAX_LOCK_DURATION_MS = integer(
    "group.share.max.record.lock.duration.ms", 60_000, "Greatest lock duration a group may set.",
    low=30_000, high=3_600_000, unit="ms",
)  # fmt: skip
DELIVERY_COUNT_LIMIT = integer(
    "group.share.delivery.count.limit", 5, "How often a record is delivered before it is archived.", low=2, high=10
)
MIN_DELIVERY_COUNT_LIMIT = integer(
    "group.share.min.delivery.count.limit", 2, "Least delivery limit a group may set.", low=2, high=5
)
MAX_DELIVERY_COUNT_LIMIT = integer(
    "group.share.max.delivery.count.limit", 10, "Greatest delivery limit a group may set.", low=5, high=25
)
MAX_RECORD_LOCKS = integer(
    "group.share.partition.max.record.locks", 2_000, "How many records of a share-partition may be in flight.",
    low=100, high=10_000,
)  # fmt: skip
MIN_MAX_RECORD_LOCKS = integer(
    "group.share.min.partition.max.record.locks", 100, "Least record locks a group may set.", low=100, high=2_000
)
MAX_MAX_RECORD_LOCKS = integer(
    "group.share.max.partition.max.record.locks", 4_000, "Greatest record locks a group may set.",
    low=2_000, high=10_000,
)  # fmt: skip
MAX_SHARE_SESSIONS = integer("group.share.max.share.sessions", 2_000, "Share sessions of one process.", low=1)
FETCH_MAX_BYTES = integer(
    "fetch.max.bytes", 57_671_680, "Cap of what one fetch, and the answer to a share fetch, may hold.",
    low=1_024, high=57_671_680, unit="bytes",
)  # fmt: skip
PERSISTER_TIMEOUT_MS = integer(
    "persister.operation.timeout.ms", 15_000,
    "Look-up, attempts and pauses of one state operation together.", low=100, unit="ms",  # PL-723
)  # fmt: skip
PERSISTER_CLASS = string(
    "group.share.persister.class.name", "default", "The persister; only the built-in one.",
    choices=("default",), kind=ConfigType.CLASS, internal=True,
)  # fmt: skip
DLQ_MANAGER_CLASS = string(
    "group.share.dlq.manager.class.name", "default", "The dead-letter queue manager; only the built-in one.",
    choices=("default",), kind=ConfigType.CLASS, internal=True,
)  # fmt: skip
TRANSACTION_MAX_TIMEOUT_MS = integer(
    "transaction.max.timeout.ms", 900_000, "Greatest time-out that a producer may ask for its transactions.",  # CM-156
    low=1, high=2_147_483_647, unit="ms",
)  # fmt: skip
TRANSACTIONAL_ID_EXPIRATION_MS = integer(
    "transactional.id.expiration.ms", 604_800_000,
    "How long the record of a transactional id without an open transaction is kept.",  # CM-151
    low=1_000, high=2_147_483_647, unit="ms",
)  # fmt: skip
DEFAULT_PARTITIONS = integer(
    "num.partitions", 1, "Partitions of a topic that is created without a number.", low=1, high=10_000
)
MIN_INSYNC_REPLICAS = integer(
    "min.insync.replicas", 1, "Copies, the master's included, that confirm a write of a topic.", low=1
)

# ---- broker: share coordinator (share-coordinator.md §6.1)

STATE_SHARDS = integer(
    "share.coordinator.state.topic.num.partitions", 50, "Shards of the share state; fixed for the life of a cluster.",
    low=1,
)  # fmt: skip
UPDATES_PER_SNAPSHOT = integer(
    "share.coordinator.snapshot.update.records.per.snapshot", 100,
    "Updates of a key between two snapshots; Kafka's 500 would make replays longer.",  # SR-14
    low=0, high=500,
)  # fmt: skip
STATE_WRITE_TIMEOUT_MS = integer(
    "share.coordinator.write.timeout.ms", 5_000, "How long a state operation may wait for its commit.", low=1, unit="ms"
)
STATE_COLD_INTERVAL_MS = integer(
    "share.coordinator.cold.partition.snapshot.interval.ms", 60_000,
    "Age at which a changed key is copied; Kafka's 300000 would make replays longer.",  # SR-14
    low=1, unit="ms", internal=True,
)  # fmt: skip

FAST_FIRST_ASSIGNMENT = boolean(
    "group.share.fast.first.assignment", True,
    "Whether a group without a target is assigned at once, and its members wait only briefly; false as Kafka.",  # OP-19
)  # fmt: skip


EMPTY_RETENTION_MS = integer(
    "sharegroups.group.empty.retention.ms", 0,
    "How long a group without members is kept; then it is deleted with its offsets. Counted while the cluster runs. "
    "0: for ever, as Kafka.",  # GC-46
    low=0, unit="ms", kind=ConfigType.LONG,
)  # fmt: skip


LOST_CONNECTION_GRACE_MS = integer(
    "sharegroups.lost.connection.grace.ms", 0,
    "How long the heartbeat of a member that a leader has lost is awaited before it is expelled; at least the group's "
    "heartbeat interval and 1 s, which 0 means. -1: as in Kafka only the session timeout counts.",  # GC-36
    low=-1, unit="ms",
)  # fmt: skip


def _offset_reset(text: str) -> None:
    if text in {LATEST, EARLIEST}:
        return
    if not text.startswith(BY_DURATION):
        raise ValueError(f"it must be {EARLIEST}, {LATEST} or {BY_DURATION}<ISO-8601 duration>")
    if duration_ms(text.removeprefix(BY_DURATION)) < 0:
        raise ValueError("the duration must not be negative")


AUTO_OFFSET_RESET = string(
    "group.share.auto.offset.reset", LATEST,
    "Where a share-partition without a start offset begins, in groups that do not say so themselves.",
    check=_offset_reset, dynamic=True,
)  # fmt: skip

# ---- Kafka's configs for parts that this suite lacks (CM-120)


def _unserved(name: str, default: int | bool | tuple[str, ...], why: str, **more: Any) -> AnySetting:
    """Return a config of which only Kafka's default may be set; any other value is refused with `why`."""
    declare: Any = listing if isinstance(default, tuple) else boolean if isinstance(default, bool) else integer
    return unserved(declare(name, default, "Kafka has it.", **more), why)


_SHORT: Final = ConfigType.SHORT
_LINGER: Final = "flushes adapt to the load"  # SC-61
_LOADED: Final = "a shard is read by entries, not by bytes"
_LOOP: Final = "one event loop serves"
_UNSERVED: Final = (
    _unserved("group.coordinator.append.linger.ms", -1, _LINGER, low=-1, unit="ms"),
    _unserved("group.coordinator.background.threads", 2, _LOOP, low=1),
    _unserved(
        "group.coordinator.rebalance.protocols", ("classic", "consumer", "streams"), "only share groups are served"
    ),
    _unserved("group.coordinator.threads", 4, _LOOP, low=1),
    _unserved("group.share.assignor.offload.enable", True, "share groups do not use it", dynamic=True),
    _unserved("offsets.load.buffer.size", 5_242_880, _LOADED, low=1, unit="bytes"),
    _unserved("share.coordinator.append.linger.ms", -1, _LINGER, low=-1, unit="ms"),
    _unserved(
        "share.coordinator.cached.buffer.max.bytes",
        1_048_588,
        "there is no such buffer",
        low=524_288,
        unit="bytes",
        dynamic=True,
    ),
    _unserved("share.coordinator.load.buffer.size", 5_242_880, _LOADED, low=1, unit="bytes"),
    _unserved("share.coordinator.state.topic.compression.codec", 0, "the state is stored as it is"),
    _unserved("share.coordinator.state.topic.min.isr", 2, "see min.insync.replicas", low=1, kind=_SHORT),
    _unserved(
        "share.coordinator.state.topic.prune.interval.ms", 300_000, "trims go by count", low=1, unit="ms", internal=True
    ),  # CM-18
    _unserved("share.coordinator.state.topic.replication.factor", 3, "replication is the store's", low=1, kind=_SHORT),
    _unserved(
        "share.coordinator.state.topic.segment.bytes", 104_857_600, "streams have no segments", low=1, unit="bytes"
    ),
    _unserved("share.coordinator.threads", 1, _LOOP, low=1),
    _unserved("share.fetch.purgatory.purge.interval.requests", 1_000, "waiters are removed at once"),
)

BROKER_CONFIGS: Final = table(
    [value for name, value in list(globals().items()) if isinstance(value, Setting) and name.isupper()]
    + list(_UNSERVED)
)

# ---- groups (GC-144a, PL §10)


def _dlq_topic(text: str) -> None:
    if text.startswith("__"):
        raise ValueError("DLQ topic name must not start with '__'")
    if text and not valid_topic_name(text):
        raise ValueError(
            "it must be a topic name, 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-', or empty for no dead-letter queue"
        )


GROUP_SESSION_TIMEOUT_MS = integer(
    "share.session.timeout.ms", 45_000, "After how long without a heartbeat a member is expired.",
    low=1, unit="ms", dynamic=True, synonym=SESSION_TIMEOUT_MS.name,
    bounds=(MIN_SESSION_TIMEOUT_MS.name, MAX_SESSION_TIMEOUT_MS.name),
)  # fmt: skip
GROUP_HEARTBEAT_INTERVAL_MS = integer(
    "share.heartbeat.interval.ms", 5_000, "How often members send heartbeats.",
    low=1, unit="ms", dynamic=True, synonym=HEARTBEAT_INTERVAL_MS.name,
    bounds=(MIN_HEARTBEAT_INTERVAL_MS.name, MAX_HEARTBEAT_INTERVAL_MS.name),
)  # fmt: skip
GROUP_ASSIGNMENT_INTERVAL_MS = integer(
    "share.assignment.interval.ms", 1_000, "Least time between two assignments of the group.",
    low=0, unit="ms", dynamic=True, synonym=ASSIGNMENT_INTERVAL_MS.name,
    bounds=(MIN_ASSIGNMENT_INTERVAL_MS.name, MAX_ASSIGNMENT_INTERVAL_MS.name),
)  # fmt: skip
GROUP_LOCK_DURATION_MS = integer(
    "share.record.lock.duration.ms", 30_000, "How long a record is locked for one delivery.",
    low=1_000, unit="ms", dynamic=True, synonym=LOCK_DURATION_MS.name,
    bounds=(MIN_LOCK_DURATION_MS.name, MAX_LOCK_DURATION_MS.name),
)  # fmt: skip
GROUP_DELIVERY_COUNT_LIMIT = integer(
    "share.delivery.count.limit", 5, "How often a record is delivered before it is archived.",
    low=2, dynamic=True, synonym=DELIVERY_COUNT_LIMIT.name,
    bounds=(MIN_DELIVERY_COUNT_LIMIT.name, MAX_DELIVERY_COUNT_LIMIT.name),
)  # fmt: skip
GROUP_MAX_RECORD_LOCKS = integer(
    "share.partition.max.record.locks", 2_000, "How many records of a share-partition may be in flight.",
    low=100, dynamic=True, synonym=MAX_RECORD_LOCKS.name,
    bounds=(MIN_MAX_RECORD_LOCKS.name, MAX_MAX_RECORD_LOCKS.name),
)  # fmt: skip
GROUP_AUTO_OFFSET_RESET = string(
    "share.auto.offset.reset", LATEST, "Where a share-partition without a start offset begins.",
    check=_offset_reset, dynamic=True, synonym=AUTO_OFFSET_RESET.name,
)  # fmt: skip
GROUP_ISOLATION_LEVEL = string(
    "share.isolation.level", "read_uncommitted", "Whether records of open and aborted transactions are delivered.",
    choices=("read_committed", "read_uncommitted"), dynamic=True,
)  # fmt: skip
GROUP_RENEW_ENABLE = boolean(
    "share.renew.acknowledge.enable", True, "Whether consumers may renew their record locks.", dynamic=True
)
GROUP_DLQ_TOPIC = string(
    "errors.deadletterqueue.topic.name", "",
    "The topic for records that are rejected or reach the delivery limit; empty for none.",  # PL-903
    check=_dlq_topic, dynamic=True,
)  # fmt: skip
GROUP_DLQ_COPY = boolean(
    "errors.deadletterqueue.copy.record.enable", False,
    "Whether a dead letter carries key, value, headers and timestamp of its record.", dynamic=True,
)  # fmt: skip

GROUP_ASSIGNOR = string(
    "sharegroups.assignor", "default",
    "Which members get a partition: simple, one while there are not more members than partitions; shared, several, so "
    "that a slow or dead member stalls none. default: the assignor of group.share.assignors.",  # GC-52a
    choices=("default", "simple", "shared"), dynamic=True,
)  # fmt: skip
GROUP_MEMBERS_PER_PARTITION = integer(
    "sharegroups.assignor.members.per.partition", 0,
    "How many members share a partition under the assignor shared, where there are so many; 0: all, within 2000 pairs "
    "of a member and a partition.",  # GC-52a
    low=0, high=1_000, dynamic=True,
)  # fmt: skip

_OF_KAFKA = [one for one in list(globals().values()) if isinstance(one, Setting) and one.name not in BROKER_CONFIGS]
_UNSERVED_OF_GROUPS: Final = _unserved(
    "share.assignor.offload.enable", True, "share groups do not use it",
    dynamic=True, synonym="group.share.assignor.offload.enable",
)  # fmt: skip
GROUP_CONFIGS: Final = table([*_OF_KAFKA, _UNSERVED_OF_GROUPS, *GROUP_EXTENSIONS])

# ---- topics (CM-23)

RETENTION_MS = integer(
    "retention.ms", 604_800_000, "How long records are kept; -1 for ever.",
    low=-1, unit="ms", kind=ConfigType.LONG, dynamic=True,
)  # fmt: skip
RETENTION_BYTES = integer(
    "retention.bytes", -1, "How many bytes of a partition are kept; -1 for all.",
    low=-1, unit="bytes", kind=ConfigType.LONG, dynamic=True,
)  # fmt: skip
RETENTION_POLICY = string(
    "sharegroups.retention", "time_and_size",
    "Which records are deleted: time_and_size, those that retention.ms and retention.bytes let go, as Kafka does; "
    "consumed, those and besides what every share group with state for the topic has finished. A group that "  # CM-160
    "comes later, or is reset to the beginning, then begins at what is left.",
    choices=("time_and_size", CONSUMED), dynamic=True,
)  # fmt: skip
MAX_MESSAGE_BYTES = integer(
    "max.message.bytes", 1_048_576, "Largest record batch that is taken.", low=0, unit="bytes", dynamic=True
)
TOPIC_DLQ_ENABLE = boolean(
    "errors.deadletterqueue.group.enable", False, "Whether groups may use this topic as dead-letter queue.",
    dynamic=True,
)  # fmt: skip

TOPIC_CONFIGS: Final = table((RETENTION_MS, RETENTION_BYTES, RETENTION_POLICY, MAX_MESSAGE_BYTES, TOPIC_DLQ_ENABLE))
