"""DescribeShareGroupOffsets (GC-110…GC-119) over real handlers, with a share coordinator and leaders in memory."""

from __future__ import annotations

from typing import Any, cast

import pytest

from group_coordinator import service_offsets
from group_coordinator.leader_end_offsets import EndOffsets, LogEnd
from kip932 import errors
from kip932.api.v1 import describe_share_group_offsets_pb2 as pb
from kip932.api.v1 import list_offsets_pb2 as list_pb
from kip932.ids import NULL_TOPIC_ID, REQUEST_GROUPS_MAX, REQUEST_PARTITIONS_MAX, TopicIdPartition, shard_index
from kip932.rpc.transport import TransportError, TransportStatus
from kip932.state_values import StateSummary
from share_persister import PersisterError
from tests.support.group_cluster import Acls, GroupCluster, play
from tests.support.group_driver import topic_id
from tests.support.virtual_time import run

T = topic_id("t")
Request = pb.DescribeShareGroupOffsetsRequest


async def _ready(world: GroupCluster, start: int = 100, complete: int = 6, end: int = 130) -> None:
    """A group whose t-0 and t-1 are initialised; t-0 has the given state."""
    world.create("t", 2)
    joined = await world.heartbeat("m", 0, ["t"])
    await world.until_assigned("m", joined.member_epoch)
    world.persister.states["grp", TopicIdPartition(T, 0)] = StateSummary(2, 9, start, complete)
    world.leaders.ends[T, 0] = end


async def _ask(world: GroupCluster, topics: dict[str, list[int]] | None, group_id: str = "grp") -> Any:
    listed = None
    if topics is not None:
        listed = Request.TopicList(values=[Request.Topic(topic_name=n, partitions=p) for n, p in topics.items()])
    request = Request(groups=[Request.Group(group_id=group_id, topics=listed)])
    response = await world.call("DescribeShareGroupOffsets", request)
    return cast(pb.DescribeShareGroupOffsetsResponse, response).groups[0]


def _rows(group: Any) -> list[tuple[str, int, int, int, int]]:
    return [
        (topic.topic_name, found.partition_index, found.start_offset, found.leader_epoch, found.lag)
        for topic in group.topics
        for found in topic.partitions
    ]


@pytest.mark.rule("GC-114", "GC-115", "GC-118", "OP-18")
@pytest.mark.scenario("S-080")
def test_the_lag_counts_what_is_still_to_be_completed() -> None:
    async def body(world: GroupCluster) -> None:
        await _ready(world)
        group = await _ask(world, {"t": [0]})
        assert (group.error_code, _rows(group)) == (0, [("t", 0, 100, 9, 24)])
        assert group.topics[0].topic_id == T

    play(body)


@pytest.mark.scenario("S-086")
@pytest.mark.rule("GC-110", "GC-116")
@pytest.mark.scenario("S-080")
def test_null_topics_are_all_initialised_partitions_and_an_empty_list_is_none() -> None:
    async def body(world: GroupCluster) -> None:
        await _ready(world)
        assert _rows(await _ask(world, None)) == [("t", 0, 100, 9, 24), ("t", 1, -1, 0, -1)]
        assert _rows(await _ask(world, {})) == []
        world.delete("t")
        assert _rows(await _ask(world, None)) == []

    play(body)


@pytest.mark.rule("GC-112", "GC-113", "OP-13")
@pytest.mark.scenario("S-080")
def test_unknown_topics_partitions_and_groups_have_no_data_and_no_error() -> None:
    async def body(world: GroupCluster) -> None:
        await _ready(world)
        group = await _ask(world, {"bad": [1], "t": [5, -1]})
        assert _rows(group) == [("bad", 1, -1, 0, -1), ("t", 5, -1, 0, -1), ("t", -1, -1, 0, -1)]
        assert [topic.topic_id for topic in group.topics] == [NULL_TOPIC_ID, T]
        unknown = await _ask(world, {"t": [0]}, "unknown")
        assert (unknown.error_code, _rows(unknown)) == (0, [("t", 0, -1, 0, -1)])
        assert _rows(await _ask(world, None, "unknown")) == []
        assert (await _ask(world, None, "")).error_code == errors.InvalidGroupIdError.code

    play(body)


@pytest.mark.rule("GC-115", "GC-116")
@pytest.mark.parametrize(
    ("summary", "row"),
    [
        (StateSummary(2, 9, 100, -1), (100, 9, -1)),
        (StateSummary(2, 9, 130, 0), (130, 9, 0)),
        (StateSummary(2, 9, 150, 3), (150, 9, 0)),
    ],
)
def test_a_lag_that_cannot_be_computed_is_unknown_and_none_is_negative(
    summary: StateSummary, row: tuple[int, int, int]
) -> None:
    async def body(world: GroupCluster) -> None:
        await _ready(world)
        world.persister.states["grp", TopicIdPartition(T, 0)] = summary
        assert _rows(await _ask(world, {"t": [0]})) == [("t", 0, *row)]

    play(body)


@pytest.mark.rule("GC-109")
@pytest.mark.parametrize(
    ("known", "reported"),
    [
        ({"in_flight": 3, "waiting": 20, "oldest_age_ms": 7}, (3, 20, 7)),
        ({"in_flight": 0, "oldest_age_ms": 7}, (0, 24, 7)),  # nothing is loaded: the whole lag is waiting
        ({"in_flight": 0, "dead_letters": 20}, (0, 4, None)),  # except what is about to become dead letters
        ({"in_flight": 0, "dead_letters": 25}, (0, 0, None)),  # one dead letter was written after the state was read
        ({"in_flight": 0, "waiting": 3, "dead_letters": 20}, (0, 3, None)),  # the window has already left them out
        ({"in_flight": 0, "waiting": 0}, (0, 0, None)),
        ({}, (None, None, None)),  # a leader of an older build
    ],
)
def test_the_backlog_is_asked_for_with_the_log_end_and_unknown_is_never_0(
    known: dict[str, int], reported: tuple[int | None, ...]
) -> None:
    async def body(world: GroupCluster) -> None:
        await _ready(world)
        world.leaders.backlogs[T, 0] = known

        async def ask(include: bool) -> Any:
            topics = Request.TopicList(values=[Request.Topic(topic_name="t", partitions=[0, 1])])
            group = Request.Group(group_id="grp", topics=topics, include_backlog=include)
            response = cast(Any, await world.call("DescribeShareGroupOffsets", Request(groups=[group])))
            return response.groups[0].topics[0].partitions

        names = ("in_flight", "waiting", "oldest_age_ms")
        first, second = await ask(include=True)
        assert world.leaders.groups == ["grp"]
        assert tuple(getattr(first, name) if first.HasField(name) else None for name in names) == reported
        assert first.lag == 24
        assert not any(second.HasField(name) for name in names), "it has no start offset, so no leader was asked"
        world.leaders.groups.clear()
        assert not any(one.HasField(name) for one in await ask(include=False) for name in names)
        assert world.leaders.groups == []

    play(body)


@pytest.mark.rule("PL-938", "GC-109")
@pytest.mark.parametrize(
    ("leader", "stored", "reported"),
    [
        ({"in_flight": 3, "waiting": 20, "delayed": 1}, 7, (20, 1)),  # loaded: the leader's count applies
        ({"in_flight": 3, "waiting": 20, "delayed": 0}, 7, (20, 0)),
        ({"in_flight": 3, "waiting": 20}, 7, (20, None)),  # a leader of an older build: unknown, never 0
        ({"in_flight": 0}, 7, (17, 7)),  # nothing is loaded: the stored delays are reported, and not as waiting
        ({"in_flight": 0, "dead_letters": 20}, 7, (0, 7)),
        ({"in_flight": 0, "empty": 4}, 7, (17, 7)),  # the larger of the finished and the empty ones is subtracted
        ({"in_flight": 0, "empty": 10}, 7, (13, 7)),
        ({"in_flight": 0, "empty": 99}, 7, (0, 7)),
        ({"in_flight": 0}, 0, (24, 0)),
        ({"in_flight": 0}, -1, (24, None)),  # a share coordinator of an older build
        ({}, 7, (None, None)),
    ],
)
def test_delayed_records_are_reported_by_the_leader_or_by_what_is_stored(
    leader: dict[str, int], stored: int, reported: tuple[int | None, int | None]
) -> None:
    async def body(world: GroupCluster) -> None:
        await _ready(world)
        world.persister.states["grp", TopicIdPartition(T, 0)] = StateSummary(2, 9, 100, 6, delayed=stored)
        world.leaders.backlogs[T, 0] = leader
        world.persister.delayed_asked.clear()

        async def ask(include: bool) -> Any:
            topics = Request.TopicList(values=[Request.Topic(topic_name="t", partitions=[0])])
            group = Request.Group(group_id="grp", topics=topics, include_backlog=include)
            response = cast(Any, await world.call("DescribeShareGroupOffsets", Request(groups=[group])))
            return response.groups[0].topics[0].partitions[0]

        assert not (await ask(include=False)).HasField("delayed")
        assert world.persister.delayed_asked == []
        one = await ask(include=True)
        assert tuple(getattr(one, name) if one.HasField(name) else None for name in ("waiting", "delayed")) == reported
        assert world.persister.delayed_asked == [world.clock.wall_ms()], "of now"

    play(body)


@pytest.mark.rule("GC-115", "CM-105")
@pytest.mark.parametrize(("holes", "lag"), [(0, 24), (4, 24), (6, 24), (10, 20), (29, 1), (30, 0), (1_000, 0)])
def test_offsets_without_a_record_are_left_out_and_none_is_taken_off_twice(holes: int, lag: int) -> None:
    async def body(world: GroupCluster) -> None:
        await _ready(world)  # six records are finished, possibly within the hole
        world.leaders.holes[T, 0] = holes
        assert _rows(await _ask(world, {"t": [0]})) == [("t", 0, 100, 9, lag)]

    play(body)


@pytest.mark.rule("GC-116")
@pytest.mark.parametrize(
    "error", [errors.CoordinatorNotAvailableError("away"), errors.InQuarantineError("entry 7-3 is damaged")]
)
def test_a_summarys_error_is_that_of_its_partition_and_of_no_other(error: errors.KafkaError) -> None:
    async def body(world: GroupCluster) -> None:
        await _ready(world)
        world.persister.refuse[TopicIdPartition(T, 1)] = PersisterError(error, outcome_unknown=True)
        group = await _ask(world, {"t": [0, 1]})
        assert _rows(group) == [("t", 0, 100, 9, 24), ("t", 1, -1, 0, -1)]
        first, second = group.topics[0].partitions
        assert (group.error_code, first.error_code) == (0, 0)
        assert (second.error_code, second.error_message) == (15, error.message)

    play(body)


@pytest.mark.rule("GC-115")
def test_a_leader_that_moved_is_asked_again_up_to_five_times() -> None:
    async def body(world: GroupCluster) -> None:
        await _ready(world)
        moved = errors.NotLeaderOrFollowerError.code
        world.leaders.failures = [moved] * 5
        assert _rows(await _ask(world, {"t": [0]})) == [("t", 0, 100, 9, 24)]
        world.leaders.failures = [moved] * 6
        group = await _ask(world, {"t": [0]})
        assert (group.topics[0].partitions[0].error_code, _rows(group)[0][2:]) == (moved, (-1, 0, -1))

    play(body)


@pytest.mark.rule("GC-117")
def test_without_a_leader_the_partition_says_so() -> None:
    async def body(world: GroupCluster) -> None:
        await _ready(world)
        world.leader = None
        partition = (await _ask(world, {"t": [0]})).topics[0].partitions[0]
        assert partition.error_code == errors.LeaderNotAvailableError.code
        world.leader = "127.0.0.1:1"
        partition = (await _ask(world, {"t": [0]})).topics[0].partitions[0]
        assert partition.error_code == errors.NetworkError.code

    play(body)


@pytest.mark.rule("GC-119")
def test_a_failed_summary_call_is_the_groups_error() -> None:
    async def body(world: GroupCluster) -> None:
        await _ready(world)
        world.persister.broken = errors.RequestTimedOutError("too late")
        group = await _ask(world, {"t": [0]})
        assert (group.error_code, list(group.topics)) == (errors.CoordinatorNotAvailableError.code, [])

    play(body)


@pytest.mark.rule("GC-5", "GC-119")
def test_an_unexpected_failure_has_a_number_and_no_text() -> None:
    async def body(world: GroupCluster) -> None:
        await _ready(world)
        world.persister.broken = ZeroDivisionError("secret")
        group = await _ask(world, {"t": [0]})
        assert (group.error_code, group.HasField("error_message")) == (-1, False)

    play(body)


@pytest.mark.rule("GC-110", "GC-111", "GC-149")
def test_hidden_groups_and_topics() -> None:
    acls = Acls(
        "READ GROUP *",
        "DESCRIBE GROUP grp",
        "DESCRIBE TOPIC t",
    )

    async def body(world: GroupCluster) -> None:
        await _ready(world)
        acls.take("READ GROUP *")
        assert (await _ask(world, None, "other")).error_code == errors.GroupAuthorizationFailedError.code
        acls.take("DESCRIBE TOPIC t")
        assert _rows(await _ask(world, None)) == []
        group = await _ask(world, {"t": [0]})
        assert _rows(group) == [("t", 0, -1, 0, -1)]
        assert group.topics[0].topic_id == NULL_TOPIC_ID
        assert group.topics[0].partitions[0].error_code == errors.TopicAuthorizationFailedError.code

    play(body, GroupCluster(access=acls))


@pytest.mark.rule("GC-7", "CM-14")
def test_a_shard_that_is_elsewhere_marks_only_its_groups() -> None:
    async def body(world: GroupCluster) -> None:
        await _ready(world)
        other = next(name for name in ("a", "b", "c", "d") if shard_index(name, 3) != shard_index("grp", 3))
        world.role.hosts[shard_index(other, 3)].lost("moved")
        request = Request(groups=[Request.Group(group_id=other), Request.Group(group_id="grp")])
        response = cast(pb.DescribeShareGroupOffsetsResponse, await world.call("DescribeShareGroupOffsets", request))
        assert [(group.group_id, group.error_code) for group in response.groups] == [(other, 16), ("grp", 0)]

    play(body)


@pytest.mark.rule("CM-62")
def test_partitions_of_all_groups_asked_for_are_bounded_together() -> None:
    async def body(world: GroupCluster) -> None:
        half = Request.TopicList(
            values=[Request.Topic(topic_name="t", partitions=range(REQUEST_PARTITIONS_MAX // 2 + 1))]
        )
        request = Request(groups=[Request.Group(group_id=name, topics=half) for name in ("g", "h")])
        with pytest.raises(TransportError, match="go into one request") as refused:
            await world.call("DescribeShareGroupOffsets", request)
        assert refused.value.status is TransportStatus.INVALID_ARGUMENT
        world.create("t", 1)
        assert (await _ask(world, {"t": list(range(REQUEST_PARTITIONS_MAX))})).error_code == 0

    play(body)


@pytest.mark.rule("CM-91")
def test_an_offsets_request_for_too_many_groups_or_partitions_is_refused_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body(world: GroupCluster) -> None:
        await _ready(world)
        many = Request(groups=[Request.Group(group_id="x")] * (REQUEST_GROUPS_MAX + 1))
        with pytest.raises(TransportError, match="1001 groups were asked for; at most 1000") as refused:
            await world.call("DescribeShareGroupOffsets", many)
        assert refused.value.status is TransportStatus.INVALID_ARGUMENT
        monkeypatch.setattr(service_offsets, "DESCRIBED_PARTITIONS_MAX", 4)
        twice = Request(groups=[Request.Group(group_id="grp")] * 2)
        assert len(cast(Any, await world.call("DescribeShareGroupOffsets", twice)).groups) == 2
        with pytest.raises(TransportError, match="more than 4 partitions together"):
            await world.call("DescribeShareGroupOffsets", Request(groups=[Request.Group(group_id="grp")] * 3))

    play(body)


@pytest.mark.rule("GC-115")
def test_each_leader_is_asked_once_for_all_its_partitions_and_again_when_it_did_not_answer() -> None:
    asked: list[tuple[str, list[int]]] = []

    class Leaders:
        async def call(self, address: str, _method: Any, request: Any, _timeout_s: float) -> Any:
            (topic,) = request.topics
            asked.append((address, [one.partition_index for one in topic.partitions]))
            if address == "two:1" and len(asked) <= 6:
                status = TransportStatus.UNAVAILABLE if len(asked) % 2 else TransportStatus.DEADLINE_EXCEEDED
                raise TransportError(status, address, "away")
            results = [
                list_pb.ListOffsetsResponse.PartitionResult(partition_index=one.partition_index, offset=7)
                for one in topic.partitions
            ]
            response = list_pb.ListOffsetsResponse()
            response.topics.add(topic_id=topic.topic_id, partitions=results)
            return response

    async def no_pause(_: float) -> None: ...

    ends = EndOffsets(cast(Any, Leaders()), lambda key: "two:1" if key.partition % 2 else "one:1", no_pause)
    wanted = [TopicIdPartition(T, index) for index in range(4)]
    assert run(ends.latest(dict.fromkeys(wanted, 0))) == dict.fromkeys(wanted, LogEnd(7, 0))
    assert asked == [("one:1", [0, 2]), *[("two:1", [1, 3])] * 6]


@pytest.mark.rule("CM-62", "GC-115")
def test_one_leader_is_asked_for_no_more_partitions_than_one_request_holds() -> None:
    asked: list[int] = []

    class Leader:
        async def call(self, _address: str, _method: Any, request: Any, _timeout_s: float) -> Any:
            response = list_pb.ListOffsetsResponse()
            for topic in request.topics:
                asked.append(len(topic.partitions))
                results = response.topics.add(topic_id=topic.topic_id).partitions
                results.extend(
                    list_pb.ListOffsetsResponse.PartitionResult(partition_index=one.partition_index, offset=7)
                    for one in topic.partitions
                )
            return response

    ends = EndOffsets(cast(Any, Leader()), lambda _: "leader:1")
    wanted = [TopicIdPartition(T, index) for index in range(REQUEST_PARTITIONS_MAX + 3)]
    assert run(ends.latest(dict.fromkeys(wanted, 3))) == dict.fromkeys(wanted, LogEnd(7, 0))
    assert asked == [REQUEST_PARTITIONS_MAX, 3]
