"""Calls about groups follow the coordinator until their time is over; what a group's own error is, is returned."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.errors import GroupAuthorizationFailedError, KafkaError, RequestTimedOutError, UnsupportedVersionError
from kip932.ids import TopicPartition
from sharegroups.admin_values import ShareGroupOffset
from sharegroups.aio import Admin
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import on_fake_cluster
from tests.support.virtual_time import now_s
from tests.unit.sharegroups.aio.hooked import HookedTransport

OFFSETS, FIND = "DescribeShareGroupOffsets", "FindCoordinator"
_LOADING, _UNAVAILABLE, _MOVED, _FORBIDDEN = map(ErrorCode.ValueType, (14, 15, 16, 30))


def offsets_with(code: ErrorCode.ValueType) -> Any:
    """Make an answer say of its group nothing but this error."""

    def change(answer: Any) -> None:
        answer.groups[0].error_code = code

    return change


@pytest.mark.rule("CL-46")
@pytest.mark.parametrize(("code", "looks"), [(_LOADING, 1), (_UNAVAILABLE, 2), (_MOVED, 2)])
@on_fake_cluster(nodes=2)
async def test_a_coordinator_that_loads_is_asked_again_and_one_that_moved_is_looked_up(
    fake: FakeCluster, code: ErrorCode.ValueType, looks: int
) -> None:
    transport = HookedTransport(fake)

    def refuse(answer: Any) -> None:
        offsets_with(code)(answer)
        fake.coordinator = 1

    transport.instead[OFFSETS].append(refuse)
    async with Admin({"bootstrap.servers": fake.bootstrap}, transport=transport) as admin:
        found = (await admin.list_share_group_offsets({"g": None}))["g"]
        assert not isinstance(found, KafkaError)
    assert len(transport.calls(FIND)) == looks
    addresses = [one.address for one in transport.calls(OFFSETS)]
    assert addresses == ["node0:9000", "node0:9000" if looks == 1 else "node1:9000"]


@pytest.mark.rule("CL-46")
@on_fake_cluster()
async def test_the_call_ends_when_its_time_is_over_and_another_error_is_the_groups_own(fake: FakeCluster) -> None:
    transport = HookedTransport(fake)
    transport.instead[OFFSETS].extend([offsets_with(_MOVED)] * 100)
    settings = {"bootstrap.servers": fake.bootstrap, "default.api.timeout.ms": 3_000}
    async with Admin(settings, transport=transport) as admin:
        assert isinstance((await admin.list_share_group_offsets({"g": None}))["g"], RequestTimedOutError)
        assert now_s() == pytest.approx(3, abs=0.01)
        transport.instead[OFFSETS].clear()
        transport.instead[OFFSETS].append(offsets_with(_FORBIDDEN))
        asked = len(transport.calls(OFFSETS))
        assert isinstance((await admin.list_share_group_offsets({"g": None}))["g"], GroupAuthorizationFailedError)
        assert len(transport.calls(OFFSETS)) == asked + 1


@pytest.mark.rule("CL-46")
@on_fake_cluster()
async def test_offsets_that_are_unknown_are_absent_and_a_partition_with_an_error_is_left_out_with_a_warning(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    def change(answer: Any) -> None:
        del answer.groups[0].topics[:]
        topic = answer.groups[0].topics.add(topic_name="t")
        topic.partitions.add(partition_index=0, start_offset=5, leader_epoch=2, lag=3)
        topic.partitions.add(partition_index=1, start_offset=-1, leader_epoch=-1, lag=-1)
        topic.partitions.add(partition_index=2, start_offset=6, leader_epoch=-1, lag=-1)
        topic.partitions.add(partition_index=3, error_code=ErrorCode.ValueType(3))

    transport = HookedTransport(fake)
    transport.instead[OFFSETS].append(change)
    with caplog.at_level(logging.WARNING):
        async with Admin({"bootstrap.servers": fake.bootstrap}, transport=transport) as admin:
            found = (await admin.list_share_group_offsets({"g": None}))["g"]
    assert found == {
        TopicPartition("t", 0): ShareGroupOffset(5, 2, 3, None, None),
        TopicPartition("t", 1): None,
        TopicPartition("t", 2): ShareGroupOffset(6, None, None, None, None),
    }
    (told,) = caplog.messages
    assert "'g': t-3 is left out" in told


@pytest.mark.rule("CL-88", "CL-46")
@on_fake_cluster()
async def test_a_call_that_a_node_does_not_serve_names_itself_the_node_and_what_to_try(fake: FakeCluster) -> None:
    async with Admin({"bootstrap.servers": fake.bootstrap}, transport=fake.transport()) as admin:
        error = (await admin.delete_share_groups(["g"]))["g"]
    assert isinstance(error, UnsupportedVersionError)
    for word in ("DeleteGroups", "node0:9000", "upgrade it", "listen.port"):
        assert word in error.message
