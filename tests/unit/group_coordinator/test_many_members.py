"""Ten groups of fifty members each, on a topic with 200 partitions and one coordinator: how soon all members learn of a
join."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from group_coordinator.config import GroupCoordinatorConfig
from kip932.api.v1.share_group_describe_pb2 import ShareGroupDescribeRequest
from shard_runtime.config.group_config import GroupConfig
from tests.support.group_cluster import GroupCluster, play

GROUPS, MEMBERS, PARTITIONS = 10, 50, 200


@dataclass
class Member:
    """A member that heartbeats at the interval that the coordinator sets."""

    world: GroupCluster
    group: str
    name: str
    epoch: int = 0
    failed: list[int] = field(default_factory=list)

    async def live(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        while True:
            answer = await self.world.heartbeat(self.name, self.epoch, None if self.epoch else ["t"], self.group)
            if answer.error_code:
                self.failed.append(answer.error_code)
            self.epoch = answer.member_epoch
            await asyncio.sleep(answer.heartbeat_interval_ms / 1000)


async def epochs(world: GroupCluster, group: str) -> tuple[int, int]:
    """Return the group epoch and the assignment epoch."""
    described: Any = await world.call("ShareGroupDescribe", ShareGroupDescribeRequest(group_ids=[group]))
    return described.groups[0].group_epoch, described.groups[0].assignment_epoch


@pytest.mark.rule("P-17")
def test_two_joins_at_once_have_reached_all_others_within_a_heartbeat_and_an_assignment_interval() -> None:
    async def body(world: GroupCluster) -> None:
        world.configs = GroupConfig()  # the defaults: heartbeats every 5 s, at most one assignment per second
        world.create("t", PARTITIONS)
        interval_s = world.configs.heartbeat_interval_ms / 1000
        bound_s = interval_s + world.configs.assignment_interval_ms / 1000
        groups = {f"g{number}": [Member(world, f"g{number}", f"m{index}") for index in range(MEMBERS)]
                  for number in range(GROUPS)}  # fmt: skip
        tasks = [
            asyncio.create_task(member.live(interval_s * index / MEMBERS))
            for members in groups.values()
            for index, member in enumerate(members)
        ]
        await asyncio.sleep(4 * bound_s)  # all have joined, and epochs no longer change
        for name, members in groups.items():
            before = await epochs(world, name)
            assert {(member.epoch, member.epoch) for member in members} == {before}
            late = [Member(world, name, "late"), Member(world, name, "later")]
            tasks += [asyncio.create_task(late[0].live(0)), asyncio.create_task(late[1].live(0.1))]
            await asyncio.sleep(0.2)
            joined, _ = await epochs(world, name)
            assert joined == before[0] + 2
            await asyncio.sleep(bound_s - 0.1)
            assert {member.epoch for member in members} == {joined}
            assert await epochs(world, name) == (joined, joined)
        assert not any(member.failed for members in groups.values() for member in members)
        for task in tasks:
            task.cancel()

    play(body, GroupCluster(GroupCoordinatorConfig(shards=3)))
