"""The pure parts by themselves: epochs, runs of batches, producers, pages, retention, recovery."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip932.errors import InvalidProducerEpochError, OutOfOrderSequenceNumberError
from partition_leader.topic_log.core.batch import LogBatch, NewBatch
from partition_leader.topic_log.core.batch_run import BATCH_BYTES, BatchRun
from partition_leader.topic_log.core.epochs import EpochStarts, rebuild
from partition_leader.topic_log.core.pages import PageIndex
from partition_leader.topic_log.core.producers import KEPT_BATCHES, ProducerTable
from partition_leader.topic_log.core.recovery import Found, TailMemory, recover
from partition_leader.topic_log.core.retention import Retention, cut


def stored(base: int, records: int = 1, size: int = 10, at_ms: int = 0, newest_ms: int = 0) -> LogBatch:
    return LogBatch(base, base + records - 1, size, b"x" * size, at_ms, newest_ms)


def sequenced(sequence: int, records: int = 1, epoch: int = 0, producer: int = 7) -> NewBatch:
    return NewBatch(b"", records, 0, producer, epoch, sequence)


@pytest.mark.rule("CM-40")
def test_an_offset_belongs_to_the_last_epoch_that_began_at_or_below_it() -> None:
    starts = EpochStarts([(3, 0), (5, 10), (6, 10), (9, 20)])
    assert [starts.epoch_at(offset) for offset in (0, 9, 10, 19, 20, 99)] == [3, 3, 6, 6, 9, 9]
    starts.trim(15)
    assert starts.as_list() == [(6, 10), (9, 20)]
    with pytest.raises(ValueError, match="cannot follow"):
        starts.begin(9, 30)
    with pytest.raises(ValueError, match="cannot follow"):
        starts.begin(10, 19)
    assert EpochStarts().epoch_at(5) == 0


@pytest.mark.rule("CM-40")
def test_a_bare_claim_does_not_shorten_the_log() -> None:
    starts, end = rebuild({4: 10, 7: 0, 8: 12, 9: 0})
    assert starts.as_list() == [(4, 0), (7, 10), (8, 10), (9, 12)]
    assert end == 12


@pytest.mark.rule("PL-006", "CM-46")
@given(
    sizes=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 50), st.integers(0, 3)), min_size=1, max_size=30),
    limit=st.integers(0, 8_000),
    max_bytes=st.integers(0, 300),
    max_offsets=st.integers(0, 10),
    trim=st.integers(0, 40),
)
def test_a_run_reads_like_a_plain_list(
    sizes: list[tuple[int, int, int]], limit: int, max_bytes: int, max_offsets: int, trim: int
) -> None:
    run, everything, end = BatchRun(0, limit), [], 0
    for records, size, hole in sizes:
        one = stored(end + hole, records, size)
        everything.append(one)
        end = one.end_offset
        run.append([one], end)
    run.trim(trim)
    held = list(run.batches)
    assert held == everything[len(everything) - len(held) :]
    assert run.size == sum(one.size for one in held)
    assert run.memory == run.size + len(held) * BATCH_BYTES <= limit
    assert run.end == end
    for offset in range(run.start, end + 1):
        expected = [one for one in everything if one.last_offset >= offset]
        assert expected == [one for one in held if one.last_offset >= offset], "a batch at or above start is missing"
        got = list(run.read(offset, max_bytes, max_offsets))
        assert got == expected[: len(got)]
        assert bool(got) == bool(expected)
        assert run.bytes_from(offset) == sum(one.size for one in expected)
        total = sum(one.size for one in got)
        assert len(got) == 1 or total <= max_bytes or not got
        covered = (
            bool(max_offsets)
            and bool(got)
            and (got[-1].last_offset >= max(offset, got[0].base_offset) + max_offsets - 1)
        )
        if len(got) < len(expected):
            assert covered or total + expected[len(got)].size > max_bytes, "a batch that fits was left out"


@pytest.mark.rule("CM-46")
@pytest.mark.parametrize("size", [2, 1_000])
def test_a_cache_takes_no_more_memory_than_its_limit_whatever_its_batches_hold(size: int) -> None:
    limit, now_ms = 500_000, 1_700_000_000_000
    run = BatchRun(0, limit)
    tracemalloc.start()
    try:
        for number in range(5_000):
            times = (now_ms + number, now_ms + number)
            data = bytes(bytearray(size))
            run.append([LogBatch(number, number, size, data, *times, 10**15 + number, 1, number)], number + 1)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert limit / 2 < run.memory <= limit
    assert taken <= limit * 1.3, "the lists keep places for what went, until they are compacted"


@pytest.mark.rule("CM-43")
def test_five_batches_are_remembered_and_a_sequence_wraps_to_zero() -> None:
    table = ProducerTable()
    table.forgot = True
    sequence, sent = 2**31 - 4, []
    for number in range(7):
        new = sequenced(sequence, 2)
        assert table.check(new) is None
        table.accept(new.at(number * 2, 0))
        sent.append(new)
        sequence = (sequence + 2) % 2**31
    assert [one.base_sequence for one in sent[:4]] == [2**31 - 4, 2**31 - 2, 0, 2]
    for number, new in list(enumerate(sent))[-KEPT_BATCHES:]:
        repeated = table.check(new)
        assert repeated is not None
        assert repeated.base_offset == number * 2
    with pytest.raises(OutOfOrderSequenceNumberError):
        table.check(sent[0])


@pytest.mark.rule("CM-43")
def test_a_new_epoch_begins_at_zero_and_fences_the_old_one() -> None:
    table = ProducerTable()
    with pytest.raises(OutOfOrderSequenceNumberError):
        table.check(sequenced(3))
    table.accept(sequenced(0).at(0, 0))
    with pytest.raises(OutOfOrderSequenceNumberError):
        table.check(sequenced(1, epoch=1))
    assert table.check(sequenced(0, epoch=1)) is None
    table.accept(sequenced(0, epoch=1).at(1, 0))
    with pytest.raises(InvalidProducerEpochError):
        table.check(sequenced(1, epoch=0))


@pytest.mark.rule("CM-13")
def test_undo_restores_a_producer_exactly() -> None:
    table = ProducerTable()
    table.accept(sequenced(0).at(0, 5))
    before = dict(table.items())
    tokens = [table.accept(sequenced(1).at(1, 6)), table.accept(sequenced(0, producer=8).at(2, 6))]
    for token in reversed(tokens):
        table.undo(token)
    assert dict(table.items()) == before


@pytest.mark.rule("CM-43", "CM-62")
def test_producers_are_bounded_in_number_and_age() -> None:
    table = ProducerTable(limit=3)
    for number in range(5):
        table.accept(sequenced(0, producer=number).at(number, 100 * number))
    assert table.expire(appended_before_ms=0) == 2
    assert [producer for producer, _ in table.items()] == [2, 3, 4]
    assert table.expire(appended_before_ms=301) == 2
    assert table.check(sequenced(9, producer=0)) is None, "a forgotten producer may go on in mid-sequence"


@pytest.mark.rule("CM-47")
def test_a_snapshot_ahead_of_the_surviving_log_claims_nothing_that_is_lost() -> None:
    whole = ProducerTable()
    for number in range(3):
        whole.accept(sequenced(number).at(number, 0))
    [(producer, state)] = whole.items()
    table = ProducerTable()
    table.restore(producer, state, below=2)
    assert table.check(sequenced(1)) is not None
    assert table.check(sequenced(2)) is None


@pytest.mark.rule("CM-45")
def test_pages_follow_the_log_start() -> None:
    index = PageIndex()
    full = [stored(i, newest_ms=i) for i in range(1_000)]
    assert index.add(0, full) == 1_000
    assert index.add(1_000, [stored(1_000, newest_ms=5_000), stored(1_001, newest_ms=4_000)]) == 1_002
    assert (index.from_timestamp(999), index.from_timestamp(1_000), index.from_timestamp(5_001)) == (0, 1_000, None)
    largest = index.largest()
    assert largest is not None
    assert largest.max_batch == 1_000
    assert index.size == 10_020
    assert index.resume(0) == 1_000, "the short page is read again"
    assert index.resume(1_500) == 1_500
    assert index.size == 0


@pytest.mark.rule("CM-45")
def test_retention_stops_at_the_first_batch_that_must_stay() -> None:
    batches = [stored(i * 2, 2, 10, at_ms=i) for i in range(5)]
    assert cut(0, batches, Retention(3)).log_start == 6
    assert cut(0, batches, Retention(None, 25)).log_start == 4
    by_both = cut(0, batches, Retention(1, 25))
    assert (by_both.log_start, by_both.exhausted) == (4, False)
    assert cut(0, batches, Retention(99)).exhausted


FOUND = Found(log_end=10, newest_epoch=5, previous_epoch=5, suspect=True)
LOST = (stored(10, 2), stored(12, 3))


@pytest.mark.rule("CM-47")
@pytest.mark.parametrize(
    ("found", "memory", "expected"),
    [
        (Found(10, 5, 5, False), None, (10, 0, False)),
        (FOUND, None, (1_010, 0, True)),
        (FOUND, TailMemory(5, 10, ()), (10, 0, False)),
        (FOUND, TailMemory(5, 15, LOST), (10, 2, False)),
        (Found(10, 5, 5, False), TailMemory(5, 15, LOST), (10, 2, False)),
        (FOUND, TailMemory(4, 15, LOST), (1_015, 0, True)),
        (Found(10, 4, 6, True), TailMemory(5, 15, LOST), (1_015, 0, True)),
        (FOUND, TailMemory(5, 15, LOST[1:]), (1_015, 0, True)),
        (FOUND, TailMemory(5, 16, LOST), (1_016, 0, True)),
        (Found(20, 8, 8, False), TailMemory(5, 15, LOST), (20, 0, False)),
    ],
)
def test_the_end_of_a_log_after_a_claim(
    found: Found, memory: TailMemory | None, expected: tuple[int, int, bool]
) -> None:
    decision = recover(found, memory, jump_offsets=1_000)
    assert (decision.log_end, len(decision.again), decision.jump) == expected
