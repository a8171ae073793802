"""Deadlines of share-partitions: each fires once, and none holds up another."""

from __future__ import annotations

import asyncio

import pytest

from partition_leader.share_partition.deadlines import Deadlines
from tests.support.clocks import LoopClock
from tests.support.virtual_time import run as run_virtual


@pytest.mark.rule("P-13")
def test_a_deadline_comes_once_and_a_newer_one_replaces_it() -> None:
    async def main() -> None:
        clock = LoopClock()
        deadlines = Deadlines(clock)
        seen: list[tuple[str, int]] = []

        def a(now_ms: int) -> None:
            seen.append(("a", now_ms))

        def b(now_ms: int) -> None:
            seen.append(("b", now_ms))

        start = clock.now_ms()
        deadlines.set(a, start + 500)
        deadlines.set(b, start + 100)
        deadlines.set(a, start + 50)
        deadlines.set(a, start + 300)
        await asyncio.sleep(1)
        assert seen == [("b", start + 100), ("a", start + 300)]
        deadlines.set(a, start + 2_000)
        deadlines.set(a, None)
        await asyncio.sleep(3)
        assert len(seen) == 2
        assert len(deadlines) == 0

    run_virtual(main())


@pytest.mark.rule("P-13")
def test_a_failing_holder_keeps_no_other_from_its_deadline() -> None:
    async def main() -> None:
        clock = LoopClock()
        deadlines = Deadlines(clock)
        seen: list[int] = []

        def bad(_: int) -> None:
            raise RuntimeError("a defect")

        deadlines.set(bad, clock.now_ms() + 10)
        deadlines.set(seen.append, clock.now_ms() + 10)
        await asyncio.sleep(1)
        assert len(seen) == 1

    run_virtual(main())


@pytest.mark.rule("P-13")
def test_superseded_deadlines_do_not_pile_up_and_many_are_served_in_turns() -> None:
    async def main() -> None:
        clock = LoopClock()
        deadlines = Deadlines(clock)
        seen: list[int] = []
        holders = [lambda _, n=n: seen.append(n) for n in range(1_000)]
        for turn in range(20):
            for holder in holders:
                deadlines.set(holder, clock.now_ms() + 60_000 - turn)
        assert len(deadlines._heap) <= 4 * len(holders) + 1
        await asyncio.sleep(61)
        assert sorted(seen) == list(range(1_000))
        deadlines.close()

    run_virtual(main())
