"""S-003 … S-006, S-010, S-011, S-017, S-021 … S-023, S-086, S-113, S-131, S-133: applications on a whole node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kip932.errors import InvalidConfigError, InvalidRecordStateError, KafkaError
from sharegroups import AlterConfig, ConfigResource
from sharegroups.aio import ShareConsumer
from sharegroups.errors import IllegalStateError, InvalidGroupIdError, WakeupError
from sharegroups.messages import AcknowledgeType, TopicIdPartition
from tests.scenarios.cluster import EXPLICIT, TOPIC, Cluster, deliveries, first, on_one_node

Heard = list[tuple[list[set[int]], KafkaError | None]]
RELEASE, REJECT = AcknowledgeType.RELEASE, AcknowledgeType.REJECT


def hearing(heard: Heard) -> Callable[[dict[TopicIdPartition, set[int]], KafkaError | None], None]:
    """Return a callback that keeps its arguments."""
    return lambda offsets, error: heard.append((list(offsets.values()), error))


@pytest.mark.scenario("S-003")
@on_one_node()
async def test_byte_limits_never_block_progress(cluster: Cluster) -> None:
    await cluster.produce(b"small")
    async with cluster.consumer("a", **{"fetch.max.bytes": 1}) as narrow:
        (message,) = await first(narrow)
        assert message.value() == b"small"
    await cluster.produce(b"v" * 10_000)
    async with cluster.consumer("b", **{"max.partition.fetch.bytes": 10_000}) as c:
        found = list(await first(c))
        while len(found) < 2:
            found += await first(c)
        assert [(m.offset(), len(m.value())) for m in found] == [(0, 5), (1, 10_000)]


@pytest.mark.scenario("S-004")
@on_one_node()
async def test_the_callback_hears_of_success_at_a_later_poll_or_at_the_close(cluster: Cluster) -> None:
    await cluster.produce(b"v")
    heard: Heard = []
    async with cluster.consumer("a") as c:
        c.set_acknowledgement_commit_callback(hearing(heard))
        await first(c)
        for _ in range(3):
            assert not await c.poll(0.5)
        assert heard == [([{0}], None)]
    heard.clear()
    async with cluster.consumer("b") as c:
        c.set_acknowledgement_commit_callback(hearing(heard))
        await first(c)
        assert not await c.poll(1)
    assert heard == [([{0}], None)]


@pytest.mark.scenario("S-005")
@on_one_node()
async def test_what_is_acknowledged_after_its_lock_is_refused_and_comes_again(cluster: Cluster) -> None:
    await cluster.produce(b"v")
    heard: Heard = []
    async with cluster.consumer() as c:
        c.set_acknowledgement_commit_callback(hearing(heard))
        assert deliveries(await first(c)) == [(0, 1)]
        await asyncio.sleep(20)
        again = deliveries(await first(c))
        assert again == [(0, 2)]
        await c.poll(0.5)
        assert heard[0][0] == [{0}]
        assert isinstance(heard[0][1], InvalidRecordStateError)


@pytest.mark.scenario("S-006")
@on_one_node()
async def test_the_callback_may_not_use_the_consumer_and_its_poll_survives(cluster: Cluster) -> None:
    await cluster.produce(b"v")
    refused: list[str] = []
    async with cluster.consumer() as c:

        async def ask() -> None:
            for call in (c.close, lambda: c.poll(1)):
                with pytest.raises(IllegalStateError, match="callback") as problem:
                    await call()
                refused.append(str(problem.value))

        def callback(_: object, __: object) -> None:
            with pytest.raises(IllegalStateError, match="callback") as problem:
                c.subscribe([TOPIC])
            refused.append(str(problem.value))
            with pytest.raises(StopIteration):  # refused immediately, without waiting
                ask().send(None)

        c.set_acknowledgement_commit_callback(callback)
        await first(c)
        for _ in range(3):
            assert not await c.poll(0.5)
        assert len(refused) == 3
        c.set_acknowledgement_commit_callback(lambda _, __: c.wakeup())
        await cluster.produce(b"w")
        assert deliveries(await first(c)) == [(1, 1)]
        with pytest.raises(WakeupError):
            await first(c)


@pytest.mark.scenario("S-010")
@on_one_node()
async def test_a_record_that_cannot_be_deserialised_is_rejected_by_its_offset(cluster: Cluster) -> None:
    def strict(data: bytes) -> str:
        if data == b"v2":
            raise ValueError("not mine")
        return data.decode()

    strictly: dict[str, Any] = {**EXPLICIT, "value.deserializer": strict}
    await cluster.produce_batch(3)
    async with cluster.consumer(**strictly) as c:
        messages = await first(c)
        assert [m.value() for m in messages] == ["v0", "v1", b"v2"]
        assert [m.error() is None for m in messages] == [True, True, False]
        for message in messages[:2]:
            c.acknowledge(message)
        c.acknowledge(messages[2], RELEASE)
        assert list((await c.commit_sync()).values()) == [None]
        (again,) = await first(c)
        assert deliveries([again]) == [(2, 2)]
        problem = again.error()
        assert problem is not None
        assert problem.name == "_VALUE_DESERIALIZATION"
        c.acknowledge_offset(TOPIC, 0, 2, REJECT)
        assert list((await c.commit_sync()).values()) == [None]
        assert not await c.poll(0)
    assert await cluster.offsets() == (3, 0)


@pytest.mark.scenario("S-011")
@on_one_node()
async def test_acknowledging_by_offset_works_for_what_is_in_flight_and_for_nothing_else(cluster: Cluster) -> None:
    def strict(data: bytes) -> str:
        if data == b"v1":
            raise ValueError("not mine")
        return data.decode()

    strictly: dict[str, Any] = {**EXPLICIT, "value.deserializer": strict}
    await cluster.produce_batch(2)
    async with cluster.consumer(**strictly) as c:
        assert deliveries(await first(c)) == [(0, 1), (1, 1)]
        c.acknowledge_offset(TOPIC, 0, 0, AcknowledgeType.ACCEPT)
        for wrong in (("foo", 0, 1), (TOPIC, 1, 1), (TOPIC, 0, 2)):
            with pytest.raises(IllegalStateError):
                c.acknowledge_offset(*wrong, REJECT)
        c.acknowledge_offset(TOPIC, 0, 1, REJECT)
        assert list((await c.commit_sync()).values()) == [None]
        with pytest.raises(IllegalStateError):
            c.acknowledge_offset(TOPIC, 0, 1, REJECT)
        assert not await c.poll(0)
    assert await cluster.offsets() == (2, 0)


@pytest.mark.scenario("S-017")
@on_one_node()
async def test_record_limit_takes_what_was_asked_for_and_batch_optimized_the_whole_batch(cluster: Cluster) -> None:
    await cluster.produce_batch(10)
    async with cluster.consumer("a", **{"max.poll.records": 5}) as whole:
        assert deliveries(await first(whole)) == [(offset, 1) for offset in range(10)]
    limited = {"max.poll.records": 5, "share.acquire.mode": "record_limit"}
    async with cluster.consumer("b", **limited) as one, cluster.consumer("b", **limited) as other:
        assert deliveries(await first(one)) == [(offset, 1) for offset in range(5)]
        assert deliveries(await first(other)) == [(offset, 1) for offset in range(5, 10)]


@pytest.mark.scenario("S-021")
@on_one_node(group_share_delivery_count_limit="5")
async def test_a_lowered_delivery_limit_counts_for_records_in_flight(cluster: Cluster) -> None:
    await cluster.produce(b"v")
    async with cluster.consumer(**EXPLICIT) as c:
        for count in (1, 2, 3):
            (message,) = await first(c)
            assert deliveries([message]) == [(0, count)]
            c.acknowledge(message, RELEASE)
            assert list((await c.commit_sync()).values()) == [None]
            if count == 2:
                await cluster.configure("group1", share_delivery_count_limit=3)
        assert not await c.poll(5)
    assert await cluster.offsets() == (1, 0)


@pytest.mark.scenario("S-022")
@on_one_node(group_share_delivery_count_limit="3")
async def test_raising_the_delivery_limit_while_records_are_in_flight(cluster: Cluster) -> None:
    """The node's limit is 3; the group's limit, set after two deliveries, is 5."""
    await cluster.produce(b"v")
    async with cluster.consumer(**EXPLICIT) as c:
        for count in range(1, 6):
            (message,) = await first(c)
            assert deliveries([message]) == [(0, count)]
            c.acknowledge(message, RELEASE)
            assert list((await c.commit_sync()).values()) == [None]
            if count == 2:
                await cluster.configure("group1", share_delivery_count_limit=5)
        assert not await c.poll(5)
    assert await cluster.offsets() == (1, 0)


@pytest.mark.scenario("S-023")
@pytest.mark.parametrize("group", [None, "", "   "])
def test_a_consumer_needs_a_group(group: str | None) -> None:
    with pytest.raises(InvalidGroupIdError):
        ShareConsumer({"bootstrap.servers": "h:1", "group.id": group})


@pytest.mark.scenario("S-086")
@on_one_node()
async def test_the_lag_leaves_out_what_is_complete_above_the_start_offset(cluster: Cluster) -> None:
    await cluster.produce_batch(10)
    async with cluster.consumer(**EXPLICIT) as c:
        messages = await first(c)
        for message in messages[3:]:
            c.acknowledge(message)
        assert list((await c.commit_sync()).values()) == [None]
        assert await cluster.offsets() == (0, 3)
        for message in messages[:3]:
            c.acknowledge(message)
        assert list((await c.commit_sync()).values()) == [None]
        assert await cluster.offsets() == (10, 0)


@pytest.mark.scenario("S-113")
@on_one_node()
async def test_a_consumer_that_stood_still_has_lost_its_records_and_joins_again(cluster: Cluster) -> None:
    """Its locks expire after 15 s, its session after 10 s."""
    world = cluster.world

    async def members() -> set[str]:
        found = (await cluster.admin.describe_share_groups(["group1"]))["group1"]
        assert not isinstance(found, KafkaError), found
        return {member.member_id for member in found.members}

    await cluster.produce_batch(10)
    stopped = cluster.consumer(**EXPLICIT)
    with world.client("consumer1"):
        held = await first(stopped)
    assert deliveries(held) == [(offset, 1) for offset in range(10)]
    world.pause("consumer1")
    async with cluster.consumer() as other:
        assert deliveries(await first(other)) == [(offset, 2) for offset in range(10)]
        assert await members() == {other.member_id}
        world.resume("consumer1")
        with world.client("consumer1"):
            for message in held:
                stopped.acknowledge(message)
            (refused,) = (await stopped.commit_sync()).values()
            assert isinstance(refused, KafkaError)
            assert not await stopped.poll(5)
        assert list((await other.commit_sync()).values()) == [None]
        assert await members() == {other.member_id, stopped.member_id}
        assert await cluster.offsets() == (10, 0)
    with world.client("consumer1"):
        await stopped.close()


@pytest.mark.scenario("S-131", "S-133")
@on_one_node()
async def test_a_config_that_is_refused_changes_nothing_and_others_read_back(cluster: Cluster) -> None:
    name, group = "share.partition.max.record.locks", ConfigResource.group("group1")

    async def stored() -> str | None:
        found = (await cluster.admin.describe_configs([group]))[group]
        assert isinstance(found, dict)
        return found[name].value

    for limit in ("500", "1000"):
        await cluster.configure("group1", share_partition_max_record_locks=limit)
        assert await stored() == limit
        (refused,) = (await cluster.admin.incremental_alter_configs({group: [AlterConfig(name, "50")]})).values()
        assert isinstance(refused, InvalidConfigError)
        assert await stored() == limit
