"""DescribeShareGroupOffsets, from the share coordinator's start offsets and the leaders' log ends (GC-110…GC-119).

It only reads. The group's shard lists the partitions that have state; its reply also proves that this node is the
coordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeGuard

from group_coordinator.core.commands import OffsetsQuery
from group_coordinator.core.views import Topic
from group_coordinator.leader_end_offsets import UNKNOWN, EndOffset, EndOffsets, LogEnd
from group_coordinator.service import Surroundings, error_code
from kip932 import errors
from kip932.acls import ResourceType
from kip932.api.v1 import describe_share_group_offsets_pb2 as pb
from kip932.ids import NULL_TOPIC_ID, TopicIdPartition
from kip932.state_values import StateSummary
from shard_runtime.rpc.binding import CallContext
from shard_runtime.rpc.bounds import Turns, check_groups, check_partitions
from share_persister.values import Persister, PersisterError

NO_OFFSET: Final = -1
CONCURRENT_GROUPS: Final = 16
#: How many partitions are processed before other tasks get to run.
SLICE: Final = 500
#: The maximum number of partitions, of all groups, in one response (CM-91).
DESCRIBED_PARTITIONS_MAX: Final = 200_000

Response = pb.DescribeShareGroupOffsetsResponse


class _Wanted(NamedTuple):
    """One topic to describe: its partitions, its entry in the image, and the error if the caller is not authorized to
    describe it."""

    name: str
    topic: Topic | None
    partitions: tuple[int, ...]
    refused: errors.KafkaError | None = None

    def known(self) -> list[TopicIdPartition]:
        """The partitions to ask about: those that exist, of a topic that the caller may see."""
        if self.topic is None or self.refused is not None:
            return []
        count = self.topic.partitions
        return [TopicIdPartition(self.topic.topic_id, index) for index in self.partitions if 0 <= index < count]


@dataclass(slots=True)
class _Room:
    """How many more partitions the response to one request may have."""

    left: int


class ShareGroupOffsets:
    """The handler of `DescribeShareGroupOffsets`."""

    def __init__(
        self, around: Surroundings, persister: Persister, end_offsets: EndOffsets, wall_ms: Callable[[], int]
    ) -> None:
        """`wall_ms`: returns the time, ms since 1970; it decides which stored records are still delayed."""
        self._around = around
        self._wall_ms = wall_ms
        self._persister = persister
        self._end_offsets = end_offsets
        self._slots = asyncio.Semaphore(CONCURRENT_GROUPS)

    async def describe_share_group_offsets(
        self, request: pb.DescribeShareGroupOffsetsRequest, context: CallContext
    ) -> pb.DescribeShareGroupOffsetsResponse:
        """Describe the offsets of groups, each by its own shard (GC-7). Raises InvalidRequestError for too many groups
        or too large a response (CM-62, CM-91)."""
        check_groups(len(request.groups), (group.group_id for group in request.groups))
        asked = list(request.groups)
        check_partitions(*((group.topics.values, "partitions") for group in asked))
        room = _Room(DESCRIBED_PARTITIONS_MAX)
        groups = await asyncio.gather(*(self._group(group, context, room) for group in asked))
        if room.left < 0:
            raise errors.InvalidRequestError(
                f"the {len(asked)} groups have more than {DESCRIBED_PARTITIONS_MAX} partitions together; ask for fewer "
                "groups by one request"
            )
        return Response(groups=groups)

    async def _group(
        self, group: pb.DescribeShareGroupOffsetsRequest.Group, context: CallContext, room: _Room
    ) -> Response.GroupResult:
        try:
            self._around.require_enabled()
            self._around.require_group(context, group.group_id)
            self._around.require_group_id(group.group_id)
            async with self._slots:
                return await self._describe(group, context, room)
        except Exception as error:
            return self._failed(group.group_id, error)

    async def _describe(
        self, group: pb.DescribeShareGroupOffsetsRequest.Group, context: CallContext, room: _Room
    ) -> Response.GroupResult:
        initialized = await self._around.ask(group.group_id, OffsetsQuery(group.group_id))
        assert isinstance(initialized, Mapping)
        wanted = self._named(group, context) if group.HasField("topics") else self._all(initialized, context)
        room.left -= sum(len(topic.partitions) for topic in wanted)
        if room.left < 0:  # the request is refused as a whole
            return Response.GroupResult(group_id=group.group_id)
        partitions = list(dict.fromkeys(partition for topic in wanted for partition in topic.known()))
        delayed_at_ms = self._wall_ms() if group.include_backlog else None
        summaries = await self._persister.summary(group.group_id, partitions, delayed_at_ms) if partitions else {}
        ends = await self._end_offsets.latest(
            {key: found.start_offset for key, found in summaries.items() if _has_lag(found)},
            group.group_id if group.include_backlog else None,
        )
        turns = Turns(SLICE)
        topics = [await _topic_result(topic, summaries, ends, turns) for topic in wanted]
        return Response.GroupResult(group_id=group.group_id, topics=topics)

    def _named(self, group: pb.DescribeShareGroupOffsetsRequest.Group, context: CallContext) -> list[_Wanted]:
        """The requested topics (GC-111, GC-112)."""
        view = self._around.topics()
        return [
            _Wanted(
                asked.topic_name,
                view.by_name(asked.topic_name),
                tuple(asked.partitions),
                context.refusal(ResourceType.TOPIC, asked.topic_name),
            )
            for asked in group.topics.values
        ]

    def _all(self, initialized: Mapping[bytes, Collection[int]], context: CallContext) -> list[_Wanted]:
        """All initialised partitions of topics that exist and that the caller may see (GC-110, GC-111)."""
        view = self._around.topics()
        found = [
            _Wanted(topic.name, topic, tuple(indexes))
            for topic_id, indexes in initialized.items()
            if (topic := view.by_id(topic_id)) and context.may(ResourceType.TOPIC, topic.name)
        ]
        return sorted(found, key=lambda wanted: wanted.name)

    def _failed(self, group_id: str, error: Exception) -> Response.GroupResult:
        answer, text = self._around.failure(error)
        return Response.GroupResult(
            group_id=group_id,
            error_code=error_code(answer),
            error_message=text,
            coordinator=self._around.coordinator_hint(answer, group_id),
            in_quarantine=isinstance(answer, errors.InQuarantineError),
        )


def _has_lag(summary: StateSummary | PersisterError) -> TypeGuard[StateSummary]:
    """Return whether a lag can be computed from the summary (GC-115)."""
    return isinstance(summary, StateSummary) and NO_OFFSET not in (
        summary.start_offset,
        summary.delivery_complete_count,
    )


async def _topic_result(
    wanted: _Wanted,
    summaries: Mapping[TopicIdPartition, StateSummary | PersisterError],
    ends: Mapping[TopicIdPartition, EndOffset],
    turns: Turns,
) -> Response.TopicResult:
    if wanted.refused is not None:
        results = [_refused(index, wanted.refused) for index in wanted.partitions]
        return Response.TopicResult(topic_name=wanted.name, topic_id=NULL_TOPIC_ID, partitions=results)
    topic_id = NULL_TOPIC_ID if wanted.topic is None else wanted.topic.topic_id
    results = []
    for index in wanted.partitions:
        await turns.step()
        results.append(_result(TopicIdPartition(topic_id, index), summaries, ends))
    return Response.TopicResult(topic_name=wanted.name, topic_id=topic_id, partitions=results)


def _result(
    key: TopicIdPartition,
    summaries: Mapping[TopicIdPartition, StateSummary | PersisterError],
    ends: Mapping[TopicIdPartition, EndOffset],
) -> Response.PartitionResult:
    summary = summaries.get(key)
    if isinstance(summary, PersisterError):
        return _refused(key.partition, summary.error)
    if summary is None:  # it does not exist, so no coordinator was asked for it (GC-112)
        return Response.PartitionResult(partition_index=key.partition, start_offset=NO_OFFSET, lag=NO_OFFSET)
    end = ends.get(key)
    if isinstance(end, errors.KafkaError):
        return _refused(key.partition, end)
    lag = NO_OFFSET if end is None else _lag(summary, end)
    backlog = UNKNOWN if end is None else end.backlog
    waiting, delayed = backlog.waiting, backlog.delayed
    if waiting is None and backlog.in_flight is not None:  # not loaded, so no member holds its records (GC-109)
        delayed = _known(summary.delayed)
        # Delayed records may be deleted ones, which the lag leaves out: subtract only the others, to hide no work.
        there = 0 if delayed is None or end is None else max(0, delayed - end.holes)
        undone = lag if end is None or backlog.empty is None else _unfinished(summary, end.offset, backlog.empty)
        waiting = max(0, undone - (backlog.dead_letters or 0) - there)
    return Response.PartitionResult(
        partition_index=key.partition,
        start_offset=summary.start_offset,
        leader_epoch=summary.leader_epoch,
        lag=lag,
        archived_by_limit=_known(summary.archived_by_limit),
        archived_by_reject=_known(summary.archived_by_reject),
        in_flight=backlog.in_flight,
        waiting=waiting,
        oldest_age_ms=backlog.oldest_age_ms,
        dead_letters=backlog.dead_letters,
        dead_letter_age_ms=backlog.dead_letter_age_ms,
        delayed=delayed,
    )


def _lag(summary: StateSummary, end: LogEnd) -> int:
    """How many records are still to be completed (GC-115), not counting offsets without a record (CM-105).

    A finished offset may also have no record, for example one that a member acknowledged with GAP. So that no offset is
    subtracted twice, only the larger of the two counts is subtracted: a lag that is too small would hide work. The lag
    may therefore be too large, by at most the number of finished offsets, which the lock limit bounds. When the log end
    fell back below the finished offsets (CM-47), the lag is 0.
    """
    return _unfinished(summary, end.offset, end.holes)


def _unfinished(summary: StateSummary, end_offset: int, empty: int) -> int:
    return max(0, end_offset - summary.start_offset - max(summary.delivery_complete_count, empty))


def _known(count: int) -> int | None:
    """The count for the message; None, which leaves the field out, when it is −1: not known (PL-811)."""
    return count if count >= 0 else None


def _refused(index: int, error: errors.KafkaError) -> Response.PartitionResult:
    return Response.PartitionResult(
        partition_index=index,
        start_offset=NO_OFFSET,
        lag=NO_OFFSET,
        error_code=error_code(error),
        error_message=error.message,
    )
