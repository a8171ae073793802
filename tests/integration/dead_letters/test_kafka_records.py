"""Records of Kafka's format on a real node: consumed, explained, read by offset and by time, given up and sent back."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from kip932.compression.kinds import Compression
from kip932.ids import OFFSET_MAX_TIMESTAMP, TopicPartition
from sharegroups.cli.main import main
from tests.integration.kafka_producing import produce_to
from tests.support.kafka_made import Made, kafka_batch

from .queues import ACCEPT, COPY_CONFIG, REJECT, Queues, said
from .test_tool import Tool

T0 = 1_600_000_000_000


def records_of(kind: Compression) -> list[Made]:
    """Three records whose key names the compression: with nulls, empty, and with headers."""
    at = T0 + 1_000 * kind
    return [
        (kind.label.encode(), None, [("none", None), ("empty", b"")], at),
        (kind.label.encode(), b"", [], at + 2),
        (None, b"value " * 500, [("twice", b"1"), ("twice", b"2")], at + 1),
    ]


def produce(queues: Queues) -> list[Made]:
    """Produce a batch with each compression; return all records."""
    batches = [kafka_batch(records_of(kind), kind) for kind in Compression]
    bases = produce_to(queues.cluster.bootstrap, queues.topic, *batches)
    assert bases == [3 * number for number in range(len(batches))]
    return [record for kind in Compression for record in records_of(kind)]


@pytest.mark.rule("CM-220", "CM-221", "CM-222")
def test_they_are_consumed_beside_records_of_our_own_producers(queues: Queues) -> None:
    """Of CM-221 that good batches of every compression pass its checks; refusals are shown beside `record_batches`."""
    made = produce(queues)
    queues.produce(2)
    produce_to(queues.cluster.bootstrap, queues.topic, kafka_batch(records_of(Compression.GZIP), Compression.GZIP))
    with queues.consumer() as consumer:
        found = queues.settle(consumer, ACCEPT, len(made) + 5)
    queues.until_start(len(made) + 5)
    found.sort(key=lambda message: message.offset())
    assert [one.delivery_count() for one in found] == [1] * len(found)
    assert [(one.key(), one.value(), one.headers(), one.timestamp()[1]) for one in found[: len(made)]] == made
    assert [one.value() for one in found[len(made) : len(made) + 2]] == [b"v0", b"v1"]
    assert [one.key() for one in found[-3:]] == [b"gzip", b"gzip", None]


@pytest.mark.rule("CM-225", "CM-45")
def test_they_are_found_by_offset_and_by_time_and_explained(queues: Queues) -> None:
    made = produce(queues)
    partition = TopicPartition(queues.topic, 0)
    read = queues.admin.read_records(partition, 4)
    assert read.unreadable == ()
    assert [(one.key, one.value, list(one.headers), one.timestamp_ms) for one in read.records] == made[4:]
    assert [queues.admin.list_offsets({partition: at})[partition] for at in (T0, T0 + 1, T0 + 2_001, T0 + 4_002)] == [
        0, 1, 7, 13,
    ]  # fmt: skip
    assert queues.admin.list_offsets({partition: OFFSET_MAX_TIMESTAMP})[partition] == 13
    where = ["--bootstrap-server", queues.cluster.bootstrap, "--output", "json"]
    shown = CliRunner().invoke(main, ["topics", "read", f"{queues.topic}:0", "--count", "15", *where])
    assert shown.exit_code == 0, shown.output
    documents = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [one["offset"] for one in documents] == list(range(15))
    with queues.consumer() as consumer:
        queues.settle(consumer, ACCEPT, len(made))
    queues.until_start(len(made))
    explained = queues.admin.explain_record(queues.group, partition, 0, len(made) - 1)
    assert {one.state for one in explained.records} == {"finished"}


@pytest.mark.rule("CM-225", "PL-909", "PL-911", "CT-123")
def test_their_dead_letters_are_copies_and_are_sent_back(queues: Queues) -> None:
    queues.configure(**{COPY_CONFIG: "true"})
    made = produce(queues)
    with queues.consumer() as consumer:
        queues.settle(consumer, REJECT, len(made))
        letters = queues.until_letters(len(made))
        assert [(one.key, one.value, list(one.headers[:-7]), one.timestamp_ms) for one in letters] == made
        assert [said(one)["offset"] for one in letters] == [str(number) for number in range(len(made))]
        Tool(queues)("redrive", "--all", "--purge")
        again = queues.settle(consumer, ACCEPT, len(made))
    again.sort(key=lambda message: message.offset())
    assert [(one.key(), one.value(), one.timestamp()[1]) for one in again] == [
        (key, value, timestamp_ms) for key, value, _, timestamp_ms in made
    ]
    assert [[pair for pair in one.headers() if not pair[0].startswith("__dlq.")] for one in again] == [
        headers for _, _, headers, _ in made
    ]
