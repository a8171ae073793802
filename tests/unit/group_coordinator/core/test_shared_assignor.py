"""Groups that choose their own assignor: the choice, a change of it, and its state after a fail-over (GC-58)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from group_coordinator.core import commands as c
from group_coordinator.core.records import TargetMetadata
from shard_runtime.config.group_config import GroupConfig
from tests.support.group_driver import Driver

SIMPLE = GroupConfig(assignment_interval_ms=0)
SHARED = replace(SIMPLE, assignor="shared")
EVERYTHING = (0, 1, 2, 3)


def _two_members(configs: GroupConfig) -> tuple[Driver, bytes, dict[str, int]]:
    """A stable group of A and B on four partitions, the topic's id, and each member's epoch."""
    driver = Driver(configs=configs)
    topic = driver.create("t", 4)
    driver.settle("A", ["t"])
    driver.settle("B", ["t"])
    return driver, topic, _beat(driver)


def _beat(driver: Driver) -> dict[str, int]:
    """Heartbeat once for each member; return their epochs afterwards."""
    group = driver.shard.groups["g"]
    return {member_id: driver.beat(member_id, member.epoch).member_epoch for member_id, member in group.members.items()}


def _assigned(driver: Driver, topic: bytes) -> dict[str, tuple[int, ...]]:
    members = driver.shard.groups["g"].members
    return {member_id: member.assigned.get(topic, ()) for member_id, member in members.items()}


def _name(driver: Driver) -> str:
    described = driver.run(c.Describe("g"))
    assert isinstance(described, c.DescribedGroup)
    return described.assignor_name


@pytest.mark.rule("GC-52a", "GC-58")
def test_each_member_of_a_group_that_chooses_shared_has_every_partition() -> None:
    driver, topic, _ = _two_members(SHARED)
    assert _assigned(driver, topic) == {"A": EVERYTHING, "B": EVERYTHING}
    assert _name(driver) == "shared"


@pytest.mark.rule("GC-24c", "GC-29", "GC-58")
def test_a_new_choice_takes_effect_at_the_next_heartbeats_and_bumps_once() -> None:
    driver, topic, _ = _two_members(SIMPLE)
    assert _assigned(driver, topic) == {"A": (2, 3), "B": (0, 1)}
    assert _name(driver) == "simple"
    epoch = driver.shard.groups["g"].epoch
    driver.configs = SHARED
    for _ in range(3):
        _beat(driver)
    assert _assigned(driver, topic) == {"A": EVERYTHING, "B": EVERYTHING}
    assert driver.shard.groups["g"].epoch == epoch + 1
    driver.configs = replace(SHARED, members_per_partition=1)
    for _ in range(3):
        _beat(driver)
    assert sorted(index for held in _assigned(driver, topic).values() for index in held) == list(EVERYTHING)
    assert driver.shard.groups["g"].epoch == epoch + 2


@pytest.mark.rule("GC-24c", "GC-69e")
def test_a_fail_over_bumps_nothing_and_a_choice_made_meanwhile_is_noticed() -> None:
    driver, topic, epochs = _two_members(SHARED)
    driver.reload()
    assert _beat(driver) == epochs
    driver.configs = SIMPLE
    driver.reload()
    for _ in range(3):
        _beat(driver)
    assert sorted(index for held in _assigned(driver, topic).values() for index in held) == list(EVERYTHING)


@pytest.mark.rule("GC-24c")
def test_a_target_of_an_older_build_stays() -> None:
    driver, topic, _ = _two_members(SIMPLE)
    driver.log = [replace(each, computed_by="") if isinstance(each, TargetMetadata) else each for each in driver.log]
    driver.configs = SHARED
    before = _assigned(driver, topic)
    driver.reload()
    epoch = driver.shard.groups["g"].epoch
    _beat(driver)
    assert (_assigned(driver, topic), driver.shard.groups["g"].epoch) == (before, epoch)


@pytest.mark.rule("GC-58")
def test_a_group_without_a_choice_has_the_brokers() -> None:
    driver, topic, _ = _two_members(replace(SIMPLE, assignor="default"))
    assert _name(driver) == "simple"
    assert _assigned(driver, topic) == {"A": (2, 3), "B": (0, 1)}
