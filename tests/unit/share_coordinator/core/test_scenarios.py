"""S-093 and S-095: what snapshots contain and replace, and which part of a stream replays no longer need."""

from __future__ import annotations

import pytest

from kip932.ids import SharePartitionKey
from kip932.state_batches import StateBatch
from kip932.state_values import DeleteState
from shard_runtime.hosting.compaction_plan import CompactionLimits, Positions
from shard_runtime.record_log.protocol import StreamId
from share_coordinator.core.records import ShareSnapshot
from tests.support.share_state import KEY, Driver, initialize, write


def keys_named(places: list[tuple[str, int]]) -> dict[str, SharePartitionKey]:
    return {name: KEY._replace(group_id=name) for name, _ in places}


@pytest.mark.scenario("S-093")
def test_every_fourth_write_is_a_snapshot_of_all_that_was_written() -> None:
    driver = Driver(updates_per_snapshot=3)
    driver.run(initialize(1, 0))
    for index in range(8):
        driver.run(write((index * 10, index * 10 + 5, 2, 1), start=0))
    snapshots = {number: record for number, record in enumerate(driver.log) if isinstance(record, ShareSnapshot)}
    assert list(snapshots) == [0, 4, 8]
    for writes, snapshot in snapshots.items():
        assert snapshot.batches == tuple(StateBatch(index * 10, index * 10 + 5, 2, 1) for index in range(writes))


@pytest.mark.scenario("S-093")
def test_a_later_snapshot_takes_the_place_of_an_earlier_one_whole() -> None:
    driver, other = Driver(updates_per_snapshot=0), Driver()
    driver.run(initialize(1, 0))
    driver.run(write((0, 9, 0, 3), (10, 19, 2, 1)))
    other.run(initialize(4, 7))
    driver.log[:] = [driver.log[-1], other.log[0]]
    assert driver.replayed().state(KEY) == other.state()


@pytest.mark.scenario("S-095")
@pytest.mark.parametrize(
    ("places", "ended", "needed_from"),
    [
        ([("K1", 10), ("K2", 11), ("K3", 15), ("K2", 16), ("K1", 17)], None, [10, 10, 10, 10, 15]),
        ([("K1", 10), ("K2", 11), ("K3", 15), ("K2", 16), ("K1", 17)], 15, [10, 10, 10, 10, 16]),
        (
            [
                *(("K1", 10), ("K2", 11), ("K3", 15), ("K2", 18), ("K3", 20)),
                *(("K2", 22), ("K3", 25), ("K2", 27), ("K3", 28), ("K1", 30)),
            ],
            None,
            [10] * 9 + [27],
        ),
    ],
)
def test_a_stream_is_needed_from_the_oldest_of_the_newest_snapshots_on(
    places: list[tuple[str, int]], ended: int | None, needed_from: list[int]
) -> None:
    """`ended`: the place of a tombstone."""
    driver, positions = Driver(), Positions(CompactionLimits())
    snapshots = {name: driver.written(initialize(key=key))[0] for name, key in keys_named(places).items()}
    newest: dict[str, int] = {}
    found = []
    for name, place in places:
        record = snapshots[name]
        newest[name] = place
        if place == ended:
            (record,) = driver.written(DeleteState(keys_named(places)[name]))
            del newest[name]
        positions.note(StreamId(1, place), driver.shard.anchor(record))
        found.append(positions.needed_from().id.seq)
        assert found[-1] <= min(newest.values()), "never past the newest snapshot of a living key"
    assert found == needed_from
