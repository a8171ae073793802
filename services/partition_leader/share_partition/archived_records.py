"""Reports records that were archived without being accepted, with a log line (PL-810)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from kip932.ids import SharePartitionKey, topic_id_text
from partition_leader.share_partition.core.archived import CAUSES
from partition_leader.share_partition.core.effects import Archived
from shard_runtime.rate_limited_log import RateLimitedLog

log = structlog.get_logger(__name__)

_RANGES_SHOWN: Final = 20


class ArchivedRecords:
    """Makes the reports for all share-partitions of a process. `topic_name` returns "" for an unknown topic."""

    def __init__(self, topic_name: Callable[[bytes], str]) -> None:
        self._topic_name = topic_name
        self._lines = RateLimitedLog(log)

    def __call__(self, key: SharePartitionKey, effect: Archived) -> None:
        """Log at most one line per share-partition and cause every ten seconds, with the number of records since the
        last one and the offsets of the newest write."""
        self._lines.warning(
            "records_archived",
            key=(key, effect.cause),
            sums={"records": effect.records},
            group=key.group_id,
            topic=self._topic_name(key.topic_id) or topic_id_text(key.topic_id),
            partition=key.partition,
            cause=effect.cause,
            offsets=_offsets(effect),
            delivery_count=max(count for _, _, count in effect.ranges),
            effect=CAUSES[effect.cause].effect,
        )

    def close(self) -> None:
        """Log the lines that the rate limit still holds back."""
        self._lines.close()


def _offsets(effect: Archived) -> str:
    shown = ",".join(
        str(first) if first == last else f"{first}-{last}" for first, last, _ in effect.ranges[:_RANGES_SHOWN]
    )
    more = len(effect.ranges) - _RANGES_SHOWN
    return f"{shown} and {more} more ranges" if more > 0 else shown
