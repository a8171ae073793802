"""The progress of groups and topics in the metrics (PL-956).

The families are made in slices after each round, so a scrape only returns them, and costs the event loop nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from heapq import nlargest
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import Metric

from partition_leader.progress.core.figures import Figures, Row, largest_first
from partition_leader.progress.core.topics import TopicFigures
from partition_leader.progress.leader_progress import Board
from partition_leader.share_partition.core.archived import DELIVERY_LIMIT, REJECTED
from partition_leader.share_partition.core.finished import NONE_FINISHED, Finished
from shard_runtime.metrics.families import ComputedMetrics, Family, Samples, counter, gauge
from shard_runtime.rate_limited_log import RateLimitedLog
from shard_runtime.rpc.bounds import Turns

log = structlog.get_logger(__name__)

#: How many rows are written before other tasks run: about 2 ms.
_SLICE: Final = 100
_OF: Final = ("group", "topic")
#: Where records that are given up go: the values of a label (PL-810).
DEAD_LETTER_QUEUE: Final = "dead_letter_queue"
NO_DESTINATION: Final = "none"


class ProgressMetrics(ComputedMetrics):
    """The families of the last round. `by_partition`: whether groups' series have the label `partition`; `rows_max`:
    how many rows of groups, and how many topics, have series."""

    lag = gauge(
        "sharegroups_share_group_lag", "Records that the group has not finished; absent if that is unknown.", *_OF
    )
    oldest = gauge(
        "sharegroups_share_group_oldest_unfinished_seconds", "Age of the oldest record that is not finished.", *_OF
    )
    in_flight = gauge("sharegroups_share_group_records_in_flight", "Records that members hold.", *_OF)
    delayed = gauge("sharegroups_share_group_records_delayed", "Records that wait for the end of a delay.", *_OF)
    letters = gauge("sharegroups_share_group_dead_letters_waiting", "Dead letters that are not written yet.", *_OF)
    finished = counter(
        "sharegroups_share_group_records_finished_total",
        "Records accepted, rejected, or given up at the delivery limit.",
        *_OF,
    )
    archived = counter(
        "sharegroups_share_group_records_archived_total",
        "Records that will not come again though no consumer accepted them, by cause, and by whether the dead-letter "
        "queue of the group gets them.",
        *_OF,
        "cause",
        "destination",
    )
    since = gauge(
        "sharegroups_share_group_since_finish_seconds", "Time since a record was last finished, once one was.", *_OF
    )
    held = gauge(
        "sharegroups_share_group_longest_held_seconds", "The longest time that a member has held a record.", *_OF
    )
    left_out = gauge(
        "sharegroups_share_group_rows_left_out",
        "Groups and topics without series, because metrics.progress.rows.max is reached; those of the smallest lag.",
    )
    appended = counter("sharegroups_topic_records_appended_total", "Records appended.", "topic")
    records = gauge("sharegroups_topic_log_records", "Records in the logs.", "topic")
    size = gauge(
        "sharegroups_topic_log_bytes",
        "Bytes of the record batches in the logs; before the newest ones, estimated from the mean size.",
        "topic",
    )

    def __init__(self, registry: CollectorRegistry, *, by_partition: bool = False, rows_max: int = 10_000) -> None:
        self._by_partition = by_partition
        self._rows_max = rows_max
        self._families = list(self.describe())
        self._lines = RateLimitedLog(log)
        registry.register(self)
        self._unknown = Counter(
            "sharegroups_stored_progress_unknown_total",
            "Rounds in which not every share coordinator answered, so the lag of groups that fetch nothing grew old.",
            registry=registry,
        )
        self._rounds = Counter(
            "sharegroups_progress_rounds_total",
            "Rounds in which the figures of groups and topics were computed; without them, the figures grow old.",
            registry=registry,
        )

    def unknown(self) -> None:
        """Count a round in which not every share coordinator answered."""
        self._unknown.inc()

    def close(self) -> None:
        """Log the lines that the rate limit still holds back."""
        self._lines.close()

    def collect(self) -> Iterable[Metric]:
        """Return the families of the last round."""
        return self._families

    async def refresh(
        self, board: Board, topics: Mapping[bytes, TopicFigures], topic_name: Callable[[bytes], str]
    ) -> None:
        """Make the families. `topic_name` returns "" for a topic that does not exist; it gets no series."""
        rows, turns = self._chosen(board), Turns(_SLICE)
        groups = _GroupFamilies(self._by_partition)
        for row in rows:
            await turns.step()
            name = topic_name(row.topic_id)
            if name:
                departed = NONE_FINISHED if self._by_partition else board.departed.get(row[:2], NONE_FINISHED)
                groups.add(row, name, departed)
        of_topics = appended, records, size = self.appended.empty(), self.records.empty(), self.size.empty()
        largest = nlargest(self._rows_max, topics.items(), key=lambda item: item[1].records)
        for topic_id, figures in largest:
            await turns.step()
            name = topic_name(topic_id)
            if name:
                appended.add_metric([name], figures.appended)
                records.add_metric([name], figures.records)
                size.add_metric([name], figures.size_bytes)
        total = len(board.parts if self._by_partition else board.sums)
        self._families = [*groups.families, self.left_out.of(total - len(rows)), *of_topics]
        self._rounds.inc()

    def _chosen(self, board: Board) -> list[Row]:
        if self._by_partition:
            rows = [Row(key.group_id, key.topic_id, key.partition, one) for key, one in board.parts.items()]
        else:
            rows = [Row(*of, -1, one) for of, one in board.sums.items()]
        if len(rows) <= self._rows_max:
            return rows
        self._lines.warning(
            "progress_series_left_out",
            key="left out",
            rows=len(rows),
            bound=f"metrics.progress.rows.max={self._rows_max}",
            effect="the groups with the smallest lag have no series of their progress",
            try_next="set a larger metrics.progress.rows.max, or metrics.by.partition=false",
        )
        return largest_first(rows, self._rows_max)


class _GroupFamilies:
    """The families of groups, while they are made."""

    def __init__(self, by_partition: bool) -> None:
        def made(family: Family) -> Samples:
            if not by_partition:
                return family.empty()
            return replace(family, labels=(*_OF, "partition", *family.labels[2:])).empty()

        every = ProgressMetrics
        self._by_partition = by_partition
        self._lag, self._oldest, self._in_flight = made(every.lag), made(every.oldest), made(every.in_flight)
        self._delayed, self._letters, self._since = made(every.delayed), made(every.letters), made(every.since)
        self._finished, self._archived, self._held = made(every.finished), made(every.archived), made(every.held)

    @property
    def families(self) -> list[Metric]:
        """All of them."""
        return [
            self._lag, self._oldest, self._in_flight, self._delayed, self._letters, self._finished, self._archived,
            self._since, self._held,
        ]  # fmt: skip

    def add(self, row: Row, topic: str, departed: Finished) -> None:
        """Add the samples of a row, without those of unknown figures."""
        figures: Figures = row.figures
        labels = [row.group_id, topic, str(row.partition)] if self._by_partition else [row.group_id, topic]
        if figures.lag is not None:
            self._lag.add_metric(labels, figures.lag)
        if figures.oldest_ms is not None:
            self._oldest.add_metric(labels, figures.oldest_ms / 1000)
        if figures.since_finish_ms is not None:
            self._since.add_metric(labels, figures.since_finish_ms / 1000)
        self._in_flight.add_metric(labels, figures.in_flight)
        self._delayed.add_metric(labels, figures.delayed)
        self._letters.add_metric(labels, figures.dead_letters)
        self._held.add_metric(labels, figures.longest.ms / 1000)
        finished = figures.finished.plus(departed)
        self._finished.add_metric(labels, finished.records)
        for cause, records, letters in (
            (DELIVERY_LIMIT, finished.limited, finished.limited_letters),
            (REJECTED, finished.rejected, finished.rejected_letters),
        ):
            self._archived.add_metric([*labels, cause, DEAD_LETTER_QUEUE], letters)
            self._archived.add_metric([*labels, cause, NO_DESTINATION], records - letters)
