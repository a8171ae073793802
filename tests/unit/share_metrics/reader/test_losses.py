"""Each loss is reported once, at the place where it happened: the reader over an in-memory store that loses entries on
request."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from share_metrics.reader import EntryId, Kind, Position, Reader, ReadOptions
from share_metrics.reader.planning import Goal
from tests.support.pipeline_entries import STREAM, UNHURRIED, MemoryStream, epochs

from .memory_store import MemoryStore

Reported = list[tuple[str, str]]


def reported_by(batches: Any) -> Reported:
    """The ids of entries, and gaps as (end, number and reason), in the order of the batches."""
    found: Reported = []
    for row in (row for batch in batches for row in batch.to_pylist()):
        gap = json.loads(row["error"]) if row["record_type"] == "gap" else {}
        found.append((row["entry_id"], f"{gap['lost']} {gap['reason']}" if gap else ""))
    return found


class Query:
    """A streaming query: its position, the recorded end of its next batch, and the rows that it has kept."""

    def __init__(self, stream: MemoryStream, page_count: int = 100) -> None:
        self.store = MemoryStore(stream)
        self.reader = Reader(self.store, Kind.SHARE_STATE, ReadOptions(page_count=page_count))
        self.at = Position(EntryId(0, 0), 0)
        self.noted: Position | None = None
        self.kept: Reported = []

    def plan(self, limit: int | None = None) -> None:
        """Record the end of the next batch, as `latestOffset` does. If a batch is already recorded, that one is
        repeated instead."""
        if self.noted is None:
            plan = self.reader.plan({STREAM: self.at}, self.reader.tips([STREAM]), limit=limit)[STREAM]
            self.noted = None if plan.end == self.at else plan.end

    def run(self, *, killed: bool = False) -> None:
        """Plan and read the recorded batch, and keep its rows unless the job is killed."""
        if self.noted is None:
            return
        goals = {STREAM: Goal(self.noted.id, self.noted.n)}
        plan = self.reader.plan({STREAM: self.at}, self.reader.tips([STREAM]), goals)[STREAM]
        found = reported_by(self.reader.read(plan.ranges, plan.gaps, next_reports_tails=True))
        if not killed:
            self.kept += found
            self.at, self.noted = self.noted, None

    def settle(self) -> None:
        """Run batches until nothing new is stored."""
        for _ in range(9):
            self.plan()
            if self.noted is None:
                return
            self.run()
        raise AssertionError(f"no end of batches: {self.at}, {self.noted}, {self.store.held.tip}")

    @property
    def reached(self) -> EntryId:
        """The last entry that the query has reached or planned."""
        return max(self.at.id, self.noted.id if self.noted else self.at.id)


@pytest.mark.rule("PM-11")
def test_a_lost_end_that_was_planned_already_is_reported_once() -> None:
    stream = MemoryStream(epochs(0, 10))
    query = Query(stream)
    query.settle()
    stream.append(*(EntryId(2, seq) for seq in range(10, 20)))
    query.plan()
    stream.lose_tail(10)
    stream.append(*(EntryId(3, seq) for seq in range(6)))
    query.run()
    query.settle()
    assert [words for _, words in query.kept if words] == ["10 tail"]


@pytest.mark.rule("PM-11")
@pytest.mark.parametrize("newer", [0, 3])
def test_a_lost_tail_is_reported_by_the_next_batch_whether_or_not_there_is_more_to_read(newer: int) -> None:
    stream = MemoryStream(epochs(10))
    query = Query(stream)
    query.settle()
    stream.lose_tail(4)
    if newer:
        stream.append(*(EntryId(2, seq) for seq in range(newer)))
    query.settle()
    assert query.kept[10:] == [("1-9", "4 tail"), *((f"2-{seq}", "") for seq in range(newer))]


@pytest.mark.rule("PM-11")
def test_entries_that_a_store_has_written_under_ids_that_were_read_are_counted_as_lost() -> None:
    """It was restored from a copy, and an owner has claimed the same epoch again."""
    stream = MemoryStream(epochs(10, 20))
    query = Query(stream)
    query.settle()
    stream.lose_tail(20)
    query.settle()
    for begin in (0, 5):
        stream.append(*(EntryId(2, seq) for seq in range(begin, begin + 5)))
        query.settle()
    assert [words for _, words in query.kept[30:]] == ["20 tail", "5 missing", "5 missing"]
    stream.append(EntryId(3, 0))
    query.settle()
    assert query.kept[33:] == [("3-0", "")]


@pytest.mark.rule("PM-11")
def test_a_tail_that_was_lost_beside_newer_entries_ends_where_reading_began() -> None:
    """There are more newer entries than lost ones, so only the number of entries shows the loss. The newer ones all
    follow the gap."""
    stream = MemoryStream(epochs(10))
    query = Query(stream)
    query.settle()
    stream.lose_tail(4)
    stream.append(*(EntryId(2, seq) for seq in range(9)))
    query.settle()
    assert query.kept[10] == ("1-9", "4 tail")


@pytest.mark.rule("PM-11")
@pytest.mark.parametrize("page_count", [2, 100])
def test_a_gap_found_while_reading_ends_at_the_first_entry_behind_it(page_count: int) -> None:
    stream = MemoryStream(epochs(0, 10))
    query = Query(stream, page_count)
    query.plan()
    query.store.before_page = lambda: stream.trim(len([one for one in stream.ids if one < EntryId(2, 7)]))
    query.run()
    assert sorted(query.kept) == [("2-7", ""), ("2-7", "7 missing"), ("2-8", ""), ("2-9", "")]


@pytest.mark.rule("PM-11", "SR-30")
def test_every_hole_of_a_range_is_a_gap_of_its_own() -> None:
    stream = MemoryStream(epochs(0, 12))
    query = Query(stream)
    plan = query.reader.plan({}, query.reader.tips([STREAM]))[STREAM]
    stream.ids = [EntryId(2, seq) for seq in (0, 1, 4, 5, 8)]
    found = reported_by(query.reader.read(plan.ranges))
    assert [one for one in found if one[1]] == [("2-4", "2 missing"), ("2-8", "2 missing"), ("2-11", "3 missing")]


@pytest.mark.rule("PM-11")
@pytest.mark.parametrize("how", ["trimmed", "removed", "lost"])
def test_the_end_of_a_range_that_does_not_come_is_reported_once(how: str) -> None:
    """The reader reports it, except for a tail lost by the store: the next plan finds that loss from the store's own
    count."""
    stream = MemoryStream(epochs(0, 10))
    query = Query(stream)
    query.plan()
    if how == "lost":
        query.store.before_page = lambda: stream.lose_tail(3)
    elif how == "trimmed":
        query.store.before_page = lambda: stream.trim(10)
    else:
        query.store.before_page = lambda: stream.ids.__delitem__(slice(7, 10))
    query.run()
    query.store.before_page = lambda: None
    at_once = [words for _, words in query.kept if words]
    assert at_once == {"trimmed": ["10 missing"], "removed": ["3 missing"], "lost": []}[how]
    stream.append(EntryId(3, 0))
    query.settle()
    assert [words for _, words in query.kept if words] == (at_once or ["3 tail"])


@pytest.mark.rule("PM-9", "PM-11")
@pytest.mark.parametrize("end", [EntryId(1, 99), EntryId(1, 2**64 - 1)])
def test_an_end_that_no_entry_has_is_no_loss(end: EntryId) -> None:
    query = Query(MemoryStream(epochs(20, 10)))
    plan = query.reader.plan({}, query.reader.tips([STREAM]), {STREAM: Goal(end)})[STREAM]
    assert [piece.entries for piece in plan.ranges] == [20]
    assert reported_by(query.reader.read(plan.ranges, plan.gaps)) == [(f"1-{seq}", "") for seq in range(20)]


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["add", "claim", "trim", "lose", "settle"]), st.integers(1, 6)),
        st.tuples(st.just("plan"), st.sampled_from([0, 1, 3, 9])),
        st.tuples(st.sampled_from(["run", "killed", "trim amid", "lose amid"]), st.integers(1, 4)),
    ),
    max_size=16,
)


class Account:
    """Applies steps to a query, and keeps the expected result for every entry.

    A fail-over loses a tail, and entries of the next epoch follow. Cases that no reader can distinguish are left out:
    nothing is trimmed while a lost tail may be unreported, and no tail is lost while a batch is recorded after another
    loss, since the store has one number for both.
    """

    def __init__(self, page_count: int) -> None:
        self.stream = MemoryStream([EntryId(1, 0)])
        self.query = Query(self.stream, page_count)
        self.added = {EntryId(1, 0)}
        self.tails: set[EntryId] = set()
        self.unknown: set[EntryId] = set()
        self.epoch = 1
        self.seq = 1
        self.untold = False

    def add(self, count: int) -> None:
        new = [EntryId(self.epoch, self.seq + index) for index in range(count)]
        self.seq += count
        self.stream.append(*new)
        self.added |= set(new)

    def claim(self, count: int) -> None:
        self.epoch, self.seq = self.epoch + 1, 0
        self.add(count)

    def trim(self, count: int) -> None:
        if not self.untold:
            self.stream.trim(min(count, len(self.stream.ids) - 1))

    def lose(self, count: int) -> None:
        lost = self.stream.ids[1:][-count:]
        if lost and not (self.untold and self.query.noted):
            self.untold = True
            known = {one for one in lost if one <= self.query.reached}
            self.tails |= known
            self.unknown |= set(lost) - known
            self.stream.lose_tail(len(lost))
            self.epoch, self.seq = self.epoch + 1, 0

    def settle(self, _: int = 0) -> None:
        """Claim as a new owner, and read everything."""
        self.query.run()
        self.query.settle()
        self.claim(1)
        self.query.settle()
        self.untold = False

    def play(self, steps: Sequence[tuple[str, int]]) -> None:
        for step, count in steps:
            if step == "plan":
                self.query.plan(count or None)
            elif step in {"run", "killed"}:
                self.query.run(killed=step == "killed")
            elif step in {"trim amid", "lose amid"}:
                once = iter([self.trim if step == "trim amid" else self.lose])
                self.query.store.before_page = lambda once=once, count=count: [act(count) for act in once]  # type: ignore[misc] # it knows of no defaults
                self.query.run()
                self.query.store.before_page = lambda: None
            else:
                getattr(self, step)(count)


@pytest.mark.rule("PM-11", "PM-68")
@UNHURRIED
@given(_STEPS, st.sampled_from([2, 100]))
def test_every_entry_ever_added_is_one_row_or_counts_in_one_gap(steps: list[tuple[str, int]], page_count: int) -> None:
    account = Account(page_count)
    account.play(steps)
    account.settle()
    rows = [one for one, words in account.query.kept if not words]
    assert len(rows) == len(set(rows))
    assert {str(one) for one in account.stream.ids} <= set(rows)
    lost = sum(int(words.split()[0]) for _, words in account.query.kept if words)
    unread = {one for one in account.added - account.unknown if str(one) not in rows}
    assert lost == len(unread | account.tails)
