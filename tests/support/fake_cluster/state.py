"""The fake cluster's state: topics, leaders, logs, groups with their members, share sessions, requests."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from kip932.acls import Acl
from kip932.api.v1 import (
    alter_share_group_offsets_pb2,
    common_pb2,
    explain_record_pb2,
    produce_pb2,
    share_acknowledge_pb2,
    share_fetch_pb2,
    share_group_heartbeat_pb2,
)
from kip932.ids import TopicIdPartition
from kip932.quotas import QuotaEntity
from kip932.scram import ScramCredential
from tests.support.fake_cluster.faults import Faults
from tests.support.fake_cluster.log import Log
from tests.support.fake_cluster.transactions import FakeTransactions
from tests.support.virtual_time import now_s
from tests.twin.transport import InMemoryNetwork


@dataclass(eq=False)
class Session:
    """A share session. `stream`: the stream with which it ends; None for a session of single calls. A partition's value
    is whether the next response includes it even if its entry is empty."""

    epoch: int
    session_id: int
    stream: object
    partitions: dict[TopicIdPartition, bool]


class FakeState(Faults):
    """State shared by the fake nodes `node<i>:9000`; services read and change it, tests check it and set values in it.

    Group `g` exists from the start, without members.
    """

    def __init__(self, nodes: int = 1) -> None:
        super().__init__()
        self.network = InMemoryNetwork()
        self.nodes = list(range(nodes))
        self.topics: dict[str, tuple[bytes, int]] = {}
        #: Node and leader epoch; node -1 when there is no leader.
        self.leaders: dict[TopicIdPartition, tuple[int, int]] = {}
        self.logs: dict[TopicIdPartition, Log] = defaultdict(Log)
        self.groups: dict[str, None] = {"g": None}
        #: The bytes that the store uses, and its limit, 0 for none.
        self.store_memory = (1 << 20, 0)
        #: A node's settings at its next `serve`.
        self.flags: dict[int, dict[str, str]] = {}
        #: The configs set, by resource type and name.
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        #: The access control entries. They affect no other request.
        self.acls: set[Acl] = set()
        self.quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.quota_requests: list[Any] = []
        #: The requests about them, in order.
        self.acl_requests: list[Any] = []
        #: Users' passwords, which are never checked, and the requests about them, in order.
        self.passwords: dict[tuple[str, int], ScramCredential] = {}
        self.user_requests: list[Any] = []
        #: Member epochs, and what the members last sent and received.
        self.members: dict[str, int] = {}
        self.group_of: dict[str, str] = {}
        self.subscriptions: dict[str, list[str]] = {}
        self.targets_sent: dict[str, dict[bytes, list[int]]] = {}
        #: By group, the topics whose state has been initialised; only these are assigned.
        self.initialised: set[tuple[str, bytes]] = set()
        self.sessions: dict[int, dict[tuple[str, str], Session]] = defaultdict(dict)
        self.heartbeats: list[share_group_heartbeat_pb2.ShareGroupHeartbeatRequest] = []
        self.fetches: list[share_fetch_pb2.ShareFetchRequest] = []
        self.alterations: list[alter_share_group_offsets_pb2.AlterShareGroupOffsetsRequest] = []
        self.acknowledges: list[share_acknowledge_pb2.ShareAcknowledgeRequest] = []
        self.produces: list[produce_pb2.ProduceRequest] = []
        #: What the requests on streams said about the spans that sent them.
        self.traceparents: list[str] = []
        self.identities = 0
        self.transactions = FakeTransactions()
        self.metadata_requests = 0
        self.metadata_version = 0
        self.coordinator = 0
        #: A leader's responses to ExplainRecord.
        self.explained: dict[TopicIdPartition, explain_record_pb2.ExplainRecordResponse] = {}
        self.questions: list[explain_record_pb2.ExplainRecordRequest] = []
        #: The duration of a lock.
        self.lock_ms = 30_000
        #: Where nodes serve Kafka's clients; those without an entry do not.
        self.kafka_addresses: dict[int, str] = {}
        #: Whether the nodes support delayed releases (PL-931).
        self.knows_delays = True
        #: The group's delivery limit and dead-letter topic in responses (PL-258); None imitates older nodes, which send
        #: neither.
        self.delivery_count_limit: int | None = None
        self.dead_letter_topic: str | None = None
        self.changed = asyncio.Event()
        self._locked_until: dict[tuple[TopicIdPartition, str, int], float] = {}
        self._next_session = 100

    @property
    def bootstrap(self) -> str:
        return "node0:9000"

    def transport(self) -> Any:
        return self.network.transport()

    # Topics and leaders.

    def add_topic(self, name: str, partitions: int = 1) -> bytes:
        topic_id = f"{name}-{len(self.topics)}".encode()[-16:].ljust(16, b"x")
        self.topics[name] = (topic_id, 0)
        self.grow_topic(name, partitions)
        return topic_id

    def grow_topic(self, name: str, partitions: int) -> None:
        topic_id, before = self.topics[name]
        self.topics[name] = (topic_id, partitions)
        self.metadata_version += 1
        for number in range(before, partitions):
            self.leaders[TopicIdPartition(topic_id, number)] = (self.nodes[number % len(self.nodes)], 1)

    def partition(self, topic: str, number: int = 0) -> TopicIdPartition:
        return TopicIdPartition(self.topics[topic][0], number)

    def log(self, topic: str, number: int = 0) -> Log:
        return self.logs[self.partition(topic, number)]

    def move_leader(self, topic: str, number: int, node: int) -> None:
        partition = self.partition(topic, number)
        self.leaders[partition] = (node, self.leaders[partition][1] + 1)
        for group, states in self.logs[partition].states.items():
            for offset, (state, _, _) in states.items():
                if state == "acquired":  # locks are in the memory of the former leader
                    self.logs[partition].give_back(group, offset)
        self.notify()

    def endpoint(self, node: int) -> common_pb2.NodeEndpoint:
        kafka_address = self.kafka_addresses.get(node)
        return common_pb2.NodeEndpoint(node_id=node, host=f"node{node}", port=9000, kafka_address=kafka_address)

    def endpoints(self) -> list[common_pb2.NodeEndpoint]:
        return [self.endpoint(node) for node in self.nodes]

    def notify(self) -> None:
        """Wake parked fetches after a change that they may wait for."""
        self.changed.set()
        self.changed = asyncio.Event()

    # Groups.

    def add_member(self, member: str, group: str = "g") -> None:
        """Add a member that subscribes to all topics and already has its assignment."""
        self.groups[group] = None
        self.members[member], self.group_of[member] = 2, group
        self.subscriptions[member] = list(self.topics)
        self.initialised |= {(group, topic_id) for topic_id, _ in self.topics.values()}

    def members_of(self, group: str) -> list[str]:
        """Return the members in the order in which they joined."""
        return [member for member in self.members if self.group_of[member] == group]

    def assignment(self, group: str, member: str) -> dict[bytes, list[int]]:
        """Return every partition of each initialised topic that the member subscribes to: all members share them."""
        found = {}
        for name in self.subscriptions[member]:
            topic_id, count = self.topics.get(name, (b"", 0))
            if (group, topic_id) in self.initialised:
                found[topic_id] = list(range(count))
        return found

    # Records.

    def states(self, topic: str, group: str = "g", number: int = 0) -> dict[int, str]:
        return {offset: state for offset, (state, _, _) in sorted(self.log(topic, number).states[group].items())}

    def reasons(self, topic: str, group: str = "g", number: int = 0) -> dict[int, tuple[int, str]]:
        """Return why members gave records up: by offset, the delivery count and the reason."""
        return dict(sorted(self.log(topic, number).reasons[group].items()))

    def lock(self, partition: TopicIdPartition, group: str, offset: int) -> None:
        """Lock an acquired record, or renew its lock; unless renewed, the record is available again when the lock
        expires."""
        loop, key = asyncio.get_running_loop(), (partition, group, offset)
        self._locked_until[key] = loop.time() + self.lock_ms / 1000
        loop.call_later(self.lock_ms / 1000, self._expire, key)

    def _expire(self, key: tuple[TopicIdPartition, str, int]) -> None:
        partition, group, offset = key
        if self.logs[partition].states[group][offset][0] == "acquired" and now_s() >= self._locked_until[key]:
            self.logs[partition].give_back(group, offset)
            self.notify()

    def delay(self, partition: TopicIdPartition, group: str, offset: int, delay_ms: int) -> None:
        """Make a released record available again after its delay (PL-932)."""
        asyncio.get_running_loop().call_later(delay_ms / 1000, self._end_delay, partition, group, offset)

    def _end_delay(self, partition: TopicIdPartition, group: str, offset: int) -> None:
        states = self.logs[partition].states[group]
        state, holder, count = states[offset]
        if state == "delayed":
            states[offset] = ("available", holder, count)
            self.notify()

    def new_session(self) -> int:
        self._next_session += 1
        return self._next_session
