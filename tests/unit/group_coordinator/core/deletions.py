"""Steps of deletions, run on a group shard without a host."""

from __future__ import annotations

from typing import cast

from group_coordinator.core import commands as c
from group_coordinator.core.lifecycle import Lifecycle
from kip932.ids import TopicIdPartition
from tests.support.group_driver import Driver, topic_id

T, U, V = topic_id("t"), topic_id("u"), topic_id("v")


def keys(topic: bytes, *indexes: int) -> list[TopicIdPartition]:
    """Return some partitions of a topic."""
    return [TopicIdPartition(topic, index) for index in indexes]


def emptied(*topics: str, partitions: int = 2) -> Driver:
    """A group whose member has left; every partition is initialised."""
    driver = Driver()
    for topic in topics:
        driver.create(topic, partitions)
    driver.settle("A", topics)
    driver.beat("A", -1)
    driver.take_effects()
    return driver


def states_of(driver: Driver) -> Lifecycle:
    """Return the group's lists."""
    return driver.shard.groups["g"].states


def epoch_of(driver: Driver) -> int:
    """Return the group's epoch."""
    return driver.shard.groups["g"].epoch


def delete(driver: Driver, group_id: str = "g") -> c.DeletionBegun:
    """Run the first step of DeleteGroups."""
    return cast(c.DeletionBegun, driver.run(c.DeleteGroup(group_id, driver.now_ms, 7)))


def delete_offsets(driver: Driver, *topics: str) -> c.DeletionBegun:
    """Run the first step of DeleteShareGroupOffsets."""
    return cast(c.DeletionBegun, driver.run(c.DeleteOffsets("g", topics, 7)))


def resume(driver: Driver, since_ms: int | None = None) -> c.ResumeReply:
    """Run the sweep's step for interrupted deletions."""
    since_ms = driver.now_ms if since_ms is None else since_ms
    return cast(c.ResumeReply, driver.run(c.ResumeDeletions(since_ms)))


def order_of(driver: Driver) -> c.DeleteState:
    """Return the one deletion of state that was ordered, and drop all other effects."""
    (order,) = [effect for effect in driver.take_effects() if isinstance(effect, c.DeleteState)]
    return order


def finish(driver: Driver, order: c.DeleteState, *failed: bytes) -> None:
    """Report that a deletion has ended; it failed for the topics in `failed`."""
    driver.run(c.DeletionFinished(order.group_id, order.attempt, frozenset(failed)))
