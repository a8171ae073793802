"""The share-state records of one share-partition, read from the store directly and not through the services."""

from __future__ import annotations

import redis

from kip932.ids import SharePartitionKey, state_shard
from shard_runtime.record_log.protocol import ShardId, ShardKind
from share_coordinator.codec import ShareStateCodec
from share_coordinator.core.records import ShareRecord
from tests.support.node import QUICK, Cluster

SHARDS = int(QUICK["share.coordinator.state.topic.num.partitions"])


def share_records(cluster: Cluster, group: str, topic_id: bytes, partition: int = 0) -> list[ShareRecord]:
    """Snapshots and updates of the key, oldest first."""
    key = SharePartitionKey(group, topic_id, partition)
    (stream,) = ShardId(ShardKind.SHARE_STATE, str(state_shard(key, SHARDS))).streams
    with redis.Redis(unix_socket_path=cluster.store_socket) as store:
        entries = store.xrange(stream)
    decoded = [ShareStateCodec().decode(fields[b"t"].decode(), fields[b"r"]) for _, fields in entries]
    return [record for record in decoded if record is not None and record.key == key]
