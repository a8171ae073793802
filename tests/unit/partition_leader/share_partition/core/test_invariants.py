"""`Window.check` finds memory that contradicts itself, and says where."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kip932.ids import STATE_ACQUIRED, STATE_ARCHIVED
from partition_leader.share_partition.core.batch import NO_MEMBER, InFlightBatch
from partition_leader.share_partition.core.in_flight import Window
from partition_leader.share_partition.core.invariants import BrokenInvariantError
from partition_leader.share_partition.core.transitions import PENDING_AVAILABLE
from tests.unit.partition_leader.share_partition.core.bench import LOCK_MS, Bench


def spoil_code(window: Window) -> None:
    tracked(window).codes[5] = 77  # type: ignore[index]


def spoil_counter(window: Window) -> None:
    tracked(window).available += 1


def spoil_closing(window: Window) -> None:
    window.closing += 1


def spoil_owner(window: Window) -> None:
    tracked(window).members[4] = NO_MEMBER


def spoil_former_owner(window: Window) -> None:
    tracked(window).members[2] = "M"


def spoil_former_lock(window: Window) -> None:
    tracked(window).deadlines[2] = 5


def spoil_count(window: Window) -> None:
    tracked(window).counts[4] = 0


def spoil_greatest_count(window: Window) -> None:
    tracked(window).counts[4] = 9


def spoil_length(window: Window) -> None:
    tracked(window).counts.pop()


def spoil_lock_end(window: Window) -> None:
    tracked(window).deadlines[4] += 7


def spoil_pending_lock_end(window: Window) -> None:
    window.assign(tracked(window), 4, bytes([PENDING_AVAILABLE]))
    tracked(window).deadlines[4] += 7


def spoil_lock_entries(window: Window) -> None:
    window.locks.clear()


def spoil_end(window: Window) -> None:
    window.end_offset += 1


def spoil_start(window: Window) -> None:
    window.start_offset = 10


def spoil_order(window: Window) -> None:
    window.add(InFlightBatch(15, 19, STATE_ARCHIVED, 1))


def spoil_gap(window: Window) -> None:
    window.gap = (12, window.end_offset)


def spoil_hints(window: Window) -> None:
    window._hints.clear()


def spoil_hint(window: Window) -> None:
    tracked(window).hinted = False


def spoil_front(window: Window) -> None:
    batch = tracked(window)
    window.assign(batch, 0, bytes([STATE_ARCHIVED]))
    batch.hold(0, 0, NO_MEMBER, 0)


def tracked(window: Window) -> InFlightBatch:
    return next(window.walk())


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (spoil_code, r"offset 5: it is in an unknown state \(code 77\)"),
        (spoil_counter, "offset 0: its batch counts 2 Available records, and has 1"),
        (spoil_closing, "offset 0: 2 closing records are counted, 1 in its batches"),
        (spoil_owner, "offset 4: it is Acquired, yet its owner is no member"),
        (spoil_former_owner, "offset 2: it is Acknowledged, yet its owner is M"),
        (spoil_former_lock, "offset 2: it is Acknowledged, yet its lock ends at 5"),
        (spoil_count, "offset 4: it is Acquired, yet its delivery count is 0"),
        (spoil_greatest_count, "offset 4: delivery count 9, but at most 1 in its batch"),
        (spoil_length, r"offset 0: the batch has 10 offsets, but \(10, 9, 10, 10\)"),
        (spoil_lock_end, r"offset 4: its lock ends at \d+, but no lock entry does"),
        (spoil_pending_lock_end, r"offset 4: its lock ends at \d+, but no lock entry does"),
        (spoil_lock_entries, r"offset 0: its lock ends at \d+, but no lock entry does"),
        (spoil_end, "offset 19: it is the last one cached, but the end is 20"),
        (spoil_start, "offset 0: its batch is below the start offset 10"),
        (spoil_order, "offset 15: two batches overlap: 10-19 reaches it"),
        (spoil_gap, "offset 12: it counts as a hole"),
        (spoil_hints, "offset 0: its batch counts as hinted, and no hint is there"),
        (spoil_hint, "offset 0: 1 Available records, and no hint at their batch"),
        (spoil_front, "offset 0: it is finished, yet the start offset stays at it"),
    ],
)
def test_a_contradiction_is_found_and_says_where_it_is(spoil: Callable[[Window], None], sentence: str) -> None:
    bench = Bench(log=[(0, 9), (10, 19)])
    bench.fetch(max_records=20, batch_size=10)
    bench.acked("M", (2, 2, 1), (3, 3, 2))
    bench.core.check()
    spoil(bench.core._state.window)
    with pytest.raises(BrokenInvariantError, match=f"^{sentence}"):
        bench.core.check()


def test_a_lock_that_is_over_is_a_contradiction_only_while_the_share_partition_is_active() -> None:
    window = Window()
    window.add(InFlightBatch(0, 4, STATE_ACQUIRED, 1, member="M", deadline=LOCK_MS))
    window.end_offset = 4
    window.lock(0, 4, LOCK_MS)
    window.check(LOCK_MS - 1)
    window.check()
    with pytest.raises(BrokenInvariantError, match=r"^offset 0: it is Acquired, yet its lock ended at 30000 "):
        window.check(LOCK_MS)


def test_an_empty_window_ends_where_it_begins_or_later() -> None:
    window = Window(5)
    window.check(0)
    window.end_offset = 4
    with pytest.raises(BrokenInvariantError, match=r"^offset 5: the start offset is above the end offset 4"):
        window.check(0)
