"""Translates ExplainRecord between messages and values."""

from __future__ import annotations

from typing import Final

from kip932.api.v1 import explain_record_pb2 as pb
from kip932.errors import KafkaError
from kip932.ids import SharePartitionKey, TopicIdPartition
from partition_leader.explain.core.explanation import Fate, Obstacle
from partition_leader.explain.record_explainer import Answered, Asked
from partition_leader.topic_rpc.error_codec import LeaderNames, wire_code
from partition_leader.topic_rpc.log_directory import LogDirectory, checked_topic_id


def question_of(message: pb.ExplainRecordRequest) -> Asked:
    """Return the request as a value. Raises InvalidRequestError for a topic id of the wrong size."""
    key = SharePartitionKey(message.group_id, checked_topic_id(message.topic_id), message.partition_index)
    return Asked(key, message.offset, message.last_offset if message.HasField("last_offset") else message.offset)


#: With one of these, a record only needs a consumer to fetch it, and one may have been refused.
_FETCHABLE: Final = frozenset({Obstacle.NOT_FETCHED, Obstacle.NO_STATE, Obstacle.START_NOT_SET, Obstacle.NONE})


def explained(answered: Answered, refused_lately: str = "") -> pb.ExplainRecordResponse:
    """Return the explanation as a message. `refused_lately`: which consumers were refused, stated for each record that
    only needs one to fetch it."""
    question, explanation = answered
    return pb.ExplainRecordResponse(
        start_offset=explanation.start_offset,
        end_offset=explanation.end_offset,
        log_start_offset=question.log.log_start,
        high_watermark=question.log.high_watermark,
        state_epoch=explanation.state_epoch,
        loaded=explanation.loaded,
        fetching_members=question.fetching,
        delivery_count_limit=question.settings.delivery_count_limit,
        max_record_locks=question.settings.max_record_locks,
        in_flight_offsets=explanation.window_offsets,
        held_records=explanation.held,
        read_committed=question.read_committed,
        last_stable_offset=question.log.last_stable,
        stable_kept_by=question.log.kept_by,
        stable_kept_ms=question.log.kept_ms,
        records=[
            _record(fate, f"{words} {refused_lately}" if refused_lately and fate.obstacle in _FETCHABLE else words)
            for fate, words in explanation.records
        ],
    )


def refused(message: pb.ExplainRecordRequest, error: KafkaError, directory: LogDirectory) -> pb.ExplainRecordResponse:
    """Return an error as a message, which names the leader if that is another node."""
    response = pb.ExplainRecordResponse(error_code=wire_code(error), error_message=error.message, start_offset=-1)
    names = LeaderNames(directory)
    names.fill(response.current_leader, TopicIdPartition(message.topic_id, message.partition_index), error)
    response.node_endpoints.extend(names.endpoints)
    return response


def _record(fate: Fate, words: str) -> pb.ExplainRecordResponse.Record:
    record = pb.ExplainRecordResponse.Record(
        first_offset=fate.first,
        last_offset=fate.last,
        state=pb.RecordState.Value(f"RECORD_STATE_{fate.state.name}"),
        becomes=pb.RecordState.Value(f"RECORD_STATE_{fate.becomes.name}"),
        obstacle=pb.DeliveryObstacle.Value(f"DELIVERY_OBSTACLE_{fate.obstacle.name}"),
        explanation=words,
        delivery_count=fate.delivery_count,
        member_id=fate.member,
        lock_remaining_ms=fate.lock_ms,
        lock_renewed=fate.renewed,
        append_time_ms=fate.append_time_ms,
        delay_remaining_ms=fate.delay_ms,
        reason=fate.reason,
        reason_delivery_count=fate.reason_count,
        held_ms=fate.held_ms,
    )
    if fate.write is not None:
        record.write.attempts = fate.write.attempts
        if fate.write.running_ms is not None:
            record.write.running_ms = fate.write.running_ms
    return record
