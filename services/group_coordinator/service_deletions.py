"""Translates DeleteGroups and DeleteShareGroupOffsets to commands, and their outcomes to responses (GC-90…GC-99).

Each group and topic has a result of its own; no failure hides another's result. For the decisions, and for resuming a
deletion after a crash, see `core.deletion`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from group_coordinator.admin_outcomes import AdminOutcomes, Errors
from group_coordinator.core import commands as c
from group_coordinator.service import Surroundings, error_code
from kip932 import errors
from kip932.acls import ResourceType
from kip932.api.v1 import delete_groups_pb2 as groups_pb
from kip932.api.v1 import delete_share_group_offsets_pb2 as pb
from kip932.ids import NULL_TOPIC_ID
from kip932.quotas import MUTATION_RATE
from shard_runtime.rpc.binding import CallContext
from shard_runtime.rpc.bounds import check_groups, check_topics
from shard_runtime.rpc.change_log import log_changes
from shard_runtime.rpc.quotas import Mutations

#: How many groups are deleted at the same time for one request.
DELETED_TOGETHER: Final = 16

Result = groups_pb.DeleteGroupsResponse.DeletableGroupResult
TopicResult = pb.DeleteShareGroupOffsetsResponse.TopicResult


class Deletions:
    """The handlers. `complete_since_ms`: the time, by the deadline clock, since which the image is complete (GC-80)."""

    def __init__(self, around: Surroundings, outcomes: AdminOutcomes, complete_since_ms: Callable[[], int]) -> None:
        self._around = around
        self._outcomes = outcomes
        self._complete_since_ms = complete_since_ms

    async def delete_groups(
        self, request: groups_pb.DeleteGroupsRequest, context: CallContext
    ) -> groups_pb.DeleteGroupsResponse:
        """Delete groups, each once and by its own shard (GC-7, GC-90). Raises InvalidRequestError for too many
        (CM-62)."""
        check_groups(len(request.groups_names), request.groups_names)
        group_ids = list(dict.fromkeys(request.groups_names))
        slots = asyncio.Semaphore(DELETED_TOGETHER)
        mutations = Mutations(context.quota(MUTATION_RATE))

        async def one(group_id: str) -> Result:
            async with slots:
                return await self._delete_group(group_id, context, mutations)

        results = await asyncio.gather(*map(one, group_ids))
        return groups_pb.DeleteGroupsResponse(results=results, throttle_time_ms=mutations.made())

    async def _delete_group(self, group_id: str, context: CallContext, mutations: Mutations) -> Result:
        around = self._around
        try:
            around.require_group(context, group_id)
            around.require_group_id(group_id)
            mutations.admit(1)
            with self._outcomes.waiting() as place:
                command = c.DeleteGroup(group_id, self._complete_since_ms(), place.call_id)
                begun = await around.ask(group_id, command)
                assert isinstance(begun, c.DeletionBegun)
                failed = await place.end() if begun.under_way else {}
        except Exception as error:
            return self._refused(group_id, error)
        if failed:
            return self._refused(group_id, _kept(group_id, failed))
        log_changes("group_deleted", context, [group_id])
        return Result(group_id=group_id)

    def _refused(self, group_id: str, error: Exception) -> Result:
        answer, text = self._around.failure(error)
        return Result(
            group_id=group_id,
            error_code=error_code(answer),
            error_message=text,
            coordinator=self._around.coordinator_hint(answer, group_id),
            in_quarantine=isinstance(answer, errors.InQuarantineError),
        )

    async def delete_share_group_offsets(
        self, request: pb.DeleteShareGroupOffsetsRequest, context: CallContext
    ) -> pb.DeleteShareGroupOffsetsResponse:
        """Delete the state of topics of an empty group (GC-96…GC-99). Raises InvalidRequestError for too many topics
        (CM-62)."""
        check_groups(1, [request.group_id])
        check_topics(len(request.topics.values))
        around, mutations = self._around, Mutations(context.quota(MUTATION_RATE))
        try:
            around.require_enabled()
            around.require_group(context, request.group_id)
            around.require_group_id(request.group_id)
            mutations.admit(1)
            mutations.made()
            names = list(dict.fromkeys(topic.topic_name for topic in request.topics.values))
            results = await self._delete_offsets(request.group_id, names, context)
        except Exception as error:
            answer, text = around.failure(error)
            return pb.DeleteShareGroupOffsetsResponse(
                throttle_time_ms=mutations.made(),
                error_code=error_code(answer),
                error_message=text,
                coordinator=around.coordinator_hint(answer, request.group_id),
                in_quarantine=isinstance(answer, errors.InQuarantineError),
            )
        return pb.DeleteShareGroupOffsetsResponse(responses=results)

    async def _delete_offsets(self, group_id: str, names: list[str], context: CallContext) -> list[TopicResult]:
        refused = {name: error for name in names if (error := context.refusal(ResourceType.TOPIC, name)) is not None}
        allowed = [name for name in names if name not in refused]
        begun, failed = c.DeletionBegun(under_way=False), dict[bytes, errors.KafkaError]()
        if names:  # even when no topic is allowed: the group's errors come before its topics'
            with self._outcomes.waiting() as place:
                found = await self._around.ask(group_id, c.DeleteOffsets(group_id, tuple(allowed), place.call_id))
                assert isinstance(found, c.DeletionBegun)
                begun = found
                failed = _by_topic(await place.end()) if begun.under_way else {}
        results = []
        for name in names:
            if name in refused:
                results.append(_failed(name, refused[name]))
            elif name in begun.refused:
                results.append(_failed(name, begun.refused[name]))
            elif name in begun.accepted:
                topic_id = begun.accepted[name]
                results.append(_deleted(name, topic_id, failed.get(topic_id)))
        gone = [name for name, topic_id in begun.accepted.items() if topic_id not in failed]
        log_changes("offsets_deleted", context, gone, group=group_id)
        return results


def _kept(group_id: str, failed: Errors) -> errors.KafkaError:
    """The error of a group that was not deleted (GC-92). Callers retry it by themselves, unless an operator must
    act."""
    waiting = {partition: error for partition, error in failed.items() if isinstance(error, errors.InQuarantineError)}
    partition, first = next(iter((waiting or failed).items()))
    again = "delete it again" + (" when that is settled" if waiting else "")
    text = (
        f"{len(failed)} partitions of group {group_id} still have state, so the group is kept; {again}, or wait until "
        f"the coordinator continues by itself; first {partition.text}: {first.message}"
    )
    code = errors.GroupDeletionFailedError.code if waiting else first.code
    return errors.error_for(code, text) or first


def _by_topic(failed: Errors) -> dict[bytes, errors.KafkaError]:
    """The first error of each topic."""
    found: dict[bytes, errors.KafkaError] = {}
    for partition, error in failed.items():
        found.setdefault(partition.topic_id, error)
    return found


def _deleted(name: str, topic_id: bytes, error: errors.KafkaError | None) -> TopicResult:
    if error is None:
        return TopicResult(topic_name=name, topic_id=topic_id)
    text = f"not all offsets of topic {name} were deleted; delete them again: {error.message}"
    return TopicResult(topic_name=name, topic_id=topic_id, error_code=error_code(error), error_message=text)


def _failed(name: str, error: errors.KafkaError) -> TopicResult:
    return TopicResult(
        topic_name=name, topic_id=NULL_TOPIC_ID, error_code=error_code(error), error_message=error.message
    )
