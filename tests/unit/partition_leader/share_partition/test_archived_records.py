"""Records archived without being accepted: logged at most once per ten seconds, and none of them left out (PL-810)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog.testing

from partition_leader.share_partition.archived_records import ArchivedRecords
from partition_leader.share_partition.core.archived import DELIVERY_LIMIT, REJECTED
from partition_leader.share_partition.core.effects import AcquiredRange, Archived
from tests.support.virtual_time import run as run_virtual

from .worlds import key


def archived(cause: str, *ranges: tuple[int, int, int]) -> Archived:
    return Archived(cause, tuple(AcquiredRange(*one) for one in ranges))


def reported(lines: list[Any]) -> list[tuple[int, str, str, int, int]]:
    return [
        (line["partition"], line["cause"], line["offsets"], line["records"], line["delivery_count"]) for line in lines
    ]


@pytest.mark.rule("PL-810")
def test_one_line_per_share_partition_and_cause_in_ten_seconds_says_what_was_held_back() -> None:
    async def main() -> None:
        report = ArchivedRecords(lambda _: "t")
        with structlog.testing.capture_logs() as lines:
            report(key(), archived(DELIVERY_LIMIT, (0, 3, 5), (6, 6, 4)))
            report(key(), archived(DELIVERY_LIMIT, (7, 8, 5)))
            report(key(), archived(DELIVERY_LIMIT, (9, 9, 6)))
            report(key(), archived(REJECTED, (20, 20, 1)))
            report(key(1), archived(DELIVERY_LIMIT, (0, 0, 5)))
            await asyncio.sleep(9.9)
            first = [(0, DELIVERY_LIMIT, "0-3,6", 5, 5), (0, REJECTED, "20", 1, 1), (1, DELIVERY_LIMIT, "0", 1, 5)]
            assert reported(lines) == first
            await asyncio.sleep(0.2)
            assert reported(lines)[3:] == [(0, DELIVERY_LIMIT, "9", 3, 6)]
            assert {(line["group"], line["topic"], line["log_level"]) for line in lines} == {("g", "t", "warning")}
        report.close()

    run_virtual(main())


@pytest.mark.parametrize(
    ("ranges", "end"), [(20, ",38"), (21, ",38 and 1 more ranges"), (1_000, " and 980 more ranges")]
)
def test_a_line_names_the_first_ranges_and_says_how_many_more_there_are(ranges: int, end: str) -> None:
    async def main() -> None:
        report = ArchivedRecords(lambda _: "")
        with structlog.testing.capture_logs() as lines:
            report(key(), archived(REJECTED, *((2 * number, 2 * number, 1) for number in range(ranges))))
        (line,) = lines
        assert line["offsets"].startswith("0,2,4,")
        assert line["offsets"].endswith(end)
        assert line["offsets"].partition(" ")[0].count(",") == 19
        report.close()

    run_virtual(main())
