"""Computes how evenly streams are used, from their loads (PM-62). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def skewed(streams: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each stream with records, the largest first: `entries`, `bytes` and the number of `keys`.

    Each row also has the `skew` of all streams, which is the largest divided by the mean, and their Gini coefficient.
    `streams`: rows of `metrics.loads_of`, with `keys` as lists.
    """
    used = [one for one in streams if one["records"]]
    ordered = sorted(one["records"] for one in used)
    count, total = len(ordered), sum(ordered)
    ranked = sum(rank * entries for rank, entries in enumerate(ordered, 1))
    shared = (
        {"skew": ordered[-1] * count / total, "gini": 2 * ranked / (count * total) - (count + 1) / count}
        if used
        else {}
    )
    rows = [
        {"stream": one["stream"], "entries": one["records"], "bytes": one["bytes"], "keys": len(one["keys"])} | shared
        for one in used
    ]
    return sorted(rows, key=lambda row: (-row["entries"], row["stream"]))
