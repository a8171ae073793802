"""Transactions over partitions of two leaders, one of which is killed in the middle: each is complete or absent."""

from __future__ import annotations

import time
from collections import Counter, defaultdict

import pytest

from kip932.api.v1.fetch_pb2 import FetchRequest
from kip932.errors import KafkaError, RequestTimedOutError
from kip932.ids import TopicIdPartition
from partition_leader.partition_owners import topic_shard
from shard_runtime.ownership.placement import target
from sharegroups import Producer
from tests.integration.scenarios.clients import BOUND_S, World
from tests.integration.scenarios.test_several_leaders import PARTITIONS, until_leaders
from tests.integration.scenarios.transacting import Writer
from tests.integration.scenarios.wire import Wire, attempts
from tests.support.node import QUICK, Cluster, unique

_TRANSACTIONS, _KILLED_IN = 24, 8
_COMMITTED = {"share.isolation.level": "read_committed", "share.auto.offset.reset": "earliest"}


class _GivenUpError(Exception):
    pass


def _transact(world: World, producer: Producer, number: int, cluster: Cluster) -> str:
    """Write one record of this transaction to every partition; returns the outcome that the application knows."""
    try:
        with producer.transaction():
            for partition in range(PARTITIONS):
                producer.produce(world.topic, f"{number}", partition=partition, on_delivery=lambda *_: None)
                if number == _KILLED_IN and partition == PARTITIONS // 2:
                    producer.flush()
                    cluster.kill_leader()
            if number % 3 == 0:
                raise _GivenUpError
    except _GivenUpError:
        return "aborted"
    except RequestTimedOutError:
        return "unknown"
    except KafkaError:
        return "aborted"
    return "committed"


def _read(world: World, expected: int) -> dict[str, Counter[int]]:
    """Return the partitions of each transaction's records; polls until `expected` have arrived and three polls in a row
    are empty."""
    found: dict[str, Counter[int]] = defaultdict(Counter)
    with world.consumer() as consumer:
        deadline, quiet = time.monotonic() + 2 * BOUND_S, 0
        while time.monotonic() < deadline and (sum(map(Counter.total, found.values())) < expected or quiet < 3):
            messages = consumer.poll(1)
            quiet = 0 if messages else quiet + 1
            for message in messages:
                found[bytes(message.value()).decode()][message.partition()] += 1
    return found


@pytest.mark.rule("CM-44", "CM-154", "CM-155", "PL-803", "CL-101", "CL-102", "INV-2")
def test_each_transaction_is_seen_whole_or_not_at_all_though_a_leader_is_killed() -> None:
    with Cluster(QUICK) as cluster:
        cluster.add_leader("second")
        world = next(world for world in (World(cluster, PARTITIONS) for _ in range(9)) if _on_both(world.topic_id))
        world.ask("set_group", world.group, _COMMITTED)
        with Producer(bootstrap_servers=cluster.bootstrap, transactional_id="orders") as producer:
            outcomes = {n: _transact(world, producer, n, cluster) for n in range(_TRANSACTIONS)}
        committed = [n for n, outcome in outcomes.items() if outcome == "committed"]
        assert len(committed) > _TRANSACTIONS // 2
        found = _read(world, len(committed) * PARTITIONS)
        whole = Counter(range(PARTITIONS))
        assert {n: found.get(str(n)) for n in committed} == dict.fromkeys(committed, whole)
        for n, outcome in outcomes.items():
            if outcome == "aborted":
                assert str(n) not in found
            elif outcome == "unknown":
                assert found.get(str(n), whole) == whole


@pytest.mark.rule("CM-154", "CM-155")
@pytest.mark.asyncio
async def test_what_was_decided_reaches_the_partitions_of_a_leader_that_was_killed_before() -> None:
    with Cluster(QUICK) as cluster:
        killed = cluster.add_leader("second")
        async with Wire(cluster.bootstrap, cluster.internal) as wire:
            topic, topic_id = "", b""
            while not topic or not _on_both(topic_id):
                topic = unique("moved")
                topic_id = await wire.create_topic(topic, PARTITIONS)
            leaders = await until_leaders(wire, topic, topic_id, 2)
            here = next(n for n, leader in leaders.items() if leader.address != killed)
            there = next(n for n, leader in leaders.items() if leader.address == killed)
            writer = Writer(wire, topic_id)
            for partition in (here, there):
                assert await writer.write(1, partition, leaders[partition].address) == 0
            cluster.kill_leader()
            assert not (await writer.end(commit=True)).error_code
            assert await _ends(wire, topic, topic_id, here) == (2, 2)
            async for _ in attempts():
                if (ends := await _ends(wire, topic, topic_id, there)) == (2, 2):
                    return
            raise AssertionError(f"no marker came: {ends}")


def _on_both(topic_id: bytes) -> bool:
    """Return whether nodes 1 and 2 both lead partitions of the topic; for one topic in two thousand only one does."""
    return len({target(topic_shard(TopicIdPartition(topic_id, n)), {1, 2}) for n in range(PARTITIONS)}) == 2


async def _ends(wire: Wire, topic: str, topic_id: bytes, partition: int) -> tuple[int, int]:
    """Return the high watermark and last stable offset that the leader reports; (-1, -1) without a leader."""
    leaders = await wire.leaders(topic, PARTITIONS)
    if partition not in leaders:
        return -1, -1
    request = FetchRequest(max_bytes=1 << 20, isolation_level=1)
    request.topics.add(topic_id=topic_id).partitions.add(partition=partition, partition_max_bytes=1 << 20)
    answer = await wire.call("Fetch", request, leaders[partition].address)
    (part,) = answer.responses[0].partitions
    return (-1, -1) if part.error_code else (part.high_watermark, part.last_stable_offset)
