"""What is done with columns in several places: numbers of rows as arrays. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np


def carried(values: Any, told: Any, before: int) -> Any:
    """For each row the last value that was told up to it; `before` where none was."""
    index = np.maximum.accumulate(np.where(told, np.arange(1, len(told) + 1), 0))
    return np.concatenate([np.array([before], dtype=np.int64), values])[index]


def spread(low: Any, high: Any) -> tuple[Any, Any]:
    """For ranges from `low` to before `high`: of which range each number in them is, and these numbers."""
    sizes = high - low
    of = np.repeat(np.arange(len(sizes)), sizes)
    return of, np.arange(len(of)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + np.repeat(low, sizes)


def begins(values: Any) -> Any:
    """The indexes at which runs of equal values begin."""
    return np.flatnonzero(np.append(one(values), values[1:] != values[:-1]))


def one(values: Any) -> Any:
    """A true one, for the first or last of some values; none where there are no values."""
    return np.ones(min(1, len(values)), dtype=bool)
