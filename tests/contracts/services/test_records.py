"""The records that a fetch acquires, and the effects of their acknowledgements."""

from __future__ import annotations

import pytest

from kip932.compression.kinds import Compression
from kip932.errors import UnsupportedCompressionTypeError
from kip932.ids import ACQUIRE_BATCH_OPTIMIZED, ACQUIRE_RECORD_LIMIT, BATCH_FORMAT_KAFKA
from kip932.kafka_batches import stored
from tests.integration.scenarios.sessions import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    acquired,
    another,
    offsets,
    part,
)
from tests.support.kafka_made import kafka_batch, values, wire_batch

from .hosting import Services, contract
from .members import opened, produced, topic
from .test_produce import produce

INVALID_REQUEST, INVALID_RECORD_STATE = 42, 121
#: The number of deliveries after which a record is archived: the default of group.share.delivery.count.limit.
LIMIT = 5


@contract
async def test_records_come_with_the_ranges_that_were_acquired(services: Services) -> None:
    place = await topic(services)
    session = await opened(services, place)
    await produced(services, place, 3)
    await produced(services, place, 2)
    answer = await session.fetch()
    assert sorted(offsets(answer)) == [0, 1, 2, 3, 4]
    assert [(batch.base_offset, batch.count) for batch in part(answer).records] == [(0, 3), (3, 2)]
    assert acquired(answer) == [(0, 4, 1)]
    assert acquired(await session.fetch(wait_ms=0)) == [], "they are taken"


@contract
async def test_whole_batches_are_acquired_or_as_many_records_as_asked_for(services: Services) -> None:
    place = await topic(services)
    whole, cut = await opened(services, place), await opened(services, place)
    for _ in range(3):
        await produced(services, place, 4)
    first = await whole.fetch(max_records=5, share_acquire_mode=ACQUIRE_BATCH_OPTIMIZED)
    assert acquired(first) == [(0, 7, 1)]
    assert acquired(await whole.fetch(max_records=5)) == [(8, 11, 1)]
    first = await cut.fetch(max_records=5, share_acquire_mode=ACQUIRE_RECORD_LIMIT)
    assert acquired(first) == [(0, 4, 1)]
    assert offsets(first) == list(range(8)), "batches are not cut"
    rest = await cut.fetch(max_records=5, share_acquire_mode=ACQUIRE_RECORD_LIMIT)
    assert (acquired(rest)[0][0], acquired(rest)[-1][1]) == (5, 9)


@contract
async def test_a_released_record_comes_again_and_is_counted(services: Services) -> None:
    place = await topic(services)
    session = await opened(services, place)
    await produced(services, place, 4)
    assert await session.acquire() == [(0, 3, 1)]
    assert part(await session.acknowledge((0, 3, [ACCEPT, RELEASE, RELEASE, REJECT]))).error_code == 0
    assert await session.acquire() == [(1, 2, 2)]
    await produced(services, place, 1)
    assert await session.ack(2, 2, RELEASE) == 0
    assert await session.acquire() == [(2, 2, 3), (4, 4, 1)]


@pytest.mark.parametrize("kind", [GAP, ACCEPT, REJECT])
@contract
async def test_a_finished_record_never_comes_again(services: Services, kind: int) -> None:
    place = await topic(services)
    session = await opened(services, place)
    await produced(services, place, 2)
    await session.acquire()
    assert await session.ack(0, 1, kind) == 0
    await produced(services, place, 1)
    assert await session.acquire() == [(2, 2, 1)]
    await session.fetch(epoch=0, min_bytes=0)
    assert await services.lag(session.group, place.name) == (2, 1)


@contract
async def test_acknowledgements_ride_on_a_fetch(services: Services) -> None:
    place = await topic(services)
    session = await opened(services, place)
    await produced(services, place, 2)
    assert await session.acquire() == [(0, 1, 1)]
    taken = await session.fetch({0: [(0, 0, [ACCEPT])]}, wait_ms=0)
    assert (part(taken).acknowledge_error_code, part(taken).error_code) == (0, 0)
    refused = await session.fetch({0: [(2, 2, [ACCEPT])]}, wait_ms=0)
    assert (part(refused).acknowledge_error_code, part(refused).error_code) == (INVALID_REQUEST, 0)
    released = await session.fetch({0: [(1, 1, [RELEASE])]})
    assert part(released).acknowledge_error_code == 0
    assert (acquired(released) or await session.acquire()) == [(1, 1, 2)]


@contract
async def test_what_one_does_not_hold_one_cannot_acknowledge(services: Services) -> None:
    place = await topic(services)
    one = await opened(services, place)
    two = await another(one, place.name)
    two.address = one.address
    await two.open()
    await produced(services, place, 2)
    assert await one.acquire() == [(0, 1, 1)]
    assert await two.ack(1, 1, ACCEPT) == INVALID_RECORD_STATE, "another holds it"
    assert await one.ack(1, 1, RELEASE) == 0
    assert await two.acquire() == [(1, 1, 2)]
    assert await one.ack(1, 1, ACCEPT) == INVALID_RECORD_STATE, "another holds it by now"
    assert await two.ack(1, 1, ACCEPT) == 0
    assert await two.ack(1, 1, ACCEPT) == INVALID_RECORD_STATE, "it is finished"
    assert await one.ack(2, 2, ACCEPT) == INVALID_REQUEST, "no member acquired it"
    assert await one.ack(0, 0, ACCEPT) == 0
    assert await two.ack(0, 1, REJECT) == 0, "offsets below the start offset are not checked"
    assert await services.lag(one.group, place.name) == (2, 0)


@contract
async def test_a_partition_is_acknowledged_as_a_whole_or_not_at_all(services: Services) -> None:
    place = await topic(services)
    session = await opened(services, place)
    await produced(services, place, 3)
    assert await session.acquire() == [(0, 2, 1)]
    assert await session.ack(1, 1, ACCEPT) == 0
    answer = await session.acknowledge((0, 0, [ACCEPT]), (1, 1, [ACCEPT]), (2, 2, [ACCEPT]))
    assert part(answer).error_code == INVALID_RECORD_STATE
    answer = await session.acknowledge((0, 0, [RELEASE]), (2, 2, [RENEW]))
    assert part(answer).error_code == INVALID_REQUEST
    assert part(await session.acknowledge((0, 0, [ACCEPT]), (2, 2, [ACCEPT]))).error_code == 0, "both are still held"


@contract
async def test_ranges_that_make_no_sense_are_refused(services: Services) -> None:
    place = await topic(services)
    session = await opened(services, place)
    await produced(services, place, 4)
    assert await session.acquire() == [(0, 3, 1)]
    senseless: list[list[tuple[int, int, list[int]]]] = [
        [(2, 3, [ACCEPT]), (0, 1, [ACCEPT])],
        [(0, 2, [ACCEPT]), (2, 3, [ACCEPT])],
        [(3, 1, [ACCEPT])],
        [(0, 3, [ACCEPT, ACCEPT])],
        [(0, 3, [])],
        [(0, 0, [7])],
        [(0, 0, [RENEW])],
    ]
    for batches in senseless:
        assert part(await session.acknowledge(*batches)).error_code == INVALID_REQUEST, batches
    assert await session.ack(0, 3, ACCEPT) == 0


@contract
async def test_a_renewal_keeps_the_record_and_asks_for_none(services: Services) -> None:
    place = await topic(services)
    session = await opened(services, place)
    await produced(services, place, 2)
    assert await session.acquire() == [(0, 1, 1)]
    assert (await session.fetch({0: [(0, 0, [RENEW])]}, is_renew_ack=True)).error_code == INVALID_REQUEST
    await produced(services, place, 1)
    renewed = await session.fetch(
        {0: [(0, 0, [RENEW])]}, is_renew_ack=True, wait_ms=0, min_bytes=0, max_bytes=0, max_records=0
    )
    assert (renewed.error_code, part(renewed).acknowledge_error_code) == (0, 0)
    assert acquired(renewed) == []
    mixed = await session.acknowledge((0, 1, [RENEW, ACCEPT]), renew=True)
    assert part(mixed).error_code == 0
    assert await session.ack(0, 0, ACCEPT) == 0
    assert await session.acquire() == [(2, 2, 1)]


@contract
async def test_a_record_is_given_up_after_its_last_delivery(services: Services) -> None:
    place = await topic(services)
    session = await opened(services, place)
    await produced(services, place, 1)
    for count in range(1, LIMIT + 1):
        assert await session.acquire() == [(0, 0, count)]
        assert await session.ack(0, 0, RELEASE) == 0
    await produced(services, place, 1)
    assert await session.acquire() == [(1, 1, 1)]


@contract
async def test_a_member_is_given_no_record_that_it_cannot_decompress(services: Services) -> None:
    """The refusal does not count as a delivery: another member receives the record with delivery count 1."""
    place = await topic(services)
    poor = await opened(services, place)
    rich = await opened(services, place, poor.group)
    await produced(services, place, 2)
    await services.produce(place.id, 3, 0, place.leaders[0], kind=Compression.ZSTD)
    assert await poor.acquire() == [(0, 1, 1)]
    for _ in range(LIMIT + 1):
        refused = part(await poor.fetch())
        assert refused.error_code == UnsupportedCompressionTypeError.code
        assert list(refused.acquired_records) == []
    found = await rich.fetch(change=lambda request: request.compression_types.append(Compression.ZSTD))
    assert acquired(found) == [(2, 4, 1)]
    assert part(found).error_code == 0


@contract
async def test_a_member_is_given_no_batch_whose_format_it_does_not_read(services: Services) -> None:
    """The records that a client of Kafka's produced stay for a member that names the format."""
    place = await topic(services)
    old = await opened(services, place)
    new = await opened(services, place, old.group)
    data = stored(kafka_batch(values(b"a", b"b"), Compression.GZIP))
    await produced(services, place, 2)
    assert (await produce(services, place, wire_batch(data))).base_offset == 2
    assert await old.acquire() == [(0, 1, 1)]
    for _ in range(LIMIT + 1):
        refused = part(await old.fetch())
        assert refused.error_code == UnsupportedCompressionTypeError.code
        assert "Kafka's format" in refused.error_message
        assert list(refused.acquired_records) == []
    found = await new.fetch(change=lambda request: request.batch_formats.append(BATCH_FORMAT_KAFKA))
    assert acquired(found) == [(2, 3, 1)]
    assert [one.batch for one in part(found).records] == [data], "byte for byte"
