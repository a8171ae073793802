"""Translates the persister's values to messages of ShareCoordinatorService and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import Message

from kip932.errors import InQuarantineError, error_for
from kip932.ids import SharePartitionKey, TopicIdPartition
from kip932.internal.v1 import share_coordinator_service_pb2 as service_pb
from kip932.records.share_state import batches_from_messages, batches_to_messages, stats_to_message
from kip932.rpc.transport import Method, service_methods
from kip932.state_values import DelayedAt, StateSpan, StateSummary
from share_persister.values import Answer, Payload, StateOperation, StoredState, Value

METHODS: Final[dict[str, Method[Message, Message]]] = service_methods(
    service_pb.DESCRIPTOR.services_by_name["ShareCoordinatorService"]
)
STATE_STREAM: Final = METHODS["StateStream"]


@dataclass(frozen=True, slots=True)
class _Shape:
    """How one operation fills a request's partition, and reads a successful result."""

    fields: Callable[[Any], dict[str, Any]]
    value: Callable[[Any], Value] = lambda result: None


def _write_fields(write: Any) -> dict[str, Any]:
    return {
        "state_epoch": write.state_epoch,
        "leader_epoch": write.leader_epoch,
        "generation": write.generation,
        "start_offset": write.start_offset,
        "delivery_complete_count": write.delivery_complete_count,
        "state_batches": batches_to_messages(write.batches),
        "stats": stats_to_message(write.stats),
    }


def _stored(result: Any) -> StoredState:
    return StoredState(result.state_epoch, result.start_offset, batches_from_messages(result.state_batches))


def _summary(result: Any) -> StateSummary:
    finished, by_limit, by_reject = (getattr(result, name) if result.HasField(name) else -1 for name in _COUNTS)
    return StateSummary(
        result.state_epoch,
        result.leader_epoch,
        result.start_offset,
        finished,
        by_limit,
        by_reject,
        batches_from_messages(result.state_batches),
        result.delayed if result.HasField("delayed") else -1,
    )


def _summary_fields(asked: StateSpan | DelayedAt | None) -> dict[str, Any]:
    if isinstance(asked, DelayedAt):
        return {"leader_epoch": -1, "delayed_at_ms": asked.wall_ms}
    first, last = asked or (None, None)
    return {"leader_epoch": -1, "batches_from": first, "batches_through": last}


_COUNTS: Final = ("delivery_complete_count", "archived_by_limit", "archived_by_reject")


_SHAPES: Final[dict[StateOperation, _Shape]] = {
    StateOperation.READ: _Shape(
        lambda read: {"leader_epoch": read.leader_epoch, "generation": read.generation}, _stored
    ),
    StateOperation.WRITE: _Shape(_write_fields),
    StateOperation.INITIALIZE: _Shape(
        lambda init: {"state_epoch": init.state_epoch, "start_offset": init.start_offset}
    ),
    StateOperation.DELETE: _Shape(lambda state_epoch: {"state_epoch": state_epoch}),
    StateOperation.SUMMARY: _Shape(_summary_fields, _summary),
}


def build_request(
    operation: StateOperation, group_id: str, entries: Iterable[tuple[SharePartitionKey, Payload]]
) -> Message:
    """Build one group's request, for different share-partitions."""
    request: Any = METHODS[operation.value].request_type(group_id=group_id)
    fields = _SHAPES[operation].fields
    topics: dict[bytes, Any] = {}
    for key, payload in entries:
        topic = topics.get(key.topic_id)
        if topic is None:
            topic = topics[key.topic_id] = request.topics.add(topic_id=key.topic_id)
        topic.partitions.add(partition=key.partition, **fields(payload))
    return request  # type: ignore[no-any-return]


def read_response(operation: StateOperation, response: Any) -> dict[TopicIdPartition, Answer]:
    """Return the answers in a response, by share-partition. The caller must check for missing ones (PL-722)."""
    value = _SHAPES[operation].value
    answers: dict[TopicIdPartition, Answer] = {}
    for topic in response.results:
        for result in topic.partitions:
            error = error_for(result.error_code, result.error_message)
            if error is not None and result.in_quarantine:
                error = InQuarantineError(result.error_message)
            name = TopicIdPartition(topic.topic_id, result.partition)
            answers[name] = Answer(value=value(result)) if error is None else _refusal(operation, result, error)
    return answers


def _refusal(operation: StateOperation, result: Any, error: Any) -> Answer:
    hint = f"{result.coordinator.host}:{result.coordinator.port}" if result.HasField("coordinator") else None
    carries_epoch = operation in {StateOperation.READ, StateOperation.WRITE} and result.HasField("leader_epoch")
    return Answer(error, leader_epoch=result.leader_epoch if carries_epoch else None, hint=hint)
