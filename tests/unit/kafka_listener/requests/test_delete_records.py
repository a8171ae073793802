"""DeleteRecords."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from kafka_listener.messages.apis import api
from kafka_listener.requests import delete_records
from kip932.acls import Operation
from kip932.api.v1.delete_records_pb2 import DeleteRecordsResponse
from kip932.errors import NotLeaderOrFollowerError
from tests.support.virtual_time import virtual
from tests.unit.kafka_listener.requests.scripted import ORDERS, ScriptedConnection, allow, answered

REQUEST = api("DeleteRecords").request
answer = partial(answered, "DeleteRecords")


def asked(**topics: dict[int, int]) -> Any:
    return REQUEST(
        timeout_ms=200,
        topics=[
            REQUEST.DeleteRecordsTopic(
                name=name,
                partitions=[
                    REQUEST.DeleteRecordsPartition(partition_index=index, offset=offset)
                    for index, offset in offsets.items()
                ],
            )
            for name, offsets in topics.items()
        ],
    )


@pytest.mark.rule("KL-59")
@pytest.mark.parametrize("version", range(3))
@virtual
async def test_log_starts_move(version: int) -> None:
    response = DeleteRecordsResponse()
    into = response.topics.add(topic_id=ORDERS).partitions
    into.add(partition_index=0, low_watermark=5)
    into.add(partition_index=1, low_watermark=-1, error_code=1)
    connection = ScriptedConnection(delete_records=response)
    got = await answer(version, asked(nope={0: 1}, orders={0: -1, 1: 99}), connection, delete_records.answer)
    (topic,) = connection.request.topics
    assert topic.topic_id == ORDERS
    assert [(each.partition_index, each.offset) for each in topic.partitions] == [(0, -1), (1, 99)]
    assert connection.request.timeout_ms == 200
    assert [
        (topic.name, each.partition_index, each.low_watermark, each.error_code)
        for topic in got.topics
        for each in topic.partitions
    ] == [("nope", 0, -1, 3), ("orders", 0, 5, 0), ("orders", 1, -1, 1)]


@pytest.mark.rule("KL-41")
@virtual
async def test_an_unknown_name_is_refused_as_its_caller_may_know() -> None:
    for allowed, code in (([allow(Operation.DELETE, "nope")], 3), ([allow(Operation.DESCRIBE, "nope")], 29)):
        got = await answer(1, asked(nope={0: 1}), ScriptedConnection(allowed), delete_records.answer)
        assert got.topics[0].partitions[0].error_code == code


@pytest.mark.rule("KL-40")
@virtual
async def test_a_refusal_of_the_whole_request_is_that_of_each_partition() -> None:
    connection = ScriptedConnection(delete_records=NotLeaderOrFollowerError("elsewhere"))
    got = await answer(2, asked(orders={0: 1, 1: 1}), connection, delete_records.answer)
    assert [each.error_code for each in got.topics[0].partitions] == [6, 6]
    connection = ScriptedConnection(delete_records=DeleteRecordsResponse())
    got = await answer(2, asked(orders={0: 1}), connection, delete_records.answer)
    assert [each.error_code for each in got.topics[0].partitions] == [-1]
