"""Random schedules of fetches, acknowledgements, closed sessions, lost streams and leases, slow and failing writes."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kip932.errors import (
    CoordinatorNotAvailableError,
    FencedStateEpochError,
    InvalidRequestError,
    RequestTimedOutError,
)
from partition_leader.share_partition.core.events import AckBatch
from partition_leader.share_rpc.values import ShareAnswer
from tests.support.virtual_time import now_s
from tests.support.virtual_time import run as run_virtual

from .persister import Fault
from .slices import narrow
from .worlds import Member, Pending, World, part, settle

STEPS = 60
PARTITIONS = (0, 1)
LOCK_MS = 3_000
#: Sums of the clock's floats differ in their last bits, whereas the leader counts whole milliseconds.
ROUNDING_S = 1e-6
FAULTS = (
    lambda random: Fault(delay_s=random.choice([0.01, 0.5, 2.0, 6.0])),
    lambda random: Fault(
        RequestTimedOutError("lost"), unknown=True, applied=random.random() < 0.5, delay_s=random.random() * 3
    ),
    lambda random: Fault(CoordinatorNotAvailableError("away"), unknown=False, delay_s=random.random()),
    lambda random: Fault(FencedStateEpochError("reset"), unknown=False),
    lambda random: Fault(InvalidRequestError("gone"), unknown=False),
)


class Consumer:
    """A member that records what it holds, until when, and which `SharePartition` object delivered it: a successor has
    no holders (PL-633)."""

    def __init__(self, schedule: Schedule, name: str) -> None:
        self.schedule = schedule
        self.name = name
        self.generation = 0
        self.reconnect()

    def reconnect(self) -> None:
        """Start a new session, with or without a new stream."""
        schedule = self.schedule
        self.connection = schedule.next_connection() if schedule.random.random() < 0.5 else None
        self.member: Member = schedule.world.member(self.name, connection=self.connection)
        self.fetching: Pending | None = None
        self.opened = False
        self.held: dict[tuple[int, int], tuple[float, object]] = {}

    def fetch(self) -> None:
        if self.fetching is not None and not self.fetching.done:
            return
        random = self.schedule.random
        names = () if self.opened else PARTITIONS
        self.opened = True
        self.fetching = self.member.fetch(
            *names,
            max_wait_ms=random.choice([0, 100, 2_000]),
            min_bytes=random.choice([0, 1, 1, 200]),
            max_records=random.choice([1, 3, 500]),
            max_bytes=random.choice([1, 64, 1 << 20]),
            mode=random.choice([0, 1]),
            batch_size=random.choice([1, 5]),
        )
        self.schedule.sent(self, self.fetching)

    def acknowledge(self, kinds: tuple[int, ...] = (1, 1, 2, 3)) -> None:
        if not self.opened or not self.held:
            return
        random, held = self.schedule.random, list(self.held)
        partition = random.choice(held)[0]
        offsets = sorted(at for number, at in held if number == partition)
        taken = offsets[: random.randint(1, len(offsets))]
        kind = random.choice(kinds)
        for at in taken:
            del self.held[partition, at]
        acks = {partition: [AckBatch(at, at, (kind,)) for at in taken]}
        pending = self.member.acknowledge(acks)
        self.schedule.sent(self, pending)
        if kind == 1:
            self.schedule.accepting.append((pending, partition, taken))

    def leave(self) -> None:
        schedule = self.schedule
        if self.connection is not None and schedule.random.random() < 0.5:
            for pending in schedule.of(self):
                schedule.abandon(pending)
            schedule.world.leader.requests.connection_lost(self.connection)
        elif self.opened:
            schedule.sent(self, self.member.acknowledge({}, epoch=-1))
        self.reconnect()


class Schedule:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = World(tail_cache_bytes=self.random.choice([0, 300, 1 << 20]))
        self.world.config = replace(
            self.world.config,
            lock_ms=LOCK_MS,
            delivery_count_limit=self.random.choice([5, 10]),
            max_record_locks=20,
        )
        self.connections = 0
        self.requests: list[tuple[Consumer, Pending]] = []
        self.abandoned: set[int] = set()
        self.accepting: list[tuple[Pending, int, list[int]]] = []
        self.accepted: set[tuple[int, int]] = set()
        self.produced = dict.fromkeys(PARTITIONS, 0)
        self.consumers = [Consumer(self, name) for name in "abc"]

    def next_connection(self) -> int:
        self.connections += 1
        return self.connections

    def of(self, consumer: Consumer) -> list[Pending]:
        return [pending for who, pending in self.requests if who is consumer and not pending.done]

    def abandon(self, pending: Pending) -> None:
        self.abandoned.add(id(pending))
        self.world.leader.requests.abandon(pending.handle)

    def sent(self, consumer: Consumer, pending: Pending) -> None:
        self.requests.append((consumer, pending))
        member = consumer.member
        if pending.done:
            self.learn(consumer, member, pending.answers[0])
            return
        answered = pending.answered

        def noted(answer: ShareAnswer) -> None:
            answered(answer)
            self.learn(consumer, member, answer)

        pending.on_answer = noted

    def learn(self, consumer: Consumer, member: Member, answer: ShareAnswer) -> None:
        """Note the records that a response delivers; no other consumer may hold them now (INV-3)."""
        if answer.error is not None:
            if consumer.member is member:
                consumer.reconnect()
            return
        at_s = now_s()
        for one in answer.partitions:
            for first, last, _ in one.fetched.ranges if one.fetched else ():
                for at in range(first, last + 1):
                    name = (one.partition.partition, at)
                    assert name not in self.accepted, f"{name} was accepted and is delivered again"
                    host = self.world.host(name[0])
                    for other in self.consumers:
                        until_s, given_by = other.held.get(name, (0.0, None))
                        assert given_by is not host or until_s <= at_s + ROUNDING_S, f"{name} is held by {other.name}"
                    if consumer.member is member:
                        consumer.held[name] = (at_s + self.lock_s(consumer, host, at), host)

    def lock_s(self, consumer: Consumer, host: Any, at: int) -> float:
        """Return how much longer the leader lets the member hold the record. The lock started before the response was
        sent (PL-302)."""
        batch = host.core._state.window.floor(at) if host is not None else None
        if batch is None or batch.last < at:
            return 0.0
        _, _, member, deadline_ms = batch.lock_at(at)
        return float(deadline_ms - self.world.clock.now_ms()) / 1_000 if member == consumer.name else 0.0

    def fault(self, _: str) -> Fault | None:
        return self.random.choice(FAULTS)(self.random) if self.random.random() < 0.4 else None

    def settle_acknowledgements(self) -> None:
        for pending, partition, offsets in self.accepting:
            if pending.done and pending.answers[0].error is None and id(pending) not in self.abandoned:
                (one,) = [one for one in pending.answers[0].partitions if one.partition == part(partition)]
                if one.acknowledge_error is None:
                    self.accepted.update((partition, at) for at in offsets)
        self.accepting = [entry for entry in self.accepting if not entry[0].done]

    async def step(self) -> None:
        random, world = self.random, self.world
        consumer = random.choice(self.consumers)
        match random.choice("ffffaaaappptttlckrx"):
            case "f":
                consumer.fetch()
            case "a":
                consumer.acknowledge()
            case "p":
                number = random.choice(PARTITIONS)
                size = random.randint(1, 6)
                await world.produce(size, number)
                self.produced[number] += size
            case "t":
                await asyncio.sleep(random.choice([0.001, 0.3, 1.0, 4.0]))
            case "l":
                consumer.leave()
            case "c":
                world.configure(max_record_locks=random.choice([5, 20, 100]))
            case "k" if self.of(consumer):
                self.abandon(random.choice(self.of(consumer)))
                consumer.leave()
            case "r":
                world.lapse()
                consumer.fetch()
                await asyncio.sleep(random.random())
                world.renewed()
            case "x" if random.random() < 0.5:
                number = random.choice(PARTITIONS)
                world.lose(number)
                await world.lead(number)
        await settle(random.choice([1, 5, 40]))
        self.settle_acknowledgements()

    async def play(self) -> None:
        world = self.world
        await world.lead(*PARTITIONS)
        world.persister.chance = self.fault
        for _ in range(STEPS):
            await self.step()
        world.persister.chance = lambda _: None
        await self.drain_all()
        for _, pending in self.requests:
            assert pending.done or id(pending) in self.abandoned
        world.assert_quiet()
        await world.end()

    async def drain_all(self) -> None:
        """Check that after the schedule every record can still be delivered and finished (INV-19)."""
        world = self.world
        world.configure(max_record_locks=2_000)
        for consumer in self.consumers:
            consumer.leave()
        await asyncio.sleep(40)
        self.settle_acknowledgements()
        for _ in range(400):
            hosts = [world.host(number) for number in PARTITIONS]
            if all(h is not None and h.core.start_offset == self.produced[h.key.partition] for h in hosts):
                break
            for consumer in self.consumers:
                consumer.fetch()
            await asyncio.sleep(1)
            for consumer in self.consumers:
                while consumer.held and consumer.opened:
                    consumer.acknowledge((1,))
            await asyncio.sleep(1)
            self.settle_acknowledgements()
        for number in PARTITIONS:
            host = world.host(number)
            assert host is not None
            assert host.core.start_offset == self.produced[number], host.core.overview()
        await asyncio.sleep(20)


@pytest.mark.rule("PL-1201", "PL-1204", "PL-1207", "PL-1208", "PL-1209", "PL-212", "PL-214", "INV-3", "INV-19")
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1), in_turns=st.booleans())
def test_any_schedule_answers_every_request_once_and_loses_no_record(seed: int, in_turns: bool) -> None:
    async def main() -> None:
        await Schedule(seed).play()

    with narrow() if in_turns else nullcontext():
        run_virtual(main())
