"""The figures of topics: the sums over their partitions that are led here (PL-955)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kip932.ids import TopicIdPartition
from partition_leader.topic_log.core.appended import AppendedRecords


class TopicFigures(NamedTuple):
    """Of one topic. `appended`: records since this process first led a partition of it, also those of partitions that
    it led before; `records`, `size_bytes`: what the logs have now."""

    appended: int = 0
    records: int = 0
    size_bytes: int = 0

    def plus(self, other: TopicFigures) -> TopicFigures:
        """Return the sum of both."""
        return TopicFigures(
            self.appended + other.appended, self.records + other.records, self.size_bytes + other.size_bytes
        )


class AppendedByTopic:
    """Adds up what was appended, so that the counter of a topic does not fall when a partition moves away."""

    def __init__(self) -> None:
        self._counts: dict[TopicIdPartition, AppendedRecords] = {}
        self._before: dict[bytes, int] = {}

    def update(self, led: Mapping[TopicIdPartition, AppendedRecords]) -> dict[bytes, int]:
        """Return the counts by topic, for the logs that are led now. A topic without any is forgotten."""
        for partition, count in self._counts.items():
            if led.get(partition) is not count:
                self._before[partition.topic_id] = self._before.get(partition.topic_id, 0) + count.records
        self._counts = dict(led)
        found = dict.fromkeys((partition.topic_id for partition in led), 0)
        self._before = {topic_id: records for topic_id, records in self._before.items() if topic_id in found}
        for partition, count in led.items():
            found[partition.topic_id] += count.records
        return {topic_id: records + self._before.get(topic_id, 0) for topic_id, records in found.items()}
