"""Sums of a page over groups and over streams: how long records took, and how evenly streams are used. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from share_metrics.replay.append_times import percentile_ms
from share_metrics.report.model import Ends

_QUANTILES: Final = (0.5, 0.95, 0.99)


def ends_by_group(rows: Iterable[Mapping[str, Any]]) -> list[Ends]:
    """The times from append to end of the groups whose records ended, by id (PM-91).

    `rows`: counts by group, `bound` and `ms`, as from `ends_of`.
    """
    counts: dict[str, dict[str, Counter[int]]] = {}
    for row in rows:
        of_group = counts.setdefault(row["group_id"], {name: Counter() for name in ("least", "most", "unknown")})
        of_group[row["bound"]][row["ms"] or 0] += row["records"]
    return [_ends_of_group(group, **found) for group, found in sorted(counts.items())]


def _ends_of_group(group: str, least: Counter[int], most: Counter[int], unknown: Counter[int]) -> Ends:
    bounds = [(percentile_ms(least, share), percentile_ms(most, share)) for share in _QUANTILES]
    p50, p95, p99 = (None if low is None or high is None else (low, high) for low, high in bounds)
    return Ends(group, least.total(), unknown.total(), p50, p95, p99)


def skew_rows(streams: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """How evenly streams are used: a row for each stream with records, the largest first (PM-62).

    Each row has `entries`, `bytes`, the number of `keys`, and the `skew` of all streams (the largest divided by the
    mean) and their Gini coefficient. `streams`: rows of `metrics.loads_of`, with `keys` as lists.
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
