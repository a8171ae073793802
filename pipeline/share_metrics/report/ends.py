"""Times from append to end, by group (PM-91). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from share_metrics.append_times import percentile_ms

from .model import Ends

_SHARES: Final = (0.5, 0.95, 0.99)


def ends_by_group(rows: Iterable[Mapping[str, Any]]) -> list[Ends]:
    """The groups whose records ended, by id. `rows`: counts by group, `bound` and `ms`, as from `ends_of`."""
    counts: dict[str, dict[str, Counter[int]]] = {}
    for row in rows:
        of_group = counts.setdefault(row["group_id"], {name: Counter() for name in ("least", "most", "unknown")})
        of_group[row["bound"]][row["ms"] or 0] += row["records"]
    return [_of_group(group, **found) for group, found in sorted(counts.items())]


def _of_group(group: str, least: Counter[int], most: Counter[int], unknown: Counter[int]) -> Ends:
    bounds = [(percentile_ms(least, share), percentile_ms(most, share)) for share in _SHARES]
    p50, p95, p99 = (None if low is None or high is None else (low, high) for low, high in bounds)
    return Ends(group, least.total(), unknown.total(), p50, p95, p99)
