"""The delivery report of a produced record."""

from __future__ import annotations

from kip932.ids import TopicPartition
from sharegroups.messages import TIMESTAMP_CREATE_TIME


class DeliveryReport:
    """A produced record and where it is stored; accessors are methods, as in confluent-kafka."""

    __slots__ = ("_offset", "_partition", "_record")

    def __init__(
        self,
        partition: TopicPartition,
        offset: int,
        record: tuple[bytes | None, bytes | None, object, int],
    ) -> None:
        self._partition = partition
        self._offset = offset
        self._record = record

    def topic(self) -> str:
        """Name of the topic."""
        return self._partition.topic

    def partition(self) -> int:
        """Partition number."""
        return self._partition.partition

    def offset(self) -> int:
        """Offset of the record; −1 if it was not delivered."""
        return self._offset

    def key(self) -> bytes | None:
        """The key as sent."""
        return self._record[0]

    def value(self) -> bytes | None:
        """The value as sent."""
        return self._record[1]

    def timestamp(self) -> tuple[int, int]:
        """(TIMESTAMP_CREATE_TIME, milliseconds since 1970)."""
        return TIMESTAMP_CREATE_TIME, self._record[3]

    def __repr__(self) -> str:
        return f"DeliveryReport({self._partition.topic}-{self._partition.partition}@{self._offset})"
