"""Reads a share group's current backlog from its coordinator, and the age of the oldest work in each partition from the
partition's leader.

The backlog is the records that members hold and those that can be delivered. It does not include records that are
delayed or wait for their dead letter, since another worker could only wait, too; nor markers; nor, for a group that
reads committed records, the records of aborted and open transactions. If the leader does not report the backlog, the
lag is used instead.

Reading does not affect the group: no record is acquired and no offset moves (CM-45).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from kip932.api.v1.fetch_pb2 import FetchRequest, FetchResponse
from kip932.api.v1.list_offsets_pb2 import ListOffsetsRequest, ListOffsetsResponse
from kip932.errors import GroupIdNotFoundError, KafkaError, TopicAuthorizationFailedError
from kip932.ids import BATCH_FORMAT_KAFKA, OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition
from kip932.record_batches import base_timestamp_of
from kip932.rpc.transport import Method, Transport, TransportError
from share_node.scaler.demand import PartitionBacklog, Trigger
from sharegroups.admin_values import ShareGroupOffset
from sharegroups.aio.admin import Admin

#: How many partitions' oldest records are looked up at a time; and the time-out for each.
LOOKUPS_MAX: Final = 16
LOOKUP_WAIT_S: Final = 5.0

#: The leaders' methods whose requests Admin does not have.
_FETCH: Final = Method("/kip932.api.v1.PartitionLeaderService/Fetch", FetchRequest, FetchResponse)
_LIST_OFFSETS: Final = Method(
    "/kip932.api.v1.PartitionLeaderService/ListOffsets", ListOffsetsRequest, ListOffsetsResponse
)

#: Asks the leader at an address about a topic's partition, from an offset on; None when it did not reply.
_Ask = Callable[[str, bytes, int, int], Awaitable[int | None]]


class BacklogReader:
    """Reads with an Admin client; `transport` is that client's own, for the calls that Admin does not have."""

    def __init__(self, admin: Admin, transport: Transport) -> None:
        self._admin = admin
        self._transport = transport

    async def read(self, trigger: Trigger, *, ages: bool) -> list[PartitionBacklog]:
        """Return one entry for each partition with a known lag. Raises KafkaError when the group cannot be described,
        TopicAuthorizationFailedError also for a topic of the trigger that may not be described, or, for ages, read.

        A partition of `trigger.topics` that the group has not started reading counts in full, so that the first worker
        starts.
        """
        offsets = await self._offsets(trigger.group)
        if trigger.topics:
            offsets = {key: value for key, value in offsets.items() if key.topic in trigger.topics}
        found = {
            key: (value.start_offset, _work(value, value.lag))
            for key, value in offsets.items()
            if value and value.lag is not None
        }
        found.update(await self._not_begun(trigger, {key for key, value in offsets.items() if value}))
        waiting = {key: start for key, (start, lag) in found.items() if lag > 0}
        oldest = await self._of_leaders(waiting, self._timestamp) if ages else {}
        return [PartitionBacklog(lag, oldest.get(key)) for key, (_, lag) in found.items()]

    async def _offsets(self, group: str) -> Mapping[TopicPartition, ShareGroupOffset | None]:
        answer = (await self._admin.list_share_group_offsets({group: None}, backlog=True))[group]
        if isinstance(answer, GroupIdNotFoundError):
            return {}  # no worker has joined yet
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    async def _not_begun(self, trigger: Trigger, begun: set[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        described = await self._admin.list_topics(trigger.topics) if trigger.topics else {}
        for topic in described.values():
            if isinstance(topic.error, TopicAuthorizationFailedError):
                raise topic.error  # taken for a topic without work, it would scale the workers to none
        names = [
            TopicPartition(topic.name, part.partition)
            for topic in described.values()
            for part in topic.partitions
            if TopicPartition(topic.name, part.partition) not in begun
        ]
        if not names:
            return {}
        starts = await self._admin.list_offsets(dict.fromkeys(names, OFFSET_EARLIEST))
        ends = await self._admin.list_offsets(dict.fromkeys(names, OFFSET_LATEST))
        found = {
            name: (start, end - start)
            for name in names
            if isinstance(start := starts[name], int) and isinstance(end := ends[name], int)
        }
        asked = {name: start for name, (start, lag) in found.items() if lag > 0}
        nothing = await self._of_leaders(asked, partial(self._empty_offsets, trigger.group))
        return {name: (start, max(0, lag - nothing.get(name, 0))) for name, (start, lag) in found.items()}

    async def _of_leaders(self, starts: Mapping[TopicPartition, int], ask: _Ask) -> dict[TopicPartition, int]:
        """Ask each partition's leader about its offset; return the results of the leaders that reply."""
        if not starts:
            return {}
        topics = await self._admin.list_topics({partition.topic for partition in starts})
        nodes = {node.node_id: f"{node.host}:{node.port}" for node in (await self._admin.describe_cluster()).nodes}
        gate = asyncio.Semaphore(LOOKUPS_MAX)

        async def one(key: TopicPartition) -> tuple[TopicPartition, int | None]:
            topic = topics[key.topic]
            leader = next((part.leader for part in topic.partitions if part.partition == key.partition), -1)
            if leader not in nodes:
                return key, None
            async with gate:
                return key, await ask(nodes[leader], topic.topic_id, key.partition, starts[key])

        return {key: found for key, found in await asyncio.gather(*map(one, starts)) if found is not None}

    async def _timestamp(self, address: str, topic_id: bytes, partition: int, offset: int) -> int | None:
        try:
            answer = await self._transport.call(
                address, _FETCH, fetch_request(topic_id, partition, offset), LOOKUP_WAIT_S
            )
        except TransportError:
            return None  # the lag is known; the age follows at the next request
        return first_timestamp_ms(answer)

    async def _empty_offsets(self, group: str, address: str, topic_id: bytes, partition: int, start: int) -> int | None:
        """Return how many offsets from `start` on have nothing for the group; None when the leader does not reply."""
        try:
            answer = await self._transport.call(
                address, _LIST_OFFSETS, empty_offsets_request(topic_id, partition, start, group), LOOKUP_WAIT_S
            )
        except TransportError:
            return None  # a lag that is too large starts one worker too many, one that is too small starts none
        return empty_offsets(answer)


def _work(offset: ShareGroupOffset, lag: int) -> int:
    if offset.waiting is None or offset.in_flight is None:
        return lag
    return offset.waiting + offset.in_flight


def fetch_request(topic_id: bytes, partition: int, offset: int) -> FetchRequest:
    """Request the batch with `offset`, and as little more as possible, without waiting (CM-45): a leader returns at
    least one batch."""
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1, batch_formats=[BATCH_FORMAT_KAFKA])
    request.topics.add(topic_id=topic_id).partitions.add(
        partition=partition, current_leader_epoch=-1, fetch_offset=offset, partition_max_bytes=1
    )
    return request


def first_timestamp_ms(response: FetchResponse) -> int | None:
    """Return the first non-empty batch's timestamp, ms since 1970; None when there is no such batch, or it is invalid.
    Raises TopicAuthorizationFailedError.

    It is the batch's base timestamp: records of a batch differ by at most the producer's linger.
    """
    for topic in response.responses:
        for part in topic.partitions:
            if part.error_code == TopicAuthorizationFailedError.code:
                raise TopicAuthorizationFailedError(part.error_message)
            for batch in part.records:
                if not batch.is_control:
                    return base_timestamp_of(batch.batch)
    return None


def empty_offsets_request(topic_id: bytes, partition: int, start: int, group: str) -> ListOffsetsRequest:
    """Request the log's end, and the number of offsets between `start` and that end that have nothing for the group
    (CM-105)."""
    request = ListOffsetsRequest()
    request.topics.add(topic_id=topic_id).partitions.add(
        partition_index=partition,
        current_leader_epoch=-1,
        timestamp=OFFSET_LATEST,
        holes_from=start,
        share_group_id=group,
    )
    return request


def empty_offsets(response: ListOffsetsResponse) -> int:
    """Return the number of offsets that have nothing for the group; from a leader that does not report it, the number
    of those without a record, or 0."""
    return sum(
        part.group_empty if part.HasField("group_empty") else part.holes
        for topic in response.topics
        for part in topic.partitions
    )
