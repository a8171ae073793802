"""A topic log whose stored entries differ from what was written: what is served, what is left out, and what is
reported."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from kip932.errors import NotLeaderOrFollowerError, UnknownTopicOrPartitionError
from partition_leader.meter import LeaderMeter
from partition_leader.topic_log.core.coverage import Coverage
from partition_leader.topic_log.settings import TopicLogSettings
from tests.support.claims import LEASE_MS
from tests.twin import FaultPoint, Stage

from .harness import SHARD, Cluster, batch

pytestmark = pytest.mark.asyncio
MAIN, CONTROL = SHARD.streams


class Losses(LeaderMeter):
    """Counts the offsets that were reported as unreadable."""

    def __init__(self) -> None:
        self.offsets = 0

    def unreadable(self, offsets: int) -> None:
        self.offsets += offsets


def change(cluster: Cluster, stream: str, position: int, field: bytes, change: bytes | None) -> str:
    """Replace a stored field's bytes, or delete the entry if `change` is None; return the entry's id."""
    held = cluster.store.master.data.streams[stream]
    at = "{}-{}".format(*held.ids[position])
    if change is None:
        del held.ids[position], held.fields[position]
        return at
    fields = list(held.fields[position])
    fields[fields.index(field) + 1] = change
    held.fields[position] = tuple(fields)
    return at


def position_of(cluster: Cluster, stream: str, letter: bytes, number: int = 0) -> int:
    fields = cluster.store.master.data.streams[stream].fields
    return [at for at, words in enumerate(fields) if words[1] == letter][number]


@pytest.mark.rule("CM-102", "CM-105")
@pytest.mark.parametrize(("field", "bytes_"), [(b"b", b"other"), (b"r", b"other"), (b"t", b"X"), (b"", None)])
async def test_a_damaged_or_missing_batch_is_a_hole_that_is_reported_once(field: bytes, bytes_: bytes | None) -> None:
    async with Cluster() as cluster:
        one, two = cluster.node(), cluster.node()
        old = await one.lead()
        for number in range(5):
            await old.append([batch(3, text=f"t{number}")], 1000)
        hit = change(cluster, MAIN, position_of(cluster, MAIN, b"B", 2), field, bytes_)
        losses = Losses()
        with capture_logs() as lines:
            new = await two.lead(meter=losses)
            first = await new.read(0, 1 << 20)
            again = await new.read(6, 1 << 20)
        assert [one.base_offset for one in first.batches] == [0, 3, 9, 12]
        assert (again.data_offset, again.batches[0].base_offset) == (9, 9)
        (lost,) = [line for line in lines if line["event"] == "records_unreadable"]
        assert (lost["stream"], lost["first_offset"], lost["last_offset"], losses.offsets) == (MAIN, 6, 8, 3)
        assert (new.holes_from(0), new.holes_from(7), new.holes_from(9)) == (3, 2, 0)
        named = [line["entry"] for line in lines if line["event"] == "stored_entry_damaged"]
        assert named == ([] if bytes_ is None else [hit])
        assert (new.high_watermark, (await new.append([batch(1)], 1000)).base_offsets) == (15, (15,))


@pytest.mark.rule("CM-102")  # of (a) its exception alone: causes other than damage that remove entries
@pytest.mark.parametrize("cause", ["deleted", "another owner", "closed"])
async def test_records_that_a_deletion_or_a_later_owner_removed_are_not_called_lost(cause: str) -> None:
    async with Cluster() as cluster:
        node = cluster.node()
        losses = Losses()
        log = await node.lead(TopicLogSettings(tail_cache_bytes=0), meter=losses)
        for _ in range(3):
            await log.append([batch(2)], 1000)

        async def meanwhile(point: FaultPoint) -> None:
            if point.stage is Stage.COMMAND and point.has("XRANGE"):
                if cause == "deleted":
                    del cluster.store.master.data.streams[MAIN]
                    return
                change(cluster, MAIN, position_of(cluster, MAIN, b"B", 1), b"", None)
                if cause == "closed":
                    await log.close()
                else:
                    node.clock.ms += 10 * LEASE_MS

        cluster.store.hook = meanwhile
        error = UnknownTopicOrPartitionError if cause == "deleted" else NotLeaderOrFollowerError
        with capture_logs() as lines, pytest.raises(error):
            await log.read(0, 1 << 20)
        assert [line for line in lines if line["log_level"] == "error"] == []
        assert losses.offsets == 0


@pytest.mark.rule("CM-102")
async def test_the_end_of_a_log_is_not_taken_from_a_damaged_entry() -> None:
    """The damage may be in the entry's id, and a record at an offset that was assigned twice would never be
    delivered."""
    async with Cluster() as cluster:
        one, two, three = cluster.node(), cluster.node(), cluster.node()
        old = await one.lead()
        for _ in range(3):
            await old.append([batch(2)], 1000)
        change(cluster, MAIN, position_of(cluster, MAIN, b"B", 2), b"r", b"other")
        new = await two.lead()
        assert new.high_watermark == 6 + 1_000_000
        result = await new.read(0, 1 << 20)
        assert [one.base_offset for one in result.batches] == [0, 2]
        await new.append([batch(1)], 1000)
        assert (await three.lead()).high_watermark == 7 + 1_000_000


@pytest.mark.rule("CM-102")
@pytest.mark.parametrize("letter", [b"L", b"P"])
async def test_a_damaged_control_log_is_written_again_from_what_the_main_log_proves(letter: bytes) -> None:
    async with Cluster() as cluster:
        one, two, three = cluster.node(), cluster.node(), cluster.node()
        old = await one.lead(TopicLogSettings(snapshot_batches=3))
        for sequence in range(6):
            await old.append([batch(1, producer=7, sequence=sequence)], 1000)
        assert await old.move_log_start(4) == 4
        change(cluster, CONTROL, position_of(cluster, CONTROL, letter, -1), b"r", b"other")
        new = await two.lead()
        assert (new.log_start_offset, new.high_watermark) == (4, 6)
        assert (await new.append([batch(1, producer=7, sequence=6)], 1000)).base_offsets == (6,)
        with capture_logs() as lines:
            last = await three.lead()
        assert (last.log_start_offset, last.high_watermark) == (4, 7)
        assert [line for line in lines if line["event"] == "stored_entry_damaged"] == []


async def test_a_walk_accounts_for_batches_and_for_what_markers_left_out() -> None:
    coverage = Coverage(10)
    for start, end in ((8, 12), (12, 15), (15, 1_000_015), (1_000_015, 1_000_020), (1_000_025, 1_000_030)):
        coverage.holds(start, end)
    assert coverage.lost == [(1_000_020, 1_000_024)]
    assert coverage.above(1_000_022) == [(1_000_022, 1_000_024)]
    assert coverage.above(1_000_025) == []
