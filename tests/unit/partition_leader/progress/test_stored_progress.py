"""Share-partitions that are not loaded: what the share coordinators have stored, and what is unknown."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Final

import pytest
import structlog.testing

from kip932.errors import CoordinatorLoadInProgressError, InvalidRequestError
from kip932.state_values import StoredStart
from partition_leader.progress.stored_progress import VALID_MS
from tests.unit.partition_leader.share_partition.worlds import GROUP, TOPIC, World, key, part, run

STOPPED: Final = "stopped"
OF: Final = (STOPPED, TOPIC)


async def round_of(world: World, interval_ms: int = 1_000) -> None:
    """Run a round, as the leader does at each interval."""
    world.leader.progress._interval_ms = interval_ms
    await world.leader.progress_round()


def lags(world: World) -> dict[tuple[str, int], int | None]:
    parts = world.leader.progress.latest.parts
    return {(of.group_id, of.partition): one.lag for of, one in parts.items()}


def sample(world: World, name: str, group: str = STOPPED) -> float | None:
    return world.registry.get_sample_value(f"sharegroups_share_group_{name}", {"group": group, "topic": "t"})


@pytest.mark.rule("PL-954", "PL-956")
def test_a_stopped_group_has_its_stored_lag_and_its_age() -> None:
    async def scenario(world: World) -> None:
        for number in range(2):
            await world.produce(10, number)
        await asyncio.sleep(20)
        world.starts.groups = {TOPIC: {STOPPED: {0: StoredStart(2, 3), 1: StoredStart(10, 0)}}}
        await round_of(world)
        assert lags(world) == {(STOPPED, 0): 5, (STOPPED, 1): 0}
        assert sample(world, "lag") == 5
        assert 20 <= (sample(world, "oldest_unfinished_seconds") or 0) < 22
        assert sample(world, "records_in_flight") == 0
        await world.produce(4, 1)
        await round_of(world)
        assert sample(world, "lag") == 9, "the log grows, though nothing is loaded"

    run(scenario)


@pytest.mark.rule("PL-954")
def test_what_no_coordinator_knows_is_unknown_and_so_is_the_sum() -> None:
    async def scenario(world: World) -> None:
        await world.produce(10)
        world.starts.groups = {
            TOPIC: {STOPPED: {0: StoredStart(2, 0), 1: StoredStart(-1, -1)}, "older": {0: StoredStart(2, -1)}}
        }
        await round_of(world)
        assert lags(world) == {(STOPPED, 0): 8, (STOPPED, 1): None, ("older", 0): None}
        assert sample(world, "lag") is None
        assert sample(world, "records_in_flight") == 0

    run(scenario)


@pytest.mark.rule("PL-954")
def test_without_an_answer_what_was_read_gets_too_old_and_never_0() -> None:
    async def scenario(world: World) -> None:
        await world.produce(10)
        world.starts.groups = {TOPIC: {STOPPED: {0: StoredStart(2, 0)}}}
        await round_of(world)
        world.starts.refusal = CoordinatorLoadInProgressError("shard 3 is being loaded")
        with structlog.testing.capture_logs() as lines:
            await asyncio.sleep(VALID_MS / 1000 - 1)
            await round_of(world)
            assert sample(world, "lag") == 8
            assert [each for each in lines if each["event"] == "stored_progress_unknown"] == []
            assert world.registry.get_sample_value("sharegroups_stored_progress_unknown_total") == 1
            await asyncio.sleep(2)
            await round_of(world)
        (line,) = [each for each in lines if each["event"] == "stored_progress_unknown"]
        assert "shard 3 is being loaded" in line["cause"]
        assert sample(world, "lag") is None
        assert lags(world) == {(STOPPED, 0): None}
        world.starts.refusal = None
        await round_of(world)
        assert sample(world, "lag") == 8

    run(scenario)


@pytest.mark.rule("PL-954")
def test_what_was_read_ages_from_when_it_was_asked_for_however_late_the_answer_came() -> None:
    async def scenario(world: World) -> None:
        await world.produce(10)
        world.starts.groups = {TOPIC: {STOPPED: {0: StoredStart(2, 0)}}}
        world.starts.meanwhile = lambda: asyncio.sleep(10)
        await round_of(world)
        world.starts.refusal = CoordinatorLoadInProgressError("no")
        await asyncio.sleep(VALID_MS / 1000 - 5)
        with structlog.testing.capture_logs() as lines:
            await round_of(world)
        assert sample(world, "lag") is None
        assert [each["event"] for each in lines] == ["stored_progress_unknown"], "not absent without a word"

    run(scenario)


@pytest.mark.rule("PL-954")
def test_with_a_longer_interval_what_was_read_stays_valid_for_three_of_them() -> None:
    async def scenario(world: World) -> None:
        await world.produce(10)
        world.starts.groups = {TOPIC: {STOPPED: {0: StoredStart(2, 0)}}}
        await round_of(world, 60_000)
        world.starts.refusal = CoordinatorLoadInProgressError("no")
        await asyncio.sleep(179)
        await round_of(world, 60_000)
        assert sample(world, "lag") == 8
        await asyncio.sleep(3)
        await round_of(world, 60_000)
        assert sample(world, "lag") is None

    run(scenario)


@pytest.mark.rule("PL-954")
@pytest.mark.parametrize("gone", ["group", "topic", "partition"])
def test_what_is_deleted_loses_its_series_and_its_counts(gone: str) -> None:
    async def scenario(world: World) -> None:
        await world.produce(10)
        world.starts.groups = {TOPIC: {STOPPED: {0: StoredStart(2, 0)}}}
        await round_of(world)
        assert sample(world, "lag") == 8
        if gone == "group":
            world.starts.groups = {TOPIC: {}}
        elif gone == "partition":
            world.starts.groups = {TOPIC: {STOPPED: {1: StoredStart(0, 0)}}}
        else:
            world.facts.topics.clear()
            world.facts.names.clear()
            world.leader.topics_changed(frozenset({TOPIC}))
        await round_of(world)
        assert lags(world) == ({(STOPPED, 1): 0} if gone == "partition" else {})
        assert sample(world, "lag") == (0 if gone == "partition" else None)
        assert key(0, STOPPED) not in world.leader._tracked.by_key

    run(scenario)


@pytest.mark.rule("PL-954")
def test_only_the_leader_of_a_partition_shows_its_groups() -> None:
    async def scenario(world: World) -> None:
        for number in range(2):
            await world.produce(10, number)
        world.starts.groups = {TOPIC: {STOPPED: {0: StoredStart(2, 0), 1: StoredStart(3, 0), 77: StoredStart(0, 0)}}}
        await round_of(world)
        assert lags(world) == {(STOPPED, 0): 8, (STOPPED, 1): 7}
        world.lose(1)
        await round_of(world)
        assert lags(world) == {(STOPPED, 0): 8}
        assert sample(world, "lag") == 8

    run(scenario)


@pytest.mark.rule("PL-954", "PL-952")
def test_a_group_that_stops_keeps_its_lag_and_its_counts_without_a_gap() -> None:
    async def scenario(world: World) -> None:
        await world.produce(10)
        world.starts.groups = {TOPIC: {GROUP: {0: StoredStart(0, 0)}}}
        await round_of(world)
        member = world.member(connection=1)
        assert await member.fetch(0, max_wait_ms=100, max_records=4).ranges() == [(0, 9, 1)]
        assert await member.accept(0, 3).ack_error() is None
        assert await member.accept(6, 6).ack_error() is None
        await round_of(world)
        assert lags(world) == {(GROUP, 0): 5}
        asked = asyncio.Event()

        async def stops() -> None:
            world.leader.requests.connection_lost(1)
            await asyncio.sleep(1)
            asked.set()

        world.starts.meanwhile = stops  # the response was read before the group stopped
        await round_of(world)
        assert asked.is_set()
        assert world.host() is None
        assert lags(world) == {(GROUP, 0): 5}
        assert sample(world, "records_finished_total", GROUP) == 5
        assert sample(world, "lag", GROUP) == 5

    run(scenario)


@pytest.mark.rule("PL-954")
def test_topics_with_too_many_share_partitions_are_asked_about_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        await world.produce(10)
        asked: list[int] = []
        ask = world.starts.ask

        async def limited(topic_ids: Collection[bytes]) -> Any:
            asked.append(len(topic_ids))
            if len(topic_ids) > 2:
                raise InvalidRequestError("4001 share-partitions of one shard have state for the topics")
            return await ask(topic_ids)

        monkeypatch.setattr(world.starts, "ask", limited)
        led = world.leader.led.led()
        for number in range(4):
            led[part(0, bytes([number]) * 16)] = led[part(0)]
        world.starts.groups = {TOPIC: {STOPPED: {0: StoredStart(2, 0)}}}
        try:
            await world.leader._stored.ask()
        finally:
            for number in range(4):
                del led[part(0, bytes([number]) * 16)]
        assert asked == [5, 2, 3, 1, 2]
        assert world.leader._tracked.by_key[key(0, STOPPED)].stored is not None

    run(scenario)


@pytest.mark.rule("PL-954")
def test_a_topic_that_has_too_many_by_itself_stays_unknown_and_share_groups_may_be_off() -> None:
    async def scenario(world: World) -> None:
        await world.produce(10)
        world.starts.refusal = InvalidRequestError("too many")
        await round_of(world)
        assert lags(world) == {}
        assert len(world.starts.asked) == 1
        assert world.registry.get_sample_value("sharegroups_stored_progress_unknown_total") == 1

    run(scenario)

    async def switched_off(world: World) -> None:
        await round_of(world)
        assert world.starts.asked == []

    run(switched_off, enabled=lambda: False)
