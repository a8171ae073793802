"""Rounds of consumed retention over real topic logs and share-partitions, with changes between a request and its
response."""

from __future__ import annotations

import asyncio

import pytest
import structlog.testing

from kip932.errors import CoordinatorLoadInProgressError
from partition_leader.consumed_retention import ANSWERS_VALID_MS
from partition_leader.share_partition.core.status import Status
from tests.unit.partition_leader.share_partition.persister import Fault, Stored
from tests.unit.partition_leader.share_partition.worlds import GROUP, TOPIC, World, key, part, run

#: Longer than the interval between rounds.
ROUND_S = 5.5


async def filled(world: World, records: int = 20) -> None:
    """Fill partition 0 of a topic that keeps only needed records, and start the rounds."""
    world.facts.keep_only_needed.add(TOPIC)
    await world.produce(records)
    world.leader.start()


def begins(world: World, number: int = 0) -> int:
    return world.log(number).log_start_offset


def counted(world: World, name: str) -> float | None:
    return world.registry.get_sample_value(name)


@pytest.mark.rule("CM-163")
def test_what_every_group_has_finished_goes_and_is_reported() -> None:
    async def scenario(world: World) -> None:
        await filled(world)
        world.starts.groups = {TOPIC: {"fast": {0: 15}, "slow": {0: 4}}}
        with structlog.testing.capture_logs() as lines:
            await asyncio.sleep(ROUND_S)
        assert begins(world) == 4
        assert counted(world, "sharegroups_topic_log_consumed_offsets_total") == 4
        (line,) = [each for each in lines if each["event"] == "consumed_records_deleted"]
        assert (line["topic"], line["partition"], line["log_start"], line["offsets"]) == ("t", 0, 4, 4)
        world.starts.groups = {TOPIC: {"fast": {0: 20}}}
        await asyncio.sleep(ROUND_S)
        assert begins(world) == 20, "the slow group was deleted"
        asked = len(world.starts.asked)
        await asyncio.sleep(3 * ROUND_S)
        assert len(world.starts.asked) == asked, "a log without records sends no request"

    run(scenario)


@pytest.mark.rule("CM-161")
def test_other_topics_are_left_alone_and_no_node_is_asked() -> None:
    async def scenario(world: World) -> None:
        await filled(world)
        world.facts.keep_only_needed.clear()
        world.starts.groups = {TOPIC: {"g": {0: 20}}}
        await asyncio.sleep(ROUND_S)
        assert (begins(world), world.starts.asked) == (0, [])

    run(scenario)


@pytest.mark.rule("CM-163")
def test_a_group_that_keeps_records_without_a_lag_is_named_once_in_ten_minutes() -> None:
    async def scenario(world: World) -> None:
        await filled(world)
        world.starts.groups = {TOPIC: {"g": {0: 20}, "away": {1: 3}}}
        with structlog.testing.capture_logs() as lines:
            await asyncio.sleep(540)
        assert begins(world) == 0
        (line,) = [each for each in lines if each["event"] == "consumed_records_kept"]
        assert line["group"] == "away"
        assert "none for this one" in line["cause"]

    run(scenario)


@pytest.mark.rule("CM-161")
def test_a_round_that_does_not_hear_of_every_group_deletes_nothing_and_says_so() -> None:
    async def scenario(world: World) -> None:
        await filled(world)
        world.starts.groups = {TOPIC: {"g": {0: 20}}}
        world.starts.refusal = CoordinatorLoadInProgressError("shard 3 is being loaded")
        with structlog.testing.capture_logs() as lines:
            await asyncio.sleep(ROUND_S)
        assert begins(world) == 0
        assert counted(world, "sharegroups_topic_log_consumed_unknown_total") == 1
        (line,) = [each for each in lines if each["event"] == "group_progress_unknown"]
        assert "shard 3 is being loaded" in line["cause"]
        world.starts.refusal = None
        await asyncio.sleep(ROUND_S)
        assert begins(world) == 20

    run(scenario)


@pytest.mark.rule("CM-161")
def test_what_was_reported_long_ago_is_not_used() -> None:
    async def scenario(world: World) -> None:
        await filled(world)
        world.starts.groups = {TOPIC: {"g": {0: 20}}}
        world.starts.meanwhile = lambda: asyncio.sleep(ANSWERS_VALID_MS / 1000)
        await asyncio.sleep(ROUND_S + ANSWERS_VALID_MS / 1000)
        assert begins(world) == 0

    run(scenario)


@pytest.mark.rule("CM-161")
def test_who_led_the_partition_again_meanwhile_does_not_use_it() -> None:
    async def scenario(world: World) -> None:
        await filled(world)
        world.starts.groups = {TOPIC: {"g": {0: 20}}}

        async def lost_and_regained() -> None:
            world.starts.meanwhile = None
            world.lose(0)
            await world.lead(0)

        world.starts.meanwhile = lost_and_regained
        await asyncio.sleep(ROUND_S)
        assert world.starts.meanwhile is None
        assert begins(world) == 0
        await asyncio.sleep(ROUND_S)
        assert begins(world) == 20

    run(scenario)


@pytest.mark.rule("CM-160")
def test_who_turned_it_off_meanwhile_keeps_all() -> None:
    async def scenario(world: World) -> None:
        await filled(world)
        world.starts.groups = {TOPIC: {"g": {0: 20}}}

        async def turned_off() -> None:
            world.facts.keep_only_needed.clear()

        world.starts.meanwhile = turned_off
        await asyncio.sleep(ROUND_S)
        assert begins(world) == 0

    run(scenario)


@pytest.mark.rule("CM-160")
def test_a_group_that_began_here_after_the_question_keeps_its_records() -> None:
    """The group is loaded with start offset 0; the response is older and does not include the group."""

    async def scenario(world: World) -> None:
        await filled(world)
        world.starts.groups = {TOPIC: {"other": {0: 20}}}

        async def begun() -> None:
            await world.member().fetch(0, max_records=5).ranges()

        world.starts.meanwhile = begun
        await asyncio.sleep(ROUND_S)
        assert world.host().core.status is Status.ACTIVE
        assert begins(world) == 0

    run(scenario)


@pytest.mark.rule("CM-162")
@pytest.mark.parametrize("start", [5, -1], ids=["reset", "made"])
def test_a_group_that_is_reset_or_made_while_a_round_is_under_way_begins_where_the_round_leaves_the_log(
    start: int,
) -> None:
    async def scenario(world: World) -> None:
        await filled(world)
        world.starts.groups = {TOPIC: {GROUP: {0: 20}} if start >= 0 else {"other": {0: 20}}}

        async def changed() -> None:
            world.persister.stored[key()] = Stored(start, state_epoch=2)

        world.starts.meanwhile = changed
        await asyncio.sleep(ROUND_S)
        assert begins(world) == 20
        world.starts.groups = {TOPIC: {GROUP: {0: start}}}
        world.starts.meanwhile = None
        await world.produce(3)
        assert await world.member().fetch(0).ranges() == [(20, 22, 1)]
        await asyncio.sleep(ROUND_S)
        assert begins(world) == 20

    run(scenario)


@pytest.mark.rule("CM-160")
def test_while_a_groups_state_is_loaded_nothing_goes() -> None:
    async def scenario(world: World) -> None:
        await filled(world)
        world.starts.groups = {TOPIC: {"other": {0: 20}}}
        world.persister.chance = lambda kind: Fault(None, delay_s=8.0) if kind == "read" else None
        world.member().fetch(0, max_wait_ms=100)
        await asyncio.sleep(ROUND_S)
        assert world.host().core.status is Status.INITIALIZING
        assert begins(world) == 0

    run(scenario)


@pytest.mark.rule("CM-161")
def test_partitions_of_many_topics_are_asked_for_a_hundred_topics_at_a_time() -> None:
    async def scenario(world: World) -> None:
        await filled(world)
        log = world.leader.led.led()[part(0)]
        for number in range(1, 150):
            topic_id = number.to_bytes(16, "big")
            world.facts.keep_only_needed.add(topic_id)
            world.leader.led.led()[part(0, topic_id)] = log
        await asyncio.sleep(ROUND_S)
        assert [len(topics) for topics in world.starts.asked] == [100, 49]
        for number in range(1, 150):
            del world.leader.led.led()[part(0, number.to_bytes(16, "big"))]

    run(scenario)
