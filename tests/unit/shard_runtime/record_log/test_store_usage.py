"""A store node's usage, as parsed from its replies, and which crossings of its limit are news."""

from __future__ import annotations

import pytest

from shard_runtime.record_log.redis.connection import ErrorReply
from shard_runtime.record_log.store_usage import MemoryLevels, StoreUsage, info_fields, usage_of

MEMORY = (
    b"# Memory\r\nused_memory:1000\r\nused_memory_human:1000B\r\nmaxmemory:2000\r\nmem_not_counted_for_evict:100\r\n"
)
DISK = b"# Persistence\r\naof_delayed_fsync:7\r\naof_last_bgrewrite_status:err\r\n"
STATS = "# Stats\r\nlatest_fork_usec:1500\r\n"


@pytest.mark.rule("CM-208")
def test_the_memory_that_counts_towards_the_limit_is_what_the_store_compares_with_it() -> None:
    found = usage_of([MEMORY, DISK, STATS])
    assert found == StoreUsage(900, 2_000, 7, 0.0015, rewrite_failed=True)
    assert (found.left_bytes, found.percent) == (1_100, 45)


@pytest.mark.rule("CM-208")
def test_a_store_without_a_limit_has_nothing_that_is_left() -> None:
    found = usage_of([MEMORY.replace(b"maxmemory:2000", b"maxmemory:0"), b"", b""])
    assert found == StoreUsage(900, 0)
    assert (found.left_bytes, found.percent) == (None, 0)


@pytest.mark.rule("CM-208")
def test_a_node_that_shows_no_memory_has_no_usage() -> None:
    refused = ErrorReply("NOPERM", "no permissions to run the 'info' command")
    assert usage_of([refused, refused, refused]) is None
    assert usage_of([b"# Memory\r\n", DISK, STATS]) is None
    assert info_fields(None) == {}


def at(percent: int) -> dict[str, StoreUsage]:
    return {"a": StoreUsage(percent * 10, 1_000)}


@pytest.mark.rule("CM-211")
def test_each_crossing_is_reported_once_and_again_only_after_the_use_has_clearly_fallen() -> None:
    levels = MemoryLevels()
    seen = [
        (percent, levels.crossed(at(percent))) for percent in (79, 80, 94, 79, 81, 95, 99, 94, 95, 90, 94, 95, 10, 80)
    ]
    assert [percent for percent, news in seen if news] == [80, 95, 95, 80]
    assert all(news in ([], ["a"]) for _, news in seen)


@pytest.mark.rule("CM-211")
def test_levels_are_kept_for_each_node_without_a_limit_there_are_none_and_lost_nodes_are_forgotten() -> None:
    levels = MemoryLevels()
    assert levels.crossed({**at(85), "b": StoreUsage(10**9, 0)}) == ["a"]
    assert levels.crossed({"b": StoreUsage(10**9, 0)}) == []
    assert levels.crossed(at(85)) == ["a"]
