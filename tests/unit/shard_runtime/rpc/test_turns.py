"""Long requests let other tasks run in between (CM-94): the tests count the event loop's turns, not time."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from group_coordinator.service_offsets import SLICE as OFFSETS_SLICE
from kip932.errors import InvalidRequestError
from kip932.ids import (
    EXPLAINED_OFFSETS_MAX,
    REQUEST_PARTITIONS_MAX,
    SHARE_PARTITION_BATCHES_MAX,
    STATE_BATCHES_MAX,
    SharePartitionKey,
)
from kip932.records.v1.state_batch_pb2 import Failure
from kip932.state_batches import StateBatch
from kip932.state_values import ReadSummary, StateSpan, WriteState
from partition_leader.fetch.wide_fetch import CHECK_SLICE, READ_SLICE, WIDE
from partition_leader.led_partitions import SWEEP_SLICE
from partition_leader.share_partition.partitions import DEFERRED_SLICE
from partition_leader.share_rpc import codec
from partition_leader.topic_rpc import produce
from shard_runtime.cluster.lookups import PARTITIONS_SLICE
from shard_runtime.ownership import owner_hints
from shard_runtime.record_log.redis import cluster_store
from shard_runtime.rpc.bounds import LARGE_BYTES, LARGE_TURNS_MAX, LargeWork, Turns, check_state_batches
from share_coordinator.service import BATCHES_SLICE, KEYS_SLICE
from share_persister.messages import METHODS
from share_persister.node_queue import NodeQueue, QueuedCall
from share_persister.settings import PersisterSettings
from tests.support.share_coordinators import CoordinatorProcess
from tests.support.share_state import TOPIC
from tests.support.virtual_time import turns_of, virtual
from tests.unit.share_coordinator.test_service import Client


@pytest.mark.rule("CM-94")
@pytest.mark.parametrize(
    "rpc", ["ReadShareGroupState", "ReadShareGroupStateSummary", "DeleteShareGroupState", "WriteShareGroupState"]
)
@virtual
async def test_the_largest_request_for_share_state_is_worked_off_in_slices(rpc: str) -> None:
    client = Client(CoordinatorProcess())
    names = [(TOPIC, number) for number in range(REQUEST_PARTITIONS_MAX)]
    turns = await turns_of(client.call(rpc, *names))
    assert turns >= REQUEST_PARTITIONS_MAX // KEYS_SLICE


@pytest.mark.rule("CM-94", "SC-117")
@virtual
async def test_states_with_many_reasons_are_returned_in_more_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("share_coordinator.service.BATCHES_SLICE", 200)
    client, names = Client(CoordinatorProcess()), [(TOPIC, number) for number in range(10)]
    failures = [Failure(first_offset=at, last_offset=at, delivery_count=1, reason=str(at)) for at in range(200)]
    await client.call("InitializeShareGroupState", *names)
    few = await turns_of(client.call("ReadShareGroupState", *names))
    await client.call("WriteShareGroupState", *names, failures=failures)
    many = await turns_of(client.call("ReadShareGroupState", *names))
    assert many >= few + len(names)


@pytest.mark.rule("CM-94")
@virtual
async def test_refusals_of_many_share_partitions_leave_no_rings_to_search_for() -> None:
    client = Client(CoordinatorProcess())
    names = [(TOPIC, number) for number in range(2_000)]
    gc.collect()
    gc.disable()
    try:
        await client.call("ReadShareGroupState", *names)  # none of these share-partitions is initialised
        assert gc.collect() < 2_000, "objects that only a search finds"
    finally:
        gc.enable()


@pytest.mark.rule("CM-94")
@virtual
async def test_others_have_their_turn_after_so_many_entries() -> None:
    async def work() -> None:
        turns = Turns(10)
        for _ in range(100):
            await turns.step()

    assert await turns_of(work()) >= 10


@pytest.mark.rule("CM-94", "CM-96", "CM-97", "CM-98")
def test_the_slices_are_those_of_the_rules() -> None:
    assert KEYS_SLICE == OFFSETS_SLICE * 2 // 5 == 200, "200 to 1,000 entries of a request for share state or offsets"
    assert (SWEEP_SLICE, cluster_store._HINTS_SLICE, owner_hints._AT_ONCE) == (200, 2_000, 1_000)
    assert (WIDE, CHECK_SLICE, READ_SLICE, DEFERRED_SLICE, codec._SLICE) == (500, 500, 200, 200, 500)
    assert (produce._STEP, PARTITIONS_SLICE) == (256, 1_000)


@pytest.mark.rule("CM-94")
def test_state_batches_of_a_write_are_bounded() -> None:
    assert BATCHES_SLICE <= SHARE_PARTITION_BATCHES_MAX <= STATE_BATCHES_MAX
    check_state_batches([SHARE_PARTITION_BATCHES_MAX] * 5)
    with pytest.raises(InvalidRequestError, match="has 10001 state batches"):
        check_state_batches([SHARE_PARTITION_BATCHES_MAX + 1])
    with pytest.raises(InvalidRequestError, match="brings 50001 state batches"):
        check_state_batches([SHARE_PARTITION_BATCHES_MAX] * 5 + [1])


@pytest.mark.rule("CM-94")
@virtual
async def test_the_persister_sends_no_more_state_batches_than_one_request_may_have() -> None:
    sent: list[int] = []

    async def send(request: Any) -> Any:
        sent.append(sum(len(part.state_batches) for topic in request.topics for part in topic.partitions))
        return METHODS["WriteShareGroupState"].response_type()

    lane = NodeQueue(WriteState, send, PersisterSettings())
    batches = tuple(StateBatch(2 * number, 2 * number, 2, 1) for number in range(SHARE_PARTITION_BATCHES_MAX))
    entries = [
        QueuedCall(WriteState(SharePartitionKey("g", TOPIC, number), 1, 1, 0, 0, -1, batches)) for number in range(7)
    ]
    for entry in entries:
        lane.add(entry)
    await asyncio.gather(*(entry.outcome for entry in entries))
    assert sent == [STATE_BATCHES_MAX, 2 * SHARE_PARTITION_BATCHES_MAX]


@pytest.mark.rule("CM-91")
@virtual
async def test_the_persister_asks_for_state_batches_of_no_more_offsets_than_one_request_may() -> None:
    asked: list[int] = []

    async def send(request: Any) -> Any:
        asked.append(sum(len(topic.partitions) for topic in request.topics))
        return METHODS["ReadShareGroupStateSummary"].response_type()

    lane = NodeQueue(ReadSummary, send, PersisterSettings())
    span = StateSpan(1, EXPLAINED_OFFSETS_MAX)
    entries = [QueuedCall(ReadSummary(SharePartitionKey("g", TOPIC, number), span)) for number in range(70)]
    entries += [QueuedCall(ReadSummary(SharePartitionKey("h", TOPIC, number))) for number in range(900)]
    for entry in entries:
        lane.add(entry)
    await asyncio.gather(*(entry.outcome for entry in entries))
    assert asked == [50, 900, 20], "one request for each group; what asks for no batches needs no second one"


async def _finished_in(work: LargeWork, sizes: list[int]) -> list[int]:
    """Return in which turn of the event loop each work of these sizes was done."""
    found: dict[int, int] = {}

    async def one(number: int) -> None:
        await work.turn(sizes[number])
        found[number] = turn

    tasks, turn = [asyncio.ensure_future(one(number)) for number in range(len(sizes))], 0
    while len(found) < len(sizes):
        await asyncio.sleep(0)
        turn += 1
    await asyncio.gather(*tasks)
    return [found[number] for number in range(len(sizes))]


@pytest.mark.rule("CM-94")
@virtual
async def test_one_large_work_is_done_per_turn_and_small_work_waits_for_none() -> None:
    """The part (d) on large answers."""
    work = LargeWork()
    *large, small = await _finished_in(work, [LARGE_BYTES] * 20 + [LARGE_BYTES - 1])
    assert large == sorted(set(large)), "in order of arrival, each in a turn of its own"
    assert small < large[0]


@pytest.mark.rule("CM-94")
@virtual
async def test_large_works_wait_for_a_bounded_number_of_turns() -> None:
    """The part (d) on large answers."""
    many = await _finished_in(LargeWork(), [LARGE_BYTES] * (LARGE_TURNS_MAX + 50))
    assert max(many) <= LARGE_TURNS_MAX + 1


@pytest.mark.rule("CM-94")
@virtual
async def test_a_large_work_that_is_given_up_holds_up_no_other() -> None:
    """The part (d) on large answers."""
    work = LargeWork()
    leaving = [asyncio.ensure_future(work.turn(LARGE_BYTES)) for _ in range(50)]
    await asyncio.sleep(0)
    for task in leaving:
        task.cancel()
    await asyncio.gather(*leaving, return_exceptions=True)
    assert await turns_of(work.turn(LARGE_BYTES)) <= 3
