"""Calls about groups follow the coordinator until their time-out; a group's own error is returned."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any

import pytest
from google.protobuf.descriptor import ServiceDescriptor

from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.errors import (
    GroupAuthorizationFailedError,
    InQuarantineError,
    KafkaError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from kip932.ids import TopicPartition
from sharegroups.admin_values import ShareGroupDescription, ShareGroupOffset
from sharegroups.administration.group_admin import GROUPS_AT_ONCE
from sharegroups.aio import Admin
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.coordinator import Coordinator
from tests.support.fake_cluster.stories import on_fake_cluster
from tests.support.virtual_time import now_s
from tests.unit.sharegroups.aio.hooked import HookedTransport

OFFSETS, FIND = "DescribeShareGroupOffsets", "FindCoordinator"
_LOADING, _UNAVAILABLE, _MOVED, _FORBIDDEN = map(ErrorCode.ValueType, (14, 15, 16, 30))


def offsets_with(code: ErrorCode.ValueType) -> Any:
    """Return a function that sets this error code for the group in a response."""

    def change(answer: Any) -> None:
        answer.groups[0].error_code = code

    return change


@pytest.mark.rule("CL-46")
@pytest.mark.parametrize(("code", "checks"), [(_LOADING, 1), (_UNAVAILABLE, 2), (_MOVED, 2)])
@on_fake_cluster(nodes=2)
async def test_a_coordinator_that_loads_is_asked_again_and_one_that_moved_causes_a_lookup(
    fake: FakeCluster, code: ErrorCode.ValueType, checks: int
) -> None:
    transport = HookedTransport(fake)

    def refuse(answer: Any) -> None:
        offsets_with(code)(answer)
        fake.coordinator = 1

    transport.instead[OFFSETS].append(refuse)
    async with Admin({"bootstrap.servers": fake.bootstrap}, transport=transport) as admin:
        found = (await admin.list_share_group_offsets({"g": None}))["g"]
        assert not isinstance(found, KafkaError)
    assert len(transport.calls(FIND)) == checks
    addresses = [one.address for one in transport.calls(OFFSETS)]
    assert addresses == ["node0:9000", "node0:9000" if checks == 1 else "node1:9000"]


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


def _damaged(of: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Return a function that makes a response report its group as quarantined; `of` finds the part with the group's
    error."""

    def change(answer: Any) -> None:
        reported = of(answer)
        reported.error_code, reported.error_message, reported.in_quarantine = _UNAVAILABLE, "settle it", True

    return change


@pytest.mark.rule("CL-46", "GC-158")
@on_fake_cluster()
async def test_a_group_in_quarantine_is_the_answer_and_not_asked_for_again(fake: FakeCluster) -> None:
    transport = HookedTransport(fake)
    place = TopicPartition("t", 0)
    transport.instead["ShareGroupDescribe"].append(_damaged(lambda answer: answer.groups[0]))
    transport.instead[OFFSETS].extend([_damaged(lambda answer: answer.groups[0])] * 2)
    transport.instead["DeleteGroups"].append(_damaged(lambda answer: answer.results[0]))
    for call in ("AlterShareGroupOffsets", "DeleteShareGroupOffsets"):
        transport.instead[call].append(_damaged(lambda answer: answer))
    async with Admin({"bootstrap.servers": fake.bootstrap}, transport=transport) as admin:
        for returned in (
            await admin.describe_share_groups(["g"]),
            await admin.list_share_group_offsets({"g": None}),
            await admin.delete_share_groups(["g"]),
        ):
            assert isinstance(returned["g"], InQuarantineError)
        for raised in (
            admin.list_share_group_partitions("g"),
            admin.alter_share_group_offsets("g", {place: 0}),
            admin.delete_share_group_offsets("g", ["t"]),
        ):
            with pytest.raises(InQuarantineError, match="settle it"):
                await raised
    assert now_s() == 0


@pytest.mark.rule("CL-46")
@on_fake_cluster()
async def test_a_time_out_says_whether_the_coordinator_answered(fake: FakeCluster) -> None:
    settings = {"bootstrap.servers": fake.bootstrap, "default.api.timeout.ms": 3_000}
    fake.errors["describe"].extend([_LOADING] * 100)
    async with Admin(settings, transport=fake.transport()) as admin:
        refused = (await admin.describe_share_groups(["g"]))["g"]
        assert "the coordinator of group 'g' has refused for 3 s; last: " in str(refused)
        fake.network.stop("node0:9000")
        silent = (await admin.describe_share_groups(["g"]))["g"]
        assert "the coordinator of group 'g' did not answer within 3 s; last: " in str(silent)


class Counting(HookedTransport):
    """Delays every call and counts those in flight. For groups in `refused`, every response says that the coordinator
    has moved."""

    def __init__(self, fake: FakeCluster, refused: Collection[str] = ()) -> None:
        super().__init__(fake)
        self.refused = refused
        self.under_way = self.most = 0

    async def call(self, address: str, method: Any, request: Any, timeout_s: float) -> Any:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0.01)
        try:
            answer = await super().call(address, method, request, timeout_s)
        finally:
            self.under_way -= 1
        for group in getattr(answer, "groups", ()):
            if group.group_id in self.refused:
                group.error_code = _MOVED
        return answer


@pytest.mark.rule("CL-46")
@on_fake_cluster()
async def test_however_many_groups_are_asked_for_some_are_asked_at_a_time(fake: FakeCluster) -> None:
    names = [f"g{number}" for number in range(500)]
    fake.groups |= dict.fromkeys(names)
    place = TopicPartition("t", 0)
    transport = Counting(fake)
    async with Admin({"bootstrap.servers": fake.bootstrap}, transport=transport) as admin:
        described = await admin.describe_share_groups(names)
        offsets = await admin.list_share_group_offsets({name: [place] for name in names})
        deleted = await admin.delete_share_groups(names)
    assert list(described) == list(offsets) == list(deleted) == names
    assert not [
        each for each in (*described.values(), *offsets.values(), *deleted.values()) if isinstance(each, KafkaError)
    ]
    assert transport.most == GROUPS_AT_ONCE == 64


@pytest.mark.rule("CL-46")
@on_fake_cluster()
async def test_groups_that_are_refused_for_long_do_not_hold_up_the_others(fake: FakeCluster) -> None:
    names = [f"g{number:03}" for number in range(200)]
    fake.groups |= dict.fromkeys(names)
    transport = Counting(fake, refused=names[:150])
    settings = {"bootstrap.servers": fake.bootstrap, "default.api.timeout.ms": 5_000}
    async with Admin(settings, transport=transport) as admin:
        reported = await admin.describe_share_groups(names)
    assert [name for name, found in reported.items() if isinstance(found, KafkaError)] == names[:150]
    assert now_s() == pytest.approx(5, abs=0.05)


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
    (reported,) = caplog.messages
    assert "'g': t-3 is left out" in reported


@pytest.mark.rule("CL-45")
@on_fake_cluster()
async def test_what_the_caller_may_do_with_a_group_is_reported_when_it_asks(fake: FakeCluster) -> None:
    async with Admin({"bootstrap.servers": fake.bootstrap}, transport=fake.transport()) as admin:
        plain = (await admin.describe_share_groups(["g"]))["g"]
        asked = (await admin.describe_share_groups(["g"], include_authorized_operations=True))["g"]
    assert isinstance(plain, ShareGroupDescription)
    assert isinstance(asked, ShareGroupDescription)
    assert plain.authorized_operations is None
    assert asked.authorized_operations is not None
    assert {each.name: each.value for each in asked.authorized_operations} == {
        "READ": 3, "DELETE": 6, "DESCRIBE": 8, "DESCRIBE_CONFIGS": 10, "ALTER_CONFIGS": 11
    }  # fmt: skip


class OlderCoordinator(Coordinator):
    delete_groups = None  # type: ignore[assignment]  # it does not have this call


class OlderCluster(FakeCluster):
    """A cluster whose group coordinator cannot delete groups."""

    def services(self, node: int) -> list[tuple[ServiceDescriptor, object]]:
        cluster, (groups, _), leader = super().services(node)
        return [cluster, (groups, OlderCoordinator(self)), leader]


@pytest.mark.rule("CL-88", "CL-46")
@on_fake_cluster(kind=OlderCluster)
async def test_a_call_that_a_node_does_not_serve_names_itself_the_node_and_what_to_try(fake: FakeCluster) -> None:
    async with Admin({"bootstrap.servers": fake.bootstrap}, transport=fake.transport()) as admin:
        error = (await admin.delete_share_groups(["g"]))["g"]
    assert isinstance(error, UnsupportedVersionError)
    for word in ("DeleteGroups", "node0:9000", "upgrade it", "listen.port"):
        assert word in error.message
