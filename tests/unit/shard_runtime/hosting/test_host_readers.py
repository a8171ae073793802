"""A host reads the readers' positions only when it is about to trim."""

from __future__ import annotations

import asyncio

import pytest

from shard_runtime.hosting.compaction_plan import CompactionLimits
from shard_runtime.hosting.shard_host import HostOptions
from shard_runtime.record_log.protocol import LogError, StreamId
from tests.support.toy_shard import Put
from tests.unit.shard_runtime.hosting.test_shard_host import World

pytestmark = pytest.mark.asyncio
LAG_MS = 10_000
LIMITS = CompactionLimits(entries_min=20, entries_per_key=1, slice_keys=5, history_ms=0, readers_max_lag_ms=LAG_MS)


class Readers(World):
    """A host that compacts after every 21 entries, and the readers' notes about its stream."""

    def __init__(self, limits: CompactionLimits = LIMITS) -> None:
        super().__init__(HostOptions(compaction=limits))

    def note(self, name: str, read: StreamId, age_ms: int = 0) -> None:
        self.log.notes[name] = b"%d-%d %d" % (*read, self.log.now_ms - age_ms)

    async def compacted(self, wait_ms: int = 0) -> StreamId:
        """Write until the stream is trimmed again; return the id of its first entry."""
        self.clock.ms += wait_ms
        self.log.now_ms += wait_ms
        self.lease.extend(self.clock.ms + 3_000)
        before = len(self.log.compacted)
        for n in range(100):
            await self.host.submit(Put("k", n))
            for _ in range(20):
                await asyncio.sleep(0)
            if len(self.log.compacted) > before:
                return self.log.entries[0].id
        raise AssertionError("no compaction in 100 entries")

    async def gained(self) -> Readers:
        await self.gain()
        return self


@pytest.mark.rule("SR-29", "PM-12", "CM-18")
async def test_what_a_live_reader_has_not_read_stays_and_goes_once_it_has() -> None:
    world = await Readers().gained()
    world.note("r", StreamId(1, 3))
    assert await world.compacted() == StreamId(1, 3)
    assert await world.compacted() == StreamId(1, 3)
    world.note("r", StreamId(1, 30))
    assert await world.compacted() == StreamId(1, 30)
    world.note("r", StreamId(1, 9_999))
    assert await world.compacted() == world.log.compacted[-1] > StreamId(1, 30)


@pytest.mark.rule("SR-29", "PM-12")
async def test_a_dead_reader_keeps_nothing() -> None:
    world = await Readers().gained()
    world.note("r", StreamId(1, 3))
    assert await world.compacted() == StreamId(1, 3)
    assert await world.compacted(LAG_MS + 1) == world.log.compacted[-1] > StreamId(1, 3)


@pytest.mark.rule("SR-29")
async def test_readers_are_asked_once_for_each_trim_and_not_where_none_is_waited_for() -> None:
    world = await Readers().gained()
    await world.compacted()
    await world.compacted()
    assert world.log.notes_read == len(world.log.compacted) == 2
    deaf = await Readers(
        CompactionLimits(entries_min=20, entries_per_key=1, history_ms=0, readers_max_lag_ms=0)
    ).gained()
    deaf.note("r", StreamId(1, 3))
    assert await deaf.compacted() == deaf.log.compacted[-1]
    assert deaf.log.notes_read == 0


@pytest.mark.rule("SR-29")
async def test_notes_that_cannot_be_read_put_the_trim_off_once_and_no_longer() -> None:
    world = await Readers().gained()
    world.note("r", StreamId(1, 3))
    world.log.notes_failures = [LogError("away"), LogError("away"), LogError("away")]
    for n in range(30):
        await world.host.submit(Put("k", n))
        await asyncio.sleep(0)
    assert (world.log.notes_read, world.log.compacted) == (1, [])
    assert await world.compacted(LIMITS.retry_ms) > StreamId(1, 3)
    assert world.log.notes_read == 2
    assert world.shard.values == {"k": 0}
    first = await world.compacted()  # the next trim is not postponed again
    assert world.log.notes_read == 3
    world.log.notes_failures = []
    world.note("r", first)
    assert await world.compacted() == first


@pytest.mark.rule("SR-29")
async def test_what_no_reader_wrote_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    world = await Readers().gained()
    world.log.notes["foreign"] = b"hello"
    world.note("r", StreamId(1, 3))
    assert await world.compacted() == StreamId(1, 3)
    assert await world.compacted() == StreamId(1, 3)
    assert capsys.readouterr().out.count("1 fields belong to no reader, such as foreign") == 1
