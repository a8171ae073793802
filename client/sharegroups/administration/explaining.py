"""Asks the partition's leader, and in parallel the group's coordinator, why records are not delivered (CL-90,
PL-820)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from kip932.api.v1 import explain_record_pb2 as pb
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
from sharegroups.admin_values import Node, PendingWrite, RecordExplanation, RecordsExplained, ShareGroupDescription
from sharegroups.administration.explanations import completed
from sharegroups.connection import wire
from sharegroups.connection.cluster import Cluster

#: How long the group's coordinator may take, in seconds. Without its response, only the members are missing from the
#: result.
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
    """Return the leader's response completed with the group's members. Raises KafkaError. A KafkaError from the
    coordinator is raised only if the group does not exist or is in quarantine; otherwise it is in the result, which
    then has no members."""
    answer, group = await asyncio.gather(
        _leader_answer(cluster, question, timeout_s, at_leaders),
        _describe_in_time(describe, question.group_id),
        return_exceptions=True,
    )
    # If the group is missing, or is not served until an operator acts, that explains more than the leader's response.
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


async def _describe_in_time(
    describe: Callable[[str], Awaitable[ShareGroupDescription]], group_id: str
) -> ShareGroupDescription:
    try:
        async with asyncio.timeout(DESCRIBE_S):
            return await describe(group_id)
    except TimeoutError:
        raise RequestTimedOutError(
            f"the coordinator of group {group_id!r} did not answer within {DESCRIBE_S:g} s"
        ) from None


async def _leader_answer(
    cluster: Cluster, question: Question, timeout_s: float, at_leaders: AtLeaders
) -> RecordsExplained:
    """Return the leader's response. If the leader has moved, follow it until the time-out. Raises KafkaError."""
    group_id, partition = question.group_id, question.partition

    async def call(address: str, parts: dict[TopicIdPartition, TopicPartition]) -> dict[TopicPartition, Any]:
        (key,) = parts
        request = _explain_request(group_id, key, question.offset, question.last_offset)
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
    return _records_explained(question.group_id, question.partition, leader, response)


def _explain_request(
    group_id: str, partition: TopicIdPartition, offset: int, last_offset: int
) -> pb.ExplainRecordRequest:
    """Return the request for these offsets."""
    return pb.ExplainRecordRequest(
        group_id=group_id,
        topic_id=partition.topic_id,
        partition_index=partition.partition,
        offset=offset,
        last_offset=last_offset,
    )


def _records_explained(
    group_id: str, partition: TopicPartition, leader: Node, response: pb.ExplainRecordResponse
) -> RecordsExplained:
    """Convert the leader's response, which has no error, into a value (PL-820)."""
    return RecordsExplained(
        group_id,
        partition,
        leader,
        response.loaded,
        response.start_offset if response.start_offset >= 0 else None,
        response.end_offset if response.end_offset >= 0 else None,
        response.log_start_offset,
        response.high_watermark,
        response.in_flight_offsets,
        response.max_record_locks,
        response.delivery_count_limit,
        response.fetching_members,
        tuple(map(_record_explanation, response.records)),
        in_flight=_optional(response, "held_records"),
        read_committed=response.read_committed,
        last_stable_offset=_optional(response, "last_stable_offset"),
        stable_kept_by=response.stable_kept_by or None,
        stable_kept_ms=response.stable_kept_ms if response.stable_kept_by else None,
    )


def _record_explanation(record: pb.ExplainRecordResponse.Record) -> RecordExplanation:
    write = PendingWrite(_optional(record.write, "running_ms"), record.write.attempts)
    return RecordExplanation(
        record.first_offset,
        record.last_offset,
        _enum_word(pb.RecordState, "RECORD_STATE_", record.state),
        _enum_word(pb.DeliveryObstacle, "DELIVERY_OBSTACLE_", record.obstacle),
        record.explanation,
        _optional(record, "delivery_count"),
        record.member_id or None,
        lock_remaining_ms=_optional(record, "lock_remaining_ms"),
        lock_renewed=record.lock_renewed,
        delay_remaining_ms=_optional(record, "delay_remaining_ms"),
        becomes=_enum_word(pb.RecordState, "RECORD_STATE_", record.becomes) if record.becomes else None,
        write=write if record.HasField("write") else None,
        append_time_ms=_optional(record, "append_time_ms"),
        reason=record.reason or None,
        reason_delivery_count=record.reason_delivery_count if record.reason else None,
        held_ms=_optional(record, "held_ms"),
    )


def _optional(message: Any, field: str) -> int | None:
    return getattr(message, field) if message.HasField(field) else None


def _enum_word(enum: Any, prefix: str, number: int) -> str:
    """Return an enum value as a word. A leader of a newer version may use values that this client does not know."""
    known = enum.values()
    return enum.Name(number).removeprefix(prefix).lower() if number in known else f"unknown ({number})"
