"""The state that the current code replays from a dump: every shard through its own codec and core, as plain JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any, Final

from group_coordinator.codec import GroupLogCodec
from group_coordinator.core.assignor import SimpleAssignor
from group_coordinator.core.group import Group
from group_coordinator.core.lifecycle import Lifecycle
from group_coordinator.core.member import Member
from group_coordinator.core.shard import GroupShard
from group_coordinator.core.views import CoordinatorSettings
from kip932.api.v1.record_batch_pb2 import RecordBatch
from kip932.ids import topic_id_text
from partition_leader.topic_log.codec import read_batch
from partition_leader.topic_log.load import load_state
from partition_leader.topic_log.settings import TopicLogSettings
from shard_runtime.clock import SystemClock
from shard_runtime.cluster.metadata import MetadataImage
from shard_runtime.cluster.metadata_log import MetadataLog
from shard_runtime.config.group_config import GroupConfig
from shard_runtime.ownership.lease import Lease
from shard_runtime.record_log.protocol import (
    CLAIM_TYPE,
    NOOP_TYPE,
    STREAM_START,
    Claimed,
    Entry,
    RecordLog,
    ShardId,
    ShardKind,
    StreamId,
)
from shard_runtime.record_log.redis.codec import stream_id
from shard_runtime.record_log.redis.keys import META_CLUSTER_ID, META_LOG, NODE_NAMES
from share_coordinator.codec import ShareStateCodec
from share_coordinator.core.records import ShareSnapshot, ShareTombstone, ShareUpdate
from share_coordinator.core.shard import ShareStateShard
from tests.support import claims
from tests.twin import MemoryStore, memory_log
from tests.twin.store import memory_cluster_store
from tests.upgrade.kept import Dump

LEASE_MS: Final = 60_000
OWNER: Final = 900


class _AllTopics:
    """A metadata view for replays, which never query it."""

    def partition_count(self, topic_id: bytes) -> int | None:
        return None

    def settled_since(self, now_ms: int) -> bool:
        return False


async def state_of(dump: Dump) -> dict[str, Any]:
    """Replay a whole dump."""
    state: dict[str, Any] = {"groups": {}, "share-partitions": {}, "partitions": {}, "unknown": 0}
    for shard in dump.shards():
        if shard.kind is ShardKind.GROUP:
            state["unknown"] += _groups(dump, shard, state["groups"])
        elif shard.kind is ShardKind.SHARE_STATE:
            state["unknown"] += _share_partitions(dump, shard, state["share-partitions"])
    store = MemoryStore(SystemClock(), Random(1))
    try:
        connection = await store.client("dump").connect("")
        for reply in await connection.run(list(dump.commands()), 5_000):
            assert not isinstance(reply, Exception), reply
        state["metadata"] = await _metadata(dump, store)
        log = memory_log(store, "reader")
        for shard in dump.shards():
            if shard.kind is ShardKind.TOPIC:
                state["partitions"][shard.name], unknown = await _partition(log, shard)
                state["unknown"] += unknown
        await log.close()
    finally:
        await store.close()
    state["node ids"] = {name: int(number) for name, number in dump.hashes[NODE_NAMES].items()}
    return state


def replay_start(dump: Dump, shard: ShardId) -> StreamId:
    """Return the id from which the shard's last owner allowed a replay to start (CM-18)."""
    return stream_id(dump.hashes[shard.owner_key].get("replay_from", str(STREAM_START)))


def _records(dump: Dump, shard: ShardId, start: StreamId) -> Iterable[Entry]:
    for entry in dump.streams[shard.streams[0]]:
        if entry.id >= start and entry.kind not in {CLAIM_TYPE, NOOP_TYPE}:
            yield entry


# ---- groups


def group_shard() -> GroupShard:
    """Return an empty shard; a replay queries neither topics nor configs."""
    return GroupShard(_no_topics, lambda _: GroupConfig(), CoordinatorSettings(), SimpleAssignor())


def _no_topics() -> Any:
    raise AssertionError("a replay asked for the metadata")


def _groups(dump: Dump, shard: ShardId, found: dict[str, Any]) -> int:
    replayed, unknown = _replay_groups(dump, shard, STREAM_START)
    short, _ = _replay_groups(dump, shard, replay_start(dump, shard))
    assert short == replayed, f"{shard.tag}: a replay from where its owner said makes something else"
    found.update(replayed)
    return unknown


def _replay_groups(dump: Dump, shard: ShardId, start: StreamId) -> tuple[dict[str, Any], int]:
    core, codec, unknown = group_shard(), GroupLogCodec(), 0
    for entry in _records(dump, shard, start):
        record = codec.decode(entry.kind, entry.record)
        if record is None:
            unknown += 1
        else:
            core.replay(record)
    return {name: _group(group) for name, group in core.groups.items()}, unknown


def _group(group: Group) -> dict[str, Any]:
    return {
        "epoch": group.epoch,
        "metadata hash": group.metadata_hash,
        "assignment epoch": group.assignment_epoch,
        "assignment ms": group.assignment_ms,
        "members": {name: _member(member) for name, member in group.members.items()},
        "targets": {name: _assignment(target) for name, target in group.targets.items()},
        "state": None if group.lifecycle is None else _lifecycle(group.lifecycle),
    }


def _member(member: Member) -> dict[str, Any]:
    return {
        "rack": member.rack_id,
        "client": [member.client_id, member.client_host],
        "subscribed": list(member.subscribed),
        "epochs": [member.epoch, member.previous_epoch],
        "state": member.state,
        "assigned": _assignment(member.assigned),
    }


def _lifecycle(lifecycle: Lifecycle) -> dict[str, Any]:
    return {
        "topics": {
            topic_id_text(topic.topic_id): {
                "name": topic.name,
                "first count": topic.first_count,
                "initialised": list(topic.initialized),
                "initialising": {
                    str(index): {"start offset": entry.start_offset, "state epoch": entry.state_epoch}
                    for index, entry in topic.initializing.items()
                },
            }
            for topic in lifecycle.topics.values()
        },
        "deleting": {topic_id_text(topic_id): name for topic_id, name in lifecycle.deleting.items()},
    }


def _assignment(assignment: Mapping[bytes, Iterable[int]]) -> dict[str, list[int]]:
    return {topic_id_text(topic_id): list(indexes) for topic_id, indexes in assignment.items()}


# ---- share-partitions


def _share_partitions(dump: Dump, shard: ShardId, found: dict[str, Any]) -> int:
    replayed, unknown = _replay_share_state(dump, shard, STREAM_START)
    short, _ = _replay_share_state(dump, shard, replay_start(dump, shard))
    assert short == replayed, f"{shard.tag}: a replay from where its owner said makes something else"
    found.update(replayed)
    return unknown


def _replay_share_state(dump: Dump, shard: ShardId, start: StreamId) -> tuple[dict[str, Any], int]:
    core, codec, unknown = ShareStateShard(_AllTopics(), 100, 60_000), ShareStateCodec(), 0
    keys: dict[str, Any] = {}
    for entry in _records(dump, shard, start):
        record = codec.decode(entry.kind, entry.record)
        if record is None:
            unknown += 1
            continue
        assert isinstance(record, ShareSnapshot | ShareUpdate | ShareTombstone)
        core.replay(record)
        keys[record.key.text] = record.key
    states = {text: core.state(key) for text, key in keys.items()}
    return {
        text: {
            "snapshot epoch": state.snapshot_epoch,
            "state epoch": state.state_epoch,
            "leader": [state.leader_epoch, state.generation],
            "start offset": state.start_offset,
            "complete": state.delivery_complete_count,
            "batches": [list(batch if batch.not_before_ms else batch[:4]) for batch in state.batches],
            "written ms": [state.create_ms, state.write_ms],
            "fences": [*state.fence, state.fence_state_epoch],
            **({"failures": [list(failure) for failure in state.failures]} if state.failures else {}),
        }
        for text, state in states.items()
        if state is not None
    }, unknown


# ---- metadata


async def _metadata(dump: Dump, store: MemoryStore) -> dict[str, Any]:
    cluster = memory_cluster_store(store)
    log = MetadataLog(cluster, SystemClock(), dump.strings[META_CLUSTER_ID])
    image = await log.load()
    await cluster.close()
    assert image.version == dump.streams[META_LOG][-1].id.seq
    return metadata_state(image)


def metadata_state(image: MetadataImage) -> dict[str, Any]:
    """Return an image as plain values."""
    return {
        "version": image.version,
        "topics": {
            name: {
                "id": topic_id_text(topic.topic_id),
                "partitions": topic.partitions,
                "created ms": topic.created_at_ms,
                "created under": topic.created_under,
            }
            for name, topic in image.topics.items()
        },
        "configs": {f"{kind}/{name}": dict(values) for (kind, name), values in image.configs.items() if values},
        "acls": sorted(list(acl) for acl in image.acls),
        "deleted": {
            topic_id_text(topic_id): {"name": deleted.name, "ms": deleted.deleted_at_ms}
            for topic_id, deleted in image.deleted.items()
        },
        "remains": {topic_id_text(topic_id): count for topic_id, count in image.remains.items()},
    }


# ---- topic logs


async def claim(log: RecordLog, shard: ShardId) -> Claimed:
    """Take over a shard as a process of these tests."""
    return await claims.claim(log, shard, OWNER, lease_ms=LEASE_MS, lossless=True, reason="tests.upgrade")


async def _partition(log: RecordLog, shard: ShardId) -> tuple[dict[str, Any], int]:
    """Load a partition as a new leader does, then read it from its start to its end."""
    clock = SystemClock()
    claimed = await claim(log, shard)
    lease = Lease(
        shard, OWNER, claimed.epoch, deadline_ms=clock.now_ms() + LEASE_MS, clock=clock, give_up=lambda *_: None
    )
    # With the default a producer would be dropped a day after its last batch; a dump never changes.
    settings = TopicLogSettings(producer_expiration_ms=1 << 42)
    state, report = await load_state(log, lease, claimed, clock, settings, memory=None, suspect=False)
    assert not report.jumped
    epochs = [pair for pair in state.epochs.as_list() if pair[0] != claimed.epoch]
    entries = await log.read(shard.streams[0], STREAM_START, None, 10_000)
    found = {
        "log": [state.log_start, state.high_watermark],
        "epochs": [list(pair) for pair in epochs],
        "producers": {
            str(number): {
                "epoch": producer.epoch,
                "last ms": producer.last_append_ms,
                "batches": [list(batch) for batch in producer.batches],
            }
            for number, producer in state.producers.items()
        },
        "records": [record for entry in entries for record in _values(entry)],
    }
    return found, report.unknown


def _values(entry: Entry) -> list[list[object]]:
    """Return offset, key, value, headers and timestamp of each record in a batch; one row for a transaction's
    marker."""
    batch = read_batch(entry)
    if batch is None:
        return []
    if batch.is_control:
        return [[batch.base_offset, "control", batch.control_type, batch.producer_id, batch.producer_epoch]]
    value = RecordBatch.FromString(batch.data)
    return [
        [
            batch.base_offset + index,
            record.key.decode() if record.HasField("key") else None,
            record.value.decode() if record.HasField("value") else None,
            {header.key: header.value.decode() for header in record.headers},
            value.base_timestamp_ms + record.timestamp_delta_ms,
        ]
        for index, record in enumerate(value.records)
    ]
