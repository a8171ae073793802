"""Random schedules of produces, lost replies, refusals, takeovers and fail-overs against the in-memory store."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kip932.errors import KafkaError
from partition_leader.topic_log.core.batch import LogBatch, NewBatch
from partition_leader.topic_log.settings import TopicLogSettings
from partition_leader.topic_log.topic_log import TopicLog
from shard_runtime.record_log.protocol import LogError
from tests.twin import FaultPoint, Stage

from .harness import SHARD, Cluster, Node, batch

STEPS = 40
TIMEOUT_MS = 60_000


@dataclass
class Client:
    """An idempotent producer. Sends its batches in order, at most five at once, each until it is acknowledged.

    Some responses never reach it (`forgets`), so it sends committed batches again.
    """

    number: int
    random: Random
    forgets: float = 0.0
    made: int = 0
    next_sequence: int = 0
    order: dict[int, int] = field(default_factory=dict)
    unacked: list[NewBatch] = field(default_factory=list)
    acked: dict[int, tuple[int, bytes]] = field(default_factory=dict)

    def make(self, records: int) -> None:
        text = f"p{self.number}-{self.made}"
        self.unacked.append(batch(records, text=text, producer=self.number, sequence=self.next_sequence))
        self.order[self.next_sequence] = self.made
        self.next_sequence += records
        self.made += 1

    async def send(self, log: TopicLog) -> None:
        sent = []
        for one in self.unacked[:5]:
            if self.order[one.base_sequence] >= self.order[self.unacked[0].base_sequence] + 5:
                break
            try:
                sent.append((one, log.submit([one], TIMEOUT_MS)))
            except KafkaError:
                break
        for one, future in sent:
            outcome = await future
            if outcome.error is None:
                self.acknowledged(one, outcome.base_offsets[0])

    def acknowledged(self, one: NewBatch, offset: int) -> None:
        before = self.acked.setdefault(one.base_sequence, (offset, one.data))
        assert before == (offset, one.data), "a retry was given another offset"
        if self.random.random() >= self.forgets:
            self.unacked.remove(one)


class World:
    """Two nodes, two producers, one store, and every batch that was ever read, by offset."""

    def __init__(self, seed: int, replicas: int) -> None:
        self.random = Random(seed)
        self.cluster = Cluster(replicas=replicas)
        self.nodes = [self.cluster.node(), self.cluster.node()]
        self.clients = [Client(1, self.random), Client(2, self.random)]
        self.settings = TopicLogSettings(
            snapshot_batches=self.random.choice([2, 7, 1000]),
            tail_cache_bytes=self.random.choice([0, 200, 1 << 20]),
            flush_max_batches=self.random.choice([2, 512]),
            jump_offsets=1_000,
        )
        self.logs: dict[Node, TopicLog] = {}
        self.leader: TopicLog | None = None
        self.seen: dict[int, tuple[int, bytes]] = {}
        self.faults = 0.0

    async def hook(self, point: FaultPoint) -> None:
        if point.stage is not Stage.COMMAND and point.has("MULTI") and self.random.random() < self.faults:
            self.cluster.store.cut_all()

    async def take_over(self) -> None:
        """Let one node claim, possibly the leader itself. The other node's log stays open until that node learns of the
        claim."""
        self.cluster.store.master.release_replicas()
        node = self.random.choice(self.nodes)
        memory = None
        former = self.logs.get(node)
        if former is not None:
            await former.close()
            memory = former.memory()
            await node.log.drop(former.shard)
        while True:
            try:
                self.leader = self.logs[node] = await node.lead(self.settings, memory=memory)
                return
            except LogError:
                await node.log.drop(SHARD)

    async def step(self) -> None:
        kind = self.random.choice(["make", "make", "send", "send", "both", "old", "claim", "refuse", "read", "start"])
        assert self.leader is not None
        if kind == "make":
            self.random.choice(self.clients).make(self.random.randint(1, 3))
        elif kind == "send":
            await self.random.choice(self.clients).send(self.leader)
        elif kind == "both":
            await asyncio.gather(*(client.send(self.leader) for client in self.clients))
        elif kind == "old":
            await self.random.choice(self.clients).send(self.random.choice(list(self.logs.values())))
        elif kind == "claim":
            await self.take_over()
        elif kind == "refuse":
            await self.refused()
        elif kind == "read":
            await self.read_all()
        if self.leader.closed:
            await self.take_over()

    async def refused(self) -> None:
        """Let the store refuse writes for a while. A flush whose reply was lost earlier waits until the store accepts
        again."""
        assert self.leader is not None
        faults, self.faults = self.faults, 0.0
        self.cluster.store.master.refuse = "OOM"
        sending = asyncio.ensure_future(self.random.choice(self.clients).send(self.leader))
        for _ in range(200):
            await asyncio.sleep(0)
        self.cluster.store.master.refuse = None
        await sending
        self.faults = faults

    async def read_all(self) -> list[LogBatch]:
        assert self.leader is not None
        batches: list[LogBatch] = []
        offset = self.leader.log_start_offset
        while offset < self.leader.high_watermark:
            result = await self.leader.read(offset, self.random.choice([1, 300]))
            batches.extend(result.batches)
            offset = result.batches[-1].end_offset if result.batches else result.data_offset
        for one in batches:
            before = self.seen.setdefault(one.base_offset, (one.last_offset, one.data))
            assert before == (one.last_offset, one.data), "an offset was used twice"
        ends = [one.end_offset for one in batches]
        assert all(one.base_offset >= end for one, end in zip(batches[1:], ends, strict=False)), "batches overlap"
        return batches

    async def settle(self) -> list[LogBatch]:
        """Stop the faults, send every batch until it is acknowledged, then read the whole log."""
        self.faults = 0.0
        await self.take_over()
        assert self.leader is not None
        for client in self.clients:
            for _ in range(200):
                await client.send(self.leader)
                if not client.unacked:
                    break
        return await self.read_all()


async def play(seed: int) -> None:
    world = World(seed, replicas=0)
    async with world.cluster:
        await world.take_over()
        world.cluster.store.hook = world.hook
        world.faults = world.random.choice([0.0, 0.1, 0.3])
        for client in world.clients:
            client.forgets = 0.3
        for _ in range(STEPS):
            await world.step()
        batches = await world.settle()
    stored = {one.base_offset: one for one in batches}
    for client in world.clients:
        assert client.unacked == []
        for sequence, (offset, data) in client.acked.items():
            assert (stored[offset].base_sequence, stored[offset].data) == (sequence, data), "an acked batch is lost"
    assert [one.base_offset for one in batches] == [0, *(one.end_offset for one in batches[:-1])][: len(batches)]
    assert len(batches) == sum(client.made for client in world.clients), "a batch was written twice"


async def play_with_lost_tails(seed: int) -> None:
    """Without WAIT, fail-overs may lose acknowledged batches; yet no offset is used for two batches."""
    world = World(seed, replicas=1)
    async with world.cluster:
        await world.take_over()
        for _ in range(STEPS):
            if world.random.random() < 0.15:
                world.cluster.store.master.followers[0].paused = True
            if world.random.random() < 0.1:
                await world.read_all()
                world.cluster.store.fail_over()
                world.cluster.store.master.release_replicas()
                await world.take_over()
            await world.step()
        await world.settle()
    offsets: dict[int, bytes] = {}
    for client in world.clients:
        for offset, data in client.acked.values():
            assert offsets.setdefault(offset, data) == data, "two batches were acknowledged at one offset"
            assert world.seen.get(offset, (0, data))[1] == data


COMMON = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.rule("CM-13", "CM-40", "CM-43")
@given(seed=st.integers(0, 2**32))
@COMMON
def test_acked_batches_stay_retries_keep_their_offset_and_offsets_are_dense(seed: int) -> None:
    asyncio.run(play(seed))


@pytest.mark.rule("CM-47")
@given(seed=st.integers(0, 2**32))
@COMMON
def test_no_offset_is_used_twice_even_when_tails_are_lost(seed: int) -> None:
    asyncio.run(play_with_lost_tails(seed))
