"""One process removes deleted topics: when it does so, that it retries after a failure, and that it goes on until the
metadata records it as done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from shard_runtime.cluster.deleted_topics import PASSES, DeletedTopics
from shard_runtime.cluster.metadata import Change, MetadataImage, StreamsRemoved, TopicCreated, TopicDeleted
from shard_runtime.cluster.metadata_log import Listener
from shard_runtime.record_log.protocol import ShardId, ShardKind, StoreUnavailableError
from tests.support.clocks import LoopClock
from tests.support.virtual_time import now_s, run

LEASE_MS = 3_000
T, U = bytes([1] * 16), bytes([2] * 16)


class World:
    """Stands in for the log, the store's hints and the metadata. Records what was removed and at which second; some
    calls can be made to fail."""

    def __init__(self) -> None:
        self.image = MetadataImage().apply(1, [TopicCreated("t", T, 2), TopicCreated("u", U, 1)])
        self.listeners: list[Listener] = []
        self.removed: list[tuple[int, int, str]] = []
        self.hints: list[str] = []
        self.failing: set[int] = set()
        self.changes_fail = 0
        self.changes = 0
        self.sweeper = DeletedTopics(self, self, self, LoopClock(), LEASE_MS)  # type: ignore[arg-type]  # what it calls

    def subscribe(self, listener: Listener) -> None:
        self.listeners.append(listener)

    def apply(self, *changes: Change) -> None:
        previous, self.image = self.image, self.image.apply(self.image.version + 1, changes)
        for listener in self.listeners:
            listener(self.image, previous)

    async def change(self, decide: Callable[[MetadataImage], Sequence[Change]]) -> None:
        self.changes += 1
        if self.changes <= self.changes_fail:
            raise StoreUnavailableError("away")
        if changes := decide(self.image):
            self.apply(*changes)

    async def delete_streams(self, shard: ShardId) -> None:
        await asyncio.sleep(0)
        topic = 1 if shard.name.startswith("AQEB") else 2
        if topic in self.failing:
            raise StoreUnavailableError("away")
        self.removed.append((round(now_s()), topic, shard.name[-1]))

    async def remove_hints(self, kind: ShardKind, names: Sequence[str]) -> None:
        assert kind is ShardKind.TOPIC
        self.hints += [name[-1] for name in names]


def report(story: Callable[[World], Coroutine[Any, Any, None]]) -> World:
    async def main() -> World:
        world = World()
        await story(world)
        await world.sweeper.stop()
        return world

    return run(main())


@pytest.mark.rule("CM-21")
def test_a_deletion_that_is_seen_is_removed_twice_and_then_forgotten() -> None:
    async def story(world: World) -> None:
        world.sweeper.start()
        await asyncio.sleep(1)
        world.apply(TopicDeleted(T, "t"))
        await asyncio.sleep(600)

    world = report(story)
    assert world.removed == [(1 + leases * 3, 1, number) for leases in PASSES for number in "01"]
    assert world.hints == ["0", "1", "0", "1"]
    assert (world.image.remains, world.changes) == ({}, 1)


@pytest.mark.rule("CM-21")
def test_a_deletion_found_at_the_start_is_removed_at_once() -> None:
    async def story(world: World) -> None:
        world.apply(TopicDeleted(U, "u"))
        world.sweeper.start()
        await asyncio.sleep(600)

    assert [when for when, *_ in report(story).removed] == [0, (PASSES[1] - PASSES[0]) * 3]


@pytest.mark.rule("CM-21", "CM-15")
def test_a_failure_is_tried_again_each_lease_and_keeps_no_other_topic_waiting() -> None:
    async def story(world: World) -> None:
        world.failing = {1}
        world.apply(TopicDeleted(T, "t"), TopicDeleted(U, "u"))
        world.sweeper.start()
        await asyncio.sleep(7)
        assert world.removed == [(0, 2, "0")]
        world.failing.clear()
        await asyncio.sleep(3)
        assert world.removed[1:] == [(9, 1, "0"), (9, 1, "1")]
        await asyncio.sleep(600)
        assert world.image.remains == {}

    report(story)


@pytest.mark.rule("CM-20", "CM-21")
def test_a_note_that_did_not_reach_the_metadata_is_made_again() -> None:
    async def story(world: World) -> None:
        world.changes_fail = 2
        world.apply(TopicDeleted(U, "u"))
        world.sweeper.start()
        await asyncio.sleep(600)

    world = report(story)
    assert (world.image.remains, world.changes) == ({}, 3)


@pytest.mark.rule("CM-21")
def test_what_another_process_noted_is_searched_for_no_more() -> None:
    async def story(world: World) -> None:
        world.apply(TopicDeleted(U, "u"))
        world.sweeper.start()
        await asyncio.sleep(1)
        world.apply(StreamsRemoved(U))
        await asyncio.sleep(600)

    world = report(story)
    assert (len(world.removed), world.changes) == (1, 0)


def test_the_passes_come_two_and_twenty_leases_after_the_deletion_was_seen() -> None:
    """These are the numbers in CM-21; the other tests rely on them."""
    assert PASSES == (2, 20)
