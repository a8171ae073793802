"""Topics with `sharegroups.retention=consumed` on real roles and a real store (CM-160…CM-163)."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from kip932 import errors
from kip932.api.v1 import create_partitions_pb2 as grow_pb
from kip932.api.v1 import incremental_alter_configs_pb2 as alter_pb
from kip932.api.v1 import list_offsets_pb2 as list_pb
from kip932.ids import OFFSET_EARLIEST
from tests.integration.scenarios.group_changes import alter, altered, delete_groups, emptied, leave
from tests.integration.scenarios.sessions import ACCEPT, Session, part
from tests.integration.scenarios.wire import Connect, Wire, attempts
from tests.support.node import QUICK, Cluster, unique

pytestmark = pytest.mark.asyncio

NONE = 0
CONSUMED = {"sharegroups.retention": "consumed"}
RESOURCE_TOPIC = 2


#: Frequent rounds of retention.
FREQUENT = {
    **QUICK,
    "sharegroups.retention.consumed.interval.ms": "100",
    "group.share.auto.offset.reset": "earliest",
}


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    with Cluster(FREQUENT) as running:
        yield running


@pytest_asyncio.fixture
async def quick(own: Cluster, wire_to: Connect) -> AsyncIterator[Wire]:
    async with wire_to(own) as made:
        yield made


async def begins(wire: Wire, topic_id: bytes, partition: int = 0, address: str | None = None) -> int:
    """Return the log start offset."""
    request = list_pb.ListOffsetsRequest()
    request.topics.add(topic_id=topic_id).partitions.add(
        partition_index=partition, timestamp=OFFSET_EARLIEST, current_leader_epoch=-1
    )
    (found,) = (await wire.call("ListOffsets", request, address)).topics[0].partitions
    assert found.error_code == NONE, found.error_message
    return int(found.offset)


async def until_begins(
    wire: Wire, topic_id: bytes, offset: int, partition: int = 0, address: str | None = None
) -> None:
    async for _ in attempts():
        found = await begins(wire, topic_id, partition, address)
        assert found <= offset, f"the log begins at {found}: more is gone than every group had finished"
        if found == offset:
            return
    raise AssertionError(f"the log begins at {found}, expected {offset}")


async def rounds(wire: Wire) -> None:
    """Wait for rounds that started after this call: they have deleted what a group has finished of another topic."""
    topic = unique("passing")
    topic_id = await wire.create_topic(topic, configs=CONSUMED)
    group = await member(wire, unique("passing"), topic, topic_id)
    for offset in (1, 2):
        await wire.produce(topic_id, 1)
        await finish(group, offset - 1)
        await until_begins(wire, topic_id, offset)


async def member(wire: Wire, group: str, topic: str, topic_id: bytes) -> Session:
    """Let a member join the group and open a session."""
    return Session(wire, group, await wire.join(group, [topic]), topic_id)


async def finish(session: Session, last: int) -> None:
    """Accept records until `last` is accepted."""
    async for _ in attempts():
        for first, end, _count in await session.acquire():
            assert await session.ack(first, min(end, last), ACCEPT) == NONE
            if end >= last:
                return
    raise AssertionError(f"{session.group} never came to {last}")


async def ended(session: Session) -> None:
    """Close the member's session and leave the group."""
    assert (await session.fetch(epoch=-1)).error_code == NONE
    await leave(session.wire, session.group, session.member)


@pytest.mark.rule("CM-160", "CM-162")
async def test_the_slowest_group_keeps_its_records_and_lets_them_go_when_it_is_deleted(quick: Wire) -> None:
    topic = unique("jobs")
    topic_id = await quick.create_topic(topic, configs=CONSUMED)
    fast, slow = [await member(quick, unique(word), topic, topic_id) for word in ("fast", "slow")]
    await fast.open()
    await slow.open()
    await quick.produce(topic_id, 4)
    await quick.produce(topic_id, 6)
    await finish(fast, 9)
    await finish(slow, 2)
    await until_begins(quick, topic_id, 3)
    await rounds(quick)
    assert await begins(quick, topic_id) == 3
    assert (await quick.lag(slow.group, topic), await quick.lag(fast.group, topic)) == ((3, 7), (10, 0))
    late = await member(quick, unique("late"), topic, topic_id)
    assert (await late.acquire())[0][0] == 3, "a new group begins at what is left"
    for group in (slow, late):
        await ended(group)
    await rounds(quick)
    assert await begins(quick, topic_id) == 3, "groups without members count"
    assert await delete_groups(quick, slow.group, late.group) == {slow.group: NONE, late.group: NONE}
    await until_begins(quick, topic_id, 10)
    await quick.produce(topic_id, 1)
    assert await fast.acquire() == [(10, 10, 1)]


@pytest.mark.rule("CM-160")
async def test_without_a_group_and_without_the_config_nothing_goes(quick: Wire) -> None:
    plain, waiting = unique("plain"), unique("waiting")
    plain_id = await quick.create_topic(plain)
    waiting_id = await quick.create_topic(waiting, configs=CONSUMED)
    await quick.produce(waiting_id, 5)
    session = await member(quick, unique("g"), plain, plain_id)
    await session.open()
    await quick.produce(plain_id, 5)
    await finish(session, 4)
    await rounds(quick)
    assert (await begins(quick, plain_id), await begins(quick, waiting_id)) == (0, 0)


@pytest.mark.rule("CM-160", "CM-162")
async def test_a_group_that_has_state_and_has_not_begun_keeps_everything(quick: Wire) -> None:
    """The same holds for a group that is reset before it ever fetches: the reset creates the group before there is a
    record."""
    topic = unique("jobs")
    topic_id = await quick.create_topic(topic, configs=CONSUMED)
    joined, made = unique("joined"), unique("made")
    await emptied(quick, joined, topic)
    assert altered(await alter(quick, made, {topic: [(0, 0)]})) == {topic: [(0, NONE)]}
    first = await member(quick, unique("first"), topic, topic_id)
    await first.open()
    await quick.produce(topic_id, 5)
    await finish(first, 4)
    await rounds(quick)
    assert await begins(quick, topic_id) == 0
    for name in (joined, made):
        session = await member(quick, name, topic, topic_id)
        assert await session.acquire() == [(0, 4, 1)]
        assert await session.ack(0, 4, ACCEPT) == NONE
    await until_begins(quick, topic_id, 5)


@pytest.mark.rule("CM-162")
async def test_a_reset_keeps_what_is_left_from_its_offset_on(quick: Wire) -> None:
    topic = unique("jobs")
    topic_id = await quick.create_topic(topic, configs=CONSUMED)
    again, slow = [await member(quick, unique(word), topic, topic_id) for word in ("again", "slow")]
    await again.open()
    await slow.open()
    await quick.produce(topic_id, 10)
    await finish(again, 9)
    await finish(slow, 2)
    await until_begins(quick, topic_id, 3)
    await ended(again)
    assert altered(await alter(quick, again.group, {topic: [(0, 5)]})) == {topic: [(0, NONE)]}
    assert await slow.ack(3, 9, ACCEPT) == NONE
    await until_begins(quick, topic_id, 5)
    await rounds(quick)
    assert await begins(quick, topic_id) == 5
    back = await member(quick, again.group, topic, topic_id)
    assert await back.acquire() == [(5, 9, 1)]
    await ended(back)
    assert altered(await alter(quick, again.group, {topic: [(0, 0)]})) == {topic: [(0, NONE)]}, "below the log start"
    back = await member(quick, again.group, topic, topic_id)
    assert await back.acquire() == [(5, 9, 1)]


@pytest.mark.rule("CM-160")
async def test_a_partition_that_is_added_keeps_its_records_for_a_group_that_is_away(quick: Wire) -> None:
    topic = unique("grows")
    topic_id = await quick.create_topic(topic, configs=CONSUMED)
    away, present = unique("away"), unique("present")
    await emptied(quick, away, topic)
    request = grow_pb.CreatePartitionsRequest(timeout_ms=10_000)
    request.topics.add(name=topic, count=2)
    (grown,) = (await quick.call("CreatePartitions", request)).results
    assert grown.error_code == NONE, grown.error_message
    await quick.leaders(topic, 2)
    here = await _at_partition_1(quick, present, topic, topic_id)
    await quick.produce(topic_id, 3, partition=1)
    assert await here.acquire() == [(0, 2, 1)]
    assert part(await here.acknowledge((0, 2, [ACCEPT]), partition=1)).error_code == NONE
    await rounds(quick)
    assert await begins(quick, topic_id, 1) == 0
    back = await _at_partition_1(quick, away, topic, topic_id)
    assert await back.acquire() == [(0, 2, 1)]
    assert part(await back.acknowledge((0, 2, [ACCEPT]), partition=1)).error_code == NONE
    await until_begins(quick, topic_id, 3, 1)


async def _at_partition_1(wire: Wire, group: str, topic: str, topic_id: bytes) -> Session:
    """Let a member join that is assigned both partitions, with a session for the second one."""
    name = str(uuid.uuid4())
    first = await wire.heartbeat(group, name, 0, [topic])
    await wire.until_assigned(group, name, first.member_epoch, {topic_id: [0, 1]})
    return Session(wire, group, name, topic_id, partitions=(1,))


@pytest.mark.rule("CM-163")
async def test_a_value_that_does_not_exist_is_refused_with_those_that_do(quick: Wire) -> None:
    topic = unique("jobs")
    await quick.create_topic(topic)
    change = alter_pb.IncrementalAlterConfigsRequest.Config(
        name="sharegroups.retention", config_operation=0, value="consume"
    )
    resource = alter_pb.IncrementalAlterConfigsRequest.Resource(
        resource_type=RESOURCE_TOPIC, resource_name=topic, configs=[change]
    )
    answer = await quick.call("IncrementalAlterConfigs", alter_pb.IncrementalAlterConfigsRequest(resources=[resource]))
    (found,) = answer.responses
    assert found.error_code == errors.InvalidConfigError.code
    assert "'consume'" in found.error_message
    assert "time_and_size, consumed" in found.error_message


@pytest.mark.rule("CM-160")
async def test_after_a_restart_log_and_groups_go_on_where_they_were(own: Cluster, wire_to: Connect) -> None:
    topic, group = unique("jobs"), unique("g")
    async with wire_to(own) as wire:
        topic_id = await wire.create_topic(topic, configs=CONSUMED)
        session = await member(wire, group, topic, topic_id)
        await session.open()
        await wire.produce(topic_id, 10)
        await finish(session, 9)
        await until_begins(wire, topic_id, 10)
    own.node.stop()
    own.start()
    async with wire_to(own) as wire:
        await wire._until_served(topic, topic_id, 0, 1)
        assert await begins(wire, topic_id) == 10
        assert await wire.produce(topic_id, 2) == 10
        session = await member(wire, group, topic, topic_id)
        assert await session.acquire() == [(10, 11, 1)]
        assert await session.ack(10, 11, ACCEPT) == NONE
        await until_begins(wire, topic_id, 12)


@pytest.mark.rule("CM-161")
async def test_a_leader_asks_the_share_coordinators_of_other_processes(own: Cluster, quick: Wire) -> None:
    address = own.add_leader("far")
    topic, group = unique("far"), unique("g")
    topic_id = await quick.create_topic(topic, 16, CONSUMED)
    leaders = await quick.leaders(topic, 16)
    partition = next(number for number, leader in leaders.items() if leader.address == address)
    name = str(uuid.uuid4())
    first = await quick.heartbeat(group, name, 0, [topic])
    await quick.until_assigned(group, name, first.member_epoch, {topic_id: list(range(16))})
    session = Session(quick, group, name, topic_id, partitions=(partition,), address=address)
    await quick.produce(topic_id, 5, partition, address)
    assert await session.acquire() == [(0, 4, 1)]
    assert part(await session.acknowledge((0, 3, [ACCEPT]), partition=partition)).error_code == NONE
    await until_begins(quick, topic_id, 4, partition, address)
