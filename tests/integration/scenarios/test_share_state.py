"""S-087 … S-090, S-098, S-099: the share coordinator's RPCs, and the records that they leave in a real store."""

from __future__ import annotations

import pytest

from kip932 import errors
from kip932.state_batches import StateBatch
from share_coordinator.core.records import ShareSnapshot, ShareUpdate
from tests.integration.scenarios.keys import Key, new_key
from tests.integration.scenarios.wire import Batches, Wire, batches_of
from tests.support.node import Cluster, unique

pytestmark = pytest.mark.asyncio

INVALID = errors.InvalidRequestError.code
FENCED_LEADER = errors.FencedLeaderEpochError.code
FENCED_STATE = errors.FencedStateEpochError.code


@pytest.mark.scenario("S-087")
async def test_initialise(wire: Wire, cluster: Cluster) -> None:
    key = await new_key(wire, cluster)
    assert await key.initialize(5, 10) == 0
    (snapshot,) = key.records()
    assert isinstance(snapshot, ShareSnapshot)
    assert (snapshot.snapshot_epoch, snapshot.state_epoch, snapshot.start_offset) == (0, 5, 10)
    assert snapshot.batches == ()
    found = await key.read(0)
    assert (found.error_code, found.state_epoch, found.start_offset, batches_of(found)) == (0, 5, 10, [])


@pytest.mark.scenario("S-088")
async def test_a_write_appends_an_update_and_consecutive_writes_merge(wire: Wire, cluster: Cluster) -> None:
    key = await new_key(wire, cluster)
    assert await key.initialize(0, 0) == 0
    snapshot = key.records()[0]
    assert isinstance(snapshot, ShareSnapshot)
    for number, batch in enumerate([(0, 10, 0, 1), (11, 20, 0, 1)], 1):
        assert await key.write([batch]) == 0
        records = key.records()
        assert len(records) == 1 + number
        update = records[-1]
        assert isinstance(update, ShareUpdate)
        assert (update.snapshot_epoch, update.batches) == (snapshot.snapshot_epoch, (StateBatch(*batch),))
    assert batches_of(await key.read(0)) == [(0, 20, 0, 1)]


@pytest.mark.scenario("S-089")
async def test_fencing_of_writes(wire: Wire, cluster: Cluster) -> None:
    led = await new_key(wire, cluster)
    assert await led.initialize(0, 0) == 0
    assert (await led.read(1)).error_code == 0
    before = led.records()
    assert await led.write([(0, 1, 2, 1)], leader_epoch=0) == FENCED_LEADER
    assert (await wire.summary(led.group, led.topic_id)).leader_epoch == 1

    reset = await new_key(wire, cluster)
    assert await reset.initialize(1, 0) == 0
    assert await reset.write([(0, 1, 2, 1)], state_epoch=0, leader_epoch=5) == FENCED_STATE
    summary = await wire.summary(reset.group, reset.topic_id)
    assert (summary.leader_epoch, summary.state_epoch) == (0, 1)
    # Epoch 5 is not remembered: leader epoch 0 may still write.
    assert (led.records(), len(reset.records())) == (before, 1)
    assert await reset.write([], state_epoch=1, leader_epoch=0) == 0


@pytest.mark.scenario("S-090")
@pytest.mark.rule("SC-38")
async def test_reading_raises_the_leader_epoch(wire: Wire, cluster: Cluster) -> None:
    key = await new_key(wire, cluster)
    assert await key.initialize(0, -1) == 0
    first = await key.read(2)
    # The store is read after the response: the record must already be there.
    _, update = key.records()
    assert isinstance(update, ShareUpdate)
    assert (update.leader_epoch, update.batches) == (2, ())
    assert (first.error_code, first.start_offset, first.state_epoch, batches_of(first)) == (0, -1, 0, [])
    assert [(await key.read(epoch)).error_code for epoch in (-1, 1)] == [INVALID, FENCED_LEADER]
    assert (await key.read(2)).error_code == 0
    assert await key.write([(0, 1, 2, 1)], leader_epoch=1) == FENCED_LEADER
    assert len(key.records()) == 2

    other = await new_key(wire, cluster)
    assert await other.initialize(0, 0) == 0
    assert (await other.read(5)).error_code == 0
    fenced = await other.read(3)
    assert (fenced.error_code, fenced.leader_epoch) == (FENCED_LEADER, 5)
    assert (await wire.summary(other.group, other.topic_id)).leader_epoch == 5


async def _merge(wire: Wire, cluster: Cluster, topic_id: bytes, current: Batches, new: Batches) -> Batches:
    key = Key(wire, cluster, unique("g"), topic_id)
    assert await key.initialize(0, 0) == 0
    assert await key.write(current, start=-1) == 0
    assert await key.write(new, start=-1) == 0
    return batches_of(await key.read(0))


@pytest.mark.scenario("S-098")
async def test_merging_the_same_state_and_count(wire: Wire, cluster: Cluster) -> None:
    topic_id = await wire.create_topic(unique("T"))
    expected = {
        (100, 110): (100, 110),
        (100, 105): (100, 110),
        (100, 115): (100, 115),
        (105, 108): (100, 110),
        (105, 110): (100, 110),
        (105, 115): (100, 115),
        (111, 115): (100, 115),
    }
    for new, merged in expected.items():
        found = await _merge(wire, cluster, topic_id, [(100, 110, 0, 1)], [(*new, 0, 1)])
        assert found == [(*merged, 0, 1)], new


@pytest.mark.rule("PL-706")
@pytest.mark.scenario("S-099")
async def test_the_higher_count_or_state_wins_on_the_overlap(wire: Wire, cluster: Cluster) -> None:
    topic_id = await wire.create_topic(unique("T"))
    cases = [
        ((100, 110, 0, 1), (100, 105, 0, 2), [(100, 105, 0, 2), (106, 110, 0, 1)]),
        ((100, 110, 0, 1), (105, 110, 0, 2), [(100, 104, 0, 1), (105, 110, 0, 2)]),
        ((100, 115, 0, 1), (105, 110, 1, 1), None),
        ((100, 115, 0, 1), (105, 110, 2, 1), [(100, 104, 0, 1), (105, 110, 2, 1), (111, 115, 0, 1)]),
        ((100, 110, 0, 1), (105, 115, 0, 2), [(100, 104, 0, 1), (105, 115, 0, 2)]),
    ]
    for current, new, merged in cases:
        if merged is None:
            # The scenario's Acquired (1) is never persisted, and is refused (SC-43): the combiner's unit tests cover
            # it.
            key = Key(wire, cluster, unique("g"), topic_id)
            assert await key.initialize(0, 0) == 0
            assert await key.write([current], start=-1) == 0
            assert await key.write([new], start=-1) == errors.InvalidRequestError.code
            assert batches_of(await key.read(0)) == [current]
        else:
            assert await _merge(wire, cluster, topic_id, [current], [new]) == merged, new
