"""Counts deliveries of this leader: acknowledged records by type, share fetches and acknowledgements by topic.

Numbers only, added to once per request and partition, never per record (P-6). A scrape reads them on the same event
loop. The series are bounded: the acknowledge types, and the topics that the cluster has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kip932.ids import ACK_TYPE_MAX, TopicIdPartition
from partition_leader.share_rpc.values import Acknowledgements, PartitionAnswer

#: The topic id under which all ids that the cluster does not know are counted.
NO_TOPIC: Final = b""


@dataclass(slots=True)
class TopicCounts:
    """Requests by topic id, and those of them in which a partition of the topic failed."""

    total: Counter[bytes] = field(default_factory=Counter)
    failed: Counter[bytes] = field(default_factory=Counter)

    def forget(self, topic_ids: Iterable[bytes]) -> None:
        """Forget the counts of these topics."""
        for topic_id in topic_ids:
            self.total.pop(topic_id, None)
            self.failed.pop(topic_id, None)


class DeliveryCounts:
    """The counts of one process since it started. `topic_name` returns "" for a topic that does not exist."""

    def __init__(self, topic_name: Callable[[bytes], str]) -> None:
        self._topic_name = topic_name
        self.acknowledged: Final = [0] * (ACK_TYPE_MAX + 1)
        self.fetches: Final = TopicCounts()
        self.acknowledgements: Final = TopicCounts()

    def topic_name(self, topic_id: bytes) -> str:
        """Return the topic's name; "" for `NO_TOPIC`, and for one that is being deleted."""
        return self._topic_name(topic_id)

    def records_acknowledged(self, by_type: Sequence[int]) -> None:
        """Count records whose acknowledgements took effect: the number of each type, in the order of the types' values;
        empty for none (PL-413)."""
        for ack_type, records in enumerate(by_type):
            self.acknowledged[ack_type] += records

    def fetching(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Count a ShareFetch that begins to fetch from these partitions."""
        self._add(self.fetches.total, {partition.topic_id for partition in partitions})

    def acknowledging(self, acknowledgements: Acknowledgements) -> None:
        """Count a request with these acknowledgements."""
        if acknowledgements:
            topics = {partition.topic_id for partition, batches in acknowledgements.items() if batches}
            self._add(self.acknowledgements.total, topics)

    def answered(self, results: Collection[PartitionAnswer]) -> None:
        """Count the failures in a request's results."""
        self._add(self.fetches.failed, {one.partition.topic_id for one in results if one.error is not None})
        failed = {one.partition.topic_id for one in results if one.acknowledge_error is not None}
        self._add(self.acknowledgements.failed, failed)

    def _add(self, counter: Counter[bytes], topic_ids: set[bytes]) -> None:
        """Count a request for each of these topics. Ids that the cluster does not know count as one topic; otherwise a
        client could fill the memory with them."""
        for topic_id in topic_ids:
            known = topic_id in counter or self._topic_name(topic_id)  # a deleted one is forgotten
            counter[topic_id if known else NO_TOPIC] += 1

    def forget(self, topic_ids: Iterable[bytes]) -> None:
        """Forget the counts of topics that were deleted."""
        gone = tuple(topic_ids)
        self.fetches.forget(gone)
        self.acknowledgements.forget(gone)
