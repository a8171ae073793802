"""The worked example of the specification (§11), line by line, as requests to the real service.

Column "Memory after" is read from the leader, column P from what the persister stored. `core/test_worked_example.py`
shows which records a fresh leader delivers after each column's writes.
"""

from __future__ import annotations

import asyncio

import pytest

from .persister import Stored
from .wire import ACCEPT, RELEASE, Consumer, records, writes
from .worlds import World, key, run, settle

AVAILABLE, HELD, DONE = 0, 1, 2


def offsets(world: World) -> tuple[int, int]:
    """Return the SPSO and the SPEO."""
    return world.host().core.start_offset, world.host().core.speo


def holder(world: World, offset: int) -> str:
    batch = world.host().core._state.window.floor(offset)
    return str(batch.lock_at(offset)[2])


class Example:
    """The consumers and share-partition of the example, over a log with 100 records. The group coordinator has
    initialised the share-partition without a start offset."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.c1, self.c2, self.c3 = (Consumer(world, name) for name in ("C1", "C2", "C3"))
        self.seen = 0

    def new_writes(self) -> list[tuple[int, int, list[tuple[int, int, int, int]]]]:
        """Return the writes that were stored since the last call."""
        said = writes(self.world)
        since, self.seen = self.seen, len(said)
        return said[since:]

    async def lines_1_to_4(self) -> None:
        # 1: init at latest = 100
        assert await self.c1.acquired() == []
        assert offsets(self.world) == (100, 100)
        assert self.new_writes() == [(100, 0, [])]

        # 2: fetch 100-109
        await self.world.produce(10)
        assert await self.c1.acquired() == [(100, 109, 1)]
        assert offsets(self.world) == (100, 110)
        assert records(self.world) == [(100, 109, HELD, 1)]
        assert self.new_writes() == []

        # 3: accept 100-109
        assert await self.c1.acknowledge((100, 109, ACCEPT)) == "NONE"
        assert (offsets(self.world), records(self.world)) == ((110, 110), [])
        assert self.new_writes() == [(110, 0, [])]

        # 4: fetch: C1 110-112, C2 113-118, C3 119
        await self.world.produce(3)
        assert await self.c1.acquired() == [(110, 112, 1)]
        await asyncio.sleep(10)  # so that in line 8 only the first of these locks expires
        await self.world.produce(6)
        assert await self.c2.acquired() == [(113, 118, 1)]
        await self.world.produce(1)
        assert await self.c3.acquired() == [(119, 119, 1)]
        assert offsets(self.world) == (110, 120)
        assert self.world.host().core.overview().batch_count == 3
        assert [holder(self.world, at) for at in (110, 112, 113, 118, 119)] == ["C1", "C1", "C2", "C2", "C3"]
        assert self.new_writes() == []

    async def lines_5_to_8(self) -> None:
        # 5: C1 releases 110
        assert await self.c1.acknowledge((110, 110, RELEASE)) == "NONE"
        assert records(self.world) == [(110, 110, AVAILABLE, 1), (111, 119, HELD, 1)]
        assert self.world.host().core._state.window.floor(110).codes is not None, "now offset-tracked"
        assert self.new_writes() == [(110, 0, [(110, 110, AVAILABLE, 1)])]

        # 6: C3 accepts 119
        assert await self.c3.acknowledge((119, 119, ACCEPT)) == "NONE"
        assert records(self.world) == [(110, 110, AVAILABLE, 1), (111, 118, HELD, 1), (119, 119, DONE, 1)]
        assert self.new_writes() == [(110, 1, [(119, 119, DONE, 1)])]

        # 7: C1 fetches: gets 110 and 120
        await self.world.produce(1)
        fetched = await self.c1.fetch(max_records=2)
        assert fetched.acquired == [(110, 110, 2), (120, 120, 1)]
        assert fetched.batches == [(110, 112), (113, 118), (119, 119), (120, 120)]
        assert offsets(self.world) == (110, 121)
        assert self.new_writes() == []

        # 8: the lock of 111, 112 expires
        await asyncio.sleep(20.5)
        assert records(self.world) == [
            (110, 110, HELD, 2), (111, 112, AVAILABLE, 1), (113, 118, HELD, 1), (119, 119, DONE, 1), (120, 120, HELD, 1)
        ]  # fmt: skip
        assert self.new_writes() == [(110, 1, [(111, 112, AVAILABLE, 1)])]

    async def lines_9_to_12(self) -> None:
        # 9: C2 accepts 113-118
        assert await self.c2.acknowledge((113, 118, ACCEPT)) == "NONE"
        assert (113, 119, DONE, 1) in records(self.world)
        assert self.new_writes() == [(110, 7, [(113, 118, DONE, 1)])]

        # 10: C3 fetches 111-112
        assert await self.c3.acquired() == [(111, 112, 2)]
        assert [holder(self.world, at) for at in (110, 111, 112, 120)] == ["C1", "C3", "C3", "C1"]
        assert self.new_writes() == []

        # 11: C1 accepts 110
        assert await self.c1.acknowledge((110, 110, ACCEPT)) == "NONE"
        assert offsets(self.world) == (111, 121)
        assert self.new_writes() == [(111, 7, [])]

        # 12: C3 accepts 111-112
        assert await self.c3.acknowledge((111, 112, ACCEPT)) == "NONE"
        assert offsets(self.world) == (120, 121)
        assert records(self.world) == [(120, 120, HELD, 1)]
        assert self.new_writes() == [(120, 0, [])]
        await settle()
        assert self.world.persister.stored[key()].start == 120


@pytest.mark.rule("PL-1103", "PL-1104", "PL-306", "PL-609", "PL-703", "PL-704", "12.1", "12.2", "12.3")
def test_the_worked_example_line_by_line() -> None:
    async def scenario(world: World) -> None:
        world.configure(auto_offset_reset="latest")
        await world.produce(100)
        world.persister.stored[key()] = Stored(-1)
        example = Example(world)
        await example.lines_1_to_4()
        await example.lines_5_to_8()
        await example.lines_9_to_12()

    run(scenario)
