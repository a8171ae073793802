"""Operations on columns, as numpy arrays with a value for each row, that several modules use. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np


def carried(values: Any, known: Any, before: int) -> Any:
    """For each row the last known value up to it; `before` where there is none.

    `known`: which of the rows have a known value.
    """
    index = np.maximum.accumulate(np.where(known, np.arange(1, len(known) + 1), 0))
    return np.concatenate([np.array([before], dtype=np.int64), values])[index]


def spread(low: Any, high: Any) -> tuple[Any, Any]:
    """For each number in the ranges from `low` to before `high`, the index of its range; and these numbers."""
    sizes = high - low
    of = np.repeat(np.arange(len(sizes)), sizes)
    return of, np.arange(len(of)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + np.repeat(low, sizes)


def begins(values: Any) -> Any:
    """The indexes at which runs of equal values start."""
    return np.flatnonzero(np.append(one(values), values[1:] != values[:-1]))


def one(values: Any) -> Any:
    """An array with one True, to mark the first or last of `values`; empty if `values` is empty."""
    return np.ones(min(1, len(values)), dtype=bool)
