"""Asks partition leaders for log ends by ListOffsets, with a few retries and an error per partition. Leaders, except
those of older builds, also report how many offsets before the end have no record (CM-105).

`leader_of` uses the node's metadata; a wrong leader costs one of the retries (GC-115, GC-117, CM-14).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

from kip932 import errors
from kip932.api.v1 import list_offsets_pb2 as pb
from kip932.api.v1 import partition_leader_service_pb2 as service_pb
from kip932.ids import OFFSET_LATEST, REQUEST_PARTITIONS_MAX, TopicIdPartition
from kip932.rpc.transport import Method, Transport, TransportError

RETRIES_MAX: Final = 5
RETRY_PAUSE_S: Final = 0.1
CALL_TIMEOUT_S: Final = 5.0
_ANY_EPOCH: Final = -1
_LIST_OFFSETS: Final[Method[pb.ListOffsetsRequest, pb.ListOffsetsResponse]] = Method(
    f"/{service_pb.DESCRIPTOR.services_by_name['PartitionLeaderService'].full_name}/ListOffsets",
    pb.ListOffsetsRequest,
    pb.ListOffsetsResponse,
)
_MOVED: Final = (errors.NotLeaderOrFollowerError, errors.LeaderNotAvailableError, errors.NetworkError)


class GroupBacklog(NamedTuple):
    """A group's remaining work in a partition, as its leader reports it (PL-827). None: not known."""

    in_flight: int | None = None
    waiting: int | None = None
    oldest_age_ms: int | None = None
    dead_letters: int | None = None
    dead_letter_age_ms: int | None = None
    delayed: int | None = None
    empty: int | None = None


UNKNOWN: Final = GroupBacklog()


class LogEnd(NamedTuple):
    """The next offset to be written, and how many offsets from the requested start to it are known to have no
    record. `backlog`: that of the requested group."""

    offset: int
    holes: int
    backlog: GroupBacklog = UNKNOWN


EndOffset = LogEnd | errors.KafkaError


class EndOffsets:
    """Asks partition leaders for log ends. `leader_of` returns the leader's `host:port`; None without a live leader."""

    def __init__(
        self,
        transport: Transport,
        leader_of: Callable[[TopicIdPartition], str | None],
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._transport = transport
        self._leader_of = leader_of
        self._pause = pause

    async def latest(
        self, starts: Mapping[TopicIdPartition, int | None], group_id: str | None = None
    ) -> dict[TopicIdPartition, EndOffset]:
        """Return each partition's log end (read uncommitted) with its holes from the given start on, or its error.
        Without a start (None), no holes are counted. With `group_id`, also ask for that group's backlog (PL-827)."""
        found: dict[TopicIdPartition, EndOffset] = {}
        left = list(starts)
        for attempt in range(1 + RETRIES_MAX):
            if attempt and left:
                await self._pause(RETRY_PAUSE_S)
            found.update(await self._ask_leaders(left, starts, group_id))
            left = [partition for partition in left if isinstance(found[partition], _MOVED)]
            if not left:
                break
        return found

    async def _ask_leaders(
        self,
        partitions: Collection[TopicIdPartition],
        starts: Mapping[TopicIdPartition, int | None],
        group_id: str | None,
    ) -> dict[TopicIdPartition, EndOffset]:
        found: dict[TopicIdPartition, EndOffset] = {}
        by_leader: dict[str, list[TopicIdPartition]] = {}
        for partition in partitions:
            address = self._leader_of(partition)
            if address is None:
                found[partition] = errors.LeaderNotAvailableError(f"partition {partition.text} has no live leader")
            else:
                by_leader.setdefault(address, []).append(partition)
        calls = [
            self._ask(address, {key: starts[key] for key in asked[first : first + REQUEST_PARTITIONS_MAX]}, group_id)
            for address, asked in by_leader.items()
            for first in range(0, len(asked), REQUEST_PARTITIONS_MAX)
        ]
        for answers in await asyncio.gather(*calls):
            found.update(answers)
        return found

    async def _ask(
        self, address: str, starts: Mapping[TopicIdPartition, int | None], group_id: str | None
    ) -> dict[TopicIdPartition, EndOffset]:
        try:
            response = await self._transport.call(address, _LIST_OFFSETS, _request(starts, group_id), CALL_TIMEOUT_S)
        except TransportError as error:
            failure: errors.KafkaError = (
                errors.NetworkError(str(error)) if error.retriable else errors.UnknownServerError(str(error))
            )
            return dict.fromkeys(starts, failure)
        found: dict[TopicIdPartition, EndOffset] = {
            TopicIdPartition(topic.topic_id, result.partition_index): errors.error_for(
                result.error_code, result.error_message
            )
            or LogEnd(result.offset, result.holes, _backlog(result))
            for topic in response.topics
            for result in topic.partitions
        }
        missing = errors.UnknownServerError(f"the leader at {address} answered nothing for this partition")
        return {partition: found.get(partition, missing) for partition in starts}


def _backlog(result: Any) -> GroupBacklog:
    names = (f"group_{name}" for name in GroupBacklog._fields)
    return GroupBacklog(*(getattr(result, name) if result.HasField(name) else None for name in names))


def _request(starts: Mapping[TopicIdPartition, int | None], group_id: str | None) -> pb.ListOffsetsRequest:
    topics: dict[bytes, pb.ListOffsetsRequest.Topic] = {}
    for (topic_id, index), start in starts.items():
        topic = topics.setdefault(topic_id, pb.ListOffsetsRequest.Topic(topic_id=topic_id))
        topic.partitions.add(
            partition_index=index,
            current_leader_epoch=_ANY_EPOCH,
            timestamp=OFFSET_LATEST,
            holes_from=start,
            share_group_id=group_id,
        )
    return pb.ListOffsetsRequest(topics=list(topics.values()))
