"""`sharegroups up --leaders 2`: the leaders share the partitions; then one of them is killed, or freezes."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from sharegroups.aio import Producer, ShareConsumer
from tests.integration.scenarios.wire import Leader, Wire, attempts
from tests.support.node import QUICK, Cluster

PARTITIONS = 20  # only for one in half a million topics does one of two leaders get none
TOPIC = "shared"
SECOND = "up-2"


@pytest.fixture
def two() -> Iterator[Cluster]:
    with Cluster(QUICK, "--leaders", "2") as cluster:
        yield cluster


@pytest_asyncio.fixture
async def wire(two: Cluster) -> AsyncIterator[Wire]:
    async with Wire(two.bootstrap, two.internal) as made:
        yield made


async def until_led_by(wire: Wire, addresses: set[str]) -> dict[int, Leader]:
    """Wait until exactly these nodes lead the topic's partitions."""
    found: dict[int, Leader] = {}
    async for _ in attempts():
        found = await wire.leaders(TOPIC, PARTITIONS)
        if {leader.address for leader in found.values()} == addresses:
            return found
    raise AssertionError(f"{TOPIC} is led by {found}; expected {addresses}")


async def until_two(wire: Wire) -> dict[int, Leader]:
    """Wait until two nodes lead the topic's partitions."""
    found: dict[int, Leader] = {}
    async for _ in attempts():
        found = await wire.leaders(TOPIC, PARTITIONS)
        if len({leader.node_id for leader in found.values()}) == 2:
            return found
    raise AssertionError(f"{TOPIC} is led by {found}")


async def one_to_each(producer: Producer, first: int) -> set[bytes]:
    """Produce one record to each partition, and wait until all are confirmed; returns their values."""
    values = {b"%d" % (first + partition) for partition in range(PARTITIONS)}
    for partition in range(PARTITIONS):
        await producer.produce(TOPIC, b"%d" % (first + partition), partition=partition)
    assert await producer.flush(30) == 0
    return values


async def until_seen(consumer: ShareConsumer, wanted: set[bytes]) -> None:
    seen: set[bytes] = set()
    async for _ in attempts():
        seen |= {message.value() or b"" for message in await consumer.poll(1)}
        if wanted <= seen:
            await consumer.commit_sync()
            return
    raise AssertionError(f"{len(wanted - seen)} of {len(wanted)} records did not come")


def running(up: int, name: str) -> set[int]:
    """Return the processes that `up` runs for the node of this name."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(") ")[2].split()[1])
                words = (entry / "cmdline").read_text().split("\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if parent == up and f"node.name={name}" in words:
                found.add(int(entry.name))
    return found


@pytest.mark.rule("CM-70", "CM-73")
@pytest.mark.asyncio
async def test_a_killed_leader_s_partitions_are_served_on_and_it_is_started_again(two: Cluster, wire: Wire) -> None:
    assert list(two.ready["pids"]) == ["up", SECOND]
    await wire.create_topic(TOPIC, PARTITIONS)
    before = await until_two(wire)
    async with (
        Producer(bootstrap_servers=two.bootstrap) as producer,
        ShareConsumer(bootstrap_servers=two.bootstrap, group_id="g") as consumer,
    ):
        consumer.subscribe([TOPIC])
        await until_seen(consumer, await one_to_each(producer, 0))
        killed = two.ready["pids"][SECOND]
        assert running(two.node.pid, SECOND) == {killed}
        os.kill(killed, signal.SIGKILL)
        await until_seen(consumer, await one_to_each(producer, PARTITIONS))
        async for _ in attempts():
            now = running(two.node.pid, SECOND) - {killed}
            if now:
                break
        assert len(now) == 1, "it was started again, once"
        # A leader that restarts in time takes its partitions back; otherwise the other leader takes them over. Either
        # way, each partition is claimed again.
        after = await until_two(wire)
        claimed = {partition for partition in before if after[partition].epoch > before[partition].epoch}
        (node_id,) = {before[partition].node_id for partition in claimed}
        assert claimed == {partition for partition, leader in before.items() if leader.node_id == node_id}


@pytest.mark.rule("CM-70")
@pytest.mark.asyncio
async def test_partitions_of_a_leader_that_stands_still_move_to_the_other_and_back(two: Cluster, wire: Wire) -> None:
    await wire.create_topic(TOPIC, PARTITIONS)
    addresses = {leader.address for leader in (await until_two(wire)).values()}
    stopped = two.ready["pids"][SECOND]
    async with (
        Producer(bootstrap_servers=two.bootstrap) as producer,
        ShareConsumer(bootstrap_servers=two.bootstrap, group_id="g") as consumer,
    ):
        consumer.subscribe([TOPIC])
        await until_seen(consumer, await one_to_each(producer, 0))
        os.kill(stopped, signal.SIGSTOP)
        try:
            async for _ in attempts():
                if len(left := {leader.address for leader in (await wire.leaders(TOPIC, PARTITIONS)).values()}) == 1:
                    break
            assert len(left) == 1
            assert left < addresses
            await until_seen(consumer, await one_to_each(producer, PARTITIONS))
        finally:
            os.kill(stopped, signal.SIGCONT)
        await until_led_by(wire, addresses)
        await until_seen(consumer, await one_to_each(producer, 2 * PARTITIONS))
