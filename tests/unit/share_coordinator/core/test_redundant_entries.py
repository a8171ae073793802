"""Which part of a state stream no replay needs any more: S-095, with its keys and places."""

from __future__ import annotations

import pytest

from kip932.ids import SharePartitionKey
from shard_runtime.hosting.compaction_plan import CompactionLimits, Positions
from shard_runtime.record_log.protocol import StreamId
from share_coordinator.core.commands import DeleteState
from tests.support.share_state import KEY, Driver, initialize


def keys_named(places: list[tuple[str, int]]) -> dict[str, SharePartitionKey]:
    return {name: KEY._replace(group_id=name) for name, _ in places}


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
    """`ended`: there lies a tombstone."""
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
