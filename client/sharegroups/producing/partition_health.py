"""Watches which partitions a producer cannot write to, and logs those that stay unavailable (CL-80).

While a partition is unavailable, the metadata are refreshed every few seconds, since a producer that avoids the
partition would not ask for that.
"""

from __future__ import annotations

import asyncio
import logging

from kip932.errors import KafkaError
from kip932.ids import TopicIdPartition, TopicPartition
from sharegroups.connection.cluster import Cluster
from sharegroups.producing.core.unavailable_partitions import LOG_AFTER_MS, UnavailablePartitions

log = logging.getLogger(__name__)


class PartitionHealth:
    """Tracks unavailable partitions. The partitioner may read `unavailable` in any thread; everything else runs in the
    producer's loop. `close` ends it."""

    def __init__(self, cluster: Cluster) -> None:
        self.unavailable = UnavailablePartitions()
        self._cluster = cluster
        self._soon: asyncio.Handle | None = None
        self._later: asyncio.TimerHandle | None = None
        self._closed = False
        cluster.listen(self._changed)

    def repeated(self, partition: TopicPartition, error: KafkaError) -> None:
        """Note that the leader did not accept a batch of the partition, which the sender retries."""
        self.unavailable.failed(partition, f"{error.name}: {error.message}", self._now_ms())
        self._check_later()

    def over(self, partition: TopicPartition) -> None:
        """Note that the leader accepted a batch of the partition, or that the sender gave it up."""
        self.unavailable.over(partition)

    def close(self) -> None:
        """Stop the timers."""
        self._closed = True
        for timer in (self._soon, self._later):
            if timer is not None:
                timer.cancel()

    def _changed(self) -> None:
        if self._soon is None and not self._closed:  # leaders are learned one by one, so check once for all of them
            self._soon = asyncio.get_running_loop().call_soon(self._update_leaderless)

    def _update_leaderless(self) -> None:
        self._soon = None
        self.unavailable.follow(
            frozenset(
                (topic.name, number)
                for topic in self._cluster.topics.values()
                for number in range(topic.partitions)
                if self._cluster.leader(TopicIdPartition(topic.topic_id, number)) is None
            ),
            self._now_ms(),
        )
        if self.unavailable:
            self._check_later()

    def _check_later(self) -> None:
        if self._later is None and not self._closed:
            self._later = asyncio.get_running_loop().call_later(LOG_AFTER_MS / 1000, self._check)

    def _check(self) -> None:
        self._later = None
        counts = {topic.name: topic.partitions for topic in self._cluster.topics.values()}
        for line in self.unavailable.lines(self._now_ms(), counts):
            log.warning(line)
        if self.unavailable:
            self._cluster.request_refresh()
            self._check_later()

    @staticmethod
    def _now_ms() -> int:
        return int(asyncio.get_running_loop().time() * 1000)
