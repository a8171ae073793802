"""Asks why records are not delivered: their leader, and in parallel the group's coordinator (CL-90, PL-820)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from kip932.api.v1.explain_record_pb2 import ExplainRecordResponse
from kip932.errors import (
    GroupIdNotFoundError,
    InQuarantineError,
    KafkaError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    error_for,
)
from kip932.ids import TopicIdPartition, TopicPartition
from sharegroups import wire
from sharegroups.admin_values import Node, RecordsExplained, ShareGroupDescription
from sharegroups.aio.cluster import Cluster
from sharegroups.aio.explain_messages import request_for, told
from sharegroups.explanations import completed

#: How long the group's coordinator may take, s. Without its answer only the members are missing.
DESCRIBE_S: Final = 5.0
#: Sends each leader one call with its partitions, and returns the result by partition.
AtLeaders = Callable[[Iterable[TopicPartition], Any], Awaitable[dict[TopicPartition, Any]]]


class Question(NamedTuple):
    """A range of offsets, both ends inclusive, of a group's partition."""

    group_id: str
    partition: TopicPartition
    offset: int
    last_offset: int


async def explained(
    cluster: Cluster,
    question: Question,
    timeout_s: float,
    at_leaders: AtLeaders,
    describe: Callable[[str], Awaitable[ShareGroupDescription]],
) -> RecordsExplained:
    """Return the leader's answer with the group's members. Raises KafkaError. A KafkaError of the coordinator is raised
    only if the group does not exist or is in quarantine; otherwise the answer carries it, without members."""
    answer, group = await asyncio.gather(
        _told(cluster, question, timeout_s, at_leaders), _described(describe, question.group_id), return_exceptions=True
    )
    # A missing group, or one that is not served until an operator acts, explains more than the leader's answer.
    if isinstance(group, BaseException) and (
        isinstance(group, GroupIdNotFoundError | InQuarantineError) or not isinstance(group, KafkaError)
    ):
        raise group
    if isinstance(answer, BaseException):
        raise answer
    if isinstance(group, ShareGroupDescription):
        return completed(answer, group)
    assert isinstance(group, KafkaError)
    return replace(answer, group_error=group)


async def _described(
    describe: Callable[[str], Awaitable[ShareGroupDescription]], group_id: str
) -> ShareGroupDescription:
    try:
        async with asyncio.timeout(DESCRIBE_S):
            return await describe(group_id)
    except TimeoutError:
        raise RequestTimedOutError(
            f"the coordinator of group {group_id!r} did not answer within {DESCRIBE_S:g} s"
        ) from None


async def _told(cluster: Cluster, question: Question, timeout_s: float, at_leaders: AtLeaders) -> RecordsExplained:
    """Return the leader's answer. If the leader has moved, find it again until the time is over. Raises KafkaError."""
    group_id, partition = question.group_id, question.partition

    async def call(address: str, parts: dict[TopicIdPartition, TopicPartition]) -> dict[TopicPartition, Any]:
        (key,) = parts
        request = request_for(group_id, key, question.offset, question.last_offset)
        response = await cluster.transport.call(address, wire.EXPLAIN_RECORD, request, timeout_s)
        return {partition: error_for(response.error_code, response.error_message) or (address, response)}

    backoff = cluster.backoff()
    last: KafkaError | None = None
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                found = (await at_leaders([partition], call))[partition]
                if not isinstance(found, KafkaError):
                    return _value(cluster, question, *found)
                if not isinstance(found, NotLeaderOrFollowerError):
                    raise found
                last = found
                await asyncio.sleep(backoff.next_ms() / 1000)
    except TimeoutError:
        text = f"the leader of {partition.topic}-{partition.partition} did not answer within {timeout_s:g} s"
        raise last or RequestTimedOutError(text) from None


def _value(cluster: Cluster, question: Question, address: str, response: ExplainRecordResponse) -> RecordsExplained:
    host, _, port = address.rpartition(":")
    leader = Node(cluster.node_at(address), host, int(port))
    return told(question.group_id, question.partition, leader, response)
