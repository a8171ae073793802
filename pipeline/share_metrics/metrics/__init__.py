"""Metrics as functions from DataFrame to DataFrame, without I/O (PM-1c, PM-30…PM-34, PM-40…PM-64).

They take rows of the reader, from a store or from Parquet. They return rows by share-partition, group or stream, and by
tumbling windows of event time. The name of a lower bound ends in `_lb`.
"""

from .groups import convergence, group_windows, share_partition_counts
from .lag import lag_seconds, with_log_ends
from .membership import memberships
from .pace import paces, with_arrivals
from .progress import progress, progress_of
from .quality import gaps, quality, shard_skew
from .replaying import (
    deletions_of,
    ends_of,
    loads_of,
    measure,
    poison,
    poison_of,
    replay_windows,
    replay_windows_of,
    replayed,
)
from .stalls import episodes, fill_windows, stalls, with_delayed

__all__ = [
    "convergence",
    "deletions_of",
    "ends_of",
    "episodes",
    "fill_windows",
    "gaps",
    "group_windows",
    "lag_seconds",
    "loads_of",
    "measure",
    "memberships",
    "paces",
    "poison",
    "poison_of",
    "progress",
    "progress_of",
    "quality",
    "replay_windows",
    "replay_windows_of",
    "replayed",
    "shard_skew",
    "share_partition_counts",
    "stalls",
    "with_arrivals",
    "with_delayed",
    "with_log_ends",
]
