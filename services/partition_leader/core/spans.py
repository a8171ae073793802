"""Arithmetic on inclusive offset spans: plain (first, last) tuples, no state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kip932.state_batches import StateBatch

Span = tuple[int, int]
_DENSE: Final = 16


def normalized(spans: Iterable[Span], floor: int) -> list[Span]:
    """Sorted, disjoint, touching ones joined, nothing below `floor`."""
    result: list[Span] = []
    start, end = floor, floor - 1  # the span being joined; empty as long as it ends before it starts
    for first, last in sorted(spans):
        if first > end + 1:
            if end >= start:
                result.append((start, end))
            start, end = first, last
        elif last > end:
            end = last
    if end >= start:
        result.append((start, end))
    return result


def is_dense(spans: Sequence[Span]) -> bool:
    """Whether ascending spans are so many and so short that their whole stretch is better treated at once."""
    return len(spans) > 1 and spans[-1][1] - spans[0][0] < _DENSE * len(spans)


def append_merged(batches: list[StateBatch], first: int, last: int, state: int, count: int) -> None:
    """Append a state batch, joined to its left neighbour when state and count are equal (PL-703)."""
    if batches:
        previous = batches[-1]
        if previous[1] + 1 == first and previous[2] == state and previous[3] == count:
            batches[-1] = StateBatch(previous[0], last, state, count)
            return
    batches.append(StateBatch(first, last, state, count))
