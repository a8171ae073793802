"""What is remembered of share-partitions between two computations."""

from __future__ import annotations

from typing import Final

import pytest

from kip932.errors import GroupIdNotFoundError, NotLeaderOrFollowerError
from kip932.ids import SharePartitionKey
from partition_leader.progress.core.figures import NOT_RECENT, Recent
from partition_leader.progress.core.tracked import SAMPLES_MAX, StoredProgress, Tracked, TrackedPartitions
from partition_leader.share_partition.core import events as ev
from partition_leader.share_partition.core.finished import Finished
from partition_leader.share_partition.core.share_partition import SharePartition
from tests.unit.partition_leader.share_partition.core.bench import Bench

KEY: Final = SharePartitionKey("g", bytes(16), 0)
OF: Final = ("g", bytes(16))
ACCEPT: Final = 1


def worked(records: int = 3) -> Bench:
    """Return a share-partition in which this many records were accepted."""
    bench = Bench(log=[(0, 9)])
    bench.fetch("m")
    bench.ack("m", (0, records - 1, ACCEPT))
    bench.persisted()
    return bench


def finished(records: int, last_ms: int) -> Finished:
    return Finished(records, 0, 0, last_ms)


@pytest.mark.rule("PL-952")
def test_what_is_recent_began_with_the_oldest_of_the_last_samples() -> None:
    tracked = Tracked(1)
    assert tracked.recent(5, 1, 1) == NOT_RECENT
    for number in range(SAMPLES_MAX + 3):
        tracked.sample(1_000 * number, 10 * number, 100 * number)
    assert len(tracked.samples) == SAMPLES_MAX
    assert tracked.recent(7_500, 72, 705) == Recent(4_500, 42, 405)
    assert tracked.recent(3_000, 30, 300) == NOT_RECENT


@pytest.mark.rule("PL-952")
def test_counts_outlast_objects_and_none_is_counted_twice() -> None:
    known = TrackedPartitions()
    bench = worked(3)
    tracked = known.obtain(KEY, 1)
    tracked.core = bench.core
    assert tracked.finished == finished(3, bench.now)
    known.dropped(KEY, bench.core, 1)
    assert tracked.core is None
    assert tracked.finished == finished(3, bench.now)
    tracked.core = worked(4).core
    assert tracked.finished.records == 7


@pytest.mark.rule("PL-952")
def test_counters_of_a_topic_do_not_fall_when_a_partition_leaves() -> None:
    known = TrackedPartitions()
    first, second = known.obtain(KEY, 1), known.obtain(KEY._replace(partition=1), 1)
    first.before, second.before = finished(3, 10), finished(4, 20)
    assert known.left([]) == {}
    assert known.left([KEY]) == {OF: finished(3, 10)}
    assert list(known.by_key) == [KEY._replace(partition=1)]
    assert known.left([KEY, KEY._replace(partition=1)]) == {OF: finished(7, 20)}


@pytest.mark.rule("PL-952")
def test_an_object_that_still_finishes_its_writes_is_counted_while_it_leaves_and_once() -> None:
    known = TrackedPartitions()
    bench = worked(3)
    known.obtain(KEY, 1).core = bench.core
    assert known.left([KEY])[OF].records == 3
    assert known.left([KEY])[OF].records == 3
    known.dropped(KEY, bench.core, 1)
    assert known.left([KEY])[OF].records == 3
    assert known.left([]) == {OF: finished(3, bench.now)}


@pytest.mark.rule("PL-952")
def test_a_later_epoch_counts_from_0_and_an_object_of_an_earlier_one_does_not_end_it() -> None:
    known = TrackedPartitions()
    bench = worked(3)
    known.obtain(KEY, 1).core = bench.core
    later = known.obtain(KEY, 2)
    assert later.finished.records == 0
    known.dropped(KEY, bench.core, 1)
    assert known.obtain(KEY, 2) is later
    assert known.left([])[OF].records == 3


def released(bench: Bench) -> SharePartition:
    bench.do(ev.Retire(GroupIdNotFoundError("the last session has ended")))
    while bench.writes:
        bench.persisted()
    return bench.core


@pytest.mark.rule("PL-954")
def test_what_a_released_object_has_stored_is_known() -> None:
    bench = worked(3)
    bench.ack("m", (5, 6, ACCEPT))
    bench.persisted()
    known = TrackedPartitions()
    known.dropped(KEY, released(bench), 1)
    stored = known.obtain(KEY, 1).stored
    assert stored == StoredProgress(3, 2, bench.now)
    assert known.obtain(KEY, 1).fresh(bench.now + 100, 100) == stored
    assert known.obtain(KEY, 1).fresh(bench.now + 101, 100) is None


@pytest.mark.rule("PL-954")
def test_what_is_stored_is_unknown_after_another_end() -> None:
    bench = worked(3)
    known = TrackedPartitions()
    known.obtain(KEY, 1).stored = StoredProgress(0, 0, 0)
    bench.do(ev.Drop(NotLeaderOrFollowerError("moved")))
    known.dropped(KEY, bench.core, 1)
    assert known.obtain(KEY, 1).stored is None


@pytest.mark.rule("PL-954")
def test_an_answer_from_before_the_drop_changes_nothing() -> None:
    bench = worked(3)
    known = TrackedPartitions()
    known.note(KEY, 1, StoredProgress(0, 0, bench.now - 1))
    known.dropped(KEY, released(bench), 1)
    known.note(KEY, 1, StoredProgress(0, 0, bench.now - 1))
    known.end(KEY, bench.now - 1)
    assert known.by_key[KEY].stored == StoredProgress(3, 0, bench.now)
    known.note(KEY, 1, StoredProgress(5, 1, bench.now + 1))
    assert known.by_key[KEY].stored == StoredProgress(5, 1, bench.now + 1)
    known.end(KEY, bench.now + 1)
    assert known.by_key == {}


@pytest.mark.rule("PL-954")
def test_what_is_loaded_and_has_no_stored_state_is_not_forgotten() -> None:
    known = TrackedPartitions()
    known.obtain(KEY, 1).core = worked(3).core
    known.end(KEY, 10**12)
    known.end(KEY._replace(partition=4), 10**12)
    assert known.by_key[KEY].finished.records == 3


@pytest.mark.rule("PL-956")
def test_departed_counts_are_kept_only_for_groups_and_topics_that_still_have_rows() -> None:
    known = TrackedPartitions()
    known.obtain(KEY, 1).before = finished(3, 10)
    known.left([KEY])
    known.end_departed(lambda of: of == OF)
    assert known.left([]) == {OF: finished(3, 10)}
    known.end_departed(lambda of: False)
    assert known.left([]) == {}
