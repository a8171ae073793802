"""What topic logs report to metrics: once per flush, load or refusal, never per record (P-6)."""

from __future__ import annotations

from typing import Protocol

from partition_leader.topic_log.load import LoadReport


class TopicLogMeter(Protocol):
    """Counts what a person should see; called per flush, per load, never per record."""

    def appended(self, batches: int, records: int, size: int) -> None:
        """One flush was confirmed."""
        ...

    def loaded(self, report: LoadReport) -> None:
        """A log was rebuilt; `report.jumped` is the counter of CM-47."""
        ...

    def end_raised(self, offsets: int) -> None:
        """The log end was moved up over `offsets` offsets for a share-partition's sake (CM-47)."""
        ...

    def end_not_raised(self) -> None:
        """A share-partition's state lies further beyond the log's end than a lost tail explains (CM-83)."""
        ...

    def unreadable(self, offsets: int) -> None:
        """So many offsets more are known to be lost to damage in the store (CM-102)."""
        ...

    def refused(self, records: int) -> None:
        """The store, or the log for its sake, refused a write of so many records; nothing of it is stored."""
        ...


class NoTopicLogMeter:
    """Counts nothing."""

    def appended(self, batches: int, records: int, size: int) -> None:
        """Nothing."""

    def loaded(self, report: LoadReport) -> None:
        """Nothing."""

    def end_raised(self, offsets: int) -> None:
        """Nothing."""

    def end_not_raised(self) -> None:
        """Nothing."""

    def unreadable(self, offsets: int) -> None:
        """Nothing."""

    def refused(self, records: int) -> None:
        """Nothing."""
