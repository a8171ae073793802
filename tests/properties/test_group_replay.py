"""Replaying the group log restores the live state, also after compaction; undo restores exactly (GC-2, GC-61)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from group_coordinator.codec import GroupLogCodec
from group_coordinator.core import commands as c
from group_coordinator.core.records import Record, Tombstone
from group_coordinator.core.shard import GroupShard
from kip932.errors import KafkaError
from kip932.ids import TopicIdPartition
from tests.support.group_driver import Driver, bare, topic_id

MEMBERS = st.sampled_from(["A", "B", "C"])
TOPICS = st.sampled_from(["t", "u"])
Step = Callable[[Driver], None]


def _beat(member_id: str, epoch: int, topics: list[str] | None) -> Step:
    def step(driver: Driver) -> None:
        group = driver.shard.groups.get("g")
        member = group.members.get(member_id) if group else None
        driver.beat(member_id, member.epoch if epoch > 0 and member else epoch, topics)

    return step


def _finish(share: float) -> Step:
    def step(driver: Driver) -> None:
        for order in driver.take_effects():
            if isinstance(order, c.InitializeState):
                keys = [key for key, _ in order.partitions]
                cut = int(len(keys) * share)
                done, refused, fenced = keys[:cut], keys[cut : cut + 1], keys[cut + 1 : cut + 2]
                outcome = c.InitializationFinished(
                    "g", order.attempt, tuple(done), tuple(refused), tuple(fenced), 5, call_id=order.call_id
                )
                driver.run(outcome)

    return step


def _repair(driver: Driver) -> None:
    if group := driver.shard.groups.get("g"):
        order = next((found for found in driver.effects if isinstance(found, c.InitializeState)), None)
        if order is not None:
            driver.run(c.Repair("g", group.epoch, tuple(key for key, _ in order.partitions)))


def _finish_deletions(failing: bool) -> Step:
    def step(driver: Driver) -> None:
        for order in driver.take_effects():
            if isinstance(order, c.DeleteState) and order.attempt:
                failed = frozenset(key.topic_id for key in order.partitions[:1]) if failing else frozenset[bytes]()
                driver.run(c.DeletionFinished("g", order.attempt, failed))

    return step


def _alter(name: str, index: int) -> Step:
    def step(driver: Driver) -> None:
        driver.run(c.AlterOffsets("g", {TopicIdPartition(topic_id(name), index): 5}, 1))

    return step


STEPS = st.one_of(
    st.just(lambda driver: driver.run(c.DeleteGroup("g", driver.now_ms, 1)) and None),
    st.builds(lambda name: lambda driver: driver.run(c.DeleteOffsets("g", (name,), 1)) and None, TOPICS),
    st.builds(_alter, TOPICS, st.integers(0, 2)),
    st.builds(_finish_deletions, st.booleans()),
    st.just(lambda driver: driver.run(c.ResumeDeletions(driver.now_ms)) and None),
    st.just(lambda driver: driver.reload()),
    st.builds(_beat, MEMBERS, st.just(0), st.lists(TOPICS, min_size=1)),
    st.builds(_beat, MEMBERS, st.just(1), st.none() | st.lists(TOPICS)),
    st.builds(_beat, MEMBERS, st.just(-1), st.none()),
    st.builds(_finish, st.floats(0, 1)),
    st.builds(lambda ms: lambda driver: driver.advance(ms), st.integers(0, 50_000)),
    st.builds(lambda name, count: lambda driver: driver.create(name, count) and None, TOPICS, st.integers(1, 4)),
    st.builds(lambda name: lambda driver: driver.delete(name), TOPICS),
    st.just(lambda driver: driver.run(c.Sweep(driver.now_ms)) and None),
    st.just(_repair),
)
STORIES = st.lists(STEPS, max_size=25)


def _played(story: list[Step]) -> Driver:
    driver = Driver()
    driver.create("t", 2)
    for step in story:
        with suppress(KafkaError):
            step(driver)
    return driver


def _replayed(driver: Driver, log: list[Record]) -> GroupShard:
    codec, shard = GroupLogCodec(), driver.new_shard()
    for record in log:
        found = codec.decode(*codec.encode(record, 1))
        assert found is not None
        shard.replay(found)
    return shard


@pytest.mark.rule("GC-2", "GC-61", "GC-64")
@settings(max_examples=60)
@given(STORIES)
def test_replay_of_all_records_is_the_live_state(story: list[Step]) -> None:
    driver = _played(story)
    replayed = _replayed(driver, driver.log)
    assert replayed.groups == bare(dict(driver.shard.groups))
    assert _deleted(replayed) == _deleted(driver.shard)


@pytest.mark.rule("GC-61", "GC-64", "CM-18")
@settings(max_examples=60)
@given(STORIES, st.data())
def test_replay_needs_nothing_below_the_oldest_live_key_once_cold_copies_are_made(
    story: list[Step], data: st.DataObject
) -> None:
    driver = _played(story)
    newest = _newest(driver.shard, driver.log)
    cold = [key for key, _ in sorted(newest.items(), key=lambda item: item[1])]
    cold = cold[: data.draw(st.integers(0, len(cold)))]
    for copies in driver.shard.rewrite(cold, 1):
        for record in copies:
            driver.shard.replay(record)
        driver.log.extend(copies)
    kept = _newest(driver.shard, driver.log)
    trimmed = driver.log[min(kept.values(), default=len(driver.log)) :]
    replayed = _replayed(driver, trimmed)
    assert replayed.groups == bare(dict(driver.shard.groups))
    assert _deleted(replayed) == _deleted(driver.shard)


@pytest.mark.rule("GC-61")
@settings(max_examples=60)
@given(STORIES)
def test_replay_of_only_the_newest_records_is_the_live_state(story: list[Step]) -> None:
    driver = _played(story)
    newest = set(_newest(driver.shard, driver.log).values())
    survivors = [record for position, record in enumerate(driver.log) if position in newest]
    assert _replayed(driver, survivors).groups == bare(dict(driver.shard.groups))


@pytest.mark.rule("GC-2", "CM-13")
@settings(max_examples=60)
@given(STORIES)
def test_undo_in_reverse_order_restores_every_value_and_every_session(story: list[Step]) -> None:
    driver = _played(story)
    before, clocks, deleted = dict(driver.shard.groups), _clocks(driver), _deleted(driver.shard)
    group = driver.shard.groups.get("g")
    commands: list[c.Command] = [c.Heartbeat("g", "C", 0, None, ("t", "u"))]
    commands += [c.Heartbeat("g", member_id, -1) for member_id in (group.members if group else ())]
    tokens = []
    commands += [c.AlterOffsets("g", {TopicIdPartition(topic_id("t"), 0): 5}, 1), c.DeleteGroup("g", driver.now_ms, 1)]
    for command in commands:
        with suppress(KafkaError):
            for record in driver.shard.decide(command, driver.now_ms, driver.wall_ms).records:
                tokens.append(driver.shard.replay(record))
    for token in reversed(tokens):
        driver.shard.undo(token)
    assert driver.shard.groups == before
    assert _deleted(driver.shard) == deleted
    assert clocks.items() <= _clocks(driver).items()


def _deleted(shard: GroupShard) -> object:
    return shard._administration.deleted.get("g")


def _clocks(driver: Driver) -> dict[tuple[str, str], bool]:
    members = [("g", member_id) for group in driver.shard.groups.values() for member_id in group.members]
    later = driver.now_ms + 10**9
    return {key: driver.shard._sessions.expired(key, later) for key in members}


def _newest(shard: GroupShard, log: list[Record]) -> dict[Hashable, int]:
    """Return the position of every live key's newest record."""
    found: dict[Hashable, int] = {}
    for position, record in enumerate(log):
        anchor = shard.anchor(record)
        assert anchor.alive is not isinstance(record, Tombstone)
        found.pop(anchor.key, None)
        if anchor.alive:
            found[anchor.key] = position
    return found
