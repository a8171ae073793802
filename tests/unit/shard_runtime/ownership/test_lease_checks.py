"""Checks of the leases: a store node that goes away and comes back, and shards that are lost."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import cast

import pytest

from shard_runtime.ownership.lease import Lease
from shard_runtime.ownership.ownership import LeaseChecks, OwnershipOptions
from shard_runtime.record_log.protocol import LogError, RecordLog, ShardId, ShardKind
from tests.support.clocks import START_MS, HandClock
from tests.support.virtual_time import virtual

ONE, TWO = ShardId(ShardKind.GROUP, "1"), ShardId(ShardKind.GROUP, "2")


@dataclass
class Log:
    """The part of a record log that lease checks use; its replies are set by a test."""

    away: set[ShardId] = field(default_factory=set)
    failed: dict[ShardId, LogError] = field(default_factory=dict)

    def lost(self, shard: ShardId) -> LogError | None:
        return self.failed.get(shard)

    def history_of(self, shard: ShardId) -> str:
        return f"node of {shard.tag}"

    def available_for(self, shard: ShardId) -> bool:
        return shard not in self.away


def lease_checks(
    log: Log, clock: HandClock | None = None, options: OwnershipOptions | None = None
) -> tuple[LeaseChecks, dict[ShardId, Lease], list[ShardId]]:
    """The lease checks, the leases that they check, and the shards that they reported as lost."""
    clock = clock or HandClock()
    leases = {
        shard: Lease(shard, 1, 1, deadline_ms=START_MS + 9, clock=clock, give_up=lambda *_: None)
        for shard in (ONE, TWO)
    }
    lost: list[ShardId] = []
    options = options or OwnershipOptions()
    checks = LeaseChecks(cast("RecordLog", log), clock, leases, lambda shard, _: lost.append(shard), options)
    return checks, leases, lost


def test_an_interruption_counts_when_it_begins_and_when_it_ends_and_not_at_each_check() -> None:
    log = Log()
    checks, leases, _ = lease_checks(log)
    all_away: list[set[ShardId]] = [set(), {ONE}, {ONE}, {ONE}, set(), set(), {ONE, TWO}]
    counts = []
    for away in all_away:
        log.away = away
        assert checks.tick() is None
        counts.append((leases[ONE].pauses, leases[TWO].pauses))
    assert counts == [(0, 0), (1, 0), (1, 0), (1, 0), (2, 0), (2, 0), (3, 1)]


def test_a_lease_that_ended_while_its_store_was_away_begins_again() -> None:
    log = Log(away={ONE})
    checks, leases, _ = lease_checks(log)
    checks.tick()
    checks.ended(ONE)
    log.away = set()
    checks.tick()
    assert leases[ONE].pauses == 1


def test_a_lost_shard_is_reported_and_counts_no_interruption() -> None:
    log = Log(away={ONE}, failed={ONE: LogError("gone")})
    checks, leases, lost = lease_checks(log)
    checks.tick()
    assert (lost, leases[ONE].pauses) == ([ONE], 0)


@pytest.mark.rule("CM-88")
@virtual
async def test_very_many_leases_are_checked_once_in_nine_tenths_of_a_tick_one_slice_after_the_other() -> None:
    """Each reply to a claim requests another tick. Without this bound, a process that is claiming shards would do
    nothing but check leases."""
    clock = HandClock()
    log = Log(failed={ONE: LogError("gone"), TWO: LogError("gone")})
    checks, _, lost = lease_checks(log, clock, OwnershipOptions(tick_ms=1_000, checks_max=1))
    first = checks.tick()
    assert first is not None
    running = asyncio.ensure_future(first)
    await asyncio.sleep(0)
    assert lost == [ONE], "other tasks run between the slices"
    clock.ms += 5_000
    assert checks.tick() is None, "the check before has not ended"
    await running
    assert lost == [ONE, TWO]
    second = checks.tick()
    assert second is not None
    await second
    clock.ms += 899
    assert checks.tick() is None
    clock.ms += 1
    third = checks.tick()
    assert third is not None
    await third
    assert lost == [ONE, TWO] * 3


def test_as_many_leases_as_one_slice_holds_are_checked_at_each_tick() -> None:
    log = Log(failed={ONE: LogError("gone")})
    checks, _, lost = lease_checks(log, options=OwnershipOptions(checks_max=2))
    assert checks.tick() is None
    assert checks.tick() is None
    assert lost == [ONE, ONE]
