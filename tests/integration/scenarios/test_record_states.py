"""S-047, S-049, S-063: the state changes that acknowledgements may make to a record, through the RPCs."""

from __future__ import annotations

import pytest

from kip932 import errors
from kip932.api.v1 import delete_records_pb2 as delete_pb
from kip932.ids import STATE_ARCHIVED, STATE_AVAILABLE
from kip932.internal.v1 import write_share_group_state_pb2 as write_pb
from tests.integration.scenarios.sessions import ACCEPT, REJECT, RELEASE, another, fx_rpc, holding
from tests.integration.scenarios.wire import Wire

pytestmark = pytest.mark.asyncio

INVALID = errors.InvalidRecordStateError.code
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = "available", "acquired", "acknowledged", "archived"


@pytest.mark.scenario("S-047")
async def test_double_acknowledgement(wire: Wire) -> None:
    session, _ = await holding(wire, 5, 9)
    assert await session.ack(5, 9, RELEASE) == 0
    assert await session.ack(5, 9, ACCEPT) == INVALID
    assert await session.acquire() == [(5, 9, 2)]
    assert await session.ack(6, 8, REJECT) == 0
    assert await session.ack(6, 8, REJECT) == INVALID
    state = await wire.state(session.group, session.topic_id)
    assert state[:2] == (5, [(5, 5, 0, 1), (6, 8, STATE_ARCHIVED, 2), (9, 9, 0, 1)])
    assert [await session.ack(offset, offset, ACCEPT) for offset in (5, 9)] == [0, 0]
    assert (await wire.state(session.group, session.topic_id))[:2] == (10, [])


@pytest.mark.scenario("S-049")
async def test_partial_release_and_acquisition_by_another(wire: Wire) -> None:
    m1, topic = await holding(wire, 10, 14)
    assert await m1.ack(12, 13, RELEASE) == 0
    m2 = await another(m1, topic)
    assert await m2.acquire() == [(12, 13, 2)]
    await wire.produce(m1.topic_id, 1)
    assert await m2.acquire() == [(15, 15, 1)]
    assert await m2.ack(10, 11, ACCEPT) == INVALID
    assert [await m1.ack(10, 11, ACCEPT), await m1.ack(14, 14, ACCEPT)] == [0, 0]
    state = await wire.state(m1.group, m1.topic_id)
    assert state[:2] == (12, [(12, 13, STATE_AVAILABLE, 1), (14, 14, 2, 1)])


@pytest.mark.scenario("S-063")
async def test_legal_record_state_transitions(wire: Wire) -> None:
    """Offset 0 stays acquired, so that the window does not move; offset n is put into a state and then acknowledged."""
    session, _ = await fx_rpc(wire)
    await wire.produce(session.topic_id, 12)
    assert await session.acquire() == [(0, 11, 1)]
    into = {AVAILABLE: RELEASE, ACKNOWLEDGED: ACCEPT, ARCHIVED: REJECT}
    offset = 0
    for before in (AVAILABLE, ACKNOWLEDGED, ARCHIVED):
        for kind in (RELEASE, ACCEPT, REJECT):
            offset += 1
            assert await session.ack(offset, offset, into[before]) == 0
            assert await session.ack(offset, offset, kind) == INVALID, (before, kind)
    assert (await wire.state(session.group, session.topic_id))[:2] == (0, [(1, 3, 0, 1), (4, 6, 2, 1), (7, 9, 4, 1)])
    # Available to Acquired is the only way: the released records are delivered again.
    assert await session.acquire() == [(1, 3, 2)]


@pytest.mark.scenario("S-063")
async def test_a_moving_log_start_archives_what_is_available(wire: Wire) -> None:
    session, _ = await fx_rpc(wire)
    await wire.produce(session.topic_id, 10)
    assert await session.acquire() == [(0, 9, 1)]
    assert await session.ack(0, 4, RELEASE) == 0
    request = delete_pb.DeleteRecordsRequest(timeout_ms=10_000)
    request.topics.add(topic_id=session.topic_id).partitions.add(partition_index=0, offset=3)
    (result,) = (await wire.call("DeleteRecords", request)).topics[0].partitions
    assert (result.error_code, result.low_watermark) == (0, 3)
    assert await session.acquire() == [(3, 4, 2)]
    assert await session.ack(3, 9, ACCEPT) == 0
    await wire.until_state(session.group, session.topic_id, 10, [])


@pytest.mark.scenario("S-063")
@pytest.mark.rule("SC-43")
async def test_an_unknown_state_id_is_rejected(wire: Wire) -> None:
    session, _ = await fx_rpc(wire)
    before = await wire.state(session.group, session.topic_id)
    request = write_pb.WriteShareGroupStateRequest(group_id=session.group)
    written = request.topics.add(topic_id=session.topic_id).partitions.add(
        partition=0, state_epoch=50_000, leader_epoch=50_000, start_offset=-1
    )
    written.state_batches.add(first_offset=0, last_offset=0, delivery_state=5, delivery_count=1)
    answer = await wire.state_call("WriteShareGroupState", request, session.group, session.topic_id)
    (result,) = answer.results[0].partitions
    assert result.error_code == errors.InvalidRequestError.code
    assert "5" in result.error_message
    assert await wire.state(session.group, session.topic_id) == before


@pytest.mark.rule("PL-401")
async def test_an_unknown_acknowledge_type_is_rejected(wire: Wire) -> None:
    session, _ = await fx_rpc(wire)
    await wire.produce(session.topic_id, 1)
    assert await session.acquire() == [(0, 0, 1)]
    assert await session.ack(0, 0, 5) == errors.InvalidRequestError.code
    assert await session.ack(0, 0, ACCEPT) == 0
