"""When shards are swept, and how one shard's failure affects the others. Time is virtual."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from group_coordinator.core.commands import (
    Command,
    ExpireEmpty,
    RepairCheck,
    ResumeDeletions,
    ResumeReply,
    Sweep,
    SweepReply,
)
from group_coordinator.core.shard import GroupShard
from group_coordinator.sweeper import Sweeper
from kip932.errors import NotCoordinatorError
from tests.support.virtual_time import virtual

INTERVAL_MS = 30_000
#: The commands that follow the sweep of a shard.
ENDS = ["RepairCheck", "ResumeDeletions", "ExpireEmpty"]
SHARD: Any = None


class Shards:
    """Two shards whose replies a test sets; `asked` records the commands and their times."""

    count = 2

    def __init__(self) -> None:
        self.asked: list[tuple[float, int, Command]] = []
        self.more: dict[int, int] = {}
        self.resumed: dict[int, list[ResumeReply]] = {}
        self.raises: dict[int, Exception] = {}
        self.expired: dict[int, tuple[tuple[str, int], ...]] = {}

    async def submit(self, shard: int, command: Command) -> object:
        self.asked.append((asyncio.get_running_loop().time(), shard, command))
        if shard in self.raises:
            raise self.raises[shard]
        if isinstance(command, RepairCheck):
            return 0
        if isinstance(command, ResumeDeletions):
            replies = self.resumed.get(shard, [])
            return replies.pop(0) if replies else ResumeReply(more=False, waiting=False)
        if isinstance(command, ExpireEmpty):
            return self.expired.pop(shard, ())
        self.more[shard] = left = self.more.get(shard, 0) - 1
        return SweepReply(1, more=left >= 0, lagging=False)

    def serving(self) -> Sequence[tuple[int, GroupShard]]:
        return [(0, SHARD), (1, SHARD)]

    def kinds(self, shard: int) -> list[str]:
        return [type(command).__name__ for _, number, command in self.asked if number == shard]


@virtual
async def test_a_shard_is_swept_until_nothing_is_left_and_then_searches_for_lost_state() -> None:
    shards = Shards()
    shards.more[1] = 2
    await Sweeper(shards, lambda: 77, INTERVAL_MS).sweep()
    assert shards.kinds(0) == ["Sweep", *ENDS]
    assert shards.kinds(1) == ["Sweep", "Sweep", "Sweep", *ENDS]
    assert {command.complete_since_ms for *_, command in shards.asked if isinstance(command, Sweep)} == {77}


@virtual
async def test_a_shard_that_always_has_more_is_left_after_a_hundred_rounds() -> None:
    shards = Shards()
    shards.more[0] = 1_000
    await Sweeper(shards, lambda: 0, INTERVAL_MS).sweep()
    assert shards.kinds(0) == ["Sweep"] * 100 + ENDS
    assert shards.kinds(1) == ["Sweep", *ENDS]


@virtual
async def test_a_shard_that_fails_keeps_no_other_from_its_sweep() -> None:
    for error, reported in ((NotCoordinatorError("moved"), []), (RuntimeError("broken"), ["shard_sweep_failed"])):
        shards = Shards()
        shards.raises[0] = error
        with capture_logs() as lines:
            await Sweeper(shards, lambda: 0, INTERVAL_MS).sweep()
        assert shards.kinds(0) == ["Sweep"]
        assert shards.kinds(1) == ["Sweep", *ENDS]
        assert [line["event"] for line in lines if line["log_level"] == "error"] == reported


@virtual
async def test_sweeps_follow_the_interval_and_a_change_of_topics_brings_one_at_once() -> None:
    shards = Shards()
    sweeper = Sweeper(shards, lambda: 0, INTERVAL_MS)
    began = asyncio.get_running_loop().time()
    sweeper.start()
    await asyncio.sleep(70)
    sweeper.topics_changed()
    sweeper.topics_changed()
    await asyncio.sleep(25)
    await sweeper.stop()
    await asyncio.sleep(100)
    times = [round(at - began) for at, shard, command in shards.asked if shard == 0 and isinstance(command, Sweep)]
    assert times == [30, 60, 70]


@virtual
async def test_deletions_go_on_while_there_are_more_and_each_second_while_they_wait_for_the_image() -> None:
    shards = Shards()
    shards.resumed[0] = [ResumeReply(more=True, waiting=False), ResumeReply(more=False, waiting=True)]
    shards.resumed[1] = [ResumeReply(more=False, waiting=False), ResumeReply(more=False, waiting=True)]
    sweeper = Sweeper(shards, lambda: 77, INTERVAL_MS)
    began = asyncio.get_running_loop().time()
    sweeper.start()
    await asyncio.sleep(1)
    sweeper.soon()
    await asyncio.sleep(44)
    await sweeper.stop()
    times = [round(at - began) for at, shard, command in shards.asked if shard == 1 and isinstance(command, Sweep)]
    assert times == [1, 2, 3, 33], "at once, twice because a shard waits, and at the interval"
    assert shards.kinds(0)[:4] == ["Sweep", "RepairCheck", "ResumeDeletions", "ResumeDeletions"]
    assert {command.complete_since_ms for *_, command in shards.asked if isinstance(command, ResumeDeletions)} == {77}


@pytest.mark.rule("GC-46")
@virtual
async def test_a_group_that_was_empty_for_too_long_is_counted_and_named_with_its_age_and_the_setting() -> None:
    shards = Shards()
    counted: list[int] = []
    shards.expired[1] = (("old", 90_061_000), ("older", 99_000_000))
    with capture_logs() as said:
        await Sweeper(shards, lambda: 77, INTERVAL_MS, counted.append).sweep()
    assert sum(counted) == 2
    assert [(line["group"], line["empty_for_s"], line["setting"]) for line in said] == [
        ("old", 90_061, "sharegroups.group.empty.retention.ms"),
        ("older", 99_000, "sharegroups.group.empty.retention.ms"),
    ]
    assert shards.kinds(1)[-1] == "ExpireEmpty"
    assert shards.asked[-1][2] == ExpireEmpty(77)
