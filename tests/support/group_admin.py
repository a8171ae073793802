"""An administrator's calls to the in-memory cluster of `group_cluster`, and their results."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from group_coordinator.core.group import Group
from group_coordinator.core.shard import GroupShard
from kip932.api.v1 import alter_share_group_offsets_pb2 as alter_pb
from kip932.api.v1 import delete_groups_pb2 as groups_pb
from kip932.api.v1 import delete_share_group_offsets_pb2 as offsets_pb
from kip932.ids import shard_index
from tests.support.group_cluster import GroupCluster


async def delete_groups(world: GroupCluster, *group_ids: str) -> dict[str, Any]:
    """Call DeleteGroups; return the results by group."""
    answer: Any = await world.call("DeleteGroups", groups_pb.DeleteGroupsRequest(groups_names=group_ids))
    assert len({found.group_id for found in answer.results}) == len(answer.results)
    return {found.group_id: found for found in answer.results}


async def delete_offsets(world: GroupCluster, topics: Collection[str] | None, group_id: str = "grp") -> Any:
    """Call DeleteShareGroupOffsets."""
    request = offsets_pb.DeleteShareGroupOffsetsRequest(group_id=group_id)
    if topics is not None:
        request.topics.SetInParent()
        for name in topics:
            request.topics.values.add(topic_name=name)
    return await world.call("DeleteShareGroupOffsets", request)


async def alter(
    world: GroupCluster, topics: Mapping[str, Sequence[tuple[int, int]]] | None, group_id: str = "grp"
) -> Any:
    """Call AlterShareGroupOffsets with (partition, start offset) by topic."""
    request = alter_pb.AlterShareGroupOffsetsRequest(group_id=group_id)
    if topics is not None:
        request.topics.SetInParent()
        for name, offsets in topics.items():
            topic = request.topics.values.add(topic_name=name)
            for index, start in offsets:
                topic.partitions.add(partition_index=index, start_offset=start)
    return await world.call("AlterShareGroupOffsets", request)


def altered(answer: Any) -> dict[str, list[tuple[int, int]]]:
    """Return (partition, error code) by topic."""
    assert answer.error_code == 0, answer.error_message
    return {
        topic.topic_name: [(part.partition_index, part.error_code) for part in topic.partitions]
        for topic in answer.responses
    }


def deleted(answer: Any) -> dict[str, int]:
    """Return the error code by topic."""
    assert answer.error_code == 0, answer.error_message
    return {topic.topic_name: topic.error_code for topic in answer.responses}


async def emptied(world: GroupCluster, *topics: str, group_id: str = "grp", partitions: int = 2) -> None:
    """Create a group that once had a member: every partition of the topics is initialised."""
    for name in topics:
        if world.image.by_name(name) is None:
            world.create(name, partitions)
    joined = await world.heartbeat("m", 0, list(topics), group_id)
    epoch = joined.member_epoch
    for _ in range(10):
        await asyncio.sleep(0.01)
        group = groups_of(world)[group_id]
        if sum(map(len, group.states.initialized.values())) == partitions * len(topics):
            break
        epoch = (await world.heartbeat("m", epoch, None, group_id)).member_epoch
    assert (await world.heartbeat("m", -1, None, group_id)).error_code == 0


def groups_of(world: GroupCluster) -> dict[str, Group]:
    """Return all groups that are served, by id."""
    shards = [host.shard for host in world.role.hosts]
    return {key: group for shard in shards if isinstance(shard, GroupShard) for key, group in shard.groups.items()}


def shard_of(world: GroupCluster, group_id: str = "grp") -> GroupShard:
    """Return the group's shard."""
    shard = world.role.hosts[shard_index(group_id, world.config.shards)].shard
    assert isinstance(shard, GroupShard)
    return shard
