"""A delivery's record of its acknowledgements, and how they are merged into batches."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip932.failures import REASONS_BYTES_MAX, SHORT_BYTES_MAX
from kip932.ids import ACK_ACCEPT, ACK_GAP, ACK_REJECT, ACK_RELEASE, ACK_RENEW, POLICY_DELAY
from sharegroups.consuming.core.acknowledgements import (
    REASONS_MAX,
    AckBatch,
    Delivery,
    has_renewal,
    merge,
    offsets_with,
    reason_bytes,
    record_ranges,
)


@pytest.mark.rule("P-1", "P-14")
def test_implicit_acceptance_keeps_no_state_per_record() -> None:
    delivery = Delivery([(0, 499), (600, 699)])
    delivery.accept_rest()
    assert delivery.take() == [AckBatch(0, 499, (ACK_ACCEPT,)), AckBatch(600, 699, (ACK_ACCEPT,))]
    assert delivery._types is None
    assert delivery.finished
    assert delivery.take() == []


@pytest.mark.rule("CL-26")
def test_records_are_reported_from_the_holes_between_them() -> None:
    batches = [AckBatch(0, 3, (1, 0, 0, 2)), AckBatch(10, 1_000_010, (0,)), AckBatch(2_000_000, 2_000_009, (1,))]
    assert record_ranges(batches) == [(0, 0), (3, 3), (2_000_000, 2_000_009)]


@pytest.mark.rule("CL-35", "CL-23")
def test_gaps_inside_accepted_ranges_are_marked_as_gaps() -> None:
    delivery = Delivery([(10, 13)], [(12, 12)])
    delivery.accept_rest()
    assert delivery.take() == [AckBatch(10, 13, (1, 1, 0, 1))]


@pytest.mark.rule("CL-35")
def test_a_long_hole_travels_as_one_number() -> None:
    delivery = Delivery([(0, 1000)], [(1, 999)])
    delivery.accept_rest()
    assert delivery.take() == [AckBatch(0, 0, (1,)), AckBatch(1, 999, (0,)), AckBatch(1000, 1000, (1,))]


@given(
    lengths=st.lists(st.tuples(st.sampled_from([1, 2, 63, 64, 65, 200]), st.booleans()), min_size=1, max_size=6),
    hole=st.integers(0, 6),
)
def test_records_accepted_one_by_one_travel_in_the_same_batches_as_accepted_together(
    lengths: list[tuple[int, bool]], hole: int
) -> None:
    ranges: list[tuple[int, int]] = []
    gaps: list[tuple[int, int]] = []
    offset = 0
    for number, (length, is_gap) in enumerate(lengths):
        if number == hole:
            offset += 5
        end = offset + length - 1
        for spans in (ranges, gaps) if is_gap else (ranges,):
            if spans and spans[-1][1] + 1 == offset:
                spans[-1] = (spans[-1][0], end)
            else:
                spans.append((offset, end))
        offset = end + 1
    together, one_by_one = Delivery(ranges, gaps), Delivery(ranges, gaps)
    together.accept_rest()
    one_by_one.in_flight(ranges[0][0])  # from now on it keeps a separate state for each record
    one_by_one.accept_rest()
    assert one_by_one._types is not None
    assert together.take() == one_by_one.take()
    assert together.finished
    assert one_by_one.finished


def test_a_delivery_of_gaps_alone_can_be_taken_at_once() -> None:
    assert Delivery([(5, 7)], [(5, 7)]).take() == [AckBatch(5, 7, (ACK_GAP,))]


@pytest.mark.rule("CL-23")
def test_the_last_word_before_sending_counts_and_none_after() -> None:
    delivery = Delivery([(0, 1)])
    assert delivery.acknowledge(0, ACK_RELEASE)
    assert delivery.acknowledge(0, ACK_ACCEPT)
    assert delivery.unacknowledged == 1
    assert delivery.take() == [AckBatch(0, 0, (ACK_ACCEPT,))]
    assert not delivery.acknowledge(0, ACK_ACCEPT)
    assert not delivery.acknowledge(2, ACK_ACCEPT)
    assert not delivery.finished


@pytest.mark.rule("CL-35")
def test_overlapping_parts_wait_for_the_next_request() -> None:
    merged, deferred = merge([[AckBatch(5, 9, (1,))], [AckBatch(0, 4, (1,))], [AckBatch(9, 12, (2,))]])
    assert merged == [AckBatch(0, 4, (1,)), AckBatch(5, 9, (1,))]
    assert deferred == [2]


@pytest.mark.rule("CL-27")
def test_renewals_are_found_again() -> None:
    batches = [AckBatch(0, 2, (1, 4, 4)), AckBatch(3, 5, (4,)), AckBatch(7, 7, (2,))]
    assert has_renewal(batches)
    assert offsets_with(batches, ACK_RENEW) == [(1, 5)]


@pytest.mark.rule("CL-35")
@given(
    st.lists(st.sampled_from([None, ACK_ACCEPT, ACK_RELEASE, ACK_REJECT, ACK_RENEW]), min_size=1, max_size=300),
    st.sets(st.integers(0, 299), max_size=20),
    st.integers(1, 40),
)
def test_what_is_taken_says_exactly_what_was_said(said: list[int | None], breaks: set[int], stretch: int) -> None:
    """Every acknowledgement is in the batches exactly once, in ascending order; records without one stay in flight."""
    said = [kind for kind in said for _ in range(stretch)]
    ranges: list[tuple[int, int]] = []
    offset = 0
    offsets: list[int] = []
    for index in range(len(said)):
        offset += 2 if index in breaks else 1
        offsets.append(offset)
        if ranges and ranges[-1][1] == offset - 1:
            ranges[-1] = (ranges[-1][0], offset)
        else:
            ranges.append((offset, offset))
    delivery = Delivery(ranges)
    for place, kind in zip(offsets, said, strict=True):
        if kind is not None:
            assert delivery.acknowledge(place, kind)
    batches = delivery.take()
    reported: dict[int, int] = {}
    previous = -1
    for first, last, types, delays, *_ in batches:
        assert previous < first <= last
        assert len(types) in (1, last - first + 1)
        assert not delays
        previous = last
        for place in range(first, last + 1):
            reported[place] = types[place - first] if len(types) > 1 else types[0]
    assert reported == {place: kind for place, kind in zip(offsets, said, strict=True) if kind is not None}
    assert delivery.unacknowledged == said.count(None)
    assert delivery.finished == (None not in said)
    assert all(delivery.in_flight(place) == (place not in reported) for place in offsets)


def test_what_is_held_is_what_was_not_taken_and_the_first_of_it() -> None:
    delivery = Delivery([(10, 13), (20, 22)], [(12, 12)])
    assert delivery.held() == (10, 6)
    delivery.acknowledge(10, ACK_ACCEPT)
    delivery.acknowledge(11, ACK_RENEW)
    assert delivery.held() == (10, 6), "an acknowledgement that was not taken is not sent"
    delivery.take()
    assert delivery.held() == (13, 4)
    for offset in (13, 20, 21, 22):
        delivery.acknowledge(offset, ACK_REJECT)
    delivery.take()
    assert delivery.held() is None


@given(st.lists(st.tuples(st.sampled_from([ACK_ACCEPT, ACK_RELEASE]), st.sampled_from([None, 0, 5])), max_size=200))
def test_each_released_record_has_its_own_delay(said: list[tuple[int, int | None]]) -> None:
    """CL-113: one delay for a whole batch, or one for each offset; none if no delay was given."""
    wanted = {offset: (kind, delay if kind == ACK_RELEASE else None) for offset, (kind, delay) in enumerate(said)}
    delivery = Delivery([(0, len(said) - 1)] if said else [])
    for offset, (kind, delay) in wanted.items():
        delivery.acknowledge(offset, ACK_RELEASE, 7)
        delivery.acknowledge(offset, kind, delay)
    reported = {}
    for first, last, types, delays, *_ in delivery.take():
        size = last - first + 1
        assert len(delays) in (0, 1, size)
        assert set(delays) != {POLICY_DELAY}
        for index in range(size):
            delay = delays[index if len(delays) > 1 else 0] if delays else POLICY_DELAY
            reported[first + index] = (types[index if len(types) > 1 else 0], None if delay == POLICY_DELAY else delay)
    assert reported == wanted


@pytest.mark.rule("CL-145")
def test_what_is_given_back_is_free_at_once_and_its_delivery_does_not_count() -> None:
    said = (True, True, False, True, True)
    types, delays = (2, 2, 0, 2, 2), (0, 0, -1, 0, 0)
    assert Delivery([(0, 4)], [(2, 2)]).give_back() == [AckBatch(0, 4, types, delays, said)]
    assert Delivery([(0, 99)]).give_back() == [AckBatch(0, 99, (ACK_RELEASE,), (0,), (True,))]
    assert Delivery([(0, 4)], [(2, 2)]).give_back(counts=True) == [AckBatch(0, 4, types, delays)]


@pytest.mark.rule("CL-145")
def test_a_release_takes_its_delivery_back_until_another_acknowledgement_replaces_it() -> None:
    delivery = Delivery([(0, 3), (9, 9)])
    for offset in (0, 1, 2, 9):
        delivery.acknowledge(offset, ACK_RELEASE, undelivered=True)
    delivery.acknowledge(1, ACK_RELEASE)
    delivery.acknowledge(2, ACK_ACCEPT)
    delivery.acknowledge(3, ACK_RELEASE, 5)
    assert delivery.take() == [
        AckBatch(0, 3, (2, 2, 1, 2), (-1, -1, -1, 5), (True, False, False, False)),
        AckBatch(9, 9, (2,), (), (True,)),
    ]


def test_a_record_that_was_delivered_again_is_dropped_without_an_acknowledgement() -> None:
    delivery = Delivery([(0, 2)])
    assert delivery.acknowledge(0, ACK_RELEASE, 5_000)
    for offset in (0, 1, 1, 7):
        delivery.drop(offset)
    assert [delivery.in_flight(offset) for offset in range(3)] == [False, False, True]
    assert delivery.unacknowledged == 1
    assert not delivery.acknowledge(1, ACK_ACCEPT)
    assert delivery.take() == []
    delivery.drop(2)
    assert delivery.finished
    assert delivery.unacknowledged == 0


_SAID = st.tuples(
    st.sampled_from([None, ACK_ACCEPT, ACK_RELEASE, ACK_REJECT, ACK_RENEW]),
    st.sampled_from(["", "", "db down", "no address"]),
    st.sampled_from([None, 0, 5]),
    st.booleans(),
)


@pytest.mark.rule("CL-165", "PL-942", "CL-35")
@given(said=st.lists(_SAID, max_size=150), stretch=st.integers(1, 3), gap=st.integers(0, 20))
def test_each_record_that_is_given_up_has_its_own_reason_and_no_other_has_one(
    said: list[tuple[int | None, str, int | None, bool]], stretch: int, gap: int
) -> None:
    """Types, delays and flags are those that would be sent without reasons; a batch's reason is that of all of its
    released and rejected records, and it has at least one."""
    wanted: dict[int, str] = {}
    delivery, plain = (Delivery([(0, len(said) * stretch + gap)], [(7, 7)] if gap > 9 else []) for _ in range(2))
    for number, (kind, reason, delay, undelivered) in enumerate(said):
        for offset in range(number * stretch, (number + 1) * stretch):
            if kind is None or (offset == 7 and gap > 9):
                continue
            one = (kind, delay if kind == ACK_RELEASE else None, undelivered and kind == ACK_RELEASE)
            delivery.acknowledge(offset, ACK_REJECT, reason="replaced")
            delivery.acknowledge(offset, *one, reason if kind in {ACK_RELEASE, ACK_REJECT} else "")
            plain.acknowledge(offset, *one)
            wanted[offset] = reason if kind in {ACK_RELEASE, ACK_REJECT} else ""
    batches = delivery.take()
    assert all(left.last < right.first for left, right in pairwise(batches))
    assert _by_offset(batches) == _by_offset(plain.take())
    found: dict[int, str] = {}
    for batch in batches:
        kinds = batch.types if len(batch.types) > 1 else batch.types * (batch.last - batch.first + 1)
        given_up = [batch.first + at for at, kind in enumerate(kinds) if kind in {ACK_RELEASE, ACK_REJECT}]
        assert given_up or not batch.reason
        found |= dict.fromkeys(given_up, batch.reason)
    assert found == {offset: reason for offset, reason in wanted.items() if offset in found}
    assert {offset for offset, reason in wanted.items() if reason} <= found.keys()


def _by_offset(batches: list[AckBatch]) -> dict[int, tuple[int, int, bool]]:
    found = {}
    for first, last, types, delays, undelivered, _ in batches:
        for at in range(last - first + 1):
            found[first + at] = (
                types[at if len(types) > 1 else 0],
                delays[at if len(delays) > 1 else 0] if delays else POLICY_DELAY,
                undelivered[at if len(undelivered) > 1 else 0] if undelivered else False,
            )
    return found


@pytest.mark.rule("CL-165", "CL-35")
def test_records_with_the_same_reason_share_a_batch_and_records_without_one_are_merged_as_before() -> None:
    delivery = Delivery([(0, 9)])
    for offset in range(10):
        delivery.acknowledge(offset, ACK_REJECT if offset % 2 else ACK_ACCEPT, reason="bad" if offset % 2 else "")
    assert delivery.take() == [AckBatch(0, 9, (1, 3) * 5, reason="bad")]
    delivery = Delivery([(0, 99)])
    for offset in range(100):
        delivery.acknowledge(offset, ACK_RELEASE, reason="first" if offset < 50 else "")
    assert delivery.take() == [AckBatch(0, 49, (2,), reason="first"), AckBatch(50, 99, (2,))]
    assert Delivery([(0, 4)]).give_back(counts=True) == [AckBatch(0, 4, (2,), (0,))], "no poll returned them"


@pytest.mark.rule("CL-165", "PL-942", "CM-62")
def test_very_many_reasons_are_shortened_as_the_leader_shortens_them_and_fit_one_request() -> None:
    many = 20_000
    delivery = Delivery([(0, many - 1)])
    for offset in range(many):
        delivery.acknowledge(offset, ACK_REJECT, reason=f"{offset} {'x' * 400}\n{'y' * 500}")
    batches = delivery.take()
    assert len(batches) <= REASONS_MAX + 1
    assert 100_000 < reason_bytes(batches) <= REASONS_BYTES_MAX
    assert sum(batch.last - batch.first + 1 for batch in batches) == many
    assert all("\n" not in batch.reason and len(batch.reason.encode()) <= SHORT_BYTES_MAX for batch in batches)
    assert batches[0].reason.startswith("0 xxx")
    assert batches[-1] == AckBatch(REASONS_MAX, many - 1, (ACK_REJECT,)), "the highest offsets go without"
    same = Delivery([(0, many - 1)])
    for offset in range(many):
        same.acknowledge(offset, ACK_REJECT, reason="the database is down: " + "z" * 900)
    assert same.take() == [AckBatch(0, many - 1, (ACK_REJECT,), reason="the database is down: " + "z" * 900)]
