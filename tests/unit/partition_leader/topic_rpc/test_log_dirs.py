"""DescribeLogDirs over real topic logs: what is counted, where it is, and what a caller does not get."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kip932.acls import CLUSTER_NAME, Operation, ResourceType
from kip932.api.v1.describe_log_dirs_pb2 import DescribeLogDirsRequest, DescribeLogDirsResponse
from kip932.errors import (
    ClusterAuthorizationFailedError,
    InvalidRequestError,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
)
from kip932.ids import REQUEST_PARTITIONS_MAX, TopicIdPartition
from partition_leader.topic_log.state import Measured
from partition_leader.topic_rpc import log_dirs
from partition_leader.topic_rpc.log_dirs import LogDirsService
from shard_runtime.record_log.store_usage import StoreUsage
from tests.unit.partition_leader.topic_log.harness import Cluster, batch

pytestmark = pytest.mark.asyncio
A, B, GONE = b"a" * 16, b"b" * 16, b"g" * 16
NAMES: Mapping[bytes, str] = {A: "orders", B: "audit"}


class Log:
    """A log of a size, at a store node. Each measurement that may read takes one read."""

    def __init__(self, size: int, node: str = "s:1", error: KafkaError | None = None) -> None:
        self.size, self.node, self.error = size, node, error
        self.shard = SimpleNamespace(streams=(node,))

    async def measure(self, may_read: Any) -> Measured:
        read = may_read()
        if self.error is not None and (read or not isinstance(self.error, KafkaStorageError)):
            raise self.error
        return Measured(self.size, read, 77 if read else None, self.size // 10)


class World:
    def __init__(self, logs: Mapping[tuple[bytes, int], Log], usage: Mapping[str, StoreUsage] | None = None) -> None:
        found = {"s:1": StoreUsage(600, 1_000)} if usage is None else usage
        held = {TopicIdPartition(*key): SimpleNamespace(log=log) for key, log in logs.items()}
        led: Any = SimpleNamespace(led=lambda: held, name=lambda topic_id: NAMES.get(topic_id, ""))
        store: Any = SimpleNamespace(usage=found, node_of=str)
        self.service = LogDirsService(led, store)

    async def ask(self, topics: Mapping[str, list[int]] | None = None, context: Any = None) -> DescribeLogDirsResponse:
        request = DescribeLogDirsRequest()
        if topics is not None:
            request.topics.SetInParent()
            for topic, partitions in topics.items():
                request.topics.values.add(topic=topic, partitions=partitions)
        return await self.service.describe_log_dirs(request, *([] if context is None else [context]))


def sizes(response: DescribeLogDirsResponse) -> dict[tuple[str, str, int], int]:
    return {
        (result.log_dir, topic.name, part.partition_index): part.partition_size
        for result in response.results
        for topic in result.topics
        for part in topic.partitions
    }


@pytest.mark.rule("CM-209", "PL-960")
async def test_each_store_node_has_its_memory_and_the_logs_there_with_bytes_records_and_age() -> None:
    logs = {(A, 1): Log(100), (A, 0): Log(200, "s:2"), (B, 0): Log(50)}
    response = await World(logs, {"s:1": StoreUsage(600, 1_000), "s:2": StoreUsage(5, 0)}).ask()
    assert sizes(response) == {("s:1", "audit", 0): 50, ("s:1", "orders", 1): 100, ("s:2", "orders", 0): 200}
    limited, unlimited = response.results
    assert (limited.total_bytes, limited.usable_bytes, limited.used_bytes) == (1_000, 400, 600)
    assert (unlimited.total_bytes, unlimited.usable_bytes, unlimited.used_bytes) == (-1, -1, 5)
    one = limited.topics[1].partitions[0]
    assert (one.record_count, one.oldest_append_time_ms, one.size_is_estimate) == (10, 77, False)
    assert (one.offset_lag, one.is_future_key, response.error_code) == (0, False, 0)


@pytest.mark.rule("CM-209")
async def test_only_the_partitions_that_are_named_are_counted_and_the_memory_comes_in_any_case() -> None:
    world = World({(A, 0): Log(1), (A, 1): Log(2), (B, 0): Log(3)})
    assert sizes(await world.ask({"orders": [1]})) == {("s:1", "orders", 1): 2}
    assert set(sizes(await world.ask({"orders": []}))) == {("s:1", "orders", 0), ("s:1", "orders", 1)}
    for nothing in ({}, {"no-such-topic": [0]}, {"orders": [7]}):
        response = await world.ask(nothing)
        assert [(result.log_dir, len(result.topics)) for result in response.results] == [("s:1", 0)]


@pytest.mark.rule("CM-209")
async def test_a_deleted_topic_and_a_log_that_is_led_elsewhere_by_now_are_left_out() -> None:
    world = World({(GONE, 0): Log(9), (A, 0): Log(1, error=NotLeaderOrFollowerError("moved")), (A, 1): Log(2)})
    assert sizes(await world.ask()) == {("s:1", "orders", 1): 2}


@pytest.mark.rule("CM-209", "PL-961")
async def test_while_the_store_cannot_be_read_its_logs_have_estimates_and_the_node_the_error() -> None:
    logs = {(A, 0): Log(10, error=KafkaStorageError("down")), (A, 1): Log(20, "s:2")}
    response = await World(logs, {"s:1": StoreUsage(1, 2), "s:2": StoreUsage(1, 2)}).ask()
    assert [result.error_code for result in response.results] == [KafkaStorageError.code, 0]
    assert [result.error_message for result in response.results] == ["down", ""]
    assert [result.topics[0].partitions[0].size_is_estimate for result in response.results] == [True, False]


@pytest.mark.rule("CM-209")
async def test_memory_that_is_not_known_is_minus_one() -> None:
    (result,) = (await World({(A, 0): Log(10)}, {}).ask()).results
    assert (result.log_dir, result.total_bytes, result.usable_bytes, result.used_bytes) == ("s:1", -1, -1, -1)
    assert not (await World({}, {}).ask()).results


@pytest.mark.rule("PL-961")
async def test_one_request_reads_a_bounded_number_of_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_dirs, "PAGE_READS_MAX", 2)
    response = await World({(A, number): Log(10) for number in range(5)}).ask()
    estimates = [part.size_is_estimate for part in response.results[0].topics[0].partitions]
    assert estimates == [False, False, True, True, True]


@pytest.mark.rule("CM-91")
async def test_more_partitions_than_a_request_may_name_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="at most"):
        await World({}).ask({"orders": list(range(REQUEST_PARTITIONS_MAX + 1))})


class Caller:
    """A caller with rights to these resources."""

    def __init__(self, *allowed: tuple[ResourceType, str]) -> None:
        self.allowed = allowed
        self.rights = object()

    def may(self, resource: ResourceType, name: str, operation: Operation | None = None) -> bool:
        return (resource, name) in self.allowed

    def refusal(self, resource: ResourceType, name: str) -> KafkaError | None:
        return None if self.may(resource, name) else ClusterAuthorizationFailedError("not this caller")


@pytest.mark.rule("CM-209", "CM-61")
async def test_without_the_right_on_the_cluster_nothing_is_shown_and_without_that_on_a_topic_not_the_topic() -> None:
    world = World({(A, 0): Log(1), (B, 0): Log(2)})
    refused = await world.ask(context=Caller((ResourceType.TOPIC, "orders")))
    assert (refused.error_code, refused.error_message) == (ClusterAuthorizationFailedError.code, "not this caller")
    assert not refused.results
    cluster = (ResourceType.CLUSTER, CLUSTER_NAME)
    partly = Caller(cluster, (ResourceType.TOPIC, "orders"))
    assert sizes(await world.ask(context=partly)) == {("s:1", "orders", 0): 1}
    assert sizes(await world.ask({"audit": [0]}, context=partly)) == {}


@pytest.mark.rule("CM-211")
async def test_the_largest_topics_of_a_store_node_come_first() -> None:
    logs = {(A, 0): Log(30), (A, 1): Log(30), (B, 0): Log(50), (B, 1): Log(999, "s:2")}
    service = World(logs).service
    assert await service.largest("s:1", 5) == [("orders", 60), ("audit", 50)]
    assert await service.largest("s:1", 1) == [("orders", 60)]


@pytest.mark.rule("PL-960")
async def test_a_real_log_is_measured_through_the_service() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        written = batch(4)
        await log.append([written], 1_000)
        held = {TopicIdPartition(A, 0): SimpleNamespace(log=log)}
        led: Any = SimpleNamespace(led=lambda: held, name=lambda _: "orders")
        response = await LogDirsService(led, None).describe_log_dirs(DescribeLogDirsRequest())
        one = response.results[0].topics[0].partitions[0]
        assert (one.partition_size, one.record_count, one.size_is_estimate) == (len(written.data), 4, False)
        assert one.oldest_append_time_ms == cluster.clock.wall_ms()
