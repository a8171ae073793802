"""Producers and readers of Kafka's, unmodified, at a real node, beside native ones: confluent_kafka, kafka-python and
aiokafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka import Producer as KafkaProducer

from kafka_listener.messages.apis import api
from sharegroups import Admin, NewTopic, Producer
from sharegroups import TopicPartition as NativePartition
from tests.integration.kafka_listener.share_members import address_of, ask, kafka_cluster
from tests.support.kafka_python import KafkaConsumer as PythonConsumer
from tests.support.kafka_python import KafkaProducer as PythonProducer
from tests.support.kafka_python import TopicPartition as PythonPartition
from tests.support.node import BOUND_S, Cluster, unique

KINDS: Final = ["none", "gzip", "snappy", "lz4", "zstd"]
#: A time of records, ms since 1970.
UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID = 3, 100
TIME_MS: Final = 1_700_000_000_000
#: Key, value, headers: null and empty ones among them.
RECORDS: Final[list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]]] = [
    (b"k", b"v", []),
    (None, b"no key", [("one", b"1"), ("one", b"again"), ("null", None), ("", b"")]),
    (b"no value", None, [("e", b"")]),
    (b"", b"", []),
    (None, None, []),
    (bytes(range(256)), b"x" * 70_000, [("name", bytes(300))]),
]
Seen = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]
EXPECTED: Final[list[Seen]] = [(key, value, headers, TIME_MS + at) for at, (key, value, headers) in enumerate(RECORDS)]


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with kafka_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(node: Cluster) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": node.bootstrap}) as found:
        yield found


@pytest.fixture
def topic(admin: Admin) -> str:
    """Return a topic of its own, with two partitions."""
    name = unique("t")
    assert admin.create_topics([NewTopic(name, 2)]) == {name: None}
    led(admin, name)
    return name


def led(admin: Admin, topic: str) -> None:
    """Wait until partition 0 is led: without acks, what a leader refuses is lost."""
    partition = NativePartition(topic, 0)
    deadline = time.monotonic() + BOUND_S
    while isinstance(admin.list_offsets([partition])[partition], Exception):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def settings(node: Cluster, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": address_of(node), "log_level": 0, **{key.replace("_", "."): more[key] for key in more}}


def produced(node: Cluster, topic: str, records: Any = RECORDS, **more: Any) -> None:
    """Produce records to partition 0, and check that each is confirmed."""
    failed: list[Any] = []
    producer = KafkaProducer(settings(node, **more))
    for at, (key, value, headers) in enumerate(records):
        producer.produce(
            topic,
            value,
            key,
            0,
            headers=headers,
            timestamp=TIME_MS + at,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert (producer.flush(BOUND_S), failed) == (0, [])


def messages(node: Cluster, topic: str, count: int, offset: int = OFFSET_BEGINNING, **more: Any) -> list[Message]:
    """Return the next messages of partition 0."""
    consumer = Consumer(settings(node, group_id="none", enable_auto_commit=False, **more))
    found: list[Message] = []
    try:
        consumer.assign([TopicPartition(topic, 0, offset)])
        deadline = time.monotonic() + BOUND_S
        while len(found) < count and time.monotonic() < deadline:
            found += consumer.consume(count - len(found), 0.5)
    finally:
        consumer.close()
    assert [message.error() for message in found if message.error() is not None] == []
    return found


def seen(found: list[Message]) -> list[Any]:
    return [(message.key(), message.value(), message.headers() or [], message.timestamp()[1]) for message in found]


@pytest.mark.rule("KL-49", "KL-51", "KL-53")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("idempotent", [False, True])
def test_what_confluent_produces_all_read(node: Cluster, admin: Admin, topic: str, kind: str, idempotent: bool) -> None:
    produced(node, topic, compression_type=kind, enable_idempotence=idempotent)
    assert seen(messages(node, topic, len(RECORDS))) == EXPECTED
    native = admin.read_records(NativePartition(topic, 0), 0, 10_000_000).records
    assert [(each.key, each.value, list(each.headers), each.timestamp_ms) for each in native] == EXPECTED


@pytest.mark.rule("KL-53")
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_native_producer_sends_kafkas_readers_get(node: Cluster, topic: str, kind: str) -> None:
    with Producer({"bootstrap.servers": node.bootstrap, "compression.type": kind}) as producer:
        for at, (key, value, headers) in enumerate(RECORDS):
            producer.produce(topic, value, key, 0, headers=headers, timestamp=TIME_MS + at)
        producer.flush(BOUND_S)
    assert seen(messages(node, topic, len(RECORDS))) == EXPECTED


@pytest.mark.rule("KL-50")
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_any_acks(node: Cluster, topic: str, acks: str) -> None:
    produced(node, topic, acks=acks, enable_idempotence=False)
    assert seen(messages(node, topic, len(RECORDS))) == EXPECTED


@pytest.mark.rule("KL-49")
@pytest.mark.parametrize("kind", ["none", "gzip", "lz4"])
def test_kafka_python_produces_and_reads(node: Cluster, topic: str, kind: str) -> None:
    producer = PythonProducer(
        bootstrap_servers=address_of(node), compression_type=None if kind == "none" else kind, acks="all"
    )
    sent = [
        producer.send(topic, b"v%d" % number, key=b"k%d" % number, partition=0, timestamp_ms=TIME_MS + number)
        for number in range(100)
    ]
    producer.flush(BOUND_S)
    assert [future.get(BOUND_S).offset for future in sent] == list(range(100))
    producer.close()
    consumer = PythonConsumer(
        bootstrap_servers=address_of(node),
        group_id=None,
        auto_offset_reset="earliest",
        consumer_timeout_ms=BOUND_S * 1000,
    )
    consumer.assign([PythonPartition(topic, 0)])
    found = [
        (record.offset, record.key, record.value, record.timestamp)
        for _, record in zip(range(100), consumer, strict=False)
    ]
    consumer.close()
    assert found == [(number, b"k%d" % number, b"v%d" % number, TIME_MS + number) for number in range(100)]


@pytest.mark.rule("KL-49")
@pytest.mark.parametrize(
    "options",
    [{}, {"enable_idempotence": True, "compression_type": "gzip"}, {"acks": 0}],
    ids=["plain", "idempotent", "acks 0"],
)
def test_aiokafka_produces_and_reads(node: Cluster, topic: str, options: dict[str, Any]) -> None:
    async def both() -> list[tuple[int, bytes | None, bytes | None]]:
        producer = AIOKafkaProducer(bootstrap_servers=address_of(node), **options)
        await producer.start()
        for number in range(50):
            await producer.send_and_wait(topic, b"v%d" % number, key=b"k%d" % number, partition=0)
        await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=address_of(node), auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign([AioPartition(topic, 0)])
            async with asyncio.timeout(BOUND_S):
                got = [await consumer.getone() for _ in range(50)]
        finally:
            await consumer.stop()
        return [(record.offset, record.key, record.value) for record in got]

    assert asyncio.run(both()) == [(number, b"k%d" % number, b"v%d" % number) for number in range(50)]


class _AbortedError(Exception):
    """Ends a transaction without its records."""


@pytest.mark.rule("KL-54")
def test_a_reader_of_committed_records_gets_those_alone(node: Cluster, topic: str) -> None:
    with Producer({"bootstrap.servers": node.bootstrap, "transactional.id": unique("x")}) as producer:
        for number, commits in enumerate((True, False, True)):
            with suppress(_AbortedError), producer.transaction():
                producer.produce(topic, f"n{number}", partition=0)
                producer.produce(topic, f"m{number}", partition=0)
                producer.flush(BOUND_S)
                if not commits:
                    raise _AbortedError
    produced(node, topic, [(None, b"plain", [])])
    committed = messages(node, topic, 5, isolation_level="read_committed")
    assert [message.value() for message in committed] == [b"n0", b"m0", b"n2", b"m2", b"plain"]
    every = messages(node, topic, 7, isolation_level="read_uncommitted")
    assert [message.value() for message in every] == [b"n0", b"m0", b"n1", b"m1", b"n2", b"m2", b"plain"]
    assert [message.offset() for message in committed] == [0, 1, 6, 7, 9]


@pytest.mark.rule("KL-56")
def test_offsets_are_found_by_time(node: Cluster, topic: str) -> None:
    produced(node, topic)
    consumer = Consumer(settings(node, group_id="none"))
    try:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), BOUND_S) == (0, len(RECORDS))
        for time_ms, offset in ((0, 0), (TIME_MS + 2, 2), (TIME_MS + 1_000, -1)):
            (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, time_ms)], BOUND_S)
            assert (found.error, found.offset) == (None, offset)
    finally:
        consumer.close()


@pytest.mark.rule("KL-45")
def test_a_topic_that_does_not_exist_is_an_error_and_is_not_created(node: Cluster, admin: Admin) -> None:
    missing = unique("missing")
    failed: list[Any] = []
    producer = KafkaProducer(settings(node, topic_metadata_propagation_max_ms=300))
    producer.produce(missing, b"v", on_delivery=lambda error, _: failed.append(error))
    producer.flush(BOUND_S)
    assert [error.code() for error in failed] == [KafkaError.UNKNOWN_TOPIC_OR_PART]
    assert missing not in admin.list_topics()


@pytest.mark.rule("KL-41", "KL-55")
def test_a_topic_that_was_deleted_is_unknown_and_another_one_may_have_its_name(
    node: Cluster, admin: Admin, topic: str
) -> None:
    produced(node, topic)
    topic_id = admin.list_topics([topic])[topic].topic_id
    assert fetched(node, topic, topic_id) == [0, 0]
    assert admin.delete_topics([topic]) == {topic: None}
    deadline = time.monotonic() + BOUND_S
    while fetched(node, topic, topic_id) != [UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID]:
        assert time.monotonic() < deadline, fetched(node, topic, topic_id)
        time.sleep(0.05)
    assert admin.create_topics([NewTopic(topic, 2)]) == {topic: None}
    produced(node, topic, [(b"new", b"new", [])])
    assert [message.value() for message in messages(node, topic, 1)] == [b"new"]
    assert fetched(node, topic, topic_id) == [0, UNKNOWN_TOPIC_ID]


def fetched(node: Cluster, topic: str, topic_id: bytes) -> list[int]:
    """Return the error of a Fetch by the topic's name, and of one by its id."""
    request = api("Fetch").request
    codes = []
    for version, named in ((12, {"topic": topic}), (13, {"topic_id": topic_id})):
        partition = request.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)
        asked = request(max_bytes=100, topics=[request.FetchTopic(partitions=[partition], **named)])
        (one,) = ask(node, "Fetch", version, asked).responses[0].partitions
        codes.append(one.error_code)
    return codes


@pytest.mark.rule("KL-48")
def test_a_transactional_producer_fails_at_once_with_words(node: Cluster) -> None:
    producer = KafkaProducer(settings(node, transactional_id="t"))
    with pytest.raises(KafkaException, match=r"leave out transactional\.id") as raised:
        producer.init_transactions(BOUND_S)
    assert raised.value.args[0].fatal()
