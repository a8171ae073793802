"""Metrics as functions from DataFrame to DataFrame, without I/O (PM-1c, PM-30…PM-34, PM-40…PM-64).

They take the reader's rows, from a store or from Parquet. They return rows per share-partition, group or stream, and
per tumbling window of event time. The name of a lower bound ends in `_lb`.
"""

from share_metrics.metrics.groups import convergence, group_windows, share_partition_counts
from share_metrics.metrics.known_ends import LogEnds, known_ends
from share_metrics.metrics.lag import lag_seconds, with_log_ends
from share_metrics.metrics.membership import memberships
from share_metrics.metrics.pace import paces, with_arrivals
from share_metrics.metrics.progress import progress, progress_of
from share_metrics.metrics.quality import gaps, quality, shard_skew
from share_metrics.metrics.replaying import (
    deletions_of,
    ends_of,
    loads_of,
    measure,
    poison,
    poison_of,
    reasons_of,
    replay_windows,
    replay_windows_of,
    replayed,
)
from share_metrics.metrics.stalls import episodes, fill_windows, stalls, with_delayed

__all__ = [
    "LogEnds",
    "convergence",
    "deletions_of",
    "ends_of",
    "episodes",
    "fill_windows",
    "gaps",
    "group_windows",
    "known_ends",
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
    "reasons_of",
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
