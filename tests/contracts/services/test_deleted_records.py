"""Responses to DeleteRecords; deleted records are never delivered."""

from __future__ import annotations

from kip932.api.v1.delete_records_pb2 import DeleteRecordsRequest
from tests.integration.scenarios.sessions import offsets

from .hosting import Services, contract
from .members import Topic, opened, produced, topic

OFFSET_OUT_OF_RANGE, END = 1, -1


async def deleted(services: Services, place: Topic, offset: int) -> tuple[int, int]:
    """Delete records; return the error code and the log start offset."""
    request = DeleteRecordsRequest(timeout_ms=10_000)
    request.topics.add(topic_id=place.id).partitions.add(partition_index=0, offset=offset)
    (found,) = (await services.call("DeleteRecords", request, place.leaders[0])).topics
    (part,) = found.partitions
    assert (found.topic_id, part.partition_index) == (place.id, 0)
    return part.error_code, part.low_watermark


@contract
async def test_the_log_begins_where_records_were_deleted_up_to(services: Services) -> None:
    place = await topic(services)
    session = await opened(services, place)
    await produced(services, place, 3)
    await produced(services, place, 2)
    assert await deleted(services, place, 3) == (0, 3)
    assert await deleted(services, place, 1) == (0, 3), "it never goes back"
    assert await deleted(services, place, 6) == (OFFSET_OUT_OF_RANGE, -1)
    assert sorted(offsets(await session.fetch())) == [3, 4]
    assert await deleted(services, place, END) == (0, 5)
