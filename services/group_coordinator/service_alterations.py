"""Translates AlterShareGroupOffsets to a command, and its outcome to a response (GC-100…GC-106).

It makes the checks that need no group, asks the leaders for log ends, and returns a result per partition. For the
decision see `core.alteration`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from group_coordinator.admin_outcomes import AdminOutcomes
from group_coordinator.core import commands as c
from group_coordinator.core.alteration import refusal
from group_coordinator.core.views import Topic
from group_coordinator.leader_end_offsets import EndOffset, EndOffsets, LogEnd
from group_coordinator.service import Surroundings, error_code
from kip932 import errors
from kip932.acls import ResourceType
from kip932.api.v1 import alter_share_group_offsets_pb2 as pb
from kip932.ids import NULL_TOPIC_ID, TopicIdPartition
from kip932.quotas import MUTATION_RATE
from shard_runtime.rpc.binding import CallContext
from shard_runtime.rpc.bounds import Turns, check_groups, check_partitions
from shard_runtime.rpc.change_log import log_changes
from shard_runtime.rpc.quotas import Mutations

#: How many partitions are processed before other tasks get to run.
SLICE: Final = 500

Response = pb.AlterShareGroupOffsetsResponse


class _Requested(NamedTuple):
    """One requested partition. `entry`: the index of its topic in the request; `error`: why it is refused, if it is."""

    entry: int
    name: str
    topic: Topic | None
    partition: int
    start_offset: int
    error: errors.KafkaError | None

    @property
    def key(self) -> TopicIdPartition:
        return TopicIdPartition(NULL_TOPIC_ID if self.topic is None else self.topic.topic_id, self.partition)


class OffsetAlterations:
    """The handler of `AlterShareGroupOffsets`."""

    def __init__(self, around: Surroundings, outcomes: AdminOutcomes, ends: EndOffsets) -> None:
        self._around = around
        self._outcomes = outcomes
        self._ends = ends

    async def alter_share_group_offsets(
        self, request: pb.AlterShareGroupOffsetsRequest, context: CallContext
    ) -> pb.AlterShareGroupOffsetsResponse:
        """Set start offsets of an empty group; create the group if it does not exist (GC-101). Raises
        InvalidRequestError for too many partitions (CM-62)."""
        check_groups(1, [request.group_id])
        check_partitions((request.topics.values, "partitions"))
        around, mutations = self._around, Mutations(context.quota(MUTATION_RATE))
        try:
            around.require_enabled()
            around.require_group(context, request.group_id)
            around.require_group_id(request.group_id)
            mutations.admit(1)
            mutations.made()
            asked = await self._asked(request, context)
            failed = await self._alter(request.group_id, asked) if asked else {}
            done = [one for one in asked if one.error is None and one.key not in failed]
            named = [f"{one.name}-{one.partition} to {one.start_offset}" for one in done]
            log_changes("offsets_altered", context, named, group=request.group_id)
        except Exception as error:
            answer, text = around.failure(error)
            return Response(
                throttle_time_ms=mutations.made(),
                error_code=error_code(answer),
                error_message=text,
                coordinator=around.coordinator_hint(answer, request.group_id),
                in_quarantine=isinstance(answer, errors.InQuarantineError),
            )
        return Response(responses=await _results(request, asked, failed))

    async def _asked(self, request: pb.AlterShareGroupOffsetsRequest, context: CallContext) -> list[_Requested]:
        """The requested partitions, each checked for access and against the image (GC-100, GC-102, GC-105)."""
        view, turns = self._around.topics(), Turns(SLICE)
        found = []
        for entry, topic in enumerate(request.topics.values):
            name = topic.topic_name
            refused = context.refusal(ResourceType.TOPIC, name)
            known = view.by_name(name) if refused is None else None  # a refusal does not say whether the topic exists
            for one in topic.partitions:
                await turns.step()
                error = refused or refusal(known, name, one.partition_index, one.start_offset)
                found.append(_Requested(entry, name, known, one.partition_index, one.start_offset, error))
        return found

    async def _alter(self, group_id: str, asked: Iterable[_Requested]) -> Mapping[TopicIdPartition, errors.KafkaError]:
        """Alter the valid partitions, and return the errors. When a partition is given several offsets, the last one
        wins, as in Kafka."""
        await self._around.ask(group_id, c.RequireEmpty(group_id))
        wanted = {one.key: one for one in asked if one.error is None}
        ends = await self._ends.latest(dict.fromkeys(wanted)) if wanted else {}
        refused = {key: error for key, one in wanted.items() if (error := _beyond(one, ends.get(key)))}
        offsets = {key: one.start_offset for key, one in wanted.items() if key not in refused}
        if not offsets:
            return refused
        with self._outcomes.waiting() as place:
            begun = await self._around.ask(group_id, c.AlterOffsets(group_id, offsets, place.call_id))
            assert isinstance(begun, c.AlterationBegun)
            failed = await place.end() if begun.under_way else {}
        return {**refused, **begun.refused, **failed}


def _beyond(one: _Requested, end: EndOffset | None) -> errors.KafkaError | None:
    """The error if the log does not allow the offset, or its end is not known; else None (GC-106)."""
    where = f"{one.name}-{one.partition}"
    if isinstance(end, LogEnd):
        if one.start_offset <= end.offset:
            return None
        return errors.OffsetOutOfRangeError(
            f"start offset {one.start_offset} of {where} is beyond the log's end, which is {end.offset}; expected an "
            "offset from the log's start to its end"
        )
    if isinstance(end, errors.UnknownTopicOrPartitionError):
        return end
    why = "" if end is None else f": {end.message}"
    return errors.LeaderNotAvailableError(f"the end of {where} is not known, since no leader answered{why}; try again")


async def _results(
    request: pb.AlterShareGroupOffsetsRequest,
    asked: Iterable[_Requested],
    failed: Mapping[TopicIdPartition, errors.KafkaError],
) -> list[Response.TopicResult]:
    topics = [
        Response.TopicResult(topic_name=topic.topic_name, topic_id=NULL_TOPIC_ID) for topic in request.topics.values
    ]
    turns = Turns(SLICE)
    for one in asked:
        await turns.step()
        topic = topics[one.entry]
        if one.topic is not None:
            topic.topic_id = one.topic.topic_id
        error = one.error or failed.get(one.key)
        if error is None:
            topic.partitions.add(partition_index=one.partition)
        else:
            topic.partitions.add(
                partition_index=one.partition, error_code=error_code(error), error_message=error.message
            )
    return topics
