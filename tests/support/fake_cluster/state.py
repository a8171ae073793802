"""What the fake cluster remembers: topics, leaders, logs with the state of each offset, members, share sessions."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

from kip932.api.v1 import (
    common_pb2,
    produce_pb2,
    share_acknowledge_pb2,
    share_fetch_pb2,
    share_group_heartbeat_pb2,
    write_txn_markers_pb2,
)
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.api.v1.record_batch_pb2 import FetchedBatch
from kip932.ids import TopicIdPartition
from shard_runtime.rpc.binding import ServerStream
from shard_runtime.rpc.in_memory_transport import InMemoryNetwork
from tests.support.virtual_time import now_s

#: THROTTLING_QUOTA_EXCEEDED
NO_ROOM = 89


@dataclass
class Log:
    """One partition: batches, and per group the state of each offset."""

    batches: list[FetchedBatch] = field(default_factory=list)
    end: int = 0
    sequences: dict[tuple[int, int], int] = field(default_factory=dict)
    states: dict[str, dict[int, tuple[str, str, int]]] = field(default_factory=lambda: defaultdict(dict))

    def append(self, data: bytes, count: int, is_control: bool = False) -> int:
        base = self.end
        self.batches.append(FetchedBatch(base_offset=base, count=count, batch=data, is_control=is_control))
        self.end += count
        return base


@dataclass
class Session:
    epoch: int
    session_id: int
    stream: object
    partitions: dict[TopicIdPartition, None]


class FakeState:
    """What the fake nodes `node<i>:9000` share; services read and change it, tests look at it and break its rules."""

    def __init__(self, nodes: int = 1) -> None:
        self.network = InMemoryNetwork()
        self.topics: dict[str, tuple[bytes, int]] = {}
        self.leaders: dict[TopicIdPartition, tuple[int, int]] = {}
        self.logs: dict[TopicIdPartition, Log] = defaultdict(Log)
        self.members: dict[str, int] = {}
        self.subscriptions: dict[str, list[str]] = {}
        self.heartbeats: list[share_group_heartbeat_pb2.ShareGroupHeartbeatRequest] = []
        self.sessions: dict[int, dict[tuple[str, str], Session]] = defaultdict(dict)
        self.fetches: list[share_fetch_pb2.ShareFetchRequest] = []
        self.acknowledges: list[share_acknowledge_pb2.ShareAcknowledgeRequest] = []
        self.produces: list[produce_pb2.ProduceRequest] = []
        self.markers: list[write_txn_markers_pb2.WriteTxnMarkersRequest] = []
        self.identities = 0
        self.metadata_requests = 0
        self.metadata_version = 0
        self.coordinator = 0
        self.errors: dict[str, deque[int]] = defaultdict(deque)
        self.hold_produce: asyncio.Event | None = None
        #: For how long who is refused with THROTTLING_QUOTA_EXCEEDED is asked to stay away.
        self.throttle_ms = 0
        #: How long an acquired record stays so.
        self.lock_ms = 30_000
        self.locked_until: dict[tuple[TopicIdPartition, str, int], float] = {}
        #: Partitions that answer a Produce with this error.
        self.unloadable: dict[TopicIdPartition, int] = {}
        self.changed = asyncio.Event()
        self.streams: dict[int, list[ServerStream]] = defaultdict(list)
        self.stream_tasks: dict[int, set[asyncio.Task[Any]]] = defaultdict(set)
        self.nodes = list(range(nodes))
        self._next_session = 100

    @property
    def bootstrap(self) -> str:
        return "node0:9000"

    def transport(self) -> Any:
        return self.network.transport()

    def add_topic(self, name: str, partitions: int = 1) -> bytes:
        topic_id = f"{name}-{len(self.topics)}".encode().ljust(16, b"x")[:16]
        self.topics[name] = (topic_id, partitions)
        self.metadata_version += 1
        for number in range(partitions):
            self.leaders[TopicIdPartition(topic_id, number)] = (self.nodes[number % len(self.nodes)], 1)
        return topic_id

    def partition(self, topic: str, number: int = 0) -> TopicIdPartition:
        return TopicIdPartition(self.topics[topic][0], number)

    def log(self, topic: str, number: int = 0) -> Log:
        return self.logs[self.partition(topic, number)]

    def notify(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def move_leader(self, topic: str, number: int, node: int) -> None:
        partition = self.partition(topic, number)
        self.leaders[partition] = (node, self.leaders[partition][1] + 1)
        self.notify()

    def take_error(self, what: str) -> ErrorCode.ValueType:
        return ErrorCode.ValueType(self.errors[what].popleft() if self.errors[what] else 0)

    def refuse(self, response: Any, error: int) -> None:
        """Make an answer nothing but this error."""
        response.error_code = error
        response.throttle_time_ms = self.throttle_ms if error == NO_ROOM else 0

    def endpoint(self, node: int) -> common_pb2.NodeEndpoint:
        return common_pb2.NodeEndpoint(node_id=node, host=f"node{node}", port=9000)

    def endpoints(self) -> list[common_pb2.NodeEndpoint]:
        return [self.endpoint(node) for node in self.nodes]

    def drop_streams(self, node: int) -> None:
        for task in list(self.stream_tasks[node]):
            task.cancel()

    def lock(self, partition: TopicIdPartition, group: str, offset: int) -> None:
        """Lock an acquired record, or renew its lock; it is available again when nobody renews it."""
        loop, key = asyncio.get_running_loop(), (partition, group, offset)
        self.locked_until[key] = loop.time() + self.lock_ms / 1000
        loop.call_later(self.lock_ms / 1000, self._expire, key)

    def _expire(self, key: tuple[TopicIdPartition, str, int]) -> None:
        partition, group, offset = key
        state, _, count = self.logs[partition].states[group][offset]
        if state == "acquired" and now_s() >= self.locked_until[key]:
            self.logs[partition].states[group][offset] = ("available", "", count)
            self.notify()

    def states(self, topic: str, group: str = "g", number: int = 0) -> dict[int, str]:
        return {offset: state for offset, (state, _, _) in sorted(self.log(topic, number).states[group].items())}

    def new_session(self) -> int:
        self._next_session += 1
        return self._next_session
