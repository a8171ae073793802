"""Which errors of a partition name its leader, and the endpoints at the end of the response."""

from __future__ import annotations

from typing import Any

import pytest

from kip932 import errors
from kip932.api.v1 import common_pb2
from kip932.ids import TopicIdPartition
from partition_leader.topic_rpc.error_codec import LeaderNames
from partition_leader.topic_rpc.log_directory import Leader

PARTITION = TopicIdPartition(bytes(15) + b"\7", 3)
LEADER = Leader(node_id=4, epoch=17, host="host-4", port=9094)


class Directory:
    """Of one partition whose leader is known, or is not."""

    def __init__(self, leader: Leader | None) -> None:
        self._leader = leader

    def leader(self, partition: TopicIdPartition) -> Leader | None:
        assert partition == PARTITION
        return self._leader


def _filled(error: errors.KafkaError, leader: Leader | None = LEADER) -> tuple[common_pb2.LeaderIdAndEpoch, Any]:
    names, into = LeaderNames(Directory(leader)), common_pb2.LeaderIdAndEpoch()  # type: ignore[arg-type]
    for _ in range(2):
        names.fill(into, PARTITION, error)
    return into, [(one.node_id, one.host, one.port) for one in names.endpoints]


@pytest.mark.rule("PL-255", "CM-14")
@pytest.mark.parametrize("error", [errors.NotLeaderOrFollowerError(), errors.FencedLeaderEpochError()])
def test_where_another_node_leads_it_is_named_with_its_epoch_and_its_endpoint_once(error: errors.KafkaError) -> None:
    into, endpoints = _filled(error)
    assert (into.leader_id, into.leader_epoch) == (LEADER.node_id, LEADER.epoch)
    assert endpoints == [(LEADER.node_id, LEADER.host, LEADER.port)]
    assert _filled(error, None) == (common_pb2.LeaderIdAndEpoch(), []), "no leader is known"


@pytest.mark.rule("PL-255")
def test_other_errors_name_no_leader() -> None:
    for error in (errors.InvalidRecordStateError(), errors.UnknownTopicIdError(), errors.UnknownServerError()):
        assert _filled(error) == (common_pb2.LeaderIdAndEpoch(), [])
