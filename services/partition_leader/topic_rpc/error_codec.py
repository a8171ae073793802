"""Errors and leaders in the responses of Produce, Fetch, ListOffsets and DeleteRecords (CM-14)."""

from __future__ import annotations

from typing import Final

from kip932.api.v1 import common_pb2
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.errors import FencedLeaderEpochError, KafkaError, NotLeaderOrFollowerError
from kip932.ids import TopicIdPartition
from partition_leader.topic_rpc.log_directory import LogDirectory

_LEADER_ELSEWHERE: Final = frozenset({NotLeaderOrFollowerError.code, FencedLeaderEpochError.code})


class LeaderNames:
    """Fills in `current_leader` of results, and collects the leaders' endpoints for the end of the response (CM-14)."""

    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory
        self._endpoints: dict[int, common_pb2.NodeEndpoint] = {}

    def fill(self, into: common_pb2.LeaderIdAndEpoch, partition: TopicIdPartition, error: KafkaError) -> None:
        """Name the leader if the error means that another node leads the partition, and that node is known."""
        if error.code not in _LEADER_ELSEWHERE:
            return
        leader = self._directory.leader(partition)
        if leader is None:
            return
        into.leader_id, into.leader_epoch = leader.node_id, leader.epoch
        self._endpoints[leader.node_id] = common_pb2.NodeEndpoint(
            node_id=leader.node_id, host=leader.host, port=leader.port
        )

    @property
    def endpoints(self) -> list[common_pb2.NodeEndpoint]:
        """The endpoints of all leaders named so far."""
        return list(self._endpoints.values())


def wire_code(error: KafkaError) -> ErrorCode.ValueType:
    """Return the error's number, in the type of the response field."""
    return ErrorCode.ValueType(error.code)
