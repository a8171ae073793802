"""This suite's RPC messages in the words of Kafka's protocol, and Kafka's answers in those of the RPCs, field by field.

Bytes are written and read by kio, and batches by aiokafka: other code than the listener's. A request that says what
Kafka's has no place for is an error, so that a test cannot believe that it was sent.
"""

from __future__ import annotations

import dataclasses
import datetime
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from aiokafka.record.memory_records import MemoryRecords

from kip932.api.v1.record_batch_pb2 import FetchedBatch
from kip932.compression.kinds import Compression
from kip932.errors import KafkaError
from kip932.ids import NULL_TOPIC_ID
from kip932.kafka_batches import is_kafka_batch
from kip932.record_batches import compression_of, open_batch
from tests.support.kafka_made import kafka_batch
from tests.support.kio_messages import decoded, encoded, inner, schema

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from kafka_listener.messages.apis import Api

#: Fields of requests that Kafka's clients have no need of: the stream of a connection stands for the session's id, and
#: every one of them reads both formats of batches and reports by itself what it cannot decompress (KL-81, KL-82). Nor
#: does the end of a transaction name the partitions that confirmed its records (KL-104).
UNSENT: Final = frozenset({"session_id", "compression_types", "batch_formats", "EndTxn.topics"})
#: What a consumer's request has in fields that only Kafka's requests have.
_USUAL: Final[Mapping[str, Any]] = {
    "replica_id": -1,
    "include_topic_authorized_operations": False,
    "assignments": (),
    "timeout": datetime.timedelta(seconds=10),
}
#: Fields with another name in the RPCs.
_RENAMED: Final[Mapping[str, str]] = {"broker_id": "node_id"}
_RECORDS: Final = "records"


class NoKafkaFormError(Exception):
    """A request, or a field of it, that Kafka's protocol cannot say."""


class TopicNames:
    """Topic ids by name, as this client has seen them: some requests of Kafka's name topics."""

    def __init__(self) -> None:
        self._ids: dict[str, bytes] = {}

    def see(self, topics: Iterable[Any]) -> None:
        """Note the topics of an answer that has names and ids."""
        self._ids.update({topic.name: bytes(topic.topic_id) for topic in topics if topic.name and any(topic.topic_id)})

    def name(self, topic_id: bytes) -> str:
        """Return the name of a topic. Raises NoKafkaFormError for an id that was never seen."""
        found = next((name for name, known in self._ids.items() if known == topic_id), None)
        if found is None:
            raise NoKafkaFormError(f"a topic of id {topic_id.hex()} without a name")
        return found

    def id(self, name: str) -> bytes:
        """Return the id of a topic that `name` was asked for."""
        return self._ids[name]


def request_bytes(api: Api, version: int, request: Message, names: TopicNames) -> bytes:
    """Return the bytes of a request. Raises NoKafkaFormError."""
    return encoded(_Said(names).struct(schema(api, "request", version), request, api.name))


def response_of(api: Api, version: int, data: bytes, response: Message, names: TopicNames) -> None:
    """Read a response to its last byte, and fill the RPC's with it."""
    _fill(decoded(api, "response", version, data), response, names)


class _Said:
    """Makes kio's structs of a request."""

    def __init__(self, names: TopicNames) -> None:
        self._names = names

    def struct(self, kind: Any, message: Message, path: str) -> Any:
        hints = get_type_hints(kind)
        made: dict[str, Any] = {}
        said = {name.removeprefix(f"{path}.") for name in UNSENT}
        known = message.DESCRIPTOR.fields_by_name
        for field in dataclasses.fields(kind):
            name = _rpc_name(field.name, known)
            if field.name == _RECORDS:
                made[field.name] = _batch_of(message, path)
                said.add("batches")
            elif name in known:
                said.add(name)
                made[field.name] = self._value(known[name], message, field, hints[field.name], f"{path}.{name}")
            elif field.name == "name" and "topic_id" in known:
                said.add("topic_id")
                made[field.name] = self._names.name(message.topic_id)  # type: ignore[attr-defined]
            elif field.default is dataclasses.MISSING:
                made[field.name] = _USUAL[field.name]
        unsaid = [field.name for field, _ in message.ListFields() if field.name not in said]
        if unsaid:
            raise NoKafkaFormError(f"{path} of Kafka's has no {', '.join(unsaid)}")
        return kind(**made)

    def _value(self, known: Any, message: Message, field: dataclasses.Field[Any], hint: Any, path: str) -> Any:
        kind = inner(hint)
        value = getattr(message, known.name)
        is_null = known.has_presence and not message.HasField(known.name)
        if known.message_type is not None and [one.name for one in known.message_type.fields] == ["values"]:
            value = value.values
            if is_null:
                return None if type(None) in getattr(hint, "__args__", ()) else ()
        elif is_null and type(None) in getattr(hint, "__args__", ()):
            return None
        if dataclasses.is_dataclass(kind):
            return tuple(self.struct(kind, one, path) for one in value)
        type_ = field.metadata["kafka_type"]
        many = known.is_repeated or (isinstance(value, Sequence) and not isinstance(value, str | bytes))
        return tuple(_word(type_, one) for one in value) if many else _word(type_, value)


def _rpc_name(name: str, known: Mapping[str, Any]) -> str:
    name = _RENAMED.get(name, name)
    return name if name in known else f"{name}_ms"


def _word(type_: str, value: Any) -> Any:
    if type_ == "uuid":
        return uuid.UUID(bytes=value) if any(value) else None
    return datetime.timedelta(milliseconds=value) if type_.startswith("timedelta") else value


def _batch_of(data: Any, path: str) -> bytes:
    """Return the one batch of a partition in Kafka's format, made of its records."""
    if len(data.batches) != 1:
        raise NoKafkaFormError(f"{path} of Kafka's has one batch, not {len(data.batches)}")
    (batch,) = data.batches
    if is_kafka_batch(batch.record_batch):
        return bytes(batch.record_batch)
    try:
        base_ms, found = open_batch(batch.record_batch, batch.record_count)
    except KafkaError as error:
        raise NoKafkaFormError(f"{path} of Kafka's has records, not other bytes: {error.message}") from error
    records = [
        (
            one.key if one.HasField("key") else None,
            one.value if one.HasField("value") else None,
            [(header.key, header.value if header.HasField("value") else None) for header in one.headers],
            base_ms + one.timestamp_delta_ms,
        )
        for one in found
    ]
    return kafka_batch(
        records,
        Compression(compression_of(batch.record_batch)),
        producer_id=batch.producer_id if batch.HasField("producer_id") else -1,
        producer_epoch=batch.producer_epoch if batch.HasField("producer_epoch") else -1,
        base_sequence=batch.base_sequence if batch.HasField("base_sequence") else -1,
        is_transactional=batch.is_transactional,
    )


def _fill(entity: Any, message: Message, names: TopicNames) -> None:
    known = message.DESCRIPTOR.fields_by_name
    for field in dataclasses.fields(entity):
        name, value = _rpc_name(field.name, known), getattr(entity, field.name)
        if field.name == "name" and "topic_id" in known and "name" not in known:
            message.topic_id = names.id(value)  # type: ignore[attr-defined]
        elif name in known and value is None and field.metadata.get("kafka_type") == "uuid":
            setattr(message, name, NULL_TOPIC_ID)
        elif name not in known or value is None:
            continue
        elif field.name == _RECORDS:
            message.records.extend(batches_of(value))  # type: ignore[attr-defined]
        else:
            _set(known[name], message, value, names)


def _set(known: Any, message: Message, value: Any, names: TopicNames) -> None:
    if known.message_type is not None:
        target = getattr(message, known.name)
        if not isinstance(value, tuple):
            if known.name == "current_leader" and value.leader_id == value.leader_epoch == 0:
                return  # what a good answer has (KL-80)
            target.SetInParent()
            _fill(value, target, names)
            return
        for one in value:
            _fill(one, target.add(), names)
    elif isinstance(value, tuple):
        getattr(message, known.name).extend(map(_number, value))
    else:
        setattr(message, known.name, _number(value))


def _number(value: Any) -> Any:
    if isinstance(value, uuid.UUID):
        return value.bytes
    return value // datetime.timedelta(milliseconds=1) if isinstance(value, datetime.timedelta) else value


def batches_of(records: bytes) -> Iterator[FetchedBatch]:
    """Read the batches of a fetch, as aiokafka does; each must have the right checksum, and begin after the last."""
    left = MemoryRecords(records)
    end = -1
    while (batch := left.next_batch()) is not None:
        assert batch.validate_crc(), f"the batch at {batch.base_offset} has a wrong checksum"
        assert batch.base_offset >= end, f"the batch at {batch.base_offset} begins before {end}, the end of the last"
        end = batch.next_offset
        yield FetchedBatch(base_offset=batch.base_offset, count=end - batch.base_offset)
