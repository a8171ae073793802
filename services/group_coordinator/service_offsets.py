"""DescribeShareGroupOffsets: start offsets from the share coordinator, lags from the partition leaders (GC-110…GC-119).

Reads only. The group's shard tells which partitions have state and, by answering, that this node is the coordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from group_coordinator.core.commands import OffsetsQuery
from group_coordinator.core.views import Topic
from group_coordinator.doors import DESCRIBE, Caller
from group_coordinator.end_offsets_service import EndOffsets
from group_coordinator.service import GROUPS_MAX, Surroundings, error_code, failure
from kip932 import errors
from kip932.api.v1 import describe_share_group_offsets_pb2 as pb
from kip932.ids import NULL_TOPIC_ID, TopicIdPartition
from shard_runtime.persister.values import Persister, PersisterError, StateSummary
from shard_runtime.rpc.bounds import check_partitions

NO_OFFSET: Final = -1
CONCURRENT_GROUPS: Final = 16

Response = pb.DescribeShareGroupOffsetsResponse
EndOffset = int | errors.KafkaError


class _Wanted(NamedTuple):
    """One topic to describe: its partitions, what the image knows of it, and whether the caller may see it."""

    name: str
    topic: Topic | None
    partitions: tuple[int, ...]
    visible: bool = True

    def known(self) -> list[TopicIdPartition]:
        """Partitions worth asking about: of a topic that exists and may be seen."""
        if self.topic is None or not self.visible:
            return []
        count = self.topic.partitions
        return [TopicIdPartition(self.topic.topic_id, index) for index in self.partitions if 0 <= index < count]


class ShareGroupOffsets:
    """The handler."""

    def __init__(self, around: Surroundings, persister: Persister, end_offsets: EndOffsets) -> None:
        self._around = around
        self._persister = persister
        self._end_offsets = end_offsets
        self._slots = asyncio.Semaphore(CONCURRENT_GROUPS)

    async def describe_share_group_offsets(
        self, request: pb.DescribeShareGroupOffsetsRequest, context: Caller
    ) -> pb.DescribeShareGroupOffsetsResponse:
        """Describe the offsets of groups, each by its own shard (GC-7). InvalidRequestError: too many (CM-62)."""
        asked = list(request.groups)
        check_partitions(*((group.topics.values, "partitions") for group in asked))
        groups = await asyncio.gather(*(self._group(group, context) for group in asked[:GROUPS_MAX]))
        if len(asked) > GROUPS_MAX:
            text = f"{len(asked)} groups were asked for; at most {GROUPS_MAX} are described by one request."
            groups += [self._failed(group.group_id, errors.InvalidRequestError(text)) for group in asked[GROUPS_MAX:]]
        return Response(groups=groups)

    async def _group(self, group: pb.DescribeShareGroupOffsetsRequest.Group, context: Caller) -> Response.GroupResult:
        try:
            self._around.require_enabled()
            self._around.require_group(context, DESCRIBE, group.group_id)
            if not group.group_id:
                raise errors.InvalidGroupIdError("The group id must not be empty.")
            async with self._slots:
                return await self._describe(group, context)
        except Exception as error:
            return self._failed(group.group_id, error)

    async def _describe(
        self, group: pb.DescribeShareGroupOffsetsRequest.Group, context: Caller
    ) -> Response.GroupResult:
        initialized = await self._around.ask(group.group_id, OffsetsQuery(group.group_id))
        assert isinstance(initialized, Mapping)
        wanted = self._named(group, context) if group.HasField("topics") else self._all(initialized, context)
        partitions = list(dict.fromkeys(partition for topic in wanted for partition in topic.known()))
        summaries = await self._persister.summary(group.group_id, partitions) if partitions else {}
        ends = await self._end_offsets.latest([key for key, found in summaries.items() if _has_lag(found)])
        return Response.GroupResult(
            group_id=group.group_id, topics=[_topic_result(topic, summaries, ends) for topic in wanted]
        )

    def _named(self, group: pb.DescribeShareGroupOffsetsRequest.Group, context: Caller) -> list[_Wanted]:
        """The topics that were asked for (GC-111, GC-112)."""
        view = self._around.topics()
        return [
            _Wanted(
                asked.topic_name,
                view.by_name(asked.topic_name),
                tuple(asked.partitions),
                self._around.sees_topic(context, asked.topic_name),
            )
            for asked in group.topics.values
        ]

    def _all(self, initialized: Mapping[bytes, Collection[int]], context: Caller) -> list[_Wanted]:
        """Every initialised partition of a topic that exists and that the caller may see (GC-110, GC-111)."""
        view = self._around.topics()
        found = [
            _Wanted(topic.name, topic, tuple(indexes))
            for topic_id, indexes in initialized.items()
            if (topic := view.by_id(topic_id)) and self._around.sees_topic(context, topic.name)
        ]
        return sorted(found, key=lambda wanted: wanted.name)

    def _failed(self, group_id: str, error: Exception) -> Response.GroupResult:
        answer, text = failure(error)
        return Response.GroupResult(
            group_id=group_id,
            error_code=error_code(answer),
            error_message=text,
            coordinator=self._around.coordinator_hint(answer, group_id),
        )


def _has_lag(summary: StateSummary | PersisterError) -> bool:
    """Whether a lag can be computed at all (GC-115)."""
    return isinstance(summary, StateSummary) and NO_OFFSET not in (
        summary.start_offset,
        summary.delivery_complete_count,
    )


def _topic_result(
    wanted: _Wanted,
    summaries: Mapping[TopicIdPartition, StateSummary | PersisterError],
    ends: Mapping[TopicIdPartition, EndOffset],
) -> Response.TopicResult:
    if not wanted.visible:
        refused = errors.TopicAuthorizationFailedError(f"Not authorized to describe topic {wanted.name}.")
        results = [_refused(index, refused) for index in wanted.partitions]
        return Response.TopicResult(topic_name=wanted.name, topic_id=NULL_TOPIC_ID, partitions=results)
    topic_id = NULL_TOPIC_ID if wanted.topic is None else wanted.topic.topic_id
    results = [_result(TopicIdPartition(topic_id, index), summaries, ends) for index in wanted.partitions]
    return Response.TopicResult(topic_name=wanted.name, topic_id=topic_id, partitions=results)


def _result(
    key: TopicIdPartition,
    summaries: Mapping[TopicIdPartition, StateSummary | PersisterError],
    ends: Mapping[TopicIdPartition, EndOffset],
) -> Response.PartitionResult:
    summary = summaries.get(key)
    if not isinstance(summary, StateSummary):  # its error is swallowed (GC-116)
        return Response.PartitionResult(partition_index=key.partition, start_offset=NO_OFFSET, lag=NO_OFFSET)
    end = ends.get(key)
    if isinstance(end, errors.KafkaError):
        return _refused(key.partition, end)
    # A log end that fell back behind what is finished (CM-47) leaves nothing to do, not less than nothing.
    lag = NO_OFFSET if end is None else max(0, end - summary.start_offset - summary.delivery_complete_count)
    return Response.PartitionResult(
        partition_index=key.partition, start_offset=summary.start_offset, leader_epoch=summary.leader_epoch, lag=lag
    )


def _refused(index: int, error: errors.KafkaError) -> Response.PartitionResult:
    return Response.PartitionResult(
        partition_index=index,
        start_offset=NO_OFFSET,
        lag=NO_OFFSET,
        error_code=error_code(error),
        error_message=error.message,
    )
