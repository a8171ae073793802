"""The warning before a store node's memory limit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from partition_leader.store_memory import TOPICS_MAX, StoreMemoryWarnings, records_refused
from shard_runtime.record_log.store_usage import StoreUsage

pytestmark = pytest.mark.asyncio


class Topics:
    def __init__(self, answer: list[tuple[str, int]] | Exception | None) -> None:
        self.answer = answer

    async def largest(self, node: str, count: int) -> list[tuple[str, int]]:
        assert (node, count) == ("s:1", TOPICS_MAX)
        if self.answer is None:
            await asyncio.Event().wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer or []


async def warned(answer: list[tuple[str, int]] | Exception) -> list[Any]:
    topics: Any = Topics(answer)
    warnings = StoreMemoryWarnings(topics)
    with capture_logs() as lines:
        warnings.crossed("s:1", StoreUsage(850 << 20, 1_000 << 20))
        await asyncio.gather(*warnings._tasks)
        await warnings.close()
    return lines


@pytest.mark.rule("CM-211")
async def test_a_warning_names_the_node_what_is_left_what_fills_it_and_what_helps() -> None:
    (line,) = await warned([("orders", 700 << 20), ("audit", 3 << 20)])
    assert (line["event"], line["log_level"], line["node"]) == ("store_memory_nearly_full", "warning", "s:1")
    assert (line["used"], line["limit"], line["percent"], line["left"]) == ("850 MiB", "1000 MiB", 85, "150 MiB")
    assert line["largest_topics_led_here"] == ["orders: 700 MiB", "audit: 3.0 MiB"]
    for help_ in ("topics delete-records", "retention.ms", "--store-memory", "CONFIG SET maxmemory"):
        assert help_ in line["try_next"]


@pytest.mark.rule("CM-211")
async def test_the_warning_comes_even_if_the_topics_cannot_be_measured() -> None:
    failed, line = await warned(RuntimeError("a defect"))
    assert (failed["event"], failed["log_level"]) == ("largest_topics_unknown", "error")
    assert (line["event"], line["largest_topics_led_here"]) == ("store_memory_nearly_full", [])


@pytest.mark.rule("CM-211")
async def test_a_process_that_ends_waits_for_no_measurement_and_warns_of_nothing() -> None:
    topics: Any = Topics(None)
    warnings = StoreMemoryWarnings(topics)
    with capture_logs() as lines:
        warnings.crossed("s:1", StoreUsage(85, 100))
        await asyncio.sleep(0)
        await warnings.close()
    assert lines == []


@pytest.mark.rule("CM-214")
async def test_that_records_are_refused_is_a_warning_with_what_helps_and_its_end_is_logged() -> None:
    with capture_logs() as lines:
        records_refused("s:1", StoreUsage(955 << 20, 1_000 << 20), True)
        records_refused("s:1", StoreUsage(920 << 20, 1_000 << 20), False)
    full, again = lines
    assert (full["event"], full["log_level"], full["node"]) == ("records_refused_store_full", "warning", "s:1")
    assert (full["used"], full["limit"], full["percent"]) == ("955 MiB", "1000 MiB", 95)
    assert full["setting"] == "store.produce.memory.percent"
    for help_ in ("topics delete-records", "retention.ms", "--store-memory", "CONFIG SET maxmemory"):
        assert help_ in full["try_next"]
    assert (again["event"], again["log_level"], again["used"]) == ("records_taken_again", "info", "920 MiB")
