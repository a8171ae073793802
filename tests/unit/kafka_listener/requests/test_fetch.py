"""Fetch: a reader of Kafka's gets batches as they are stored, and others in its format."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from kafka_listener.messages.apis import api
from kafka_listener.requests import fetch
from kip932.acls import Operation
from kip932.api.v1.fetch_pb2 import FetchResponse
from kip932.api.v1.record_batch_pb2 import FetchedBatch, Record, RecordBatch
from kip932.compression.kinds import Compression, frames_of
from kip932.errors import InvalidRequestError, ThrottlingQuotaExceededError
from kip932.kafka_batches import from_native, header_of, split, stored
from tests.support.virtual_time import virtual
from tests.unit.kafka_listener.requests.scripted import ORDERS, PAYMENTS, ScriptedConnection, allow, answered

REQUEST = api("Fetch").request
VERSIONS = range(4, 18)
answer = partial(answered, "Fetch")
NATIVE = RecordBatch(base_timestamp_ms=5, records=[Record(value=b"a"), Record(value=b"b")]).SerializeToString()
KAFKA = stored(from_native(NATIVE, 2, 0))


def asked(version: int, *topics: str, **fields: Any) -> Any:
    """Return a request for partition 0 of each topic, from offset 40 on."""
    ids = {"orders": ORDERS, "payments": PAYMENTS}
    made = []
    for name in topics:
        partition = REQUEST.FetchPartition(partition=0, fetch_offset=40, partition_max_bytes=999)
        if version >= 9:
            partition.current_leader_epoch = 7
        topic = REQUEST.FetchTopic(partitions=[partition])
        if version >= 13:
            topic.topic_id = ids.get(name, b"?" * 16)
        else:
            topic.topic = name
        made.append(topic)
    return REQUEST(**{"max_wait_ms": 300, "min_bytes": 2, "max_bytes": 5000, "topics": made, **fields})


def read(*batches: FetchedBatch, topic_id: bytes = ORDERS, **fields: Any) -> FetchResponse:
    response = FetchResponse()
    response.responses.add(topic_id=topic_id).partitions.add(
        high_watermark=50, last_stable_offset=48, log_start_offset=3, records=batches, **fields
    )
    return response


def refused(code: int) -> FetchResponse:
    response = FetchResponse()
    one = response.responses.add(topic_id=ORDERS).partitions.add(error_code=code)
    one.high_watermark = one.last_stable_offset = one.log_start_offset = -1
    return response


@pytest.mark.rule("KL-52", "KL-53")
@pytest.mark.parametrize("version", VERSIONS)
@virtual
async def test_a_stored_batch_is_served_with_its_offset(version: int) -> None:
    batch = FetchedBatch(base_offset=40, count=2, batch=KAFKA, append_time_ms=9)
    connection = ScriptedConnection(fetch=read(batch))
    got = await answer(version, asked(version, "orders"), connection, fetch.answer)
    request = connection.request
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level) == (300, 2, 5000, 0)
    assert list(request.batch_formats) == [2]
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (topic.topic_id, partition.partition, partition.fetch_offset) == (ORDERS, 0, 40)
    assert (partition.partition_max_bytes, partition.current_leader_epoch) == (999, 7 if version >= 9 else -1)
    (answered_topic,) = got.responses
    (one,) = answered_topic.partitions
    assert (one.error_code, one.high_watermark, one.last_stable_offset) == (0, 50, 48)
    assert one.aborted_transactions is None
    header = header_of(bytes(one.records))
    assert (header.base_offset, header.count) == (40, 2)
    assert bytes(one.records)[16:] == KAFKA[16:]
    if version >= 5:
        assert one.log_start_offset == 3
    if version >= 7:
        assert (got.error_code, got.session_id) == (0, 0)
    if version >= 11:
        assert one.preferred_read_replica == -1


@pytest.mark.rule("KL-53")
@virtual
async def test_a_native_batch_and_a_stored_one_are_served_alike() -> None:
    batches = [FetchedBatch(base_offset=40 + 2 * at, count=2, batch=data) for at, data in enumerate((NATIVE, KAFKA))]
    connection = ScriptedConnection(fetch=read(*batches))
    got = await answer(11, asked(11, "orders"), connection, fetch.answer)
    first, second = (header_of(one) for one in split(bytes(got.responses[0].partitions[0].records)))
    assert (first.base_offset, second.base_offset) == (40, 42)
    assert first.count == second.count == 2


@pytest.mark.rule("KL-54")
@pytest.mark.parametrize("commit", [False, True])
@virtual
async def test_a_reader_of_committed_records_gets_markers_and_what_was_aborted(commit: bool) -> None:
    marker = FetchedBatch(
        base_offset=42, count=1, is_control=True, control_type=int(commit), producer_id=77, producer_epoch=3
    )
    response = read(FetchedBatch(base_offset=40, count=2, batch=KAFKA, producer_id=77, is_transactional=True), marker)
    if not commit:
        response.responses[0].partitions[0].aborted_transactions.add(producer_id=77, first_offset=40)
    connection = ScriptedConnection(fetch=response)
    got = await answer(12, asked(12, "orders", isolation_level=1), connection, fetch.answer)
    assert connection.request.isolation_level == 1
    (one,) = got.responses[0].partitions
    assert [(each.producer_id, each.first_offset) for each in one.aborted_transactions] == (
        [] if commit else [(77, 40)]
    )
    _, end = (header_of(part) for part in split(bytes(one.records)))
    assert (end.is_control, end.is_transactional, end.producer_id, end.producer_epoch) == (True, True, 77, 3)


@pytest.mark.rule("KL-52")
@pytest.mark.parametrize("version", [7, 12, 17])
@pytest.mark.parametrize("epoch", [-1, 0, 1, 9])
@virtual
async def test_there_are_no_fetch_sessions(version: int, epoch: int) -> None:
    connection = ScriptedConnection(fetch=read())
    request = asked(version, "orders", session_id=5 if epoch > 0 else 0, session_epoch=epoch)
    got = await answer(version, request, connection, fetch.answer)
    assert got.session_id == 0
    assert got.error_code == (70 if epoch > 0 else 0)
    assert len(connection.calls) == (0 if epoch > 0 else 1)


@pytest.mark.rule("KL-41", "KL-52")
@virtual
async def test_an_unknown_name_is_answered_at_once_beside_what_there_is() -> None:
    batch = FetchedBatch(base_offset=40, count=2, batch=KAFKA)
    connection = ScriptedConnection(fetch=read(batch))
    got = await answer(12, asked(12, "nope", "orders"), connection, fetch.answer)
    assert connection.request.max_wait_ms == 0
    assert [(topic.topic, topic.partitions[0].error_code) for topic in got.responses] == [("nope", 3), ("orders", 0)]
    connection = ScriptedConnection([allow(Operation.READ, "orders")])
    got = await answer(12, asked(12, "nope"), connection, fetch.answer)
    assert [topic.partitions[0].error_code for topic in got.responses] == [29]


@pytest.mark.rule("KL-55")
@pytest.mark.parametrize(
    ("code", "by_name", "by_id"),
    [
        (1, 1, 1),
        (3, 3, 3),
        (6, 6, 6),
        (29, 29, 29),
        (74, 74, 74),
        (100, 3, 100),
        (7, 56, 56),
        (89, 56, 56),
        (42, -1, -1),
    ],
)
@virtual
async def test_a_partition_has_an_error_that_readers_know(code: int, by_name: int, by_id: int) -> None:
    for version, expected in ((11, by_name), (13, by_id)):
        connection = ScriptedConnection(fetch=refused(code))
        got = await answer(version, asked(version, "orders"), connection, fetch.answer)
        (one,) = got.responses[0].partitions
        assert (one.error_code, one.high_watermark, one.records) == (expected, -1, b"")


@pytest.mark.rule("KL-42")
@pytest.mark.parametrize("version", [11, 12, 16])
@virtual
async def test_a_refusal_names_the_leader(version: int) -> None:
    response = refused(6)
    leader = response.responses[0].partitions[0].current_leader
    leader.leader_id, leader.leader_epoch = 2, 8
    connection = ScriptedConnection(fetch=response)
    got = await answer(version, asked(version, "orders"), connection, fetch.answer)
    (one,) = got.responses[0].partitions
    assert one.error_code == 6
    if version >= 12:
        assert (one.current_leader.leader_id, one.current_leader.leader_epoch) == (2, 8)
    if version >= 16:
        assert [each.host for each in got.node_endpoints] == ["two.example"]


@pytest.mark.rule("KL-55")
@pytest.mark.parametrize("version", [9, 10])
@pytest.mark.parametrize("native", [False, True])
@virtual
async def test_zstd_needs_version_10(version: int, native: bool) -> None:
    plain = RecordBatch(records=[Record(value=b"a")]).SerializeToString()
    packed = RecordBatch(
        compression=Compression.ZSTD, compressed_records=frames_of(Compression.ZSTD).compress(plain, None)
    ).SerializeToString()
    data = packed if native else stored(from_native(packed, 1, 0))
    batches = [FetchedBatch(base_offset=40, count=2, batch=KAFKA), FetchedBatch(base_offset=42, count=1, batch=data)]
    connection = ScriptedConnection(fetch=read(*batches))
    got = await answer(version, asked(version, "orders"), connection, fetch.answer)
    (one,) = got.responses[0].partitions
    assert (one.error_code, len(split(bytes(one.records)))) == (0, 2 if version == 10 else 1)
    connection = ScriptedConnection(fetch=read(batches[1]))
    got = await answer(version, asked(version, "orders"), connection, fetch.answer)
    assert got.responses[0].partitions[0].error_code == (0 if version == 10 else 76)


@pytest.mark.rule("KL-55")
@virtual
async def test_a_damaged_native_batch_is_an_error_of_its_partition() -> None:
    batch = FetchedBatch(base_offset=40, count=2, batch=b"\xff\xff\xff")
    connection = ScriptedConnection(fetch=read(batch))
    got = await answer(12, asked(12, "orders"), connection, fetch.answer)
    assert [one.error_code for one in got.responses[0].partitions] == [2]


@pytest.mark.rule("KL-55")
@pytest.mark.parametrize(
    ("error", "top", "each"), [(ThrottlingQuotaExceededError("no room"), 89, 56), (InvalidRequestError("no"), 42, -1)]
)
@virtual
async def test_a_refusal_of_the_whole_request_is_on_top_where_there_is_room(
    error: Exception, top: int, each: int
) -> None:
    connection = ScriptedConnection(fetch=error)
    got = await answer(7, asked(7, "orders"), connection, fetch.answer)
    assert (got.error_code, got.responses) == (top, ())
    got = await answer(6, asked(6, "orders"), connection, fetch.answer)
    assert [one.error_code for one in got.responses[0].partitions] == [each]


@pytest.mark.rule("KL-40")
@virtual
async def test_what_the_quota_holds_back_is_said() -> None:
    response = read()
    response.throttle_time_ms = 120
    connection = ScriptedConnection(fetch=response)
    got = await answer(12, asked(12, "orders"), connection, fetch.answer)
    assert got.throttle_time.total_seconds() == 0.12
    connection = ScriptedConnection()
    assert (await answer(12, asked(12), connection, fetch.answer)).responses == ()
