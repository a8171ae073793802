"""Leaders that are named for partitions led elsewhere."""

import pytest

from kafka_listener.messages.apis import api
from kafka_listener.ports import Broker
from kafka_listener.requests.share_leaders import Leaders
from kip932.api.v1.common_pb2 import LeaderIdAndEpoch
from tests.unit.kafka_listener.requests.share_connections import Brokers

NOT_LEADER, FENCED, UNKNOWN_TOPIC = 6, 74, 3
RESPONSE = api("ShareFetch").response


def leaders() -> Leaders:
    return Leaders(RESPONSE, Brokers(Broker(2, "b", 9094), Broker(3, "c", 9095, "r")))


@pytest.mark.rule("KL-80")
def test_a_leader_elsewhere_is_named_once_with_the_address_of_its_kafka_listener() -> None:
    named = leaders()
    for code in (NOT_LEADER, FENCED):
        leader = named.of(LeaderIdAndEpoch(leader_id=3, leader_epoch=9), 0, code)
        assert (leader.leader_id, leader.leader_epoch) == (3, 9)
    named.of(LeaderIdAndEpoch(leader_id=2, leader_epoch=4), NOT_LEADER)
    assert [(each.node_id, each.host, each.port, each.rack) for each in named.endpoints] == [
        (3, "c", 9095, "r"),
        (2, "b", 9094, None),
    ]


@pytest.mark.rule("KL-80")
def test_a_leader_that_is_unknown_or_has_no_listener_is_minus_one() -> None:
    named = leaders()
    for current in (None, LeaderIdAndEpoch(leader_id=7, leader_epoch=9)):
        leader = named.of(current, NOT_LEADER)
        assert (leader.leader_id, leader.leader_epoch) == (-1, -1)
    assert named.endpoints == []


@pytest.mark.rule("KL-80")
def test_without_such_an_error_leader_and_epoch_are_zero() -> None:
    named = leaders()
    for current in (None, LeaderIdAndEpoch(leader_id=3, leader_epoch=9)):
        leader = named.of(current, 0, UNKNOWN_TOPIC)
        assert (leader.leader_id, leader.leader_epoch) == (0, 0)
    assert named.endpoints == []
