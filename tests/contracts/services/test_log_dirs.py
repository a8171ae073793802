"""Responses to DescribeLogDirs: what a leader's logs hold, by the store node that has them."""

from __future__ import annotations

from typing import Any

from kip932.api.v1.describe_log_dirs_pb2 import DescribeLogDirsRequest

from .hosting import Services, contract
from .members import Topic, other_node, produced, topic
from .test_deleted_records import deleted
from .test_produce import batch, produce

END = -1


async def logs(services: Services, place: Topic, address: str = "", named: bool = True) -> dict[int, Any]:
    """Return what a node, by default the first partition's leader, says of a topic's partitions."""
    request = DescribeLogDirsRequest()
    if named:
        request.topics.values.add(topic=place.name)
    response = await services.call("DescribeLogDirs", request, address or place.leaders[0])
    assert response.error_code == 0
    return {
        part.partition_index: part
        for result in response.results
        for each in result.topics
        if each.name == place.name
        for part in each.partitions
    }


@contract
async def test_a_log_has_the_bytes_and_records_that_are_left(services: Services) -> None:
    place = await topic(services)
    empty = (await logs(services, place))[0]
    assert (empty.partition_size, empty.record_count, empty.HasField("oldest_append_time_ms")) == (0, 0, False)
    written = [batch(3), batch(2)]
    for one in written:
        assert (await produce(services, place, one)).error_code == 0
    for named in (True, False):
        found = (await logs(services, place, named=named))[0]
        assert (found.partition_size, found.record_count) == (sum(len(one.record_batch) for one in written), 5)
        assert (found.offset_lag, found.is_future_key, found.size_is_estimate) == (0, False, False)
        assert found.oldest_append_time_ms > 0
    assert await deleted(services, place, 3) == (0, 3)
    found = (await logs(services, place))[0]
    assert (found.partition_size, found.record_count) == (len(written[1].record_batch), 2)
    assert await deleted(services, place, END) == (0, 5)
    assert (await logs(services, place))[0].partition_size == 0


@contract
async def test_a_node_answers_for_the_partitions_that_it_leads(services: Services) -> None:
    place = await topic(services)
    await produced(services, place, 1)
    assert await logs(services, place, await other_node(services, place)) == {}


@contract
async def test_topics_that_do_not_exist_are_left_out(services: Services) -> None:
    place = await topic(services)
    unknown = place._replace(name="no-such-topic")
    assert await logs(services, unknown) == {}
