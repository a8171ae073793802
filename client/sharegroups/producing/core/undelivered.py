"""Produces the log lines for undelivered records that have no on_delivery, so that no record is lost silently.

Pure: failures are passed in with their times, and the methods return lines to log. The first failure of a partition for
one cause is logged immediately. Later ones are counted and logged together, so that an outage under load costs few
lines.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kip932.errors import KafkaError, NetworkError, RequestTimedOutError
from kip932.ids import TopicPartition

#: Failures of one partition and cause within this time, in ms, share a log line.
QUIET_MS: Final = 30_000
_TEXT_MAX: Final = 800
_UNREACHABLE: Final = (NetworkError, RequestTimedOutError)


class _Key(NamedTuple):
    partition: TopicPartition
    cause: str


class _Count:
    """Failures that are not logged yet, and when the last line was logged."""

    __slots__ = ("error", "logged_ms", "records")

    def __init__(self, error: KafkaError, logged_ms: int) -> None:
        self.error = error
        self.records = 0
        self.logged_ms = logged_ms


class Undelivered:
    """Counts failures by topic-partition and cause. Not thread-safe: only the sender's loop may use it."""

    def __init__(self) -> None:
        self._counts: dict[_Key, _Count] = {}

    def lost(self, partition: TopicPartition, error: KafkaError, records: int, now_ms: int) -> str | None:
        """Count failed records that have no on_delivery. Returns the line to log now; None if it is not time yet."""
        key = _Key(partition, error.name)
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = _Count(error, now_ms - QUIET_MS)
        count.records += records
        count.error = error
        return self._line(key, count, now_ms) if now_ms - count.logged_ms >= QUIET_MS else None

    def rest(self) -> list[str]:
        """Return lines for the failures that were counted but not logged; call it when the producer closes."""
        return [self._line(key, count, count.logged_ms) for key, count in self._counts.items() if count.records]

    @staticmethod
    def _line(key: _Key, count: _Count, now_ms: int) -> str:
        records, count.records, count.logged_ms = count.records, 0, now_ms
        what = "1 record was" if records == 1 else f"{records} records were"
        text = str(count.error)
        if len(text) > _TEXT_MAX:
            text = text[: _TEXT_MAX - 1] + "…"
        line = f"{what} not delivered to {key.partition.topic}-{key.partition.partition}: {key.cause}: {text}. "
        if isinstance(count.error, _UNREACHABLE):
            line += "Is the cluster up, and is bootstrap.servers right? Retries end after delivery.timeout.ms. "
        return line + "Pass on_delivery to produce() to handle each record."
