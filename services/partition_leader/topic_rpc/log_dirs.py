"""DescribeLogDirs: how large the logs of this leader are, and how much space is left on the store nodes that hold them
(CM-209).

A store node takes the place of Kafka's log directory. The store is not asked for its memory here: the process's watch
has done so (CM-208). The sizes come from the logs' indexes, which are completed by a bounded number of reads (PL-961).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import Final, NamedTuple, Protocol

from kip932.acls import CLUSTER_NAME, ResourceType
from kip932.api.v1 import describe_log_dirs_pb2
from kip932.errors import KafkaError, KafkaStorageError
from kip932.ids import TopicIdPartition
from partition_leader.topic_log.state import Measured
from partition_leader.topic_log.topic_log import TopicLog
from partition_leader.topic_rpc.error_codec import wire_code
from partition_leader.topic_rpc.log_directory import ReadAllowance
from shard_runtime.record_log.store_usage import StoreUsage
from shard_runtime.rpc.binding import NO_CALLER, CallContext
from shard_runtime.rpc.bounds import Turns, check_partitions

#: How many pages of logs' indexes one request may read from the store: each has up to 1,000 batches (PL-961).
PAGE_READS_MAX: Final = 2_000
#: How many partitions are processed without letting other tasks run.
_SLICE: Final = 250
_UNKNOWN: Final = -1


class StoreView(Protocol):
    """The nodes of this process's store, as its watch saw them last."""

    @property
    def usage(self) -> Mapping[str, StoreUsage]:
        """Return the usage of each node that has shown it."""
        ...

    def node_of(self, key: str) -> str:
        """Return the node that holds a key, as named in `usage`; "" while it is not known."""
        ...

    def on_level(self, listener: Callable[[str, StoreUsage], None]) -> None:
        """Call `listener` with a node and its usage whenever that crosses a level of its limit (CM-211)."""
        ...


class HasLog(Protocol):
    """A partition that this process leads."""

    @property
    def log(self) -> TopicLog:
        """Return its log."""
        ...


class Led(Protocol):
    """The partitions led by this process, and topics' names."""

    def led(self) -> Mapping[TopicIdPartition, HasLog]:
        """Return every partition led now."""
        ...

    def name(self, topic_id: bytes) -> str:
        """Return the topic's name; "" when it is not known."""
        ...


class LogSize(NamedTuple):
    """One log: where it is, and how large. `unread`: the error that prevented a read of the store, so that the size is
    an estimate."""

    node: str
    topic: str
    partition: int
    measured: Measured
    unread: KafkaError | None


class LogDirsService:
    """The handler, and what warnings about the store's memory name. `store`: None when nothing watches the store."""

    def __init__(self, led: Led, store: StoreView | None) -> None:
        self._led = led
        self._store = store

    async def describe_log_dirs(
        self, request: describe_log_dirs_pb2.DescribeLogDirsRequest, context: CallContext = NO_CALLER
    ) -> describe_log_dirs_pb2.DescribeLogDirsResponse:
        """Return every store node with the logs that this leader has there, without topics that the caller may not
        describe. Raises InvalidRequestError for too many partitions."""
        check_partitions((request.topics.values, "partitions"))
        response = describe_log_dirs_pb2.DescribeLogDirsResponse()
        if error := context.refusal(ResourceType.CLUSTER, CLUSTER_NAME):
            response.error_code, response.error_message = wire_code(error), error.message
            return response
        wanted: dict[str, set[int]] | None = None
        if request.HasField("topics"):
            wanted = {}
            for topic in request.topics.values:
                wanted.setdefault(topic.topic, set()).update(topic.partitions)

        def chosen(name: str) -> Collection[int] | None:
            if (wanted is None or name in wanted) and context.may(ResourceType.TOPIC, name):
                return wanted[name] if wanted else ()
            return None

        dirs = {node: self._add(response, node) for node in (self._store.usage if self._store is not None else ())}
        topics: dict[tuple[str, str], describe_log_dirs_pb2.DescribeLogDirsResponse.TopicResult] = {}
        async for size in self._sizes(chosen):
            if size.node not in dirs:
                dirs[size.node] = self._add(response, size.node)
            if size.unread is not None:
                dirs[size.node].error_code = wire_code(size.unread)
                dirs[size.node].error_message = size.unread.message
            place = (size.node, size.topic)
            if place not in topics:
                topics[place] = dirs[size.node].topics.add(name=size.topic)
            measured = size.measured
            topics[place].partitions.add(
                partition_index=size.partition,
                partition_size=measured.size,
                record_count=measured.records,
                oldest_append_time_ms=measured.oldest_append_ms,
                size_is_estimate=not measured.exact,
            )
        return response

    async def largest(self, node: str, count: int) -> list[tuple[str, int]]:
        """Return the topics with the largest logs that this leader has on a store node, and their bytes."""
        sizes: dict[str, int] = {}
        async for size in self._sizes(lambda name: ()):
            if size.node == node:
                sizes[size.topic] = sizes.get(size.topic, 0) + size.measured.size
        return sorted(sizes.items(), key=lambda item: item[1], reverse=True)[:count]

    async def _sizes(self, chosen: Callable[[str], Collection[int] | None]) -> AsyncIterator[LogSize]:
        """Measure the logs led here, by topic and partition. `chosen`: which partitions of a topic; an empty collection
        for all of them, None for none. A log that is given up meanwhile is left out."""
        turns, reads = Turns(_SLICE), ReadAllowance(PAGE_READS_MAX)
        topics: dict[bytes, tuple[str, Collection[int] | None]] = {}
        logs: list[tuple[str, int, TopicLog]] = []
        for (topic_id, partition), led in list(self._led.led().items()):
            await turns.step()
            if topic_id not in topics:
                name = self._led.name(topic_id)
                topics[topic_id] = name, chosen(name) if name else None
            name, wanted = topics[topic_id]
            if wanted is not None and (not wanted or partition in wanted):
                logs.append((name, partition, led.log))
        logs.sort(key=lambda each: each[:2])
        for name, partition, topic_log in logs:
            await turns.step()
            unread: KafkaError | None = None
            try:
                try:
                    measured = await topic_log.measure(reads.take)
                except KafkaStorageError as error:
                    unread = error
                    measured = await topic_log.measure(lambda: False)
            except KafkaError:
                continue  # it is led elsewhere by now
            yield LogSize(self._node_of(topic_log), name, partition, measured, unread)

    def _node_of(self, topic_log: TopicLog) -> str:
        return "" if self._store is None else self._store.node_of(topic_log.shard.streams[0])

    def _add(
        self, response: describe_log_dirs_pb2.DescribeLogDirsResponse, node: str
    ) -> describe_log_dirs_pb2.DescribeLogDirsResponse.LogDirResult:
        usage = None if self._store is None else self._store.usage.get(node)
        left = None if usage is None else usage.left_bytes
        return response.results.add(
            log_dir=node,
            total_bytes=_UNKNOWN if usage is None or left is None else usage.limit_bytes,
            usable_bytes=_UNKNOWN if left is None else left,
            used_bytes=_UNKNOWN if usage is None else usage.used_bytes,
        )
