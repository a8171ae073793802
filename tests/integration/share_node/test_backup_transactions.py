"""A backup taken during transactions is restored: committed ones are complete, open ones are aborted, and no reader is
held up."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from kip932.errors import InvalidProducerIdMappingError
from shard_runtime.record_log.redis.cluster_store import StoreClusterStore
from shard_runtime.record_log.redis.connection import StoreSettings
from shard_runtime.record_log.redis.topology import open_store
from sharegroups import Admin, AlterConfig, ConfigResource, ShareConsumer
from tests.integration.scenarios.transacting import Writer
from tests.integration.scenarios.wire import Wire
from tests.integration.share_node.test_backup import BOUND_S, BUSY, command, lag_of
from tests.support.node import TERMINATED, StartedProcess, up_words
from tests.support.stores import Valkey
from transaction_coordinator.core.transaction import Identity, ended
from transaction_coordinator.records import TransactionRecords

PARTITIONS = (0, 1)


async def written(bootstrap: str) -> tuple[Writer, Writer]:
    """Write to each partition: 0 in a committed transaction, 1 its marker, 2 in one that stays open, 3 in one that is
    ended after all nodes have died, 4 a record without a transaction."""
    async with Wire(bootstrap, bootstrap) as wire:
        topic_id = await wire.create_topic("jobs", len(PARTITIONS))
        done, left, doubted = (Writer(wire, topic_id) for _ in range(3))
        for partition in PARTITIONS:
            assert await done.write(1, partition) == 0
        assert not (await done.end(commit=True)).error_code
        for offset, writer in ((2, left), (3, doubted)):
            for partition in PARTITIONS:
                assert await writer.write(1, partition) == offset
        for partition in PARTITIONS:
            await wire.produce(topic_id, 1, partition)
        return left, doubted


async def decide(url: str, writer: Writer) -> None:
    """Commit the transaction as a node would that dies before it writes the first marker."""
    store = open_store(url)
    cluster = StoreClusterStore(store, StoreSettings())
    try:
        records = TransactionRecords(cluster.transactions, Random(), 1_000_000)
        identity = Identity(writer.producer_id, writer.epoch)
        await records.change(writer.transactional_id, lambda known, _: ended(known, identity, [], commit=True))
    finally:
        await cluster.close()


def read_committed(bootstrap: str) -> Counter[tuple[int, int]]:
    """Return partition and offset of all records that a read_committed group gets until it has no lag."""
    found: Counter[tuple[int, int]] = Counter()
    deadline = time.monotonic() + BOUND_S
    with Admin(bootstrap_servers=bootstrap) as admin:
        level = [AlterConfig("share.isolation.level", "read_committed")]
        assert admin.incremental_alter_configs({ConfigResource.group("workers"): level})
        with ShareConsumer(bootstrap_servers=bootstrap, group_id="workers") as consumer:
            consumer.subscribe(["jobs"])
            while time.monotonic() < deadline:
                messages = consumer.poll(timeout=1)
                found.update((message.partition(), message.offset()) for message in messages)
                if not messages and lag_of(admin) == 0:
                    return found
    raise AssertionError(f"the group still waits after {BOUND_S} s, with {sorted(found)}")


@pytest.mark.asyncio
@pytest.mark.rule("CM-146", "CM-151", "CM-156")
async def test_a_restored_cluster_has_each_transaction_whole_or_not_at_all_and_no_client_waits(tmp_path: Path) -> None:
    store = Valkey(0)
    await store.start()
    url = f"redis://127.0.0.1:{store.servers[0].port}"
    node = StartedProcess(up_words(tmp_path / "former", BUSY, "--store", url, "--init"), tmp_path)
    try:
        left, doubted = await written(json.loads(node.first_line())["bootstrap"])
    finally:
        node.kill()
    try:
        await decide(url, doubted)
        found = await asyncio.to_thread(command, tmp_path, "backup", str(tmp_path / "b"), "--store", url)
        assert found["damaged"] == 0
    finally:
        await store.close()
    data = tmp_path / "data"
    await asyncio.to_thread(command, tmp_path, "restore", str(tmp_path / "b"), "--data", str(data))
    node = StartedProcess(up_words(data, BUSY), tmp_path)
    try:
        bootstrap = json.loads(await asyncio.to_thread(node.first_line))["bootstrap"]
        got = await asyncio.to_thread(read_committed, bootstrap)
        assert got == Counter({(partition, offset): 1 for partition in PARTITIONS for offset in (0, 3, 4)})
        async with Wire(bootstrap, bootstrap) as wire:
            left.wire = wire
            assert (await left.end(commit=True)).error_code == InvalidProducerIdMappingError.code
    finally:
        assert node.stop() == TERMINATED
