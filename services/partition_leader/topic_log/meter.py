"""The metrics interface of topic logs: called once per flush, load or refusal, never per record (P-6)."""

from __future__ import annotations

from typing import Protocol

from partition_leader.topic_log.load import LoadReport


class TopicLogMeter(Protocol):
    """Counts events of topic logs."""

    def appended(self, batches: int, records: int, size: int) -> None:
        """Count one confirmed flush."""
        ...

    def loaded(self, report: LoadReport) -> None:
        """Count a log that was loaded; `report.jumped` is the counter of CM-47."""
        ...

    def end_raised(self, offsets: int) -> None:
        """Count `offsets` offsets by which the log end was raised to a share-partition's stored state (CM-47)."""
        ...

    def end_not_raised(self) -> None:
        """Count a share-partition's state that is further beyond the log's end than a lost tail explains; nothing was
        changed (CM-83)."""
        ...

    def unreadable(self, offsets: int) -> None:
        """Count `offsets` more offsets that are known to be lost by damage in the store (CM-102)."""
        ...

    def refused(self, records: int) -> None:
        """Count a write of `records` records that was refused, by the store or because of it; none is stored."""
        ...


class NoTopicLogMeter:
    """Counts nothing."""

    def appended(self, batches: int, records: int, size: int) -> None:
        """Do nothing."""

    def loaded(self, report: LoadReport) -> None:
        """Do nothing."""

    def end_raised(self, offsets: int) -> None:
        """Do nothing."""

    def end_not_raised(self) -> None:
        """Do nothing."""

    def unreadable(self, offsets: int) -> None:
        """Do nothing."""

    def refused(self, records: int) -> None:
        """Do nothing."""
