"""Batches of Kafka's format are stored when they are what their Produce says; clients that read them fetch them."""

from __future__ import annotations

from typing import Any

import pytest

from kip932.compression.kinds import Compression
from kip932.entry_checksum import crc32c
from kip932.errors import UnsupportedCompressionTypeError
from kip932.kafka_batches import stored
from kip932.record_batches import PARSED_BYTES_MAX
from partition_leader.topic_log.topic_log import TopicLog
from partition_leader.topic_rpc.fetch_and_offsets import OffsetsService
from partition_leader.topic_rpc.produce import ProduceService
from partition_leader.topic_rpc.produce_batches import check_rest
from tests.support.kafka_made import kafka_batch, values, wire_batch
from tests.unit.partition_leader.topic_log.harness import Cluster

from . import requests
from .requests import Directory, only, request
from .test_fetch_and_offsets import asked
from .test_lying_batches import Roomy

pytestmark = pytest.mark.asyncio

PRODUCER = 77
DATA = stored(kafka_batch(values(b"a", b"b"), producer_id=PRODUCER, producer_epoch=0, base_sequence=0))
PLAIN = stored(kafka_batch(values(b"a", b"b", timestamp_ms=500)))


def numbered(epoch: int, sequence: int) -> Any:
    """Return a batch of two records for a Produce, with this producer epoch and base sequence."""
    data = kafka_batch(values(b"a", b"b"), producer_id=PRODUCER, producer_epoch=epoch, base_sequence=sequence)
    return wire_batch(stored(data))


async def fetched(log: TopicLog, offset: int = 0, **fields: Any) -> Any:
    return (await OffsetsService(Directory(log)).fetch(asked(offset, **fields))).responses[0].partitions[0]


@pytest.mark.rule("CM-220", "CM-43")
async def test_a_batch_is_stored_as_it_is_and_a_repetition_is_not_stored() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        service = ProduceService(Directory(log))
        for _ in range(2):
            found = only(await service.produce(request(wire_batch(DATA))))
            assert (found.error_code, found.base_offset) == (0, 0)
        packed = [stored(kafka_batch(values(b"c" * 50), kind)) for kind in Compression]
        found = only(await service.produce(request(*map(wire_batch, packed))))
        assert (found.error_code, list(found.base_offsets)) == (0, [2, 3, 4, 5, 6])
        part = await fetched(log, batch_formats=[2])
        assert [(one.base_offset, one.count, one.batch) for one in part.records] == [
            (0, 2, DATA),
            *((2 + number, 1, data) for number, data in enumerate(packed)),
        ]
        assert [(one.producer_id, one.producer_epoch) for one in part.records if one.HasField("producer_id")] == [
            (PRODUCER, 0)
        ]
        assert not part.records[1].HasField("producer_epoch")


@pytest.mark.rule("CM-43")
@pytest.mark.parametrize(("epoch", "sequence", "code"), [(1, 5, 45), (0, 2, 47)], ids=["gap", "older epoch"])
async def test_a_gap_and_an_older_epoch_are_refused_and_nothing_is_stored(epoch: int, sequence: int, code: int) -> None:
    """Of CM-43 the tests of this file show (b), and of (a) that a repetition has the first one's offset."""
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        service = ProduceService(Directory(log))
        assert only(await service.produce(request(numbered(1, 0)))).error_code == 0
        assert only(await service.produce(request(numbered(epoch, sequence)))).error_code == code
        assert log.high_watermark == 2


@pytest.mark.rule("CM-224", "CM-221")
@pytest.mark.parametrize(
    ("fields", "code", "said"),
    [
        ({"record_count": 3}, 87, "says 2 records; 3 were announced"),
        ({"max_timestamp_ms": 999}, 87, "says max_timestamp_ms 999, and the header of its record batch says 1001"),
        ({"producer_id": 78}, 87, "says producer_id 78, and the header of its record batch says 77"),
        ({"producer_epoch": 1}, 87, "says producer_epoch 1, and the header of its record batch says 0"),
        ({"base_sequence": 5}, 87, "says base_sequence 5, and the header of its record batch says 0"),
        (
            {"producer_epoch": None, "base_sequence": None},
            87,
            "says base_sequence -1, and the header of its record batch says 0",
        ),
        ({"producer_id": -1, "producer_epoch": -1, "base_sequence": -1}, 87, "says producer_id -1, and"),
        ({"record_batch": DATA[:-1]}, 87, "its header says"),
        ({"record_batch": DATA[:-1] + b"!"}, 2, "the checksum of the record batch"),
        ({"record_batch": DATA[:16] + b"\x01" + DATA[17:]}, 43, "magic 1; expected 2"),
        ({"record_batch": b"\0"}, 2, "expected at least 61"),
    ],
)
async def test_a_batch_that_is_not_what_its_request_says_is_refused_and_nothing_is_stored(
    fields: dict[str, Any], code: int, said: str
) -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        service = ProduceService(Directory(log))
        refused = only(await service.produce(request(wire_batch(PLAIN), wire_batch(DATA, **fields))))
        assert (refused.error_code, said in refused.error_message) == (code, True), refused.error_message
        assert log.high_watermark == 0
        assert only(await service.produce(request(wire_batch(DATA)))).error_code == 0


@pytest.mark.rule("CM-224")
@pytest.mark.parametrize("numbers", [(-1, -1), (0, 0), (-1, 0)])
async def test_without_a_producer_the_header_may_have_any_epoch_and_sequence(numbers: tuple[int, int]) -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        data = stored(kafka_batch(values(b"a"), producer_epoch=numbers[0], base_sequence=numbers[1]))
        batch = wire_batch(data, producer_id=None, producer_epoch=None, base_sequence=None)
        found = only(await ProduceService(Directory(log)).produce(request(batch)))
        assert (found.error_code, found.base_offset) == (0, 0), found.error_message


@pytest.mark.rule("CM-224")
async def test_a_batch_of_a_transaction_must_say_so_in_its_header() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        service = ProduceService(Directory(log))
        data = stored(
            kafka_batch(values(b"a"), producer_id=PRODUCER, producer_epoch=0, base_sequence=0, is_transactional=True)
        )
        refused = only(await service.produce(request(wire_batch(data, is_transactional=False))))
        assert refused.error_code == 87
        assert "says is_transactional False, and the header of its record batch says True" in refused.error_message
        refused = only(await service.produce(request(wire_batch(data))))
        assert (refused.error_code, "without transactional_id" in refused.error_message) == (87, True)


@pytest.mark.rule("CM-221", "CM-112")
async def test_large_batches_are_checked_in_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[int] = []

    def counted(parts: Any) -> None:
        checked.append(sum(len(part.unchecked) for part in parts))
        check_rest(parts)

    monkeypatch.setattr("partition_leader.topic_rpc.produce.check_rest", counted)
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        service = ProduceService(Roomy(log))
        large = stored(kafka_batch(values(bytes(PARSED_BYTES_MAX + 1), b"b")))
        packed = stored(kafka_batch(values(bytes(PARSED_BYTES_MAX + 1), b"b"), Compression.ZSTD))
        assert len(packed) < 1_000
        found = only(await service.produce(request(wire_batch(large), wire_batch(packed))))
        assert (found.error_code, list(found.base_offsets), checked) == (0, [0, 2], [2])
        bad = bytearray(packed)
        bad[-1] ^= 1
        bad[17:21] = crc32c(bytes(bad[21:])).to_bytes(4)
        refused = only(await service.produce(request(wire_batch(bytes(bad)))))
        assert refused.error_code == 2


@pytest.mark.rule("CM-222")
async def test_a_plain_fetch_by_a_client_that_does_not_name_the_format_ends_before_it() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        service = ProduceService(Directory(log))
        for batch in (requests.wire_batch(2, max_timestamp_ms=0), wire_batch(PLAIN), requests.wire_batch(1)):
            assert only(await service.produce(request(batch))).error_code == 0
        for formats in ([], [1], [7] * 20 + [2]):
            part = await fetched(log, batch_formats=formats)
            assert [one.base_offset for one in part.records] == [0]
            assert (part.error_code, part.high_watermark) == (0, 5)
            refused = await fetched(log, 3, batch_formats=formats)
            assert refused.error_code == UnsupportedCompressionTypeError.code
            assert "offset 3 is in a batch of Kafka's format" in refused.error_message
            assert len(refused.records) == 0
        part = await fetched(log, 3, batch_formats=[2])
        assert [(one.base_offset, one.batch == PLAIN) for one in part.records] == [(2, True), (4, False)]
