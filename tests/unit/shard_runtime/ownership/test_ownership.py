"""Ownership around its core: how much of the event loop's time it takes, and the order in which it sends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from shard_runtime.config.process_settings import LEASE_MS, RENEW_INTERVAL_MS, load_settings
from shard_runtime.ownership.ownership import OwnershipOptions
from shard_runtime.record_log.cluster_store import NodeRecord
from shard_runtime.record_log.protocol import Renewal, Renewed, ShardId, ShardKind
from tests.integration.runtime.test_ownership_host import FIRST, SHARDS, World
from tests.support.virtual_time import run


@pytest.mark.rule("CM-3", "CM-87", "CM-88")
def test_leases_and_the_bounds_of_a_tick_are_those_of_the_rules() -> None:
    settings, options = load_settings({}), OwnershipOptions()
    assert (settings[LEASE_MS], settings[RENEW_INTERVAL_MS], options.tick_ms) == (3_000, 1_000, 1_000)
    assert (options.claims_max, options.renewals_max, options.checks_max) == (512, 2_000, 2_000)
    assert options.long_tick_ms == 5


@pytest.mark.rule("CM-87")
@pytest.mark.parametrize(("tick_took_ms", "most"), [(50, 21), (5, 1_001)])
def test_a_long_tick_is_followed_by_a_pause_as_long(tick_took_ms: int, most: int) -> None:
    """Ownership is woken every millisecond for a second, and each tick takes `tick_took_ms` on its clock."""

    async def main() -> int:
        world = World()
        ticks = 0

        def nodes() -> list[NodeRecord]:
            nonlocal ticks
            ticks += 1
            world.clock.ms += tick_took_ms
            return []

        world.ownership._nodes = nodes
        world.ownership.start()
        for _ in range(1_000):
            await asyncio.sleep(0.001)
            world.ownership.wake()
        await world.ownership.stop()
        return ticks

    ticks = run(main())
    assert most * 9 // 10 <= ticks <= most


@pytest.mark.rule("CM-86")
@pytest.mark.asyncio
async def test_a_faulty_shard_is_replayed_again_after_all_others_whatever_waits_for_it() -> None:
    world = World(OwnershipOptions(tick_ms=5, loads_max=1))
    world.owners[FIRST].demand = 100
    world.owners[FIRST].failures = [ValueError("entry 7-1 is damaged")]
    world.owners[FIRST].gate.clear()
    world.ownership.start()
    try:
        await world.until(lambda: len(world.ownership.core.queued()) == len(SHARDS) - 1 and world.loading != [])
        if world.loading != [FIRST.name]:  # another one comes first by name; the one in demand is next
            world.owners[ShardId(ShardKind.GROUP, world.loading[0])].gate.set()
        world.owners[FIRST].gate.set()
        await world.settled()
    finally:
        await world.ownership.stop()
    assert world.loaded.count(FIRST.name) == 2
    assert world.loaded.index(FIRST.name) <= 1
    assert world.loaded[-1] == FIRST.name


@pytest.mark.rule("CM-104")
@pytest.mark.asyncio
async def test_a_tail_that_was_made_whole_is_reported_before_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.shards = frozenset({FIRST})
    world.ownership.start()
    await world.settled()
    monkeypatch.setattr(world.script, "tail_checked", lambda shard: "h2")
    before = len(world.script.renewals)
    world.script.events.clear()
    renew = world.script.renew

    async def noted(renewals: Sequence[Renewal]) -> list[Renewed | None]:
        world.script.events.extend(f"whole {one.shard.name}" for one in renewals if one.tail_ok == "h2")
        return await renew(renewals)

    monkeypatch.setattr(world.script, "renew", noted)
    await world.ownership.stop()
    assert len(world.script.renewals) > before
    events = world.script.events
    assert "whole 0" in events[events.index("releasing 0") : events.index("release 0")], events
