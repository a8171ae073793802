"""Reasons of failures, offset by offset: the highest (delivery count, reason) is kept, in whatever order and however
many times they arrive, within the limits (SC-117, PL-942)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kip932 import failures as module
from kip932.failures import Failure, clip_failures, merge_failures

_SPAN = 40
_REASONS = ["", "ValueError: a", "ValueError: b", "ä\nsecond line", "\n\n", "€" * 12]
#: Limits that a few of these reasons exceed: bytes of all, ranges, bytes of a short one.
_BYTES, _RANGES, _SHORT = 60, 6, 14

Model = dict[int, tuple[int, str]]


@st.composite
def _failure(draw: st.DrawFn) -> Failure:
    first = draw(st.integers(0, _SPAN))
    last = draw(st.integers(first - 1, min(_SPAN, first + draw(st.sampled_from([0, 3, _SPAN])))))
    return Failure(first, last, draw(st.integers(0, 3)), draw(st.sampled_from(_REASONS[1:])))


FAILURES = st.lists(_failure(), max_size=8)
_START = st.one_of(st.just(-1), st.integers(0, _SPAN + 2))


def model(failures: Iterable[Failure], start: int = -1) -> Model:
    """Return offset → what is kept for it, computed offset by offset, without the limits."""
    found: Model = {}
    for first, last, count, reason in failures:
        for offset in range(max(first, start), last + 1):
            found[offset] = max(found.get(offset, (-1, "")), (count, reason))
    return found


def ranges(kept: Model) -> list[Failure]:
    """Return the ranges of a model, joined."""
    found: list[Failure] = []
    for offset, (count, reason) in sorted(kept.items()):
        if found and found[-1][1:] == (offset - 1, count, reason):
            found[-1] = found[-1]._replace(last_offset=offset)
        else:
            found.append(Failure(offset, offset, count, reason))
    return found


def _bytes(failures: Iterable[Failure]) -> int:
    return sum(len(one.reason.encode()) for one in failures)


def limited(failures: list[Failure]) -> list[Failure]:
    """Apply PL-942 (d) literally."""
    if _bytes(failures) > _BYTES:
        short = {
            offset: (count, line)
            for offset, (count, reason) in model(failures).items()
            for line in [next((line for line in reason.split("\n") if line), "")]
            if line
        }
        for offset, (count, line) in short.items():
            cut = line
            while len(line.encode()) > _SHORT and len((cut + "…").encode()) > _SHORT:
                cut = cut[:-1]
            short[offset] = (count, line if cut == line else cut + "…")
        failures = ranges(short)
    while len(failures) > _RANGES or _bytes(failures) > _BYTES:
        failures = failures[:-1]
    return failures


def small_limits() -> mock._patch[Any]:
    """Lower the limits, so that few reasons exceed them."""
    return mock.patch.multiple(module, REASONS_BYTES_MAX=_BYTES, FAILURES_MAX=_RANGES, SHORT_BYTES_MAX=_SHORT, _FEW=1)


@pytest.mark.rule("SC-117", "PL-942")
@settings(max_examples=200)
@given(FAILURES, FAILURES, _START, _START)
def test_each_offset_has_the_reason_of_the_highest_count(
    one: list[Failure], two: list[Failure], before: int, start: int
) -> None:
    current = merge_failures((), one, before)
    result = merge_failures(current, two, start)
    expected = model([*current, *two], start)
    assert model(result) == expected
    assert list(result) == ranges(expected), "sorted, without overlap, joined"
    assert all(type(each) is Failure for each in result)


@pytest.mark.rule("SC-117")
@settings(max_examples=100)
@given(FAILURES, FAILURES, FAILURES, _START)
def test_neither_order_nor_repetition_matters(
    one: list[Failure], two: list[Failure], three: list[Failure], start: int
) -> None:
    first, second = merge_failures((), one, start), merge_failures((), two, start)
    both = merge_failures(first, two, start)
    assert merge_failures(second, one, start) == both
    assert merge_failures(first, second, start) == both
    assert merge_failures(both, two, start) == merge_failures(both, both, start) == both
    assert merge_failures(both, three, start) == merge_failures(first, merge_failures(second, three, start), start)


@pytest.mark.rule("SC-117", "PL-942")
@settings(max_examples=100)
@given(st.lists(st.tuples(FAILURES, _START), max_size=6))
def test_a_moving_start_drops_what_it_has_passed_and_nothing_else(steps: list[tuple[list[Failure], int]]) -> None:
    current: tuple[Failure, ...] = ()
    everything: list[Failure] = []
    start = -1
    for new, moved in steps:
        start = max(start, moved)
        current = merge_failures(current, new, start)
        everything += new
    assert list(current) == ranges(model(everything, start))


@pytest.mark.rule("PL-942")
@settings(max_examples=200)
@given(FAILURES, FAILURES, _START)
def test_beyond_the_limits_reasons_are_cut_and_those_of_the_highest_offsets_not_kept(
    one: list[Failure], two: list[Failure], start: int
) -> None:
    with small_limits():
        current = merge_failures((), one, start)
        assert list(current) == limited(ranges(model(one, start)))
        result = merge_failures(current, two, start)
    if any(each.first_offset <= each.last_offset >= start for each in two):
        assert list(result) == limited(ranges(model([*current, *two], start)))
    assert _bytes(result) <= _BYTES
    assert len(result) <= _RANGES
    for left, right in itertools.pairwise(result):
        assert left.last_offset < right.first_offset
    assert all(each.reason for each in result)


@pytest.mark.rule("SC-117")
@settings(max_examples=100)
@given(FAILURES, st.integers(0, _SPAN), st.integers(-1, _SPAN))
def test_a_part_has_the_reasons_of_its_offsets(failures: list[Failure], first: int, size: int) -> None:
    current: Sequence[Failure] = merge_failures((), failures)
    part = clip_failures(current, first, first + size)
    inside = {offset: kept for offset, kept in model(current).items() if first <= offset <= first + size}
    assert list(part) == ranges(inside)
