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
    end = floor - 2  # of the last span in the result; nothing touches it yet
    for span in sorted(spans):
        first, last = span
        if first > end + 1 and first >= floor:
            result.append(span)
            end = last
        elif last > end and last >= floor:
            if result:
                result[-1] = (result[-1][0], last)
            else:
                result.append((floor, last))
            end = last
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
