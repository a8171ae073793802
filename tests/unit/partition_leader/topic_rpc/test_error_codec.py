"""Partition errors that name the leader, with the endpoints at the end of the response, and the same in a
ShareFetch."""

from __future__ import annotations

from typing import Any

import pytest

from kip932 import errors
from kip932.api.v1 import common_pb2, share_fetch_pb2
from kip932.ids import TopicIdPartition
from partition_leader.share_rpc.codec import fill_fetch_response
from partition_leader.share_rpc.values import PartitionAnswer, ShareAnswer
from partition_leader.topic_rpc.error_codec import LeaderNames
from partition_leader.topic_rpc.log_directory import Leader
from tests.support.virtual_time import virtual

PARTITION = TopicIdPartition(bytes(15) + b"\7", 3)
LEADER = Leader(node_id=4, epoch=17, host="host-4", port=9094)


class Directory:
    """A directory of one partition, whose leader may be unknown."""

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


@pytest.mark.rule("PL-255")
@pytest.mark.parametrize("of_the_acknowledgement", [False, True])
@virtual
async def test_a_share_fetch_names_it_for_an_error_of_either_kind(of_the_acknowledgement: bool) -> None:
    answer = PartitionAnswer(PARTITION)
    if of_the_acknowledgement:
        answer.acknowledge_error = errors.NotLeaderOrFollowerError()
    else:
        answer.error = errors.NotLeaderOrFollowerError()
    response = share_fetch_pb2.ShareFetchResponse()
    await fill_fetch_response(response, ShareAnswer(partitions=[answer]), Directory(LEADER))  # type: ignore[arg-type]
    (result,) = response.responses[0].partitions
    assert (result.error_code, result.acknowledge_error_code) == ((0, 6) if of_the_acknowledgement else (6, 0))
    assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == (LEADER.node_id, LEADER.epoch)
    assert [one.host for one in response.node_endpoints] == [LEADER.host]
