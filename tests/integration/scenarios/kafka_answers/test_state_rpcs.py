"""The share coordinator's RPCs: epochs, merging of writes, and invalid values."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_asyncio

from kip932 import errors
from kip932.internal.v1 import initialize_share_group_state_pb2 as initialize_pb
from kip932.internal.v1 import read_share_group_state_summary_pb2 as summary_pb
from tests.integration.scenarios.keys import Key, new_key
from tests.integration.scenarios.sessions import ACCEPT, fx_rpc
from tests.integration.scenarios.wire import Batches, Wire, batches_of
from tests.support.node import Cluster

pytestmark = pytest.mark.asyncio

INVALID = errors.InvalidRequestError.code
FENCED_LEADER = errors.FencedLeaderEpochError.code
NOTHING = (0, 0, -1, -1)


@pytest_asyncio.fixture
async def key(wire: Wire, cluster: Cluster) -> Key:
    return await new_key(wire, cluster)


async def test_a_key_from_nothing_to_nothing(key: Key) -> None:
    assert await key.summary() == NOTHING
    assert await key.initialize(2, -1) == 0
    assert await key.summary() == (2, 0, -1, -1)
    written = [(12, 14, 2, 1), (15, 15, 0, 2)]
    assert await key.write(written, start=10, dcc=3, state_epoch=2) == 0
    found = await key.read(0)
    assert (found.state_epoch, found.start_offset, batches_of(found)) == (2, 10, written)
    assert await key.summary() == (2, 0, 10, 3)
    assert (await key.delete(), await key.delete()) == (0, 0)
    assert await key.summary() == NOTHING
    assert (await key.read(0)).error_code == INVALID


async def test_reads_raise_the_leader_epoch_and_writes_do_not(key: Key) -> None:
    assert await key.initialize(0, 0) == 0
    assert [(await key.read(epoch)).error_code for epoch in (5, 4, 5)] == [0, FENCED_LEADER, 0]
    assert [await key.write([], leader_epoch=epoch) for epoch in (4, 5, 9)] == [FENCED_LEADER, 0, 0]
    assert (await key.summary())[1] == 5
    assert (await key.read(5)).error_code == 0


async def _state(key: Key) -> tuple[int, int, Batches]:
    found = await key.read(0)
    return found.start_offset, (await key.summary())[3], batches_of(found)


async def test_what_writes_make_of_start_offset_count_and_batches(key: Key) -> None:
    assert await key.initialize(0, 0) == 0
    assert await key.write([(0, 9, 0, 1), (10, 13, 2, 1)], start=0, dcc=4) == 0
    assert await key.write([], start=5, dcc=4) == 0
    assert await _state(key) == (5, 4, [(5, 9, 0, 1), (10, 13, 2, 1)])
    assert await key.write([(14, 15, 2, 1)], start=-1, dcc=6) == 0
    assert await _state(key) == (5, 4, [(5, 9, 0, 1), (10, 15, 2, 1)])
    assert await key.write([(3, 6, 2, 1)], start=3, dcc=9) == 0
    assert await _state(key) == (5, 4, [(5, 6, 2, 1), (7, 9, 0, 1), (10, 15, 2, 1)])
    assert await key.write([], start=5, dcc=2) == 0
    assert (await _state(key))[1] == 4


@pytest.mark.rule("SC-28")
@pytest.mark.parametrize("epoch", [-1, -2])
@pytest.mark.parametrize("initialised", [True, False])
async def test_negative_epochs_are_what_is_complained_of(key: Key, epoch: int, initialised: bool) -> None:
    if initialised:
        assert await key.initialize(3, 7) == 0
    before = key.records()
    assert await key.initialize(epoch, 0) == INVALID
    assert await key.write([], state_epoch=epoch) == INVALID
    assert await key.write([], leader_epoch=epoch) == INVALID
    answer = await key.read(epoch)
    assert (answer.error_code, f"leader epoch {epoch} is negative" in answer.error_message) == (INVALID, True)
    assert key.records() == before


@pytest.mark.parametrize("batch", [(9, 8, 0, 1), (0, 1, 1, 1), (0, 1, 9, 1), (0, 1, 0, -1)])
async def test_batches_that_no_record_can_have_are_refused(key: Key, batch: tuple[int, int, int, int]) -> None:
    """Kafka stores them, and then fails every later write to a key that has a batch with first > last."""
    assert await key.initialize(0, 0) == 0
    before = key.records()
    assert await key.write([batch]) == INVALID
    assert key.records() == before


@pytest.mark.parametrize("batch", [(0, 1, 3, 1), (0, 1, 0, 0)])
async def test_archiving_and_a_count_of_0_are_stored(key: Key, batch: tuple[int, int, int, int]) -> None:
    assert await key.initialize(0, 0) == 0
    assert await key.write([batch]) == 0
    assert batches_of(await key.read(0)) == [batch]


@pytest.mark.rule("SC-33")
async def test_a_key_initialised_twice_in_one_request_keeps_the_first_start_offset(key: Key) -> None:
    """Kafka also returns NONE once, but keeps the second."""
    request = initialize_pb.InitializeShareGroupStateRequest(group_id=key.group)
    topic = request.topics.add(topic_id=key.topic_id)
    for start in (3, 8):
        topic.partitions.add(partition=0, state_epoch=1, start_offset=start)
    answer = await key.wire.state_call("InitializeShareGroupState", request, key.group, key.topic_id)
    assert [part.error_code for topic in answer.results for part in topic.partitions] == [0]
    assert len(key.records()) == 1
    assert (await key.read(0)).start_offset == 3


async def test_offsets_and_counts_that_cannot_be_are_refused(key: Key) -> None:
    """Kafka stores −7 as it is, and treats −2 and −5 as "lower"."""
    assert await key.initialize(1, -7) == INVALID
    assert await key.initialize(1, 4) == 0
    before = key.records()
    assert await key.write([], start=-2, state_epoch=1) == INVALID
    assert await key.write([], start=4, state_epoch=1, dcc=-5) == INVALID
    assert key.records() == before


async def test_a_summary_does_not_check_the_leader_epoch(key: Key) -> None:
    assert await key.initialize(2, 4) == 0
    request = summary_pb.ReadShareGroupStateSummaryRequest(group_id=key.group)
    request.topics.add(topic_id=key.topic_id).partitions.add(partition=0, leader_epoch=-5)
    answer: Any = await key.wire.state_call("ReadShareGroupStateSummary", request, key.group, key.topic_id)
    found = answer.results[0].partitions[0]
    assert (found.error_code, found.state_epoch, found.start_offset) == (0, 2, 4)


async def test_a_leader_whose_state_was_deleted_lets_the_share_partition_go(wire: Wire, cluster: Cluster) -> None:
    """Kafka's leader returns UNKNOWN_SERVER_ERROR and keeps the share-partition with all its locks."""
    session, _ = await fx_rpc(wire)
    await wire.produce(session.topic_id, 3)
    assert await session.acquire() == [(0, 2, 1)]
    key = Key(wire, cluster, session.group, session.topic_id)
    assert await key.delete() == 0
    assert await session.ack(0, 0, ACCEPT) != 0
    assert await key.initialize(9, 0) == 0
    assert await session.acquire() == [(0, 2, 1)]
    assert await session.ack(0, 2, ACCEPT) == 0
    assert (await key.summary())[2] == 3
