"""Reports of delayed records: the log lines when the bound is reached and left, and the count of all delays so far."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest
import structlog.testing

from kip932.ids import ACK_RELEASE, topic_id_text
from partition_leader.share_partition.core.events import AckBatch
from partition_leader.share_partition.core.room import is_below_bound_again
from partition_leader.share_partition.core.status import DelayCause, Delays
from partition_leader.share_partition.core.undelivered import IN_A_ROW_MAX
from partition_leader.share_partition.delay_reports import DelayReports
from shard_runtime.config.group_config import Backoff, GroupConfig
from tests.support.virtual_time import run as run_virtual

from .test_long_poll import started
from .worlds import TOPIC, Member, World, key, run, settle

REACHED: Final = "delayed_record_limit_reached"
LEFT: Final = "delayed_record_limit_cleared"
SETTINGS: Final = GroupConfig()


class Core:
    """A share-partition's core whose delays a test sets."""

    def __init__(self) -> None:
        self.records, self.pieces, self.full = 0, 1, False
        self.not_taken_back = 0

    def delays(self) -> Delays:
        return Delays(self.records > 0, self.records, self.pieces, {})

    def delayed_full(self, settings: GroupConfig) -> bool:
        return self.full


def reported(lines: list[Any], *names: str) -> list[tuple[object, ...]]:
    events = {REACHED: "reached", LEFT: "left"}
    return [(events[line["event"]], *(line[name] for name in names)) for line in lines if line["event"] in events]


async def begun(world: World, records: int) -> Member:
    member, _ = await started(world, records=records)
    assert isinstance(member, Member)
    return member


@pytest.mark.rule("PL-935")
def test_reaching_the_bound_is_one_warning_and_leaving_it_one_line_however_many_records_come_and_go() -> None:
    async def scenario(world: World) -> None:
        world.configure(delayed_max=20)
        member = await begun(world, records=100)
        with structlog.testing.capture_logs() as lines:
            for offset in range(19):
                delay = AckBatch(offset, offset, (ACK_RELEASE,), (30_000 if offset < 3 else 60_000,))
                await member.acknowledge({0: [delay]}).answer()
            assert reported(lines) == [], "one is missing"
            for offset in range(19, 40):
                delay = AckBatch(offset, offset, (ACK_RELEASE,), (20_000 if offset < 39 else 60_000,))
                await member.acknowledge({0: [delay]}).answer()
            (line,) = [line for line in lines if line["event"] == REACHED]
            assert (line["log_level"], line["group"], line["topic"], line["partition"]) == ("warning", "g", "t", 0)
            assert (line["delayed"], line["bound"]) == (20, "sharegroups.retry.delayed.max=20")
            assert "share.delivery.count.limit" in line["try_next"]
            assert line["try_next"].endswith("and so does a higher sharegroups.retry.delayed.max (at most 5000)")
            await asyncio.sleep(25)
            assert reported(lines) == [("reached",)], "20 still wait"
            await asyncio.sleep(10)
            assert reported(lines, "log_level", "delayed")[1:] == [("left", "info", 17)], "with a tenth of it free"
            await asyncio.sleep(40)
            assert len(reported(lines)) == 2

    run(scenario)


@pytest.mark.rule("PL-935")
def test_the_bound_that_is_the_window_s_pieces_is_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("partition_leader.share_partition.core.room.SHARE_PARTITION_BATCHES_MAX", 4)

    async def scenario(world: World) -> None:
        with structlog.testing.capture_logs() as lines:
            member = await begun(world, records=1)
            for offset in range(4):
                await member.acknowledge({0: [AckBatch(offset, offset, (ACK_RELEASE,), (60_000 + offset,))]}).answer()
                await world.produce(1)
                await member.fetch(max_wait_ms=100).answer()
                assert len(reported(lines)) == (offset >= 2), "with the fourth piece"
            ((_, delayed, pieces, bound, advice),) = reported(lines, "delayed", "pieces", "bound", "try_next")
            assert (delayed, pieces) == (3, 4)
            assert bound == "10000 pieces of the window"
            assert isinstance(advice, str)
            assert "sharegroups.retry.delayed.max" not in advice, "it would change nothing"

    run(scenario)


@pytest.mark.rule("PL-935")
def test_a_successor_that_loads_as_many_reports_it_again() -> None:
    async def scenario(world: World) -> None:
        world.configure(delayed_max=2)
        member = await begun(world, records=4)
        await member.acknowledge({0: [AckBatch(0, 1, (ACK_RELEASE,), (600_000,))]}).answer()
        await asyncio.sleep(11)
        with structlog.testing.capture_logs() as lines:
            world.lose()
            await world.lead(0)
            await world.member("n").fetch(0, max_wait_ms=100).answer()
            assert reported(lines) == [("reached",)]

    run(scenario)


def test_one_that_is_dropped_at_its_bound_says_nothing_more_and_is_not_kept() -> None:
    async def scenario(world: World) -> None:
        world.configure(delayed_max=2)
        member = await begun(world, records=4)
        core = weakref.ref(world.host().core)
        with structlog.testing.capture_logs() as lines:
            await member.acknowledge({0: [AckBatch(0, 1, (ACK_RELEASE,), (600_000,))]}).answer()
            await asyncio.sleep(11)
            world.lose()
            await settle()
            await asyncio.sleep(25)
        assert reported(lines) == [("reached",)]
        gc.collect()
        assert core() is None, "nothing refers to the core any longer"

    run(scenario)


@pytest.mark.rule("PL-935")
def test_of_a_share_partition_that_comes_and_goes_at_its_bound_one_line_in_ten_seconds_is_logged() -> None:
    async def main() -> None:
        reports, core, group = DelayReports(lambda _: ""), Core(), replace(SETTINGS, delayed_max=10)
        with structlog.testing.capture_logs() as lines:
            for number in range(1, 9):
                core.records, core.full = (10, True) if number % 2 else (0, False)
                reports.check(key(), core, group)
            assert reported(lines) == [("reached",), ("left",)]
            await asyncio.sleep(10.1)
            assert reported(lines[2:], "held_back") == [("reached", 3), ("left", 3)]
        reports.close()

    run_virtual(main())


@pytest.mark.rule("PL-935")
@pytest.mark.parametrize(
    ("delays", "most", "left"),
    [
        (Delays(True, 4_500, 9, {}), 5_000, False),
        (Delays(True, 4_499, 9, {}), 5_000, True),
        (Delays(True, 0, 9_000, {}), 5_000, False),
        (Delays(True, 0, 8_999, {}), 5_000, True),
        (Delays(False, 0, 9_999, {}), 5_000, True),
        (Delays(True, 1, 9, {}), 1, False),
        (Delays(True, 0, 9, {}), 1, True),
    ],
)
def test_the_bound_is_left_when_a_tenth_of_it_is_free(delays: Delays, most: int, left: bool) -> None:
    assert is_below_bound_again(delays, replace(SETTINGS, delayed_max=most)) is left


def ever(world: World, group: str = "g") -> Mapping[str, float | None]:
    return {
        cause.value: world.registry.get_sample_value(
            "sharegroups_share_group_delays_total", {"group": group, "cause": cause.value}
        )
        for cause in DelayCause
    }


@pytest.mark.rule("PL-938")
def test_all_that_ever_waited_are_counted_by_why_across_the_objects_of_a_share_partition() -> None:
    async def scenario(world: World) -> None:
        world.configure(backoff=Backoff(2_000), lock_ms=5_000)
        member = await begun(world, records=5)
        assert ever(world) == {"released": 0, "lock_expired": 0}, "from 0 on: a rate misses a first value"
        await member.acknowledge({0: [AckBatch(0, 1, (ACK_RELEASE,))]}).answer()
        assert ever(world) == {"released": 2, "lock_expired": 0}
        await asyncio.sleep(5.5)
        assert ever(world) == {"released": 2, "lock_expired": 3}
        world.lose()
        assert ever(world) == {"released": 2, "lock_expired": 3}
        await world.lead(0)
        again = world.member("n")
        assert await again.fetch(0, max_wait_ms=10_000).ranges() != []
        assert ever(world) == {"released": 2, "lock_expired": 3}, "what is loaded was counted by its former leader"

    run(scenario)


@pytest.mark.rule("PL-941")
def test_records_that_are_given_back_unseen_beyond_the_bound_are_reported_and_counted() -> None:
    async def scenario(world: World) -> None:
        await world.produce(3)
        member = world.member()
        names = {"group": "g", "topic_id": topic_id_text(TOPIC), "partition": "0"}

        def counted(name: str) -> float | None:
            return world.registry.get_sample_value(f"sharegroups_share_partition_deliveries_{name}_total", names)

        with structlog.testing.capture_logs() as lines:
            for turn in range(IN_A_ROW_MAX + 2):
                assert lines == [] or turn > IN_A_ROW_MAX
                await member.fetch(0, max_wait_ms=100, max_records=3).ranges()
                back = AckBatch(0, 2, (ACK_RELEASE,), (), (True,))
                assert await member.acknowledge({0: [back]}).ack_error() is None
            await asyncio.sleep(11)
        reported = [line for line in lines if line["event"] == "unhandled_releases_counted"]
        assert [(line["log_level"], line["group"], line["topic"], line["partition"]) for line in reported] == [
            ("warning", "g", "t", 0)
        ]
        assert reported[0]["records"] == 3
        assert counted("taken_back") == 3 * IN_A_ROW_MAX + 3, "the delivery that counted begins a new row"
        assert counted("not_taken_back") == 3

    run(scenario)
