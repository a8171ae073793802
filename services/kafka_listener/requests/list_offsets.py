"""ListOffsets: offsets by timestamp (KL-56)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kafka_listener.requests.named_topics import NamedTopic, by_name
from kafka_listener.requests.refusals import NONE, record_code
from kafka_listener.requests.slices import made_of, slices
from kip932.acls import Operation
from kip932.api.v1.list_offsets_pb2 import ListOffsetsRequest, ListOffsetsResponse
from kip932.errors import InvalidRequestError, KafkaError, UnknownServerError, UnsupportedVersionError
from kip932.ids import OFFSET_EARLIEST, OFFSET_LATEST, OFFSET_MAX_TIMESTAMP

_RESPONSE: Final = api("ListOffsets").response

EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
#: The first version that knows each of the timestamps that stand for an offset.
_KNOWN_FROM: Final = {
    OFFSET_LATEST: 1,
    OFFSET_EARLIEST: 1,
    OFFSET_MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
#: They ask about records in a tiered storage, which there is not: no offset.
_TIERED: Final = frozenset({LATEST_TIERED, EARLIEST_PENDING_UPLOAD})
#: From these versions on a request has an isolation level, and leader epochs.
_ISOLATION_FROM: Final = 2
_EPOCHS_FROM: Final = 4

_Result = ListOffsetsResponse.PartitionResult


class Asked(NamedTuple):
    """One partition of a request. `error`: why the node is not asked; `answered`: that it need not be."""

    partition: int
    error: KafkaError | None = None
    answered: bool = False

    @property
    def is_sent(self) -> bool:
        """Whether the node is asked about the partition."""
        return self.error is None and not self.answered


class Sent(NamedTuple):
    """The node's request, and the topics with their partitions in the order of the client's request."""

    request: ListOffsetsRequest
    topics: list[tuple[NamedTopic, list[Asked]]]


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Answer with the offset of each partition."""
    sent = await node_request(request, version, connection)
    response, failure = ListOffsetsResponse(), None
    if sent.request.topics:
        try:
            response = await connection.call("list_offsets", sent.request)
        except KafkaError as error:
            failure = error
    return await answer_of(sent, response, failure)


async def node_request(request: Any, version: int, connection: Connection) -> Sent:
    """Return the node's request with all partitions that have to be asked for."""
    asked = ListOffsetsRequest(isolation_level=request.isolation_level if version >= _ISOLATION_FROM else 0)
    times = Counter((topic.name, each.partition_index) for topic in request.topics for each in topic.partitions)
    sent: list[tuple[NamedTopic, list[Asked]]] = []
    turns = slices()
    for topic in await by_name(request.topics, connection, Operation.DESCRIBE):
        await turns.step()
        parts = []
        into = None
        for partition in topic.asked.partitions:
            await turns.step()
            error = _refusal(topic, partition, version, times[topic.asked.name, partition.partition_index])
            part = Asked(partition.partition_index, error, answered=error is None and partition.timestamp in _TIERED)
            parts.append(part)
            if part.is_sent:
                into = into or asked.topics.add(topic_id=topic.topic_id)
                into.partitions.add(
                    partition_index=partition.partition_index,
                    current_leader_epoch=partition.current_leader_epoch if version >= _EPOCHS_FROM else -1,
                    timestamp=OFFSET_EARLIEST if partition.timestamp == EARLIEST_LOCAL else partition.timestamp,
                )
        sent.append((topic, parts))
    return Sent(asked, sent)


def _refusal(topic: NamedTopic, partition: Any, version: int, times: int) -> KafkaError | None:
    if times > 1:
        return InvalidRequestError(f"partition {partition.partition_index} is named {times} times in the request")
    if partition.timestamp < 0 and _KNOWN_FROM.get(partition.timestamp, version + 1) > version:
        return UnsupportedVersionError(
            f"timestamp {partition.timestamp} has no meaning in a ListOffsets of version {version}"
        )
    return topic.error


async def answer_of(sent: Sent, response: ListOffsetsResponse, failure: KafkaError | None = None) -> Any:
    """Return the answer, with topics and partitions as the client's request had them. `failure`: of all that the node
    was asked."""
    answered = _RESPONSE(throttle_time_ms=response.throttle_time_ms)
    results = (result for topic in response.topics for result in topic.partitions)
    turns = slices()
    for topic, parts in sent.topics:
        await turns.step()
        partitions = await made_of(parts, lambda part: _partition(part, results, failure), turns)
        answered.topics.append(_RESPONSE.ListOffsetsTopicResponse(name=topic.asked.name, partitions=partitions))
    return answered


def _partition(part: Asked, results: Iterator[_Result], failure: KafkaError | None) -> Any:
    code, result = NONE, None
    if part.error is not None:
        code = part.error.code
    elif part.is_sent and failure is not None:
        code = failure.code
    elif part.is_sent:
        result = next(results, None)
        code = UnknownServerError.code if result is None else result.error_code
    found = _RESPONSE.ListOffsetsPartitionResponse(
        partition_index=part.partition,
        error_code=record_code(code, by_name=True),
        timestamp=-1,
        offset=-1,
        leader_epoch=-1,
    )
    if result is not None and not code:
        found.timestamp, found.offset, found.leader_epoch = result.timestamp, result.offset, result.leader_epoch
    return found
