"""Translates commands on share-partition state to messages of ShareCoordinatorService, and responses to outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import Message

from kip932.errors import FencedLeaderEpochError, InQuarantineError, KafkaError, NotCoordinatorError, error_for
from kip932.ids import TopicIdPartition
from kip932.internal.v1 import share_coordinator_service_pb2 as service_pb
from kip932.records.share_state import (
    batches_from_messages,
    batches_to_messages,
    failures_from_messages,
    failures_to_messages,
    stats_to_message,
)
from kip932.rpc.transport import Method, service_methods
from kip932.state_values import (
    DeleteState,
    InitializeState,
    MovedStateError,
    ReadState,
    ReadSummary,
    StaleLeaderError,
    StateCommand,
    StateOutcome,
    StateReply,
    StateSummary,
    StoredState,
    WriteState,
)

METHODS: Final[dict[str, Method[Message, Message]]] = service_methods(
    service_pb.DESCRIPTOR.services_by_name["ShareCoordinatorService"]
)
STATE_STREAM: Final = METHODS["StateStream"]


@dataclass(frozen=True, slots=True)
class _Rpc:
    """The RPC of one kind of command: how it fills a request's partition, and reads a successful result."""

    method: Method[Message, Message]
    fields: Callable[[Any], dict[str, Any]]
    reply: Callable[[Any], StateReply] = lambda result: None


def _write_fields(write: WriteState) -> dict[str, Any]:
    return {
        "state_epoch": write.state_epoch,
        "leader_epoch": write.leader_epoch,
        "generation": write.generation,
        "start_offset": write.start_offset,
        "delivery_complete_count": write.delivery_complete_count,
        "state_batches": batches_to_messages(write.batches),
        "stats": stats_to_message(write.stats),
        "failures": failures_to_messages(write.failures),
    }


def _stored(result: Any) -> StoredState:
    return StoredState(
        result.state_epoch,
        result.start_offset,
        batches_from_messages(result.state_batches),
        failures=failures_from_messages(result.failures),
    )


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
        failures_from_messages(result.failures),
    )


def _summary_fields(asked: ReadSummary) -> dict[str, Any]:
    first, last = asked.span or (None, None)
    return {
        "leader_epoch": -1,
        "batches_from": first,
        "batches_through": last,
        "delayed_at_ms": asked.delayed_at_ms,
    }


_COUNTS: Final = ("delivery_complete_count", "archived_by_limit", "archived_by_reject")


_RPCS: Final[dict[type[StateCommand], _Rpc]] = {
    InitializeState: _Rpc(
        METHODS["InitializeShareGroupState"],
        lambda init: {"state_epoch": init.state_epoch, "start_offset": init.start_offset},
    ),
    ReadState: _Rpc(
        METHODS["ReadShareGroupState"],
        lambda read: {"leader_epoch": read.leader_epoch, "generation": read.generation},
        _stored,
    ),
    WriteState: _Rpc(METHODS["WriteShareGroupState"], _write_fields),
    DeleteState: _Rpc(METHODS["DeleteShareGroupState"], lambda delete: {"state_epoch": delete.state_epoch}),
    ReadSummary: _Rpc(METHODS["ReadShareGroupStateSummary"], _summary_fields, _summary),
}


def method_of(kind: type[StateCommand]) -> Method[Message, Message]:
    """Return the RPC of a kind of command."""
    return _RPCS[kind].method


def build_request(kind: type[StateCommand], group_id: str, commands: Iterable[StateCommand]) -> Message:
    """Build one group's request: commands of one kind, for different share-partitions."""
    rpc = _RPCS[kind]
    request: Any = rpc.method.request_type(group_id=group_id)
    topics: dict[bytes, Any] = {}
    for command in commands:
        _, topic_id, partition = command.key
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = request.topics.add(topic_id=topic_id)
        topic.partitions.add(partition=partition, **rpc.fields(command))
    return request  # type: ignore[no-any-return]


def read_response(kind: type[StateCommand], response: Any) -> dict[TopicIdPartition, StateOutcome]:
    """Return the outcomes in a response, by share-partition. The caller must check for missing ones (PL-722)."""
    reply = _RPCS[kind].reply
    outcomes: dict[TopicIdPartition, StateOutcome] = {}
    for topic in response.results:
        for result in topic.partitions:
            refusal = _refusal(kind, result)
            outcomes[TopicIdPartition(topic.topic_id, result.partition)] = reply(result) if refusal is None else refusal
    return outcomes


def _refusal(kind: type[StateCommand], result: Any) -> KafkaError | None:
    error = error_for(result.error_code, result.error_message)
    if error is None:
        return None
    if result.in_quarantine:
        return InQuarantineError(result.error_message)
    if isinstance(error, NotCoordinatorError) and result.HasField("coordinator"):
        return MovedStateError(error.message, f"{result.coordinator.host}:{result.coordinator.port}")
    fenced = isinstance(error, FencedLeaderEpochError) and kind in {ReadState, WriteState}
    if fenced and result.HasField("leader_epoch"):
        return StaleLeaderError(error.message, result.leader_epoch)
    return error
