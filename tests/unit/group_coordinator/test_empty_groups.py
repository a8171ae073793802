"""The role deletes a group that no client uses, with its state, and counts it (GC-46). Time is virtual."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pytest
from structlog.testing import capture_logs

from kip932 import errors
from kip932.ids import TopicIdPartition
from kip932.state_values import StateSummary
from share_persister import PersisterError
from tests.support.group_admin import emptied, groups_of
from tests.support.group_cluster import KAFKA, GroupCluster, play
from tests.support.group_driver import topic_id

RETENTION_S: Final = 3_600
T: Final = topic_id("t")
LINE: Final = "group_expired"


def _world(retention_s: int = RETENTION_S) -> GroupCluster:
    return GroupCluster(replace(KAFKA, empty_retention_ms=1_000 * retention_s))


def _counted(world: GroupCluster) -> float:
    return world.registry.get_sample_value("sharegroups_group_coordinator_expired_groups_total") or 0.0


def _named(said: Sequence[object]) -> list[tuple[object, object]]:
    return [(line["group"], line["setting"]) for line in said if isinstance(line, dict) and line["event"] == LINE]


@pytest.mark.rule("GC-46", "GC-41", "GC-45")
def test_a_group_and_its_state_go_after_the_time_with_a_line_and_a_count() -> None:
    async def body(world: GroupCluster) -> None:
        await emptied(world, "t")
        await asyncio.sleep(RETENTION_S - 60)
        assert set(groups_of(world)) == {"grp"}
        with capture_logs() as said:
            await asyncio.sleep(120)
        assert groups_of(world) == {}
        assert world.persister.states == {}
        assert _named(said) == [("grp", "sharegroups.group.empty.retention.ms")]
        assert _counted(world) == 1

    play(body, _world())


@pytest.mark.rule("GC-42")
def test_without_the_setting_nothing_goes() -> None:
    async def body(world: GroupCluster) -> None:
        await emptied(world, "t")
        await asyncio.sleep(20 * RETENTION_S)
        assert set(groups_of(world)) == {"grp"}
        assert _counted(world) == 0

    play(body, _world(0))


@pytest.mark.rule("GC-46")
def test_the_time_goes_on_with_the_next_owner() -> None:
    async def body(world: GroupCluster) -> None:
        await emptied(world, "t")
        await asyncio.sleep(RETENTION_S / 2)
        await world.restart()
        await asyncio.sleep(RETENTION_S / 2 - 60)
        assert set(groups_of(world)) == {"grp"}
        await asyncio.sleep(720)
        assert groups_of(world) == {}

    play(body, _world())


@pytest.mark.rule("GC-46", "OP-6")
def test_while_the_share_coordinator_is_away_the_group_stays_and_a_join_takes_it_back() -> None:
    async def body(world: GroupCluster) -> None:
        await emptied(world, "t")
        away = PersisterError(errors.CoordinatorNotAvailableError(), outcome_unknown=True)
        world.persister.refuse = {TopicIdPartition(T, index): away for index in (0, 1)}
        await asyncio.sleep(RETENTION_S + 300)
        assert groups_of(world)["grp"].states.dropping
        world.persister.refuse = {}
        assert (await world.heartbeat("b", 0, ["t"])).error_code == 0
        await asyncio.sleep(35)
        assert not groups_of(world)["grp"].states.dropping
        assert set(groups_of(world)["grp"].members) == {"b"}
        assert _counted(world) == 1, "its deletion began once"

    play(body, _world())


@pytest.mark.rule("GC-46", "OP-6")
def test_a_deletion_that_failed_at_first_is_ended_by_the_sweep() -> None:
    async def body(world: GroupCluster) -> None:
        await emptied(world, "t")
        away = PersisterError(errors.CoordinatorNotAvailableError(), outcome_unknown=True)
        world.persister.refuse = {TopicIdPartition(T, 1): away}
        await asyncio.sleep(RETENTION_S + 300)
        assert set(groups_of(world)) == {"grp"}
        world.persister.refuse = {}
        await asyncio.sleep(35)
        assert groups_of(world) == {}
        assert world.persister.states == {}

    play(body, _world())


@pytest.mark.rule("GC-46")
def test_a_group_in_which_records_are_finished_without_a_member_stays() -> None:
    async def body(world: GroupCluster) -> None:
        await emptied(world, "t")
        key = "grp", TopicIdPartition(T, 0)
        for done in range(1, 2 * RETENTION_S // 1_200):
            await asyncio.sleep(1_200)
            world.persister.states[key] = StateSummary(2, 0, done, 0)
        assert set(groups_of(world)) == {"grp"}
        await asyncio.sleep(RETENTION_S + 1_200)
        assert groups_of(world) == {}

    play(body, _world())


@pytest.mark.rule("GC-46")
def test_progress_is_not_judged_by_summaries_of_which_one_is_missing() -> None:
    async def body(world: GroupCluster) -> None:
        await emptied(world, "t")
        await asyncio.sleep(700)
        before = groups_of(world)["grp"].used_ms
        lost = PersisterError(errors.CoordinatorNotAvailableError(), outcome_unknown=True)
        world.persister.refuse = {TopicIdPartition(T, 1): lost}
        await asyncio.sleep(700)
        world.persister.refuse = {}
        await asyncio.sleep(700)
        assert groups_of(world)["grp"].used_ms == before

    play(body, _world())


@pytest.mark.rule("GC-46")
def test_while_the_store_is_away_no_time_passes() -> None:
    async def body(world: GroupCluster) -> None:
        await emptied(world, "t")
        log = world.log_of("grp")
        log.up = False
        await asyncio.sleep(3 * RETENTION_S)
        log.up = True
        await asyncio.sleep(RETENTION_S - 120)
        assert set(groups_of(world)) == {"grp"}
        await asyncio.sleep(180)
        assert groups_of(world) == {}

    play(body, _world())
