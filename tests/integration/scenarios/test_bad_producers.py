"""Producers that must not write, and markers without a decided transaction: a real node refuses them, and stores none
of it."""

from __future__ import annotations

from typing import Any

import pytest

from kip932 import errors
from kip932.api.v1.end_txn_pb2 import EndTxnRequest
from kip932.api.v1.produce_pb2 import ProduceRequest
from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from kip932.api.v1.write_txn_markers_pb2 import WriteTxnMarkersRequest
from tests.integration.scenarios.transacting import Writer
from tests.integration.scenarios.wire import Wire
from tests.support.node import unique

pytestmark = pytest.mark.asyncio


async def _writer(wire: Wire) -> Writer:
    return Writer(wire, await wire.create_topic(unique("t")))


async def _produced(writer: Writer, *, sequence: int, size: int = 1, transactional: bool = True) -> Any:
    """Write one batch of the producer; returns the partition's part of the response."""
    request = ProduceRequest(acks=-1, timeout_ms=10_000)
    if transactional:
        request.transactional_id = writer.transactional_id
    data = RecordBatch(records=[Record(value=b"x" * size)])
    request.topic_data.add(topic_id=writer.topic_id).partition_data.add(index=0).batches.add(
        record_batch=data.SerializeToString(),
        record_count=1,
        producer_id=writer.producer_id,
        producer_epoch=writer.epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )
    return (await writer.wire.call("Produce", request)).responses[0].partition_responses[0]


async def _marked(writer: Writer, *, commit: bool, **other: Any) -> Any:
    """Request a marker as a node does; returns the partition's part of the response."""
    said = {
        "producer_id": writer.producer_id,
        "producer_epoch": writer.epoch,
        "transactional_id": writer.transactional_id,
    }
    request = WriteTxnMarkersRequest()
    marker = request.markers.add(transaction_result=commit, **(said | other))
    marker.topics.add(topic_id=writer.topic_id, partition_indexes=[0])
    answer = await writer.wire.call("WriteTxnMarkers", request, writer.wire.internal)
    return answer.markers[0].topics[0].partitions[0]


async def _end(writer: Writer) -> int:
    """Produce one record; returns its offset, which was the end of the log."""
    return await writer.wire.produce(writer.topic_id, 1)


async def test_a_fenced_producer_writes_and_ends_nothing_more(wire: Wire) -> None:
    old = await _writer(wire)
    assert await old.write(1) == 0
    new = Writer(wire, old.topic_id)
    new.transactional_id = old.transactional_id
    await new.begin()
    batch, end = await _produced(old, sequence=1), await old.end(commit=True)
    assert batch.error_code in (errors.ProducerFencedError.code, errors.InvalidProducerEpochError.code)
    assert end.error_code == errors.InvalidTxnStateError.code
    assert all("another producer" in refused.error_message for refused in (batch, end)), (batch, end)
    assert await _end(old) == 2, "its batch, and the marker that aborted it"
    assert await new.transact(1, commit=True) == 3


@pytest.mark.parametrize("sequence", [1, 3, 100])
async def test_a_batch_out_of_sequence_is_refused_with_what_was_expected(wire: Wire, sequence: int) -> None:
    writer = await _writer(wire)
    assert await writer.write(2) == 0
    refused = await _produced(writer, sequence=sequence)
    assert refused.error_code == errors.OutOfOrderSequenceNumberError.code
    assert str(sequence) in refused.error_message
    assert "2" in refused.error_message
    assert await _end(writer) == 2


async def test_a_batch_that_is_too_large_is_refused_and_its_transaction_goes_on(wire: Wire) -> None:
    writer = await _writer(wire)
    assert await writer.write(1) == 0
    refused = await _produced(writer, sequence=1, size=1_100_000)
    assert refused.error_code == errors.MessageTooLargeError.code
    assert "max.message.bytes" in refused.error_message
    assert not (await writer.end(commit=True)).error_code
    assert await _end(writer) == 2


async def test_markers_of_transactions_that_were_not_decided_are_refused_and_not_written(wire: Wire) -> None:
    writer = await _writer(wire)
    assert await writer.write(1) == 0
    no_one = await _marked(writer, commit=True, transactional_id=unique("unknown"))
    another = await _marked(writer, commit=True, producer_id=writer.producer_id + 1_000_000)
    still_open = await _marked(writer, commit=True)
    for refused in (no_one, another, still_open):
        assert refused.error_code
        assert refused.error_message
    assert still_open.error_code == errors.InvalidTxnStateError.code
    assert await _end(writer) == 1
    ended = {"producer_id": writer.producer_id, "producer_epoch": writer.epoch}
    assert not (await writer.end(commit=False)).error_code
    contrary = await _marked(writer, commit=True, **ended)
    assert contrary.error_code == errors.InvalidTxnStateError.code
    assert await _end(writer) == 3, "its own marker, and no other"


async def test_the_end_of_an_unknown_transaction_is_refused(wire: Wire) -> None:
    asked = EndTxnRequest(transactional_id=unique("unknown"), producer_id=7, producer_epoch=0, committed=True)
    refused = await wire.call("EndTxn", asked)
    assert refused.error_code == errors.InvalidProducerIdMappingError.code
    assert "producer 7" in refused.error_message
    assert "InitProducerId" in refused.error_message
