"""explain_record of the admin client: which node it asks, which redirects it follows, how it reads the responses."""

from __future__ import annotations

from typing import Any

import pytest

from kip932.api.v1 import explain_record_pb2 as pb
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.errors import (
    GroupIdNotFoundError,
    InQuarantineError,
    InvalidRequestError,
    LeaderNotAvailableError,
    NotLeaderOrFollowerError,
    UnknownTopicOrPartitionError,
)
from kip932.ids import TopicPartition
from sharegroups.admin_values import Node, PendingWrite, RecordExplanation, ShareGroupDescription
from sharegroups.aio import Admin
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import on_fake_cluster
from tests.support.virtual_time import now_s
from tests.unit.sharegroups.aio.hooked import HookedTransport

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
Record = pb.ExplainRecordResponse.Record


def plant(fake: FakeCluster, number: int = 0, *records: Record, **fields: Any) -> None:
    answer: dict[str, Any] = {"start_offset": 2, "end_offset": 6, "high_watermark": 9, "in_flight_offsets": 4}
    answer |= {"held_records": 0, "loaded": True} | fields
    fake.explained[fake.partition("t", number)] = pb.ExplainRecordResponse(
        **answer, max_record_locks=200, delivery_count_limit=5, fetching_members=1, records=records
    )


def admin_of(fake: FakeCluster, transport: Any = None, **settings: Any) -> Admin:
    return Admin({"bootstrap.servers": fake.bootstrap} | settings, transport=transport or fake.transport())


@pytest.mark.rule("CL-90")
@on_fake_cluster(nodes=2, partitions=2)
async def test_the_leader_is_asked_and_every_field_is_reported(fake: FakeCluster) -> None:
    fake.add_member("m")
    held = Record(
        first_offset=2, last_offset=3, state=pb.RECORD_STATE_PENDING, becomes=pb.RECORD_STATE_ARCHIVED,
        obstacle=pb.DELIVERY_OBSTACLE_WRITE_PENDING, explanation="it waits", delivery_count=0, member_id="m",
        lock_remaining_ms=0, lock_renewed=True, held_ms=31_000,
        write=pb.ExplainRecordResponse.PendingWrite(running_ms=7, attempts=2),
        append_time_ms=5, reason="ValueError: no", reason_delivery_count=3,
    )  # fmt: skip
    bare = Record(first_offset=4, last_offset=4, state=77, obstacle=99)  # type: ignore[arg-type]
    plant(fake, 1, held, bare)
    async with admin_of(fake) as admin:
        found = await admin.explain_record("g", P1, 2, 4)
    (asked,) = fake.questions
    assert (asked.group_id, asked.partition_index, asked.offset, asked.last_offset) == ("g", 1, 2, 4)
    assert (found.group_id, found.partition, found.leader) == ("g", P1, Node(1, "node1", 9000))
    assert (found.loaded, found.start_offset, found.end_offset, found.log_start_offset) == (True, 2, 6, 0)
    assert (found.high_watermark, found.in_flight_offsets, found.in_flight, found.fetching_members) == (9, 4, 0, 1)
    assert (found.max_record_locks, found.delivery_count_limit, found.group_error) == (200, 5, None)
    first, second = found.records
    assert first.client_id is not None
    assert (first.state, first.becomes, first.obstacle) == ("pending", "archived", "write_pending")
    assert (first.delivery_count, first.member_id, first.lock_remaining_ms, first.lock_renewed) == (0, "m", 0, True)
    assert (first.held_ms, second.held_ms) == (31_000, None)
    assert (first.write, first.append_time_ms, first.explanation) == (PendingWrite(7, 2), 5, "it waits")
    assert (first.reason, first.reason_delivery_count) == ("ValueError: no", 3)
    assert second == RecordExplanation(4, 4, "unknown (77)", "unknown (99)", ""), "of a leader of a later build"


@pytest.mark.rule("CL-90")
@on_fake_cluster()
async def test_a_group_that_is_described_already_is_not_asked_for_again(fake: FakeCluster) -> None:
    fake.add_member("m")
    plant(fake, 0, Record(first_offset=2, last_offset=2, state=pb.RECORD_STATE_ACQUIRED, member_id="m"))
    async with admin_of(fake) as admin:
        asked = await admin.explain_record("g", P0, 2)
        described = (await admin.describe_share_groups(["g"]))["g"]
        assert isinstance(described, ShareGroupDescription)
        fake.errors["describe"].append(GroupIdNotFoundError.code)  # a coordinator that was asked would say so
        assert await admin.explain_record("g", P0, 2, group=described) == asked
        assert fake.errors["describe"] != []


@pytest.mark.rule("CL-90")
@on_fake_cluster(nodes=2)
async def test_a_leader_that_has_moved_is_followed(fake: FakeCluster) -> None:
    plant(fake, start_offset=-1, end_offset=-1, loaded=False)
    async with admin_of(fake) as admin:
        fake.errors["explain_record"].append(NotLeaderOrFollowerError.code)
        found = await admin.explain_record("g", P0, 1)
        assert (found.start_offset, found.end_offset, found.loaded) == (None, None, False)
        fake.move_leader("t", 0, 1)
        assert (await admin.explain_record("g", P0, 1)).leader.node_id == 1
    assert [(one.offset, one.last_offset) for one in fake.questions] == [(1, 1)] * 3


@pytest.mark.rule("CL-90")
@on_fake_cluster()
async def test_what_cannot_be_is_raised_at_once(fake: FakeCluster) -> None:
    plant(fake)
    async with admin_of(fake) as admin:
        for group, partition, kind in (
            ("unknown", P0, GroupIdNotFoundError),
            ("g", TopicPartition("nope", 0), UnknownTopicOrPartitionError),
            ("g", TopicPartition("t", 7), UnknownTopicOrPartitionError),
        ):
            with pytest.raises(kind):
                await admin.explain_record(group, partition, 1)
        fake.errors["explain_record"].append(InvalidRequestError.code)
        with pytest.raises(InvalidRequestError):
            await admin.explain_record("g", P0, 1)
        assert now_s() < 0.1
        fake.leaders[fake.partition("t")] = (-1, 2)
        with pytest.raises(LeaderNotAvailableError):
            await admin.explain_record("g", P0, 1)
    assert now_s() < 2.1


@pytest.mark.rule("CL-90", "GC-158")
@on_fake_cluster()
async def test_a_group_in_quarantine_is_the_answer(fake: FakeCluster) -> None:
    plant(fake)
    transport = HookedTransport(fake)

    def damaged(answer: Any) -> None:
        answer.groups[0].error_code, answer.groups[0].in_quarantine = ErrorCode.ValueType(15), True

    transport.instead["ShareGroupDescribe"].append(damaged)
    async with admin_of(fake, transport) as admin:
        with pytest.raises(InQuarantineError):
            await admin.explain_record("g", P0, 1)


@pytest.mark.rule("CL-90")
@on_fake_cluster()
async def test_no_leader_within_the_time_and_a_coordinator_that_says_nothing(fake: FakeCluster) -> None:
    plant(fake)
    transport = HookedTransport(fake)

    def unavailable(answer: Any) -> None:
        answer.groups[0].error_code = ErrorCode.ValueType(15)

    transport.instead["ShareGroupDescribe"].extend([unavailable] * 1_000)
    async with admin_of(fake, transport) as admin:
        found = await admin.explain_record("g", P0, 1)
        assert (found.group_state, found.members, found.assigned_members) == (None, None, None)
        assert found.group_error is not None
        assert "did not answer within 5 s" in found.group_error.message
        assert now_s() == pytest.approx(5)
    for _ in range(200):
        fake.errors["explain_record"].append(NotLeaderOrFollowerError.code)
    async with admin_of(fake, **{"default.api.timeout.ms": 3_000}) as admin:
        with pytest.raises(NotLeaderOrFollowerError):
            await admin.explain_record("g", P0, 1)
    assert now_s() == pytest.approx(8)
