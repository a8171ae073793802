"""Delayed records in a leader process: the maximum delay is announced and enforced; delays are stored with wall-clock
times, found by a successor, and awaited by a parked fetch (PL-930 … PL-936)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from kip932.ids import ACK_ACCEPT, ACK_RELEASE
from kip932.state_batches import StateBatch
from partition_leader.explain.core.explain import explain_loaded
from partition_leader.explain.core.explanation import KnownBatch, LogView, Question
from partition_leader.explain.record_explainer import Asked, RecordExplainer
from partition_leader.share_partition.core.events import AckBatch
from partition_leader.share_partition.delay_clock import on_the_leader, on_the_wall
from shard_runtime.config.group_config import Backoff
from tests.support.clocks import HandClock
from tests.support.virtual_time import now_s

from .test_long_poll import started
from .worlds import Member, World, code, key, run

DAY_MS = 86_400_000


async def begun(world: World, records: int) -> Member:
    """A member that has acquired `records` records."""
    member, _ = await started(world, records=records)
    assert isinstance(member, Member)
    return member


def release(first: int, last: int, *delays: int) -> AckBatch:
    return AckBatch(first, last, (ACK_RELEASE,), delays)


@pytest.mark.rule("PL-930", "PL-931")
def test_a_delay_above_the_groups_maximum_is_refused_and_changes_nothing() -> None:
    async def scenario(world: World) -> None:
        world.configure(delay_max_ms=2_000)
        member = await begun(world, records=4)
        opened = await member.fetch(0, max_wait_ms=0).answer()
        assert opened.delay_max_ms == 2_000
        both = [release(0, 0, 2_000), release(1, 1, 2_001)]
        assert code(await member.acknowledge({0: both}).ack_error()) == "INVALID_REQUEST"
        assert not [write for write in world.persister.writes if write.batches], "nothing is half done"
        assert await member.acknowledge({0: [release(0, 0, 2_000)]}).ack_error() is None

    run(scenario)


@pytest.mark.rule("PL-932", "PL-214")
def test_a_parked_fetch_gets_the_record_when_its_delay_ends() -> None:
    async def scenario(world: World) -> None:
        member = await begun(world, records=2)
        other = world.member("n")
        parked = other.fetch(0, max_wait_ms=10_000)
        begun_s = now_s()
        assert await member.acknowledge({0: [release(0, 0, 3_000), AckBatch(1, 1, (ACK_ACCEPT,))]}).ack_error() is None
        assert await parked.ranges() == [(0, 0, 2)]
        assert 2.99 < parked.at_s - begun_s < 3.1

    run(scenario)


@pytest.mark.rule("PL-934")
def test_a_successor_keeps_what_is_left_of_the_delay_and_no_more_than_the_maximum() -> None:
    async def scenario(world: World) -> None:
        member = await begun(world, records=4)
        await member.acknowledge({0: [release(0, 1, 30_000), release(2, 2, DAY_MS)]}).answer()
        ends_ms = world.clock.wall_ms() + 30_000
        (until_ms, *_) = world.persister.stored[key()].until_ms.values()
        assert abs(until_ms - ends_ms) < 100, "stored by the wall clock"
        world.lose()
        world.configure(delay_max_ms=60_000)
        await world.lead(0)
        second = world.member("n")
        begun_s = now_s()
        assert await second.fetch(0, max_wait_ms=1_000).ranges() == [(3, 3, 1)]
        assert await second.accept(3, 3).ack_error() is None
        first = second.fetch(max_wait_ms=100_000)
        assert await first.ranges() == [(0, 1, 2)]
        assert await second.accept(0, 1).ack_error() is None
        assert 29.0 < first.at_s - begun_s < 30.1
        last = second.fetch(max_wait_ms=100_000)
        assert await last.ranges() == [(2, 2, 2)]
        assert 59.0 < last.at_s - begun_s < 60.2, "whatever was stored"

    run(scenario)


@pytest.mark.rule("PL-936", "PL-1003")
def test_a_groups_back_off_holds_from_the_next_decision_on() -> None:
    async def scenario(world: World) -> None:
        member = await begun(world, records=2)
        world.configure(backoff=Backoff(2_000, jitter=0.5))
        begun_s = now_s()
        await member.acknowledge({0: [release(0, 1)]}).answer()
        again = member.fetch(max_wait_ms=30_000)
        assert await again.ranges() == [(0, 1, 2)]
        assert 1.0 <= again.at_s - begun_s < 2.0, "chance comes from the process"
        world.configure(backoff=Backoff())
        await member.acknowledge({0: [release(0, 1)]}).answer()
        assert await member.fetch(max_wait_ms=0).ranges() == [(0, 1, 3)]

    run(scenario)


@pytest.mark.rule("PL-934")
def test_instants_go_to_the_wall_clock_and_back_and_none_is_kept_for_too_long() -> None:
    clock = HandClock()
    own = (StateBatch(0, 1, 0, 1, clock.now_ms() + 5_000), StateBatch(2, 3, 0, 1), StateBatch(4, 4, 2, 1))
    stored = on_the_wall(own, clock)
    assert stored == (StateBatch(0, 1, 0, 1, clock.wall_ms() + 5_000), *own[1:])
    assert on_the_leader(stored, clock, DAY_MS) == own
    (cut, *rest) = on_the_leader(stored, clock, 1_000)
    assert (cut.not_before_ms, rest) == (clock.now_ms() + 1_000, list(own[1:]))
    clock.ms += 60_000
    assert on_the_leader(stored, clock, DAY_MS)[0].not_before_ms == clock.now_ms(), "it is over"


@pytest.mark.rule("PL-938")
def test_a_delayed_record_is_explained_loaded_or_not() -> None:
    async def scenario(world: World) -> None:
        member = await begun(world, 4)
        await member.acknowledge({0: [release(0, 1, 30_000)]}).answer()
        explainer = RecordExplainer(
            world.leader.led,
            world.leader.share_partitions,
            world.leader.requests.sessions,
            world.persister,
            clock=world.clock,
            enabled=lambda: True,
            letters=world.leader.letters,
            watched=lambda _: {},
        )
        for loaded in (True, False):
            (fate, words), *_ = (await explainer.explain(Asked(key(), 0, 3))).explanation.records
            assert (fate.first, fate.last, fate.state, fate.obstacle) == (0, 1, "available", "delayed")
            assert fate.delay_ms is not None
            assert 29_000 < fate.delay_ms <= 30_000
            assert words.startswith("Waits until its delay ends (")
            assert words.endswith(" s left), after 1 of 5 deliveries.")
            if loaded:
                world.lose()
                await world.lead(0)

    run(scenario)


@pytest.mark.rule("PL-938", "PL-935")
def test_explanations_say_what_delayed_records_hold_up() -> None:
    async def scenario(world: World) -> None:
        world.configure(delayed_max=2)
        member = await begun(world, 4)
        await member.acknowledge({0: [release(0, 1, 30_000), AckBatch(2, 3, (ACK_ACCEPT,))]}).answer()
        await world.produce(1)
        assert await member.fetch(max_wait_ms=100).ranges() == []
        question = Question(
            "g", 4, 4, LogView(0, 5, 5, [KnownBatch(4, 4, 0)]), world.host().config, world.clock.now_ms(), 1
        )
        explanation = explain_loaded(world.host().core, question)
        assert explanation is not None
        ((fate, words),) = explanation.records
        assert fate.obstacle == "window_full"
        assert words == (
            "No new records are delivered while so many wait for the end of a delay (2; "
            "sharegroups.retry.delayed.max is 2)."
        )
        question = question._replace(settings=replace(question.settings, delayed_max=9, max_record_locks=0))
        explanation = explain_loaded(world.host().core, question)
        assert explanation is not None
        ((_, words),) = explanation.records
        assert "offset 0 waits until its delay ends, in " in words

    run(scenario)


async def delayed(world: World) -> tuple[float | None, float | None]:
    """Return the metrics after a round: the delayed records, and the share-partitions at the bound."""
    await world.leader.progress_round()
    sample = world.registry.get_sample_value
    records = sample("sharegroups_share_group_records_delayed", {"group": "g", "topic": "t"})
    return records, sample("sharegroups_share_group_delayed_full", {"group": "g"})


@pytest.mark.rule("PL-938", "PL-935")
def test_delayed_records_and_share_partitions_at_the_bound_are_in_the_metrics() -> None:
    async def scenario(world: World) -> None:
        world.configure(delayed_max=2)
        member = await begun(world, 4)
        assert await delayed(world) == (0, 0)
        await member.acknowledge({0: [release(0, 1, 30_000)]}).answer()
        assert await delayed(world) == (2, 1)
        await asyncio.sleep(31)
        assert await delayed(world) == (0, 0)

    run(scenario)
