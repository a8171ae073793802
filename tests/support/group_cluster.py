"""A cluster with one group coordinator, as a client sees it: handlers, hosts and messages are real; the log, the share
coordinator, the leaders and the clock are in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from google.protobuf.message import Message
from prometheus_client import CollectorRegistry

from group_coordinator.config import GroupCoordinatorConfig
from group_coordinator.core.views import Topic
from group_coordinator.role import GroupCoordinatorRole, Node
from kip932 import errors
from kip932.acls import ANY_HOST, ANY_PRINCIPAL, Acl, Operation, PatternType, Permission, ResourceType
from kip932.api.v1 import group_coordinator_service_pb2 as service_pb
from kip932.api.v1 import list_offsets_pb2 as offsets_pb
from kip932.api.v1 import partition_leader_service_pb2 as leader_pb
from kip932.api.v1.common_pb2 import StringList
from kip932.api.v1.share_group_heartbeat_pb2 import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kip932.ids import TopicIdPartition, shard_index
from kip932.rpc.transport import service_methods
from kip932.state_values import ReadState, StateSummary, StoredState, WriteState
from shard_runtime.cluster.owners import OwnerAddress
from shard_runtime.config.group_config import GroupConfig
from shard_runtime.ownership.lease import Lease
from shard_runtime.record_log.protocol import ShardId
from shard_runtime.rpc.access import Access
from shard_runtime.rpc.binding import CallContext
from share_persister import PersisterError
from tests.support.clocks import LoopClock
from tests.support.group_driver import Image, topic_id
from tests.support.toy_shard import ObedientLog
from tests.support.virtual_time import run
from tests.twin.transport import InMemoryNetwork

COORDINATOR = "127.0.0.1:9092"
LEADER = "127.0.0.1:9093"
FAR_FUTURE_MS = 1 << 50
CLIENT_ID = "client-7"
METHODS = service_methods(service_pb.DESCRIPTOR.services_by_name["GroupCoordinatorService"])
#: The scenarios expect Kafka's epochs with an assignment interval of 0.
KAFKA = GroupCoordinatorConfig(shards=3, fast_first_assignment=False)


@dataclass
class ShareStates:
    """The share coordinator. `refuse` makes calls for a partition fail, `gate` holds every call, and one of `gates` the
    calls of its kind. `delayed_asked`: the instants of the requests for delayed records."""

    states: dict[tuple[str, TopicIdPartition], StateSummary] = field(default_factory=dict)
    refuse: dict[TopicIdPartition, PersisterError] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    broken: Exception | None = None
    delayed_asked: list[int] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    gates: dict[str, asyncio.Event] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.gate.set()

    async def initialize(
        self, group_id: str, state_epoch: int, start_offsets: Mapping[TopicIdPartition, int]
    ) -> dict[TopicIdPartition, PersisterError | None]:
        await self._called("initialize", group_id)
        return {key: self._initialize(group_id, key, state_epoch, start) for key, start in start_offsets.items()}

    def _initialize(
        self, group_id: str, key: TopicIdPartition, state_epoch: int, start_offset: int
    ) -> PersisterError | None:
        if key in self.refuse:
            return self.refuse[key]
        stored = self.states.get((group_id, key), StateSummary())
        if stored.state_epoch > state_epoch:
            return PersisterError(errors.FencedStateEpochError(), outcome_unknown=False)
        if stored.state_epoch < state_epoch:
            self.states[group_id, key] = StateSummary(state_epoch, 0, start_offset, 0)
        return None

    async def delete(
        self, group_id: str, partitions: Mapping[TopicIdPartition, int]
    ) -> dict[TopicIdPartition, PersisterError | None]:
        await self._called("delete", group_id)
        return {key: self._delete(group_id, key, epoch) for key, epoch in partitions.items()}

    def _delete(self, group_id: str, key: TopicIdPartition, epoch: int) -> PersisterError | None:
        if key in self.refuse:
            return self.refuse[key]
        stored = self.states.get((group_id, key))
        if stored is not None and 0 <= epoch < stored.state_epoch:
            return PersisterError(errors.FencedStateEpochError(), outcome_unknown=False)
        self.states.pop((group_id, key), None)
        return None

    async def summary(
        self, group_id: str, partitions: Collection[TopicIdPartition], delayed_at_ms: int | None = None
    ) -> dict[TopicIdPartition, StateSummary | PersisterError]:
        await self._called("summary", group_id)
        found = {key: self.refuse.get(key) or self.states.get((group_id, key), StateSummary()) for key in partitions}
        if delayed_at_ms is not None:
            self.delayed_asked.append(delayed_at_ms)
            return found
        return {key: one._replace(delayed=-1) if isinstance(one, StateSummary) else one for key, one in found.items()}

    async def read(self, command: ReadState) -> StoredState:
        raise AssertionError("a group coordinator never reads state")

    async def write(self, command: WriteState) -> None:
        raise AssertionError("a group coordinator never writes state")

    async def close(self) -> None:
        """Do nothing: no connection is open."""

    async def _called(self, what: str, group_id: str) -> None:
        self.calls.append((what, group_id))
        await self.gate.wait()
        if (of_kind := self.gates.get(what)) is not None:
            await of_kind.wait()
        if self.broken is not None:
            raise self.broken


class Leaders:
    """The leader of every partition; returns log ends. `failures` are returned first, one per call."""

    def __init__(self) -> None:
        self.ends: dict[tuple[bytes, int], int] = {}
        self.holes: dict[tuple[bytes, int], int] = {}
        #: A group's held and waiting records and the age of its oldest one, for leaders that support reporting them.
        self.backlogs: dict[tuple[bytes, int], dict[str, int]] = {}
        self.failures: list[int] = []
        self.groups: list[str] = []

    async def list_offsets(
        self, request: offsets_pb.ListOffsetsRequest, context: CallContext
    ) -> offsets_pb.ListOffsetsResponse:
        del context
        code = self.failures.pop(0) if self.failures else 0
        response = offsets_pb.ListOffsetsResponse()
        for topic in request.topics:
            found = response.topics.add(topic_id=topic.topic_id)
            for asked in topic.partitions:
                key = topic.topic_id, asked.partition_index
                one = found.partitions.add(partition_index=asked.partition_index, error_code=code)
                one.offset = self.ends.get(key, 0)
                if asked.HasField("holes_from"):
                    one.holes = self.holes.get(key, 0)
                if asked.HasField("share_group_id"):
                    self.groups.append(asked.share_group_id)
                    for name, value in self.backlogs.get(key, {}).items():
                        setattr(one, f"group_{name}", value)
        return response


class GroupCluster:
    """The cluster. `configs` and `image` can be replaced at any time."""

    def __init__(self, config: GroupCoordinatorConfig = KAFKA, access: Access | None = None) -> None:
        self.config = config
        self.configs = GroupConfig(assignment_interval_ms=0)
        self.image = Image()
        self.complete_since_ms: int | None = None
        self.enabled = True
        self.owner: OwnerAddress | None = None
        self.leader: str | None = LEADER
        self.persister = ShareStates()
        self.leaders = Leaders()
        self.clock = LoopClock()
        self.logs = [ObedientLog() for _ in range(config.shards)]
        self.network = InMemoryNetwork()
        self.network.access = access
        self.network.serve(LEADER, leader_pb.DESCRIPTOR.services_by_name["PartitionLeaderService"], self.leaders)
        self.transport = self.network.transport("10.0.0.7", client_id=CLIENT_ID)
        self.registry = CollectorRegistry()
        self.role = self._role()
        self.epoch = 0

    async def __aenter__(self) -> GroupCluster:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Own and load every shard, then serve."""
        self.epoch += 1
        self.network.serve(
            COORDINATOR, service_pb.DESCRIPTOR.services_by_name["GroupCoordinatorService"], self.role.service
        )
        for index in range(len(self.logs)):
            await self.gain(index)
        self.role.start()

    async def gain(self, index: int) -> None:
        """Own and load one shard."""
        host, log = self.role.hosts[index], self.logs[index]
        lease = Lease(
            host.shard_id,
            1,
            self.epoch,
            deadline_ms=FAR_FUTURE_MS,
            clock=self.clock,
            give_up=lambda why, _: host.lost(why),
        )
        await host.gained(log.claim(self.epoch, 0), lease)

    async def stop(self) -> None:
        """Stop serving and lose every shard."""
        for host in self.role.hosts:
            host.lost("stopped")
        await self.role.stop()
        self.network.stop(COORDINATOR)

    async def restart(self) -> None:
        """Lose every shard and serve again, as if another process had taken over."""
        await self.stop()
        self.role = self._role()
        await self.start()

    async def call(self, name: str, request: Message) -> Message:
        """Make one RPC."""
        return await self.transport.call(COORDINATOR, METHODS[name], request, 30.0)

    async def heartbeat(
        self,
        member_id: str,
        epoch: int,
        topics: list[str] | None = None,
        group_id: str = "grp",
        rack: str | None = None,
    ) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            rack_id=rack,
            subscribed_topic_names=None if topics is None else StringList(values=topics),
        )
        response = await self.call("ShareGroupHeartbeat", request)
        assert isinstance(response, ShareGroupHeartbeatResponse)
        return response

    async def until_assigned(self, member_id: str, epoch: int) -> ShareGroupHeartbeatResponse:
        """Heartbeat with the returned epochs until an assignment with partitions arrives."""
        for _ in range(10):
            response = await self.heartbeat(member_id, epoch)
            if assigned(response):
                return response
            epoch = response.member_epoch
            await asyncio.sleep(0.01)
        raise AssertionError(f"member {member_id} was assigned nothing in ten heartbeats; its epoch is {epoch}")

    def create(self, name: str, partitions: int, generation: int = 0) -> bytes:
        """Create or grow a topic; the image has it at once."""
        made = Topic(topic_id(name, generation), name, partitions)
        others = tuple(topic for topic in self.image.topics if topic.name != name)
        self._image((*others, made))
        return made.topic_id

    def delete(self, name: str) -> None:
        """Delete a topic."""
        self.image = self.image.without(name)
        self.role.topics_changed()

    def log_of(self, group_id: str) -> ObedientLog:
        """Return the log of the group's records."""
        return self.logs[shard_index(group_id, len(self.logs))]

    def _image(self, topics: tuple[Topic, ...]) -> None:
        self.image = replace(self.image, topics=topics, version=self.image.version + 1)
        self.role.topics_changed()

    def _role(self) -> GroupCoordinatorRole:
        self.registry = CollectorRegistry()
        return GroupCoordinatorRole(
            self.config,
            Node(
                record_log=_Logs(self.logs),  # type: ignore[arg-type]  # only what a host calls
                clock=self.clock,
                persister=self.persister,
                transport=self.transport,
                registry=self.registry,
                topics=lambda: self.image,
                configs=lambda _: self.configs,
                complete_since_ms=self._complete_since,
                owner_of=lambda _: self.owner,
                leader_of=lambda _: self.leader,
                enabled=lambda: self.enabled,
                leaders=lambda: {LEADER},
            ),
            {},
        )

    def _complete_since(self) -> int:
        return self.clock.now_ms() if self.complete_since_ms is None else self.complete_since_ms


class _Logs:
    """All shards' logs as one RecordLog, with the methods that hosts call."""

    def __init__(self, logs: list[ObedientLog]) -> None:
        self._logs = logs
        self.available = True

    def available_for(self, shard: ShardId) -> bool:
        return self._logs[int(shard.name)].up

    async def append(self, shard: ShardId, epoch: int, appends: object) -> object:
        return await self._logs[int(shard.name)].append(shard, epoch, appends)  # type: ignore[arg-type]

    async def read(self, stream: str, *args: object) -> object:
        index = int(stream.partition(":")[2].partition("}")[0])
        return await self._logs[index].read(stream, *args)  # type: ignore[arg-type]


def assigned(response: ShareGroupHeartbeatResponse) -> dict[bytes, list[int]]:
    """Return the assignment of a response by topic id; {} when absent or empty."""
    return {topic.topic_id: list(topic.partitions) for topic in response.assignment.topic_partitions}


class Acls(Access):
    """Access control whose entries, such as `READ GROUP g`, allow something to everyone; `*` means all names."""

    def __init__(self, *entries: str) -> None:
        super().__init__()
        self._entries = set(entries)
        self.give()

    def give(self, *entries: str) -> None:
        """Allow these too."""
        self._entries.update(entries)
        self._changed()

    def take(self, *entries: str) -> None:
        """Allow these no more."""
        self._entries.difference_update(entries)
        self._changed()

    def _changed(self) -> None:
        self.follow(frozenset(_acl(*entry.split(" ", 2)) for entry in self._entries))


def _acl(operation: str, resource: str, name: str) -> Acl:
    return Acl(
        ResourceType[resource],
        name,
        PatternType.LITERAL,
        ANY_PRINCIPAL,
        ANY_HOST,
        Operation[operation],
        Permission.ALLOW,
    )


def play(body: Any, world: GroupCluster | None = None) -> None:
    async def go() -> None:
        async with world or GroupCluster() as found:
            await cast(Coroutine[Any, Any, None], body(found))

    run(go())
