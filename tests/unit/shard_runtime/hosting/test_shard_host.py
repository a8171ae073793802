"""The host always works in the same order (decide, replay, append, respond), even when the store or the lease fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import inf

import pytest
from structlog.testing import capture_logs

from kip932.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidRequestError,
    NotCoordinatorError,
    UnknownServerError,
)
from shard_runtime.hosting.compaction_plan import CompactionLimits
from shard_runtime.hosting.replay import BrokenRecordError
from shard_runtime.hosting.shard_host import HostOptions, HostState, ShardHost
from shard_runtime.ownership.lease import Lease
from shard_runtime.record_log.protocol import STREAM_START, AppendRefusedError, Entry, ShardLostError, StreamId
from tests.support.clocks import HandClock
from tests.support.toy_shard import SHARD, Bad, Bug, Get, ObedientLog, Put, Record, ToyCodec, ToyShard, lease_of

pytestmark = pytest.mark.asyncio


class World:
    def __init__(self, options: HostOptions | None = None) -> None:
        self.log = ObedientLog()
        self.clock = HandClock()
        self.effects: list[object] = []
        self.drops: list[str] = []
        self.lease: Lease = None  # type: ignore[assignment]  # set by gain()
        self.host: ShardHost[object, Record] = ShardHost(
            SHARD,
            ToyShard,
            ToyCodec(),
            self.log,  # type: ignore[arg-type]  # only what a host calls
            self.clock,
            effects=self._effects,
            options=options,
        )

    def _effects(self, effects: Sequence[object]) -> None:
        self.effects.extend(effects)

    async def gain(self, epoch: int = 1, replay_from: StreamId = STREAM_START) -> World:
        self.lease = lease_of(epoch, self.clock, self._give_up)
        await self.host.gained(self.log.claim(epoch, self.clock.ms, replay_from), self.lease)
        return self

    def _give_up(self, reason: str, above: int) -> None:
        self.drops.append(reason)
        self.lease.revoke()
        self.host.lost(reason)

    @property
    def shard(self) -> ToyShard:
        shard = self.host.shard
        assert isinstance(shard, ToyShard)
        return shard

    def ids(self) -> list[str]:
        return [str(entry.id) for entry in self.log.entries]


@pytest.mark.rule("GC-2", "SR-7", "SC-59", "SC-62")
async def test_answers_come_after_the_append_and_ids_are_consecutive() -> None:
    world = await World().gain()
    world.log.gate.clear()
    put = world.host.post(Put("a", 1))
    await asyncio.sleep(0)
    assert world.shard.values == {"a": 1}
    assert not put.done()
    world.log.gate.set()
    assert await put == 1
    await world.host.submit(Put("b", 2))
    assert world.ids() == ["1-0", "1-1", "1-2"]


@pytest.mark.rule("SR-18", "SC-61", "P-2", "SC-65")
async def test_what_arrives_during_a_flush_forms_the_next_one() -> None:
    world = await World().gain()
    world.log.gate.clear()
    first = world.host.post(Put("a", 1))
    await asyncio.sleep(0)
    rest = [world.host.post(Put("a", n)) for n in range(2, 8)]
    world.log.gate.set()
    assert await asyncio.gather(first, *rest) == [1, 2, 3, 4, 5, 6, 7]
    assert world.log.flushes == [1, 6]


@pytest.mark.rule("SR-18", "SR-17")
async def test_a_flush_ends_with_the_command_that_fills_its_bytes() -> None:
    world = await World(HostOptions(flush_bytes_max=4)).gain()
    world.log.gate.clear()
    first = world.host.post(Put("a", 1))
    await asyncio.sleep(0)
    rest = [world.host.post(Put(key, 1)) for key in ("a" * 9, *"bcdefg")]
    world.log.gate.set()
    await asyncio.gather(first, *rest)
    size = len(world.log.entries[2].record)
    assert size > 4 > len(world.log.entries[-1].record) > 1, "what the sizes below rest on"
    assert world.log.flushes == [1, 1, 2, 2, 2]


@pytest.mark.rule("SC-14", "GC-3")
async def test_a_read_sees_uncommitted_state_and_waits_for_it() -> None:
    world = await World().gain()
    world.log.gate.clear()
    world.host.post(Put("a", 1))
    read = world.host.post(Get("a"))
    await asyncio.sleep(0)
    assert not read.done()
    world.log.gate.set()
    assert await read == 1
    assert world.host.post(Get("a")).done()


@pytest.mark.rule("CM-13", "SC-64")
async def test_a_definite_refusal_is_undone_in_reverse_and_its_ids_are_used_again() -> None:
    world = await World().gain()
    await world.host.submit(Put("a", 1))
    world.log.gate.clear()
    world.log.failures.append(AppendRefusedError("OOM"))
    writes = [world.host.post(Put("a", 2)), world.host.post(Put("a", 3))]
    await asyncio.sleep(0)
    built_on_it = [world.host.post(Put("a", 4)), world.host.post(Get("a"))]
    world.log.gate.set()
    results = await asyncio.gather(*writes, *built_on_it, return_exceptions=True)
    assert [type(result) for result in results] == [CoordinatorNotAvailableError] * 4
    assert world.shard.values == {"a": 1}
    assert world.drops == []
    await world.host.submit(Put("a", 9))
    assert world.ids() == ["1-0", "1-1", "1-2"]


@pytest.mark.rule("SR-8", "SC-78", "GC-69f")
async def test_a_fenced_append_drops_the_shard_and_fails_all_who_wait() -> None:
    world = await World().gain()
    world.shard.deadline = world.clock.ms + 60_000
    await world.host.submit(Get("a"))
    world.log.failures.append(ShardLostError("fenced by 2-0"))
    results = await asyncio.gather(world.host.post(Put("a", 1)), world.host.post(Get("a")), return_exceptions=True)
    assert [type(result) for result in results] == [NotCoordinatorError, NotCoordinatorError]
    assert world.drops == ["fenced by 2-0"]
    assert (world.host.state, world.host.shard, world.host._timer.at) == (HostState.IDLE, None, inf)
    with pytest.raises(NotCoordinatorError):
        world.host.post(Get("a"))


@pytest.mark.rule("SC-63", "GC-4", "CM-15")
async def test_a_write_time_out_rolls_nothing_back() -> None:
    world = await World().gain()
    world.log.gate.clear()
    with pytest.raises(CoordinatorNotAvailableError, match="may still take effect"):
        await world.host.submit(Put("a", 1), timeout_ms=0)
    world.log.gate.set()
    assert await world.host.submit(Get("a")) == 1
    assert world.ids() == ["1-0", "1-1"]


@pytest.mark.rule("SR-24", "CM-3")
async def test_nothing_is_answered_past_the_lease() -> None:
    world = await World().gain()
    world.log.gate.clear()
    write = world.host.post(Put("a", 1))
    await asyncio.sleep(0)
    world.clock.ms += 3_000
    world.log.gate.set()
    with pytest.raises(NotCoordinatorError):
        await write
    with pytest.raises(NotCoordinatorError):
        world.host.post(Get("a"))
    world.lease.extend(world.clock.ms + 3_000)
    assert await world.host.submit(Get("a")) == 1


@pytest.mark.rule("CM-15", "SR-21")
async def test_new_work_is_refused_while_the_store_is_away() -> None:
    world = await World().gain()
    world.log.up = False
    with pytest.raises(CoordinatorNotAvailableError):
        world.host.post(Put("a", 1))
    assert world.shard.values == {}


async def test_the_inbox_is_bounded() -> None:
    world = await World(HostOptions(waiting_max=2)).gain()
    world.log.gate.clear()
    waiting = [world.host.post(Put("a", n)) for n in (1, 2)]
    with pytest.raises(CoordinatorNotAvailableError):
        world.host.post(Put("a", 3))
    world.log.gate.set()
    assert await asyncio.gather(*waiting) == [1, 2]


@pytest.mark.rule("GC-5", "SC-15")
async def test_a_refused_command_appends_nothing_and_a_bug_is_an_unknown_server_error() -> None:
    world = await World().gain()
    with pytest.raises(InvalidRequestError):
        await world.host.submit(Bad())
    with pytest.raises(UnknownServerError):
        await world.host.submit(Bug())
    assert world.ids() == ["1-0"]


@pytest.mark.rule("SC-14")
async def test_a_refusal_decided_on_uncommitted_state_waits_too() -> None:
    world = await World().gain()
    world.log.gate.clear()
    world.host.post(Put("a", 1))
    refused = world.host.post(Bad())
    await asyncio.sleep(0)
    assert not refused.done()
    world.log.gate.set()
    with pytest.raises(InvalidRequestError):
        await refused


async def test_effects_run_once_their_records_are_durable() -> None:
    world = await World().gain()
    world.log.gate.clear()
    put = world.host.post(Put("a", 1, ("send",)))
    await asyncio.sleep(0)
    assert world.effects == []
    world.log.gate.set()
    await put
    assert world.effects == ["send"]


@pytest.mark.rule("CM-19")
async def test_no_ops_behind_a_resolved_flush_use_ids_up() -> None:
    world = await World().gain()
    world.log.noops = 1
    await world.host.submit(Put("a", 1))
    await world.host.submit(Put("b", 2))
    assert world.ids() == ["1-0", "1-1", "1-2", "1-3"]


@pytest.mark.rule("GC-6", "SC-5", "SC-77")
async def test_requests_during_the_replay_are_refused_so() -> None:
    world = await World().gain()
    await world.host.submit(Put("a", 1))
    world.host.lost("test")
    load = asyncio.create_task(world.gain(2))
    await asyncio.sleep(0)
    with pytest.raises(CoordinatorLoadInProgressError):
        world.host.post(Get("a"))
    assert world.host.demand == 1
    await load
    assert await world.host.submit(Get("a")) == 1
    assert world.host.demand == 0


@pytest.mark.rule("SC-59", "CM-12")
async def test_replay_in_pages_gives_the_state_back() -> None:
    world = await World(HostOptions(page_entries=3)).gain()
    for n in range(10):
        await world.host.submit(Put(f"k{n % 4}", n))
    await world.host.submit(Put("k0", None))
    before = dict(world.shard.values)
    world.host.lost("test")
    world.log.entries.append(Entry(StreamId(1, 12), "Z", b"from a newer build"))
    world.log.reads = 0
    await world.gain(2)
    assert world.shard.values == before
    assert world.log.reads == 5
    await world.host.submit(Put("x", 1))
    assert world.ids()[-2:] == ["2-0", "2-1"]


@pytest.mark.rule("SC-77", "SC-5")
async def test_a_broken_entry_fails_the_load_and_names_itself() -> None:
    world = World()
    world.log.entries.append(Entry(StreamId(1, 1), "R", b"a=x"))
    with pytest.raises(BrokenRecordError, match="entry 1-1 of"):
        await world.gain(2)
    assert world.host.state is HostState.FAILED
    with pytest.raises(NotCoordinatorError):
        world.host.post(Get("a"))


@pytest.mark.rule("GC-32a")
async def test_timers_run_only_while_the_shard_can_append_and_restart_in_full() -> None:
    world = await World().gain()
    world.shard.deadline = world.clock.ms + 100
    await world.host.submit(Put("a", 1))
    world.log.up = False
    world.clock.ms += 500
    world.host._on_timer()
    assert "expired" not in world.shard.values
    world.log.up = True
    world.host._on_timer()
    assert world.shard.pauses == [world.clock.ms]
    assert "expired" not in world.shard.values
    world.clock.ms += 1_000
    world.lease.extend(world.clock.ms + 3_000)
    world.host._on_timer()
    assert world.shard.values["expired"] == world.clock.ms
    world.host.lost("test")


@pytest.mark.parametrize(("took_ms", "restarted"), [(499, False), (500, True)])
async def test_timers_restart_after_a_flush_that_took_as_long_as_a_write_may(took_ms: int, restarted: bool) -> None:
    world = await World(HostOptions(write_timeout_ms=500)).gain()
    world.shard.deadline = world.clock.ms + 100
    world.log.gate.clear()
    writing = asyncio.ensure_future(world.host.submit(Put("a", 1)))
    for _ in range(10):
        await asyncio.sleep(0)
    world.clock.ms += took_ms
    world.log.gate.set()
    await asyncio.gather(writing, return_exceptions=True)
    world.host._on_timer()
    assert world.shard.pauses == ([world.clock.ms] if restarted else [])
    assert ("expired" in world.shard.values) is not restarted


@pytest.mark.rule("GC-32a", "CM-3")
async def test_a_lease_that_lapsed_and_came_back_restarts_timers() -> None:
    world = await World().gain()
    world.lease.paused()
    await world.host.submit(Get("a"))
    assert world.shard.pauses == [world.clock.ms]
    await world.host.submit(Get("a"))
    assert len(world.shard.pauses) == 1


@pytest.mark.rule("CM-4")
async def test_releasing_finishes_the_last_flush_and_takes_no_more() -> None:
    world = await World().gain()
    world.log.gate.clear()
    last = world.host.post(Put("a", 1))
    releasing = asyncio.create_task(world.host.releasing())
    await asyncio.sleep(0)
    with pytest.raises(NotCoordinatorError):
        world.host.post(Put("a", 2))
    world.log.gate.set()
    await releasing
    assert await last == 1
    assert world.host.state is HostState.IDLE


@pytest.mark.rule("CM-18", "SR-13", "SR-15", "SR-17", "P-18")
async def test_a_stream_does_not_grow_without_bound_and_replays_the_same() -> None:
    limits = CompactionLimits(entries_min=50, entries_per_key=2, slice_keys=3, history_ms=0)
    world = await World(HostOptions(compaction=limits, flush_records_max=2)).gain()
    for key in range(10):
        await world.host.submit(Put(f"cold{key}", key))
    await world.host.submit(Put("gone", 1))
    await world.host.submit(Put("gone", None))
    for n in range(400):
        await world.host.submit(Put("hot", n))
        assert len(world.log.entries) < 130
    assert world.log.compacted == sorted(world.log.compacted)
    assert len(world.log.compacted) >= 3
    before = dict(world.shard.values)
    world.host.lost("test")
    await world.gain(2, world.log.compacted[-1])
    assert world.shard.values == before


@pytest.mark.rule("CM-18")
async def test_a_refused_trim_drops_the_shard() -> None:
    limits = CompactionLimits(entries_min=5, entries_per_key=1, slice_keys=3, history_ms=0)
    world = await World(HostOptions(compaction=limits)).gain()
    world.log.compact_answer = False
    for n in range(8):
        if world.host.state is HostState.ACTIVE:
            await asyncio.wait([world.host.post(Put("a", n))])
        await asyncio.sleep(0)
    assert world.drops == ["the owner record is not ours any more"]


@pytest.mark.rule("CM-18", "SR-15")
async def test_a_refused_cold_copy_is_undone_and_tried_later() -> None:
    limits = CompactionLimits(entries_min=5, entries_per_key=1, slice_keys=10, retry_ms=1_000, history_ms=0)
    world = await World(HostOptions(compaction=limits)).gain()
    await world.host.submit(Put("cold", 1))
    for n in range(4):
        await world.host.submit(Put("hot", n))
    world.log.failures.append(AppendRefusedError("OOM"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert world.shard.values == {"cold": 1, "hot": 3}
    assert world.log.compacted == []
    world.clock.ms += 1_000
    await world.host.submit(Put("hot", 9))
    await asyncio.sleep(0.01)
    assert len(world.log.compacted) == 1


async def test_a_shard_that_cannot_be_copied_goes_on_and_is_tried_again_after_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A defect in `rewrite` must stop neither the shard nor its replies."""
    limits = CompactionLimits(entries_min=5, entries_per_key=1, slice_keys=10, history_ms=0)
    world = await World(HostOptions(compaction=limits)).gain()
    await world.host.submit(Put("cold", 1))
    tried: list[int] = []

    def fails(keys: object, wall_ms: int) -> Sequence[Sequence[Record]]:
        tried.append(world.clock.ms)
        raise ZeroDivisionError

    monkeypatch.setattr(world.shard, "rewrite", fails)
    began_ms = world.clock.ms
    with capture_logs() as lines:
        for seconds in (0, 59.999, 60, 119.999, 120):
            world.clock.ms = began_ms + round(seconds * 1_000)
            world.lease.extend(world.clock.ms + 3_000)
            for n in range(8):
                await world.host.submit(Put("hot", n))
                await asyncio.sleep(0)
    assert tried == [began_ms, began_ms + 60_000, began_ms + 120_000]
    assert [line["event"] for line in lines] == ["cold_copies_failed"] * 3
    assert (world.drops, world.shard.values) == ([], {"cold": 1, "hot": 7})


@pytest.mark.rule("SR-29", "CM-18")
async def test_history_is_kept_for_readers_but_not_for_claims() -> None:
    limits = CompactionLimits(entries_min=20, entries_per_key=1, slice_keys=5, history_ms=1_000)
    world = await World(HostOptions(compaction=limits)).gain()
    for n in range(25):
        await world.host.submit(Put("k", n))
    await asyncio.sleep(0.01)
    assert len(world.log.compacted) == 1
    assert world.ids()[0] == "1-0"
    world.clock.ms += 200
    await world.host.submit(Put("k", 25))
    world.clock.ms += 1_000
    world.lease.extend(world.clock.ms + 3_000)
    for n in range(25):
        await world.host.submit(Put("k", n))
    await asyncio.sleep(0.01)
    assert len(world.log.compacted) >= 2
    kept_from = world.log.entries[0].id
    assert StreamId(1, 0) < kept_from <= world.log.compacted[-1]
