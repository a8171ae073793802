"""Clients of Kafka at a leader with virtual time: requests pass the codec, a handler and the connection's streams."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

from kafka_listener.calls import Calls, Served, Streams
from kafka_listener.messages.apis import api
from kafka_listener.ports import Broker, Paced
from kafka_listener.requests.table import HANDLERS
from kip932.api.v1 import partition_leader_service_pb2 as leader_pb
from kip932.kafka_batches import Header, header_of, split
from shard_runtime.rpc.authentication import UNKNOWN
from shard_runtime.rpc.binding import bind
from shard_runtime.rpc.budget import Budget
from shard_runtime.rpc.gate import Caller, Gate, OpenCalls
from tests.unit.kafka_listener.requests.share_connections import Brokers
from tests.unit.partition_leader.share_partition.worlds import GROUP, TOPIC, World

FETCH: Final = api("ShareFetch")
ACKNOWLEDGE: Final = api("ShareAcknowledge")
_LIMITS: Final = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500}
Batches = Mapping[int, list[tuple[int, int, list[int]]]]


class Answered(NamedTuple):
    """An answer as its client reads it, and for how long it was to be held back, ms."""

    response: Any
    delay_ms: int = 0

    @property
    def error(self) -> int:
        return int(self.response.error_code)

    def partition(self, number: int = 0) -> Any:
        """The entry of a partition; None if there is none."""
        found = [
            each for topic in self.response.responses for each in topic.partitions if each.partition_index == number
        ]
        assert len(found) <= 1
        return found[0] if found else None

    def acquired(self, number: int = 0) -> list[tuple[int, int, int]]:
        """The acquired ranges of a partition without an error."""
        found = self.partition(number)
        if found is None:
            return []
        assert found.error_code == 0, found.error_message
        return [(each.first_offset, each.last_offset, each.delivery_count) for each in found.acquired_records]

    def headers(self, number: int = 0) -> list[Header]:
        """The headers of the batches that a partition brings."""
        return [header_of(each) for each in split(bytes(self.partition(number).records))]


class Wire:
    """One connection to the leader of a World."""

    def __init__(self, world: World, number: int = 1, *brokers: Broker) -> None:
        unused = cast(Any, None)
        self._budget = Budget(1 << 30)
        descriptor = leader_pb.DESCRIPTOR.services_by_name["PartitionLeaderService"]
        served = Served(
            {bound.method.path: bound for bound in bind(descriptor, world.leader.service)},
            Gate(self._budget, unused, unused, OpenCalls(100)),
            Brokers(*brokers),
            unused,
        )
        self._streams = Streams(served, self._writable)
        self._calls = Calls(served, Caller(f"tcp:{number}", "127.0.0.1", "c", UNKNOWN), self._streams)

    async def _writable(self) -> None:
        return

    def send(self, key: int, version: int, request: Any) -> asyncio.Task[Answered]:
        """Begin a request; those of one connection are begun in the order of the calls."""
        return asyncio.get_running_loop().create_task(self._answer(key, version, request))

    async def _answer(self, key: int, version: int, request: Any) -> Answered:
        handler = HANDLERS[key]
        one = api(handler.api)
        read = one.decode_request(version, b"".join(one.encode_request(version, request)))
        answer = await handler.answer(read, version, self._calls)
        delay_ms = 0
        if isinstance(answer, Paced):
            answer, delay_ms = answer
        return Answered(one.decode_response(version, b"".join(one.encode_response(version, answer))), delay_ms)

    async def lost(self) -> None:
        """Lose the connection."""
        await self._streams.end()


class Member:
    """A member's session over a connection, as a client keeps it."""

    def __init__(self, wire: Wire, name: str = "m", group: str = GROUP, version: int = 2) -> None:
        self.wire = wire
        self.name = name
        self.group = group
        self.version = version
        self.epoch = 0

    def fetch(self, *added: int, acks: Batches | None = None, epoch: int | None = None, **fields: Any) -> Any:
        """Begin a ShareFetch that adds partitions to the session, with acknowledgements."""
        request = FETCH.request
        batches: Batches = {**{number: [] for number in added}, **(acks or {})}
        partitions = [
            request.FetchPartition(partition_index=number, acknowledgement_batches=self._acks(request, ranges))
            for number, ranges in batches.items()
        ]
        values = _LIMITS | fields
        return self.wire.send(
            FETCH.key,
            self.version,
            request(
                group_id=self.group,
                member_id=self.name,
                share_session_epoch=self._next(epoch),
                topics=[request.FetchTopic(topic_id=TOPIC, partitions=partitions)] if partitions else [],
                **values,
            ),
        )

    def acknowledge(self, acks: Batches, epoch: int | None = None, **fields: Any) -> Any:
        """Begin a ShareAcknowledge."""
        request = ACKNOWLEDGE.request
        partitions = [
            request.AcknowledgePartition(partition_index=number, acknowledgement_batches=self._acks(request, ranges))
            for number, ranges in acks.items()
        ]
        return self.wire.send(
            ACKNOWLEDGE.key,
            self.version,
            request(
                group_id=self.group,
                member_id=self.name,
                share_session_epoch=self._next(epoch),
                topics=[request.AcknowledgeTopic(topic_id=TOPIC, partitions=partitions)],
                **fields,
            ),
        )

    def _next(self, epoch: int | None) -> int:
        if epoch is not None:
            return epoch
        self.epoch += 1
        return self.epoch - 1

    @staticmethod
    def _acks(request: Any, ranges: list[tuple[int, int, list[int]]]) -> list[Any]:
        return [
            request.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
            for first, last, types in ranges
        ]
