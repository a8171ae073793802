"""Arithmetic on inclusive offset spans: plain (first, last) tuples, no state."""

from __future__ import annotations

from collections.abc import Iterable

from kip932.state_batches import StateBatch

Span = tuple[int, int]


def normalized(spans: Iterable[Span], floor: int) -> list[Span]:
    """Sorted, disjoint, touching ones joined, nothing below `floor`."""
    result: list[Span] = []
    for first, last in sorted(spans):
        if last < floor:
            continue
        first = max(first, floor)  # noqa: PLW2901 - clipped, then used
        if result and first <= result[-1][1] + 1:
            if last > result[-1][1]:
                result[-1] = (result[-1][0], last)
        else:
            result.append((first, last))
    return result


def append_merged(batches: list[StateBatch], first: int, last: int, state: int, count: int) -> None:
    """Append a state batch, joined to its left neighbour when state and count are equal (PL-703)."""
    if batches:
        previous = batches[-1]
        if previous[1] + 1 == first and previous[2] == state and previous[3] == count:
            batches[-1] = StateBatch(previous[0], last, state, count)
            return
    batches.append(StateBatch(first, last, state, count))
