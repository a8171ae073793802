"""Records what the current code writes: `python -m tests.upgrade.record 0.2.0`, before that version is released.

A cluster runs through a short story on a real store. Records that such a story does not produce (lost tails, ACLs,
transactions, cold copies) are written in addition, through the same logs and codecs, in shards that no process serves.
Every key of the store goes into `tests/fixtures/records/<version>.jsonl`, and the state that the code replays from it
into `<version>.state.json`. Read the second file before committing both: later versions must replay exactly that state
from the first.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final
from unittest import mock

from group_coordinator.codec import GroupLogCodec
from group_coordinator.core import records as gc
from group_coordinator.core.lifecycle import Initializing, Lifecycle, TopicState
from kip932.acls import Acl
from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from kip932.failures import Failure
from kip932.ids import SharePartitionKey, topic_id_text
from kip932.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, QuotaEntity
from kip932.scram import ScramCredential
from kip932.state_batches import StateBatch, WriteStats
from partition_leader.topic_log.codec import batch_entry, log_start_entry, marker_entry, producers_entry
from partition_leader.topic_log.core.batch import LogBatch
from partition_leader.topic_log.core.producers import ProducerState, ProducerTable, SequencedBatch
from partition_leader.topic_log.core.transactions import LogTransactions
from shard_runtime.clock import SystemClock
from shard_runtime.cluster import metadata_log
from shard_runtime.cluster.metadata import (
    AclAdded,
    AclRemoved,
    Change,
    QuotaRemoved,
    QuotaSet,
    ScramCredentialRemoved,
    ScramCredentialSet,
    StreamsRemoved,
    TopicDeleted,
)
from shard_runtime.record_log.protocol import NOOP_TYPE, Entry, ShardId, ShardKind, StreamAppend, StreamId
from shard_runtime.record_log.redis.cluster_store import StoreClusterStore
from shard_runtime.record_log.redis.codec import noop_record
from shard_runtime.record_log.redis.connection import StoreSettings
from shard_runtime.record_log.redis.keys import META_LOG
from shard_runtime.record_log.redis.log import StoreRecordLog
from shard_runtime.record_log.redis.topology import open_store
from share_coordinator.codec import ShareStateCodec
from share_coordinator.core.records import ShareSnapshot, ShareTombstone, ShareUpdate
from sharegroups import (
    AcknowledgeType,
    Admin,
    AlterConfig,
    ConfigResource,
    Message,
    NewTopic,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from sharegroups.admin_values import OP_DELETE
from tests.support.node import QUICK, Cluster
from tests.upgrade.kept import FOLDER, Dump, dump_of, write_state
from tests.upgrade.replayed import claim, state_of

BOUND_S: Final = 60
#: Early snapshots and compaction, so that a short story includes them.
SETTINGS: Final = {
    **QUICK,
    "group.share.min.record.lock.duration.ms": "1000",
    "offsets.topic.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.snapshot.update.records.per.snapshot": "4",
    "shard.compaction.entries.min": "10",
}
#: The number of shards and topics that no cluster serves.
OTHER: Final = "900"
OTHER_TOPIC: Final = bytes(range(16))
GONE_TOPIC: Final = bytes(range(16, 32))
WALL_MS: Final = 1_790_000_000_000


# ---- the story


def live(cluster: Cluster) -> None:
    """Create, extend, change and delete topics; let groups accept, release and reject; one member stays."""
    settings: dict[str, object] = {"bootstrap.servers": cluster.bootstrap}
    with Admin(settings) as admin:
        _well(
            admin.create_topics(
                [NewTopic("orders", 2), NewTopic("audit", 1, {"retention.ms": "-1"}), NewTopic("gone", 1)]
            )
        )
        _well(admin.create_partitions({"audit": 2}))
        orders, group = ConfigResource.topic("orders"), ConfigResource.group("billing")
        # Kept forever: the records must exist whenever they are replayed.
        _well(admin.incremental_alter_configs({orders: [AlterConfig("retention.ms", "-1")]}))
        _well(admin.incremental_alter_configs({orders: [AlterConfig("retention.bytes", "1000000")]}))
        _well(admin.incremental_alter_configs({orders: [AlterConfig("retention.bytes", None, OP_DELETE)]}))
        _well(admin.incremental_alter_configs({group: [AlterConfig("share.delivery.count.limit", "7")]}))
        produce(settings, "orders", 40)
        produce(settings, "gone", 3)
        work(settings, "billing", "orders", 24)
        work(settings, "short-lived", "gone", 3)
        _well(admin.delete_topics(["gone"]))
        for outcome in admin.delete_records({TopicPartition("orders", 0): 5}).values():
            assert outcome == 5, outcome
        produce(settings, "orders", 40, first=40)


def _well(outcomes: Any) -> None:
    failed = {name: error for name, error in outcomes.items() if error is not None}
    assert not failed, failed


def produce(settings: dict[str, object], topic: str, count: int, first: int = 0) -> None:
    """Produce records with one producer, a few in each batch."""
    reports: list[object] = []
    with Producer(settings) as producer:
        for number in range(first, first + count):
            producer.produce(
                topic,
                f"{topic}-{number}".encode(),
                key=f"k{number % 7}".encode() if number % 3 else None,
                headers=[("trace", f"t{number}".encode())] if number % 5 == 0 else None,
                partition=number % 2 if topic == "orders" else 0,
                on_delivery=lambda error, report: reports.append(error),
            )
            if number % 4 == 3:
                producer.flush(BOUND_S)
    assert reports == [None] * count


def consumer_of(settings: dict[str, object], group: str, name: str) -> ShareConsumer:
    """Return a consumer that acknowledges each record explicitly."""
    more = {"group.id": group, "client.id": name, "share.acknowledgement.mode": "explicit", "client.rack": f"of-{name}"}
    return ShareConsumer({**settings, **more, "max.poll.records": 4})


def work(settings: dict[str, object], group: str, topic: str, records: int) -> None:
    """Finish this many records, a few of them on the second delivery."""
    finished = 0
    with consumer_of(settings, group, "worker") as consumer:
        consumer.subscribe([topic])
        until = time.monotonic() + BOUND_S
        while finished < records:
            assert time.monotonic() < until, f"{finished} of {records} records of {topic} within {BOUND_S} s"
            for message in consumer.poll(1.0):
                kind = _fate(message)
                consumer.acknowledge(message, kind)
                finished += kind is not AcknowledgeType.RELEASE
            consumer.commit_sync(BOUND_S)


def _fate(message: Message) -> AcknowledgeType:
    if message.offset() % 5 == 1 and message.delivery_count() == 1:
        return AcknowledgeType.RELEASE
    return AcknowledgeType.REJECT if message.offset() % 11 == 7 else AcknowledgeType.ACCEPT


def join(settings: dict[str, object]) -> ShareConsumer:
    """Let a member join that stays, with records that it has acquired but not finished."""
    consumer = consumer_of(settings, "billing", "stays")
    consumer.subscribe(["orders", "audit"])
    until = time.monotonic() + BOUND_S
    while not consumer.poll(1.0):
        assert time.monotonic() < until, f"a member got nothing within {BOUND_S} s"
    return consumer


# ---- records that no short story produces


async def write_beside(url: str) -> None:
    """Write every other kind of record, through the codecs, in shards of their own."""
    log = StoreRecordLog(open_store(url), StoreSettings(), SystemClock())
    try:
        await _append(log, ShardId(ShardKind.GROUP, OTHER), GroupLogCodec().encode, group_records())
        await _append(log, ShardId(ShardKind.SHARE_STATE, OTHER), ShareStateCodec().encode, share_records())
        await _write_topic(log, ShardId(ShardKind.TOPIC, f"{topic_id_text(OTHER_TOPIC)}:0"))
    finally:
        await log.close()


async def _append(
    log: StoreRecordLog, shard: ShardId, encode: Callable[[Any, int], tuple[str, bytes]], records: Sequence[Any]
) -> None:
    epoch = (await claim(log, shard)).epoch
    entries = [Entry(StreamId(epoch, 1), NOOP_TYPE, noop_record(WALL_MS))]
    entries += [Entry(StreamId(epoch, at), *encode(record, WALL_MS)) for at, record in enumerate(records, 2)]
    await log.append(shard, epoch, [StreamAppend(shard.streams[0], entries)])
    assert await log.release(shard, 900, epoch)


def group_records() -> list[gc.Record]:
    """Return each type and each tombstone of the group log."""
    lifecycle = Lifecycle(
        {OTHER_TOPIC: TopicState(OTHER_TOPIC, "other", 2, {2: Initializing(0, 9), 3: Initializing(-1, 11)}, (0, 1))},
        {bytes(16): ""},
    )
    values: list[gc.Value] = [
        gc.MemberMetadata("by-hand", "m", "rack", "client", "127.0.0.1", ("a", "other")),
        gc.GroupMetadata("by-hand", 7, -5, 1),
        gc.TargetMetadata("by-hand", 7, WALL_MS),
        gc.TargetMember("by-hand", "m", {OTHER_TOPIC: (0, 1)}),
        gc.CurrentAssignment("by-hand", "m", 7, 6, gc.STABLE, {OTHER_TOPIC: (0,)}),
        gc.StateMetadata("by-hand", lifecycle),
    ]
    kinds = (gc.CURRENT, gc.TARGET, gc.TARGET_META, gc.MEMBER, gc.STATE, gc.GROUP)
    of_member = (gc.CURRENT, gc.TARGET, gc.MEMBER)
    gone: list[gc.Record] = [
        gc.MemberMetadata("gone", "m", None, "client", "127.0.0.1", ()),
        gc.GroupMetadata("gone", 3, 1, 1),
    ]
    gone += [gc.Tombstone(kind, "gone", *(("m", "expired") if kind in of_member else ())) for kind in kinds]
    return [*values, *(gc.ColdCopy(value) for value in values), *gone]


def share_records() -> list[object]:
    """Return each type of the share-state log, with every field."""
    key, gone = SharePartitionKey("by-hand", OTHER_TOPIC, 3), SharePartitionKey("gone", OTHER_TOPIC, 0)
    stats = WriteStats(1, 3, 1, 1, 1, 1, 4, 9, 140, 120)
    batches = (StateBatch(100, 104, 2, 1), StateBatch(105, 105, 0, 2), StateBatch(106, 106, 4, 5))
    failures = (Failure(104, 105, 2, "ValueError: no such user"),)
    snapshot = ShareSnapshot(
        key, 1, 5, 40, 2, 100, 6, WALL_MS, WALL_MS + 1, batches, 41, 3, 6, stats, failures=failures
    )
    later = (Failure(105, 105, 3, "KeyError: 'name'\n  File \"jobs.py\", line 7"),)
    update = ShareUpdate(key, 1, 42, 1, 105, 1, (StateBatch(107, 110, 3, 1),), stats, later)
    start = ShareSnapshot(gone, 0, 1, 0, 0, -1, -1, WALL_MS, WALL_MS, (), 0, 0, 1)
    return [snapshot, update, start, ShareTombstone(gone)]


async def _write_topic(log: StoreRecordLog, shard: ShardId) -> None:
    epoch = (await claim(log, shard)).epoch
    main = [
        batch_entry(epoch, _batch(0, 3, producer_id=77, producer_epoch=1, base_sequence=0)),
        batch_entry(epoch, _batch(3, 2, producer_id=78, producer_epoch=0, base_sequence=0, is_transactional=True)),
        batch_entry(
            epoch,
            LogBatch(5, 5, 0, b"", WALL_MS, WALL_MS, 78, 0, -1, is_transactional=True, is_control=True, control_type=1),
        ),
        marker_entry(epoch, 1_000_006, WALL_MS, jump_from=6),
        batch_entry(epoch, _batch(1_000_006, 1)),
    ]
    producers = ProducerTable()
    producers.restore(77, ProducerState(1, (SequencedBatch(0, 3, 0, WALL_MS),), WALL_MS), 1_000_006)
    control = [
        Entry(StreamId(epoch, 1), NOOP_TYPE, noop_record(WALL_MS)),
        log_start_entry(StreamId(epoch, 2), 1, WALL_MS),
        producers_entry(StreamId(epoch, 3), 3, producers, LogTransactions.none(), WALL_MS),
        log_start_entry(StreamId(epoch, 4), 1, WALL_MS, cold=True),
    ]
    await log.append(shard, epoch, [StreamAppend(shard.streams[0], main), StreamAppend(shard.streams[1], control)])
    assert await log.release(shard, 900, epoch)


def _batch(base: int, count: int, **more: Any) -> LogBatch:
    records = [Record(value=f"by-hand-{base + index}".encode(), timestamp_delta_ms=index) for index in range(count)]
    data = RecordBatch(base_timestamp_ms=WALL_MS, records=records).SerializeToString()
    return LogBatch(base, base + count - 1, len(data), data, WALL_MS, WALL_MS + count - 1, **more)


async def change_metadata(url: str, cluster_id: str, changes: Sequence[Change], *, fold: bool = False) -> None:
    """Advance the metadata by one version and, with `fold`, write the snapshot that otherwise follows a thousand of
    them."""
    store = StoreClusterStore(open_store(url), StoreSettings())
    try:
        log = metadata_log.MetadataLog(store, SystemClock(), cluster_id)
        await log.load()
        with mock.patch.object(metadata_log, "SNAPSHOT_EVERY", -1 if fold else 1_000):
            await log.change(lambda _: changes)
    finally:
        await store.close()


async def complete(url: str) -> Dump:
    """Write the missing kinds and read everything."""
    await write_beside(url)
    cluster_id = dump_of(url).strings["{meta}:cluster"]
    allow = Acl(2, "orders", 3, "User:alice", "*", 3, 3)
    deny = Acl(3, "bill", 4, "User:mallory", "10.0.0.1", 3, 2)
    await change_metadata(url, cluster_id, [AclAdded(allow), AclAdded(deny)])
    await change_metadata(url, cluster_id, [AclRemoved(allow), TopicDeleted(GONE_TOPIC, "long gone", WALL_MS, 3)])
    await change_metadata(url, cluster_id, [StreamsRemoved(GONE_TOPIC)])
    kept = ScramCredential("alice", 1, 4_096, b"salt" * 4, b"stored" * 4, b"server" * 4)
    gone = replace(kept, mechanism=2)
    await change_metadata(url, cluster_id, [ScramCredentialSet(kept), ScramCredentialSet(gone)])
    await change_metadata(url, cluster_id, [ScramCredentialRemoved(gone.user, gone.mechanism)])
    quota = QuotaSet(QuotaEntity("alice", None), PRODUCER_BYTE_RATE, 1_048_576.0)
    default = QuotaSet(QuotaEntity(None, ""), CONSUMER_BYTE_RATE, 65_536.5)
    await change_metadata(url, cluster_id, [quota, default])
    await change_metadata(url, cluster_id, [QuotaRemoved(default.entity, default.key)])
    before = dump_of(url).streams[META_LOG]
    await change_metadata(url, cluster_id, [AclAdded(allow)], fold=True)
    dump = dump_of(url)
    # The fold removed the entries that it replaces; the log contained both only just before.
    after = dump.streams[META_LOG]
    first = after[0].id
    dump.streams[META_LOG] = [*(entry for entry in before if entry.id < first), *after]
    return dump


def main(arguments: Sequence[str]) -> int:
    """Write both files for one version."""
    (version,) = arguments
    FOLDER.mkdir(parents=True, exist_ok=True)
    with Cluster(SETTINGS) as cluster:
        settings: dict[str, object] = {"bootstrap.servers": cluster.bootstrap}
        live(cluster)
        with join(settings):
            dump = asyncio.run(complete(cluster.store_url))
    dump.write(FOLDER / f"{version}.jsonl")
    write_state(version, asyncio.run(state_of(dump)))
    entries = sum(map(len, dump.streams.values()))
    print(f"{FOLDER / version}.jsonl: {len(dump.streams)} streams, {entries} entries, {len(dump.hashes)} hashes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
