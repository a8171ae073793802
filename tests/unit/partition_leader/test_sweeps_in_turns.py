"""A node's sweeps over all its partitions let other tasks run in between (CM-96): turns are counted, not time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from kip932.ids import TopicIdPartition
from kip932.state_values import StoredStart
from partition_leader.consumed_metrics import ConsumedMetrics
from partition_leader.consumed_retention import ConsumedRetention
from partition_leader.led_partitions import SWEEP_SLICE, LedPartitions
from shard_runtime.record_log.protocol import ShardId, ShardKind
from shard_runtime.record_log.redis.cluster_store import StoreClusterStore
from tests.support.virtual_time import run, turns_of

MANY = 20 * SWEEP_SLICE


class Log:
    """A topic log that records each retention check."""

    def __init__(self, checked: list[Log]) -> None:
        self._checked = checked

    async def retain(self, *_: object, topic: str) -> None:
        assert topic == "orders"
        self._checked.append(self)


#: A log with one record that some group still needs.
_LONG = SimpleNamespace(log_start_offset=0, high_watermark=1, last_stable=1)


def leading(partitions: int, checked: list[Log]) -> LedPartitions:
    clock = SimpleNamespace(wall_ms=lambda: 0)
    leader = LedPartitions(clock, SimpleNamespace(retention=lambda _: (-1, -1), name=lambda _: "orders"))
    for number in range(partitions):
        leader.led()[TopicIdPartition(bytes(16), number)] = SimpleNamespace(log=Log(checked))  # type: ignore[assignment]
    return leader


@pytest.mark.rule("CM-96")
def test_retention_checks_a_part_of_the_partitions_at_a_time() -> None:
    checked: list[Log] = []
    leader = leading(MANY, checked)

    async def body() -> None:
        assert await turns_of(leader.retain()) >= MANY // SWEEP_SLICE

    run(body())
    assert len(checked) == MANY


@pytest.mark.rule("CM-96")
def test_retention_leaves_out_what_went_or_came_back_meanwhile() -> None:
    checked: list[Log] = []
    leader = leading(MANY, checked)
    *_, gone, back = leader.led()
    old: object = leader.led()[back].log

    async def body() -> None:
        sweep = asyncio.ensure_future(leader.retain())
        await asyncio.sleep(0)
        del leader.led()[gone]
        leader.led()[back] = SimpleNamespace(log=Log(checked))  # type: ignore[assignment]
        await sweep

    run(body())
    assert len(checked) == MANY - 2
    assert all(log is not old for log in checked)


@pytest.mark.rule("CM-96")
def test_consumed_retention_checks_a_part_of_the_partitions_at_a_time() -> None:
    led = {TopicIdPartition(bytes(16), number): SimpleNamespace(log=_LONG) for number in range(MANY)}
    directory = SimpleNamespace(led=lambda: led)
    facts = SimpleNamespace(consumed=lambda _: True, name=lambda _: "t")
    reported: dict[bytes, Any] = {bytes(16): {"g": dict.fromkeys(range(MANY), StoredStart(0, 0))}}

    async def ask(_: object) -> dict[bytes, Any]:
        return reported

    checked: list[TopicIdPartition] = []

    def of_partition(partition: TopicIdPartition) -> tuple[()]:
        checked.append(partition)
        return ()

    retention = ConsumedRetention(
        directory,  # type: ignore[arg-type]
        facts,
        SimpleNamespace(of_partition=of_partition),  # type: ignore[arg-type]
        SimpleNamespace(ask=ask),
        clock=SimpleNamespace(now_ms=lambda: 0, wall_ms=lambda: 0),
        metrics=ConsumedMetrics(CollectorRegistry()),
    )

    async def body() -> None:
        assert await turns_of(retention.round()) >= 2 * MANY // SWEEP_SLICE

    run(body())
    assert len(checked) == MANY == len(set(checked))


@pytest.mark.rule("CM-96")
def test_the_hints_of_a_large_cluster_are_read_a_part_at_a_time() -> None:
    class Store(StoreClusterStore):
        def __init__(self) -> None:
            """Open no connection: `_one` returns the reply."""

        async def _one(self, *_: object) -> Any:
            return {f"t:{number}".encode(): b"1 7" for number in range(MANY * 5)}

    async def body() -> None:
        found: dict[str, tuple[int, int]] = {}

        async def read() -> None:
            found.update(await Store().hints(ShardKind.TOPIC))

        assert await turns_of(read()) >= 10
        assert len(found) == MANY * 5
        assert found[ShardId(ShardKind.TOPIC, "t:9").name] == (1, 7)

    run(body())
