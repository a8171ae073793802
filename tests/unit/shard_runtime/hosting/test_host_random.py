"""Random schedules against one host: a replay finds what was confirmed, whatever was refused or lost."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kip932.errors import KafkaError
from shard_runtime.hosting.compaction_plan import CompactionLimits
from shard_runtime.hosting.shard_host import HostOptions, HostState
from shard_runtime.record_log.protocol import AppendRefusedError, ShardLostError, StreamId
from tests.support.toy_shard import Get, Put
from tests.unit.shard_runtime.hosting.test_shard_host import World

STEPS = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 4)),
    st.tuples(st.just("drop"), st.integers(0, 4)),
    st.tuples(st.just("get"), st.integers(0, 4)),
    st.tuples(st.sampled_from(["refuse", "fence", "turn", "hold", "go", "lapse", "noop", "pause"]), st.just(0)),
)


@dataclass
class Run:
    """One schedule. For each key, `confirmed` has the last confirmed value, and `later` the values that may have
    replaced it."""

    world: World
    confirmed: dict[str, int | None] = field(default_factory=dict)
    later: dict[str, list[int | None]] = field(default_factory=dict)
    flying: list[tuple[str, int | None, asyncio.Future[object]]] = field(default_factory=list)
    epoch: int = 1
    values: int = 0

    async def step(self, what: str, number: int) -> None:
        world, key = self.world, f"k{number}"
        if world.host.state is HostState.IDLE:
            await self.again()
        match what:
            case "put" | "drop":
                self.values += 1
                self.send(key, self.values if what == "put" else None)
            case "get":
                self.read(key)
            case "refuse":
                world.log.failures.append(AppendRefusedError("OOM"))
            case "fence":
                world.log.failures.append(ShardLostError("fenced"))
            case "turn":
                await asyncio.sleep(0)
            case "hold":
                world.log.gate.clear()
            case "go":
                await self.settle()
            case "lapse":
                world.clock.ms += 3_000
                world.lease.extend(world.clock.ms + 3_000)
                world.lease.paused()
            case "noop":
                world.log.noops = 1
            case "pause":
                world.log.up = not world.log.up

    def send(self, key: str, value: int | None) -> None:
        try:
            future = self.world.host.post(Put(key, value))
        except KafkaError:
            return
        self.flying.append((key, value, future))

    def read(self, key: str) -> None:
        try:
            future = self.world.host.post(Get(key))
        except KafkaError:
            return
        if future.done() and not future.exception():
            assert future.result() == self.world.shard.values.get(key)
        future.add_done_callback(lambda done: done.exception())

    async def settle(self) -> None:
        """Let all calls end, then process their results in order."""
        self.world.log.gate.set()
        for _ in range(60):
            await asyncio.sleep(0)
        for key, value, future in self.flying:
            assert future.done()
            if future.exception() is None:
                assert future.result() == value
                self.confirmed[key] = value
                self.later[key] = []
            else:
                self.later.setdefault(key, []).append(value)
        self.flying.clear()

    async def again(self) -> None:
        """Claim the shard again, as ownership would."""
        await self.settle()
        self.epoch += 1
        self.world.log.failures.clear()
        start = self.world.log.compacted[-1] if self.world.log.compacted else StreamId(0, 0)
        await self.world.gain(self.epoch, start)

    async def judge(self) -> None:
        world = self.world
        world.log.up = True
        await self.settle()
        live = dict(world.shard.values) if world.host.shard is not None else None
        world.host.lost("the end")
        await self.again()
        replayed = world.shard.values
        assert live is None or live == replayed
        for key, value in self.confirmed.items():
            assert replayed.get(key) in [value, *self.later.get(key, [])]
        ids = [entry.id for entry in world.log.entries]
        assert ids == sorted(set(ids))
        for before, after in pairwise(ids):
            assert after == StreamId(before.epoch, before.seq + 1) or (after.epoch > before.epoch and after.seq == 0)


@pytest.mark.rule("SC-59", "SC-64", "CM-13", "CM-18", "SR-7", "GC-2")
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, max_size=60))
def test_memory_is_what_the_log_says_after_any_schedule(steps: list[tuple[str, int]]) -> None:
    async def run() -> None:
        limits = CompactionLimits(entries_min=6, entries_per_key=1, slice_keys=2, retry_ms=0, history_ms=0)
        world = await World(HostOptions(compaction=limits, flush_records_max=3)).gain()
        schedule = Run(world)
        for what, number in steps:
            await schedule.step(what, number)
        await schedule.judge()

    asyncio.run(run())
