"""A topic log over the in-memory store: claims, leases, batches and faults for the tests of this folder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from partition_leader.meter import LeaderMeter
from partition_leader.topic_log.core.batch import NewBatch
from partition_leader.topic_log.core.recovery import TailMemory
from partition_leader.topic_log.settings import TopicLogSettings
from partition_leader.topic_log.topic_log import TopicLog
from shard_runtime.ownership.lease import Lease
from shard_runtime.record_log.protocol import Claimed, Renewal, ShardId, ShardKind
from shard_runtime.record_log.redis.connection import StoreSettings
from shard_runtime.record_log.redis.log import StoreRecordLog
from shard_runtime.record_log.store_room import StoreRoom
from tests.support.claims import LEASE_MS, claim
from tests.support.clocks import HandClock
from tests.twin import MemoryStore, memory_log

SHARD = ShardId(ShardKind.TOPIC, "AAAAAAAAAAAAAAAAAAAAAQ:0")


def record_bytes(values: list[bytes], timestamps: list[int] | None = None) -> bytes:
    base = timestamps[0] if timestamps else 0
    records = [
        Record(value=value, timestamp_delta_ms=(timestamps[i] - base) if timestamps else 0)
        for i, value in enumerate(values)
    ]
    return RecordBatch(base_timestamp_ms=base, records=records).SerializeToString()


def batch(
    records: int = 1,
    *,
    text: str = "x",
    producer: int = -1,
    epoch: int = 0,
    sequence: int = -1,
    timestamps: list[int] | None = None,
) -> NewBatch:
    """A batch of `records` records with values `<text>-<i>`."""
    data = record_bytes([f"{text}-{i}".encode() for i in range(records)], timestamps)
    newest = max(timestamps) if timestamps else 0
    if producer < 0:
        return NewBatch(data, records, newest)
    return NewBatch(data, records, newest, producer, epoch, sequence)


class Node:
    """One process that may lead the partition."""

    def __init__(self, store: MemoryStore, clock: HandClock, name: str, number: int, settings: StoreSettings) -> None:
        self.log: StoreRecordLog = memory_log(store, name, settings, clock)
        self.clock = clock
        self.number = number
        self.given_up: list[str] = []
        self.lease: Lease | None = None
        self.epoch = 0

    async def claim(self, waited: bool = True) -> Claimed:
        """Own the shard. All other nodes count as dead, so the lease of any former owner is over."""
        others = frozenset(range(100)) - {self.number}
        claimed = await claim(self.log, SHARD, self.number, floor=self.epoch + 1, dead=others, waited=waited)
        self.epoch = claimed.epoch
        return claimed

    async def lead(
        self,
        settings: TopicLogSettings | None = None,
        memory: TailMemory | None = None,
        suspect: bool = False,
        meter: LeaderMeter | None = None,
        room: StoreRoom | None = None,
    ) -> TopicLog:
        """Claim, load, and confirm that the log's tail is complete (CM-12)."""
        claimed = await self.claim()
        self.lease = Lease(
            SHARD,
            self.number,
            claimed.epoch,
            deadline_ms=LEASE_MS,
            clock=self.clock,
            give_up=lambda why, _: self.given_up.append(why),
        )
        log = await TopicLog.load(
            self.log, self.lease, claimed, self.clock, settings, memory=memory, suspect=suspect, meter=meter, room=room
        )
        await self.log.renew([Renewal(SHARD, self.number, claimed.epoch, LEASE_MS, tail_ok=claimed.history)])
        return log


class Counted(LeaderMeter):
    """Records the refused records, those of them that a full store caused, and each flush: its batches, records and
    time."""

    def __init__(self) -> None:
        self.flushes: list[tuple[int, int, int]] = []
        self.records: list[int] = []
        self.full = 0

    def appended(self, batches: int, records: int, size: int, elapsed_ms: int) -> None:
        self.flushes.append((batches, records, elapsed_ms))

    def refused(self, records: int) -> None:
        self.records.append(records)

    def refused_store_full(self, records: int) -> None:
        self.full += records


class Cluster:
    """A store and the processes that use it; leaving `async with` closes them all."""

    def __init__(self, replicas: int = 0, min_insync: int = 1) -> None:
        self.clock = HandClock()
        self.store = MemoryStore(self.clock, Random(7), replicas)
        self.settings = StoreSettings(
            replicas=replicas, min_insync_replicas=min_insync, wait_ms=20, backoff_ms=1, backoff_max_ms=5, call_ms=2_000
        )
        self.nodes: list[Node] = []

    def node(self) -> Node:
        """Add a process."""
        number = len(self.nodes) + 1
        self.nodes.append(Node(self.store, self.clock, f"node{number}", number, self.settings))
        return self.nodes[-1]

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes:
            await node.log.close()
        await self.store.close()


async def until(condition: Callable[[], bool]) -> None:
    """Run turns of the loop until a condition is true, up to a bound."""
    for _ in range(100_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("the condition never came true")
