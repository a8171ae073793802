"""One partition that takes no writes does not stop a producer without keys (unavailable partitions are skipped)."""

from __future__ import annotations

import asyncio
import logging

import pytest

from kip932.errors import KafkaError, KafkaStorageError, RequestTimedOutError
from kip932.ids import TopicPartition
from sharegroups.aio import Producer
from sharegroups.config import PRODUCER, Config
from sharegroups.connection.cluster import Cluster
from sharegroups.producing.core.unavailable_partitions import LOG_AFTER_MS
from sharegroups.producing.partition_health import PartitionHealth
from sharegroups.reports import DeliveryReport
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import on_fake_cluster, play

_STORAGE_ERROR = 56


def _producer(fake: FakeCluster, **settings: object) -> Producer:
    return Producer({"bootstrap.servers": fake.bootstrap} | settings, transport=fake.transport())


@pytest.mark.rule("CL-80")
@pytest.mark.parametrize("fault", ["no leader", "storage error"])
def test_records_without_a_key_go_on_with_the_healthy_partitions(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    fates: list[tuple[int, KafkaError | None]] = []

    def reported(error: KafkaError | None, report: DeliveryReport) -> None:
        fates.append((report.partition(), error))

    async def story(fake: FakeCluster) -> None:
        if fault == "no leader":
            fake.leaders[fake.partition("t", 1)] = (-1, 1)
        else:
            fake.unloadable[fake.partition("t", 1)] = _STORAGE_ERROR
        p = _producer(fake)
        for _ in range(100):  # one record at a time: each starts a batch, or joins one that is waiting
            await p.produce("t", b"v", on_delivery=reported)
            await asyncio.sleep(0.2)
        delivered = [partition for partition, error in fates if error is None]
        assert len(delivered) >= 99
        assert set(delivered) == {0, 2, 3}
        await p.flush()
        failed = [(partition, error) for partition, error in fates if error is not None]
        assert len(failed) == 100 - len(delivered)
        assert all(partition == 1 and isinstance(error, RequestTimedOutError) for partition, error in failed)
        await p.close()

    with caplog.at_level(logging.WARNING, logger="sharegroups"):
        play(story, nodes=2, partitions=4)
    (line,) = [record.getMessage() for record in caplog.records if "takes no records" in record.getMessage()]
    assert "t-1" in line
    assert "3 other partitions" in line


@pytest.mark.rule("CL-80")
@on_fake_cluster(partitions=2)
async def test_a_partition_is_used_again_once_it_serves(fake: FakeCluster) -> None:
    fake.leaders[fake.partition("t", 0)] = (-1, 1)
    async with _producer(fake) as p:
        assert {(await p.send("t", b"v")).partition() for _ in range(5)} == {1}
        fake.leaders[fake.partition("t", 0)] = (0, 2)
        await asyncio.sleep(20)
        assert {(await p.send("t", b"v")).partition() for _ in range(5)} == {0, 1}
        fake.unloadable[fake.partition("t", 1)] = _STORAGE_ERROR
        waiting = [asyncio.create_task(p.send("t", b"v")) for _ in range(2)]
        await asyncio.sleep(1)
        assert {(await p.send("t", b"v")).partition() for _ in range(5)} == {0}
        fake.unloadable.clear()
        await asyncio.gather(*waiting)
        assert {(await p.send("t", b"v")).partition() for _ in range(5)} == {0, 1}


@pytest.mark.rule("CL-80")
@on_fake_cluster(partitions=4)
async def test_keys_keep_their_partition_also_while_it_is_unavailable(fake: FakeCluster) -> None:
    async with _producer(fake, **{"delivery.timeout.ms": 3000}) as p:
        home = (await p.send("t", b"v", key=b"k")).partition()
        fake.unloadable[fake.partition("t", home)] = _STORAGE_ERROR
        with pytest.raises(RequestTimedOutError):
            await p.send("t", b"v", key=b"k")
        fake.unloadable.clear()
        assert (await p.send("t", b"v", key=b"k")).partition() == home


@pytest.mark.rule("CL-80")
@on_fake_cluster(partitions=2)
async def test_with_every_partition_unavailable_records_wait_as_before(fake: FakeCluster) -> None:
    for number in range(2):
        fake.unloadable[fake.partition("t", number)] = _STORAGE_ERROR
    async with _producer(fake) as p:
        waiting = [asyncio.create_task(p.send("t", b"v")) for _ in range(4)]
        await asyncio.sleep(3)
        assert not any(task.done() for task in waiting)
        fake.unloadable.clear()
        assert {report.partition() for report in await asyncio.gather(*waiting)} == {0, 1}


@pytest.mark.rule("CL-80")
@on_fake_cluster(partitions=2)
async def test_a_random_partitioner_avoids_the_unavailable_also_with_a_key_and_a_named_partition_stays(
    fake: FakeCluster,
) -> None:
    async with _producer(fake, partitioner="random", **{"delivery.timeout.ms": 3000}) as p:
        await p.send("t", b"v", partition=0)
        fake.unloadable[fake.partition("t", 0)] = _STORAGE_ERROR
        named = asyncio.create_task(p.send("t", b"v", partition=0))
        await asyncio.sleep(0.5)
        assert {(await p.send("t", b"v", key=b"k")).partition() for _ in range(20)} == {1}
        with pytest.raises(RequestTimedOutError):
            await p.send("t", b"v", partition=0)
        with pytest.raises(RequestTimedOutError):
            await named
        fake.unloadable.clear()  # that partition's batch has failed, so the next attempt uses a new one
        assert {(await p.send("t", b"v", key=b"k")).partition() for _ in range(20)} == {0, 1}


@pytest.mark.rule("CL-80")
@on_fake_cluster(partitions=2)
async def test_while_a_partition_is_unavailable_the_metadata_are_asked_for_every_five_seconds(
    fake: FakeCluster,
) -> None:
    async with _producer(fake) as p:
        await p.send("t", b"v", partition=1)
        await asyncio.sleep(60)
        asked = fake.metadata_requests
        await asyncio.sleep(60)
        assert fake.metadata_requests == asked, "no partition is unavailable"
        fake.leaders[fake.partition("t", 0)] = (-1, 2)
        p.cluster.request_refresh()
        await asyncio.sleep(1)
        asked = fake.metadata_requests
        await asyncio.sleep(60)
        assert 11 <= fake.metadata_requests - asked <= 13


def test_after_close_nothing_is_reported_of_partitions_any_more(caplog: pytest.LogCaptureFixture) -> None:
    async def story(fake: FakeCluster) -> None:
        cluster = Cluster(fake.transport(), Config(PRODUCER, {"bootstrap.servers": fake.bootstrap}))
        health = PartitionHealth(cluster)
        health.repeated(TopicPartition("t", 0), KafkaStorageError("its disk is full"))
        health.close()
        await asyncio.sleep(LOG_AFTER_MS / 1000 + 60)

    with caplog.at_level(logging.WARNING, logger="sharegroups"):
        play(story)
    assert caplog.records == []
