"""Responses to a plain Fetch: whole batches starting at an offset, with their append time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from kip932.api.v1.fetch_pb2 import FetchRequest
from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from kip932.ids import BATCH_FORMAT_KAFKA
from kip932.kafka_batches import stored
from tests.integration.scenarios.wire import attempts
from tests.support.kafka_made import kafka_batch, values, wire_batch

from .hosting import Services, contract
from .members import Topic, other_node, produced, topic
from .test_deleted_records import deleted
from .test_produce import batch, produce

OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER, UNSUPPORTED_COMPRESSION_TYPE = 1, 3, 6, 76


async def fetched(
    services: Services,
    place: Topic,
    offset: int,
    partition: int = 0,
    max_bytes: int = 1 << 20,
    *,
    formats: Sequence[int] = (),
) -> Any:
    """Fetch one partition and return its response."""
    request = FetchRequest(max_bytes=max_bytes, batch_formats=formats)
    request.topics.add(topic_id=place.id).partitions.add(
        partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes
    )
    (found,) = (await services.call("Fetch", request, place.leaders[0])).responses
    (part,) = found.partitions
    assert (found.topic_id, part.partition_index) == (place.id, partition)
    return part


def extents(part: Any) -> list[tuple[int, int]]:
    return [(one.base_offset, one.count) for one in part.records]


@contract
async def test_whole_batches_are_read_from_an_offset_on(services: Services) -> None:
    place = await topic(services)
    assert extents(await fetched(services, place, 0)) == []
    for count in (3, 2, 1):
        assert (await produce(services, place, batch(count))).error_code == 0
    whole = await fetched(services, place, 0)
    assert extents(whole) == [(0, 3), (3, 2), (5, 1)]
    assert (whole.error_code, whole.high_watermark, whole.last_stable_offset, whole.log_start_offset) == (0, 6, 6, 0)
    assert whole.records[0].batch == batch(3).record_batch, "byte for byte"
    assert extents(await fetched(services, place, 4)) == [(3, 2), (5, 1)]
    assert extents(await fetched(services, place, 0, max_bytes=1)) == [(0, 3)], "one batch at least"
    assert extents(await fetched(services, place, 6)) == []


@contract
async def test_outside_the_log_nothing_is_read(services: Services) -> None:
    place = await topic(services)
    await produced(services, place, 5)
    assert await deleted(services, place, 2) == (0, 2)
    for offset in (1, 6):
        outside = await fetched(services, place, offset)
        assert (outside.error_code, extents(outside)) == (OFFSET_OUT_OF_RANGE, [])
    left = await fetched(services, place, 2)
    assert (extents(left), left.log_start_offset, left.high_watermark) == ([(0, 5)], 2, 5)
    assert (await fetched(services, place, 0, partition=7)).error_code == UNKNOWN_TOPIC_OR_PARTITION


@contract
async def test_a_node_that_does_not_lead_answers_no_records(services: Services) -> None:
    place = await topic(services)
    await produced(services, place, 1)
    elsewhere = place._replace(leaders={0: await other_node(services, place)})
    async for _ in attempts():  # until it knows the leader
        refused = await fetched(services, elsewhere, 0)
        assert (refused.error_code, extents(refused)) == (NOT_LEADER, [])
        if refused.HasField("current_leader"):
            break


@pytest.mark.rule("CM-45")
@contract
async def test_each_batch_says_when_it_was_appended_which_is_not_its_timestamp(services: Services) -> None:
    place = await topic(services)
    record = RecordBatch(base_timestamp_ms=5, records=[Record(value=b"old")])
    sent = batch(1)
    sent.record_batch, sent.max_timestamp_ms = record.SerializeToString(), 5
    for _ in range(2):
        assert (await produce(services, place, sent)).error_code == 0
    first, second = (await fetched(services, place, 0)).records
    assert first.HasField("append_time_ms")
    assert 5 < first.append_time_ms <= second.append_time_ms <= (time.time() + 3600) * 1000


@contract
async def test_a_read_ends_before_a_batch_whose_format_the_caller_does_not_name(services: Services) -> None:
    place = await topic(services)
    data = stored(kafka_batch(values(b"a", b"b")))
    assert (await produce(services, place, batch(2), wire_batch(data))).error_code == 0
    assert extents(await fetched(services, place, 0)) == [(0, 2)]
    refused = await fetched(services, place, 3)
    assert (refused.error_code, extents(refused)) == (UNSUPPORTED_COMPRESSION_TYPE, [])
    found = await fetched(services, place, 0, formats=[BATCH_FORMAT_KAFKA])
    assert extents(found) == [(0, 2), (2, 2)]
    assert found.records[1].batch == data, "byte for byte"
