"""Requests to the topic RPCs, and a directory of the partitions that they name."""

from __future__ import annotations

from typing import Any

from kip932.api.v1 import produce_pb2
from kip932.errors import (
    KafkaError,
    NotLeaderOrFollowerError,
    TopicAuthorizationFailedError,
    UnknownTopicIdError,
)
from kip932.ids import TopicIdPartition
from partition_leader.topic_log.topic_log import TopicLog
from partition_leader.topic_rpc.log_directory import Leader
from shard_runtime.rpc.binding import CallContext
from tests.unit.partition_leader.topic_log.harness import record_bytes

TOPIC = bytes(range(16))


class Directory:
    """A directory with one log that is led here. Node 7 leads partition 1; any other topic is unknown."""

    def __init__(self, log: TopicLog) -> None:
        self.topic_log = log
        self.forbidden = False

    def log(self, partition: TopicIdPartition) -> TopicLog:
        if partition.topic_id != TOPIC:
            raise UnknownTopicIdError
        if partition.partition != 0:
            raise NotLeaderOrFollowerError
        return self.topic_log

    def leader(self, partition: TopicIdPartition) -> Leader | None:
        return Leader(7, 42, "seven", 9092) if partition.partition == 1 else None

    def max_message_bytes(self, topic_id: bytes) -> int:
        return 1000

    def refusal(self, caller: CallContext, topic_id: bytes) -> KafkaError | None:
        return TopicAuthorizationFailedError() if self.forbidden else None


def wire_batch(records: int = 1, **fields: Any) -> produce_pb2.ProduceRequest.Batch:
    values: dict[str, Any] = {
        "record_batch": record_bytes([b"v"] * records),
        "record_count": records,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
    }
    return produce_pb2.ProduceRequest.Batch(**{**values, **fields})


def request(
    *batches: produce_pb2.ProduceRequest.Batch, partition: int = 0, topic: bytes = TOPIC, acks: int = -1
) -> produce_pb2.ProduceRequest:
    made = produce_pb2.ProduceRequest(acks=acks, timeout_ms=5000)
    made.topic_data.add(topic_id=topic).partition_data.add(index=partition).batches.extend(batches)
    return made


def only(response: produce_pb2.ProduceResponse) -> produce_pb2.ProduceResponse.PartitionResult:
    return response.responses[0].partition_responses[0]
