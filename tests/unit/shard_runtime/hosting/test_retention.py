"""A trim must leave the history and the entries that live readers have not read, whatever their notes hold."""

from __future__ import annotations

import pytest

from shard_runtime.hosting.shard_tenure import EntryAges, Retention, TrimBound
from shard_runtime.record_log.protocol import STREAM_START, ReaderNotes, StreamId

HISTORY_MS, LAG_MS = 1_000, 10_000
STORE_MS = 1_795_000_000_000


def an_id(seq: int) -> StreamId:
    return StreamId(3, seq)


def retention(history_ms: int = HISTORY_MS, lag_ms: int = LAG_MS, until_ms: int = 20_000) -> Retention:
    """A retention that was given the newest entry every 100 ms; an entry's sequence number is its time."""
    made = Retention(history_ms, lag_ms)
    for now_ms in range(0, until_ms + 1, 100):
        made.note(now_ms, an_id(now_ms))
    return made


def notes(*written: tuple[int, int]) -> ReaderNotes:
    """Notes of readers, given what each has read and how old its note is."""
    values = {f"r{index}": b"3-%d %d" % (seq, STORE_MS - age_ms) for index, (seq, age_ms) in enumerate(written)}
    return ReaderNotes(values, STORE_MS)


def kept_from(found: ReaderNotes | None, made: Retention | None = None) -> int:
    at, malformed = (made or retention()).keep_from(20_000, found)
    assert at is not None
    assert malformed == ()
    return at.seq


@pytest.mark.rule("SR-29", "PM-12")
@pytest.mark.parametrize(
    ("read", "age_ms", "expected"),
    [
        (15_000, 0, 15_000),  # further behind than the history, which is kept in any case
        (10_000, 0, 10_000),  # as far behind as allowed
        (15_000, LAG_MS, 15_000),  # a note as old as allowed
        (19_500, 0, 19_000),  # a reader never causes more to be trimmed than the history allows
        (99_999, 0, 19_000),  # the store has lost entries that this reader has read
        (9_999, 0, 19_000),  # too far behind: it has lost entries already
        (15_000, LAG_MS + 1, 19_000),  # dead
        (15_000, -LAG_MS, 15_000),  # the store's clock has been set back since
        (15_000, -LAG_MS - 1, 19_000),  # set back by more than that: the note is ignored
    ],
)
def test_a_live_reader_keeps_what_it_has_not_read(read: int, age_ms: int, expected: int) -> None:
    assert kept_from(notes((read, age_ms))) == expected


@pytest.mark.rule("SR-29")
def test_of_two_readers_the_one_further_behind_counts_and_a_dead_one_does_not() -> None:
    assert kept_from(notes((16_000, 0), (14_000, 0))) == 14_000
    assert kept_from(notes((16_000, 0), (14_000, LAG_MS + 1))) == 16_000
    assert kept_from(notes()) == 19_000
    assert kept_from(None) == 19_000


@pytest.mark.rule("SR-29")
def test_a_new_owner_does_not_know_how_old_entries_are_and_keeps_them() -> None:
    made = Retention(0, LAG_MS)
    made.note(0, an_id(500))
    assert made.keep_from(LAG_MS - 1, notes((3, 0))).keep_from == an_id(3)
    assert made.keep_from(LAG_MS, notes((3, 0))).keep_from is None
    assert made.keep_from(LAG_MS, notes((500, 0))).keep_from == an_id(500)


@pytest.mark.rule("SR-29")
@pytest.mark.parametrize(
    "value",
    [b"", b"3-14000", b"3-14000 ", b"3-14000 x", b"-1 5", b"3-14000 -5", b"3-14000 5 6", b"\xff", b"3-14000 5\n",
     b"3-" + b"9" * 21 + b" 5", b" 3-14000 5"],
)  # fmt: skip
def test_what_no_reader_writes_counts_for_nothing_and_is_named(value: bytes) -> None:
    good = notes((15_000, 0))
    found = ReaderNotes({**good.values, "strange": value}, STORE_MS)
    assert retention().keep_from(20_000, found) == TrimBound(an_id(15_000), ("strange",))


@pytest.mark.rule("SR-29")
@pytest.mark.parametrize("lag_ms", [0, HISTORY_MS])
def test_readers_that_could_make_no_difference_are_not_asked(lag_ms: int) -> None:
    made = retention(lag_ms=lag_ms)
    assert not made.needs_reader_notes
    assert kept_from(notes((15_000, 0)), made) == 19_000
    assert retention().needs_reader_notes


@pytest.mark.rule("SR-29")
def test_without_history_and_readers_nothing_is_kept() -> None:
    assert retention(history_ms=0).keep_from(20_000, notes()).keep_from is None
    assert retention(history_ms=0).keep_from(20_000, notes((15_000, 0))).keep_from == an_id(15_000)


@pytest.mark.rule("SR-29")
def test_history_is_kept_whole_until_it_is_known_to_be_old() -> None:
    history = EntryAges(HISTORY_MS)
    assert history.keep_from(0) == STREAM_START
    history.note(0, an_id(7))
    assert history.keep_from(HISTORY_MS - 1) == STREAM_START
    assert history.keep_from(HISTORY_MS) == an_id(7)
