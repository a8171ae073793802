"""Sends packed dead letters to the leaders of their partitions, with one Produce request in flight per node (PL-912).

Partitions that this process leads are appended to directly. Dead letters that accumulate for another node while a
request is in flight go into the next request. Nothing is retried here. A node that does not respond holds up a bounded
number of rounds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kip932.api.v1 import partition_leader_service_pb2 as service_pb
from kip932.api.v1 import produce_pb2 as pb
from kip932.errors import (
    KafkaError,
    LeaderNotAvailableError,
    NetworkError,
    NotLeaderOrFollowerError,
    ThrottlingQuotaExceededError,
    UnknownServerError,
    error_for,
)
from kip932.ids import TopicIdPartition
from kip932.rpc.transport import Method, Transport, TransportError
from partition_leader.dead_letters.letter_codec import Packed
from partition_leader.led_partitions import LedPartitions
from partition_leader.topic_log.core.batch import NewBatch

if TYPE_CHECKING:
    from opentelemetry.trace import Span

TIMEOUT_MS: Final = 8_000
#: The maximum number of rounds in flight to one node or queued for it. A round has at most about 1 MiB, or one larger
#: dead letter.
ROUNDS_MAX: Final = 16
REQUEST_BYTES: Final = 4 << 20
_LOCAL: Final = ""
_PRODUCE: Final[Method[pb.ProduceRequest, pb.ProduceResponse]] = Method(
    f"/{service_pb.DESCRIPTOR.services_by_name['PartitionLeaderService'].full_name}/Produce",
    pb.ProduceRequest,
    pb.ProduceResponse,
)
_ACKS_ALL: Final = -1


class _QueuedRound(NamedTuple):
    partition: TopicIdPartition
    packed: Packed
    answer: asyncio.Future[KafkaError | None]


class NodeSenders:
    """Sends dead letters to all nodes. `leader_of` returns the node-to-node address of a partition's leader, or None if
    no leader is known."""

    def __init__(
        self, led: LedPartitions, transport: Transport, leader_of: Callable[[TopicIdPartition], str | None]
    ) -> None:
        self._led = led
        self._transport = transport
        self._leader_of = leader_of
        self._queues: dict[str, list[_QueuedRound]] = {}
        self._rounds_by_node: dict[str, int] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def carry(self, partition: TopicIdPartition, packed: Packed, span: Span | None = None) -> None:
        """Append all batches or none, and return once they are stored. `span`: that of their writing, if it is traced.
        Raises KafkaError; it is a ThrottlingQuotaExceededError if ROUNDS_MAX rounds for the leader are pending
        already."""
        try:
            log = self._led.log(partition)
        except NotLeaderOrFollowerError:
            await self._send(partition, packed)
            return
        with self._place(_LOCAL):
            await log.append(packed.batches, TIMEOUT_MS, span)

    async def _send(self, partition: TopicIdPartition, packed: Packed) -> None:
        address = self._leader_of(partition)
        if address is None:
            raise LeaderNotAvailableError(f"no live leader is known of partition {partition.text}")
        with self._place(address):
            load = _QueuedRound(partition, packed, asyncio.get_running_loop().create_future())
            self._queues.setdefault(address, []).append(load)
            if address not in self._tasks:
                task = asyncio.get_running_loop().create_task(self._work(address), name="dead-letters-to-node")
                self._tasks[address] = task
            error = await load.answer
        if error is not None:
            raise error

    def _place(self, address: str) -> _Slot:
        if self._rounds_by_node.get(address, 0) >= ROUNDS_MAX:
            where = f"the node at {address}" if address else "this node's own logs"
            raise ThrottlingQuotaExceededError(f"{ROUNDS_MAX} rounds of dead letters are on their way to {where}")
        return _Slot(self._rounds_by_node, address)

    async def _work(self, address: str) -> None:
        loads: list[_QueuedRound] = []
        try:
            while loads := self._next(address):
                parts = {load.partition: load.packed.batches for load in loads}
                answers = await _produce(self._transport, address, parts, TIMEOUT_MS)
                for load in loads:
                    if not load.answer.done():
                        load.answer.set_result(answers[load.partition])
        finally:
            del self._tasks[address]
            for load in (*loads, *self._queues.pop(address, ())):
                if not load.answer.done():
                    load.answer.set_result(NetworkError("the connection to that node was closed"))

    def _next(self, address: str) -> list[_QueuedRound]:
        """Return the rounds for the next request, oldest first, at most one per partition."""
        taken: dict[TopicIdPartition, _QueuedRound] = {}
        left: list[_QueuedRound] = []
        size = 0
        for load in self._queues.get(address, ()):
            if load.answer.done():  # its sender no longer waits
                continue
            if load.partition in taken or (taken and size + load.packed.size > REQUEST_BYTES):
                left.append(load)
            else:
                taken[load.partition] = load
                size += load.packed.size
        self._queues[address] = left
        return list(taken.values())

    async def close(self) -> None:
        """Cancel the requests in flight."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Slot:
    """Counts one pending round for a node for the duration of a `with` block."""

    def __init__(self, taken: dict[str, int], address: str) -> None:
        self._taken = taken
        self._address = address

    def __enter__(self) -> None:
        self._taken[self._address] = self._taken.get(self._address, 0) + 1

    def __exit__(self, *_: object) -> None:
        self._taken[self._address] -= 1
        if not self._taken[self._address]:
            del self._taken[self._address]


async def _produce(
    transport: Transport,
    address: str,
    parts: Mapping[TopicIdPartition, Sequence[NewBatch]],
    timeout_ms: int,
) -> dict[TopicIdPartition, KafkaError | None]:
    """Append to partitions that the node at `address` leads. Returns each partition's error, or None if its batches are
    stored. If the node does not respond, every partition gets NetworkError and its outcome is unknown."""
    request = pb.ProduceRequest(acks=_ACKS_ALL, timeout_ms=timeout_ms)
    topics: dict[bytes, pb.ProduceRequest.TopicData] = {}
    for (topic_id, index), batches in parts.items():
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = request.topic_data.add(topic_id=topic_id)
        data = topic.partition_data.add(index=index)
        for batch in batches:
            data.batches.add(
                record_batch=batch.data, record_count=batch.record_count, max_timestamp_ms=batch.max_timestamp_ms
            )
    try:
        # The node responds within its own timeout; some time after that it is treated as unreachable.
        response = await transport.call(address, _PRODUCE, request, 1.25 * timeout_ms / 1000)
    except TransportError as error:
        return dict.fromkeys(parts, NetworkError(str(error)))
    found: dict[TopicIdPartition, KafkaError | None] = {
        TopicIdPartition(topic.topic_id, result.index): error_for(result.error_code, result.error_message)
        for topic in response.responses
        for result in topic.partition_responses
    }
    missing = UnknownServerError(f"the node at {address} answered nothing for this partition")
    return {partition: found.get(partition, missing) for partition in parts}
