"""A group on three processes, one for each role, and the changes to it that are interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from kip932 import errors
from kip932.api.v1 import alter_share_group_offsets_pb2 as alter_pb
from kip932.api.v1 import delete_groups_pb2 as groups_pb
from kip932.api.v1 import delete_share_group_offsets_pb2 as offsets_pb
from kip932.api.v1 import group_coordinator_service_pb2 as service_pb
from kip932.api.v1.common_pb2 import StringList
from kip932.api.v1.share_group_heartbeat_pb2 import ShareGroupHeartbeatRequest
from kip932.ids import SharePartitionKey, shard_index
from kip932.rpc.transport import TransportError, service_methods
from shard_runtime.ownership.placement import (
    ROLE_GROUP_COORDINATOR,
    ROLE_PARTITION_LEADER,
    ROLE_SHARE_COORDINATOR,
)
from sharegroups import NewTopic
from sharegroups.aio import Admin, Producer
from tests.scenarios.crashes.stored import Stored, stored
from tests.simulation.process import PORT
from tests.simulation.world import ProcessShape, Shape, World

GROUPS, STATES, LEADER = "g", "s", "l"
SHAPE: Final = Shape(
    (
        ProcessShape(GROUPS, frozenset({ROLE_GROUP_COORDINATOR})),
        ProcessShape(STATES, frozenset({ROLE_SHARE_COORDINATOR})),
        ProcessShape(LEADER, frozenset({ROLE_PARTITION_LEADER})),
    ),
    flags={"group.share.initialize.retry.interval.ms": "6000", "persister.operation.timeout.ms": "4000"},
)
#: How long a share coordinator is down: longer than calls to it are retried.
AWAY_S: Final = 6
#: Errors after which a client retries: the coordinator has just died, or is not ready yet.
AGAIN: Final = {
    errors.CoordinatorLoadInProgressError.code,
    errors.CoordinatorNotAvailableError.code,
    errors.NotCoordinatorError.code,
}
_GONE: Final = {errors.UnknownMemberIdError.code, errors.GroupIdNotFoundError.code}
_METHODS: Final = service_methods(service_pb.DESCRIPTOR.services_by_name["GroupCoordinatorService"])
_TRIES: Final = 30
_RECORDS: Final = 10


class Stage:
    """The cluster, its topics t and u of two partitions each, and the group to be changed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.group = ""
        self.names: dict[bytes, str] = {}
        self._transport = world.transport("admin")
        self._epoch = 0

    async def prepare(self) -> None:
        """Start everything and fill the topics."""
        await self.world.open()
        async with asyncio.TaskGroup() as starting:
            for each in self.world.shape.processes:
                starting.create_task(self.world.start(each.name))
        await self.world.settled()
        settings = {"bootstrap.servers": f"{LEADER}:{PORT}"}
        admin = Admin(settings, transport=self.world.transport("maker"))
        assert set((await admin.create_topics([NewTopic("t", 2), NewTopic("u", 2)])).values()) == {None}
        await admin.close()
        producer = Producer(settings, transport=self.world.transport("producer"))
        for number in range(_RECORDS):
            for partition in (0, 1):
                await producer.send("t", b"%d" % number, partition=partition)
        await producer.close()
        await self.world.settled()
        topics = self.world.processes[GROUPS].node.metadata.image.topics
        self.names = {topic.topic_id: name for name, topic in topics.items()}
        self.group = self._group()

    def _group(self) -> str:
        """Return a group whose partitions of t have their state in different shards of the share coordinator, and those
        of u in the same two."""
        shards = int(self.world.flags_of(self.world.shape.processes[0])["share.coordinator.state.topic.num.partitions"])
        for number in range(1_000):
            group = f"grp{number}"
            used: dict[str, set[int]] = {"t": set(), "u": set()}
            for topic_id, name in self.names.items():
                keys = [SharePartitionKey(group, topic_id, index).text for index in (0, 1)]
                used[name].update(shard_index(key, shards) for key in keys)
            if len(used["t"]) == 2 and used["u"] <= used["t"]:
                return group
        raise AssertionError("no group has its state in two shards")

    def stored(self) -> Stored:
        """Return the store's current contents."""
        return stored(self.world.store.master.data, self.names)

    async def _call(self, name: str, request: Any) -> Any:
        """Make one RPC; return None if the coordinator does not respond."""
        try:
            return await self._transport.call(f"{GROUPS}:{PORT}", _METHODS[name], request, 20.0)
        except TransportError as error:
            if not error.retriable:
                raise
            return None

    # ---- changes of the group; each returns the error code for the caller, one of AGAIN if there is no response

    async def delete_group(self) -> int:
        answer = await self._call("DeleteGroups", groups_pb.DeleteGroupsRequest(groups_names=[self.group]))
        code = _NO_ANSWER if answer is None else int(answer.results[0].error_code)
        return 0 if code == errors.GroupIdNotFoundError.code else code

    async def delete_offsets(self) -> int:
        request = offsets_pb.DeleteShareGroupOffsetsRequest(group_id=self.group)
        request.topics.SetInParent()
        request.topics.values.add(topic_name="t")
        answer = await self._call("DeleteShareGroupOffsets", request)
        if answer is None:
            return _NO_ANSWER
        codes = {int(topic.error_code) for topic in answer.responses} - {errors.UnknownTopicOrPartitionError.code}
        return int(answer.error_code) or max(codes, default=0)

    async def alter(self) -> int:
        request = alter_pb.AlterShareGroupOffsetsRequest(group_id=self.group)
        request.topics.SetInParent()
        topic = request.topics.values.add(topic_name="t")
        for index, start in ((0, 7), (1, 9)):
            topic.partitions.add(partition_index=index, start_offset=start)
        answer = await self._call("AlterShareGroupOffsets", request)
        if answer is None:
            return _NO_ANSWER
        codes = {int(part.error_code) for found in answer.responses for part in found.partitions}
        return int(answer.error_code) or max(codes, default=0)

    async def join(self) -> int:
        """Send one heartbeat of the only member, which starts an initialisation."""
        return await self._beat("t")

    async def _beat(self, *topics: str) -> int:
        """Send one heartbeat; a join with these topics if it is the first one, or the member is unknown."""
        request = ShareGroupHeartbeatRequest(group_id=self.group, member_id="m", member_epoch=self._epoch)
        if self._epoch == 0:
            request.subscribed_topic_names.CopyFrom(StringList(values=topics))
        answer = await self._call("ShareGroupHeartbeat", request)
        code = _NO_ANSWER if answer is None else int(answer.error_code)
        if code == 0:
            self._epoch = answer.member_epoch
        elif code in _GONE:
            self._epoch = 0
        return code

    async def beat_until_initialized(self, *topics: str) -> None:
        """Send heartbeats until every partition of the member's topics is initialised, and then two more, so that it is
        assigned them."""
        left = 2
        for _ in range(_TRIES):
            code = await self._beat(*topics)
            assert code in {0, *AGAIN, *_GONE}, code
            group = self.stored().groups.get(self.group)
            done = group is not None and all(group.initialized.get(topic) == (0, 1) for topic in topics)
            left -= done and code == 0
            if left < 0:
                return
            await asyncio.sleep(0.2 if done else 1)
        raise AssertionError(f"after {_TRIES} heartbeats: {self.stored()}")

    async def leave(self) -> None:
        """Let the member leave."""
        self._epoch = -1
        assert await self._beat() == 0
        self._epoch = 0

    async def used(self) -> None:
        """Let a member join, wait until its partitions are initialised, and let it leave."""
        await self.beat_until_initialized("t", "u")
        await self.leave()


_NO_ANSWER: Final = errors.CoordinatorNotAvailableError.code


class Story(NamedTuple):
    """`before`: prepares the group; `places`: those that the command passes; `goes_on`: completes the change without
    repeating the command, by letting time pass or by a heartbeat of the group's next user."""

    before: Callable[[Stage], Awaitable[None]]
    command: Callable[[Stage], Awaitable[int]]
    places: tuple[str, ...]
    goes_on: Callable[[Stage], Awaitable[None]]


async def _nothing(_stage: Stage) -> None:
    """Do nothing: the topic has had no subscriber, or the change ends by itself."""


async def _joined(stage: Stage) -> None:
    await stage.beat_until_initialized("t")


_GROUP: Final = ("before group append", "after group append")
_SHARE: Final = ("before share append", "after share append")
#: A call about two partitions, whose state is in two shards.
_BOTH: Final = ("before share append", "between share appends", "after share append")
_DELETE, _INITIALIZE = "DeleteShareGroupState", "InitializeShareGroupState"


def _call(name: str, *appends: str) -> tuple[str, ...]:
    return (f"before {name}", *appends, f"after {name}")


STORIES: Final[Mapping[str, Story]] = {
    "delete group": Story(Stage.used, Stage.delete_group, (*_GROUP, *_call(_DELETE, *_BOTH), *_GROUP), _nothing),
    "delete offsets": Story(Stage.used, Stage.delete_offsets, (*_GROUP, *_call(_DELETE, *_BOTH), *_GROUP), _nothing),
    "alter": Story(Stage.used, Stage.alter, (*_GROUP, *_call(_INITIALIZE, *_BOTH), *_GROUP), Stage.used),
    "initialise": Story(_nothing, Stage.join, (*_GROUP, *(2 * _call(_INITIALIZE, *_SHARE)), *_GROUP), _joined),
}
